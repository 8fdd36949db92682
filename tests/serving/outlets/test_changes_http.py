"""Changes over HTTP: each reader ends with the table's rows, however the reader reconnects."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from asking import Server, problem, wait_until
from changing import ChangingWorld
from shares import long_except
from swarm import Subscriber, Swarm, served
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from kappa.serving.http import changes, events
from kappa.serving.http.bounds import Bounds
from kappa.serving.outlets.changes import follower_registry as hub_module
from kappa.serving.outlets.changes.follower_registry import ChangeHub, ChangeReader
from kappa.serving.query.query import answer_query
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.store import Store

pytestmark = pytest.mark.slow

STREAMS, WEBSOCKETS = 440, 60


def events_of(response: HTTPResponse) -> Iterator[tuple[str, str, str | None]]:
    fields: dict[str, str] = {}
    while line := response.readline().decode():
        name, _, value = line.rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "event" in fields:
            yield fields["event"], fields["data"], fields.get("id")
            fields = {}


@contextmanager
def opened(server: Server, path: str) -> Iterator[HTTPResponse]:
    """Opens a stream, and yields the response once its first line has arrived."""
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        assert response.readline().startswith(b"retry: ")
        yield response


class Following(threading.Thread):
    """A client that follows a table by server-sent events until it is stopped."""

    def __init__(self, server: Server, table: str, query: str = "", **headers: str) -> None:
        super().__init__(daemon=True)
        self.consumer = Subscriber()
        self.error: BaseException | None = None
        self._connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
        self._connection.request(
            "GET",
            f"/api/v1/tables/{table}/changes{query}",
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        self.start()

    def run(self) -> None:
        try:
            response = self._connection.getresponse()
            assert response.status == 200, response.read()
            for event, text, id_ in events_of(response):
                self.consumer.take(event, text)
                assert (id_ is not None) == (event == "commit")
        except (OSError, ValueError, AttributeError):
            pass
        except AssertionError as error:
            self.error = error

    def stop(self) -> Subscriber:
        if self._connection.sock is not None:
            self._connection.sock.shutdown(2)
        self.join(10)
        self._connection.close()
        assert self.error is None, self.error
        self.consumer.forget()
        return self.consumer


def hub_of(world: ChangingWorld) -> ChangeHub:
    return ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None)


def serving(world: ChangingWorld, hub: ChangeHub, **more: Any) -> Server:
    return Server(world.store, Allowance(at_once=1), router=changes.router, changes=hub, **more)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ChangingWorld]:
    with closing(ChangingWorld(Store(tmp_path / "röot"), 4)) as world:
        for _ in range(2):
            world.fold()
        yield world


@pytest.fixture
def hub(world: ChangingWorld) -> ChangeHub:
    return hub_of(world)


@pytest.fixture
def server(world: ChangingWorld, hub: ChangeHub) -> Iterator[Server]:
    with serving(world, hub) as server:
        yield server


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yields a server whose tables do not change."""
    with closing(ChangingWorld(Store(tmp_path_factory.mktemp("still")), 4)) as world:
        world.fold()
        with serving(world, hub_of(world)) as server:
            yield server


def has(following: list[Following], rows: Counter[str]) -> Callable[[], bool]:
    return lambda: all(
        # Counter's own comparison iterates in Python, and a thread adds rows meanwhile.
        dict.__eq__(each.consumer.rows, rows) or each.error is not None
        for each in following
    )


def test_many_follow_a_table_and_each_change_set_is_computed_once(
    world: ChangingWorld, hub: ChangeHub, server: Server
) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with Swarm(url, "totals", streams=STREAMS, websockets=WEBSOCKETS) as swarm:
        swarm.wait_for(served(world.store, "totals"))
        before = hub.computed
        for number in (1, 0):
            for _ in range(3):
                world.fold()
            world.serve(number, asked=number == 0)
            world.live.keep_up()
        swarm.wait_for(served(world.store, "totals"))
        found = swarm.subscribers

    assert {"snapshot", "promote", "undo"} <= {*found[0].kinds}
    assert len({each.digest for each in found[:STREAMS]}) == 1
    assert len({each.digest for each in found[STREAMS:]}) == 1
    assert len({tuple(each.kinds) for each in found}) == 1
    assert hub.computed - before == len(found[0].kinds) - 1
    # Those that left are readers no more, without a change that would tell it.
    wait_until(lambda: not hub._tables["totals"]._readers)


def test_many_that_come_while_a_table_changes_have_no_gap_and_nothing_twice(
    world: ChangingWorld, server: Server
) -> None:
    with Swarm(f"http://127.0.0.1:{server.port}", "newest", streams=200) as swarm:
        while any(not each.kinds for each in swarm.subscribers):
            world.fold()
        for _ in range(3):
            world.fold()
        swarm.wait_for(served(world.store, "newest"))


@pytest.mark.parametrize(
    "table",
    long_except(["recent", "cities"], ["totals", "newest", "events", "recent", "cities", "pairs"]),
)
def test_a_client_that_comes_back_gets_exactly_what_it_has_missed(
    world: ChangingWorld, server: Server, table: str
) -> None:
    first = Following(server, table)
    wait_until(has([first], served(world.store, table)))
    consumer = first.stop()
    assert consumer.cursor is not None
    for number in (1, 0):
        world.fold()
        world.serve(number, asked=True)
        world.live.keep_up()

    again = Following(server, table, last_event_id=consumer.cursor)
    again.consumer.rows, again.consumer.cursor = consumer.rows, consumer.cursor
    wait_until(has([again], served(world.store, table)))

    assert again.stop().kinds[:1] in ([], ["slice"])


def test_a_cursor_that_is_not_kept_any_more_gets_the_whole_table(
    world: ChangingWorld, server: Server
) -> None:
    following = Following(server, "totals", "?since=1.p-gone.7")
    wait_until(has([following], served(world.store, "totals")))

    assert following.stop().kinds == ["reset"]


def test_a_filter_shows_rows_that_begin_to_meet_it_and_cease_to(
    world: ChangingWorld, server: Server
) -> None:
    following = Following(server, "totals", "?where=rows%20%3E%205&columns=rows")

    def expected() -> Counter[str]:
        found = answer_query(world.store, "select k, rows from totals where rows > 5")
        return Counter(json.dumps(dict(zip(found.columns, row, strict=True))) for row in found.rows)

    for _ in range(12):
        world.fold()
        wait_until(has([following], expected()))
    following.stop()
    assert expected()


def websocket_of(server: Server, path: str) -> str:
    return f"ws://127.0.0.1:{server.port}/api/v1/tables/{path}"


def test_a_websocket_has_the_same_messages(world: ChangingWorld, server: Server) -> None:
    consumer = Subscriber()
    address = websocket_of(server, "newest/changes")

    def take_until_equal(websocket: ClientConnection, *kinds: str) -> None:
        while consumer.rows != served(world.store, "newest") or {*kinds} - {*consumer.kinds}:
            message = json.loads(websocket.recv(timeout=20))
            consumer.take(message["event"], json.dumps(message["data"]))

    with connect(address) as websocket:
        take_until_equal(websocket)
        world.fold()
        world.serve(1, asked=False)
        take_until_equal(websocket, "promote")
    with connect(f"{address}?since={consumer.cursor}") as websocket:
        world.fold()
        take_until_equal(websocket)


def test_who_leaves_before_the_beginning_waits_no_longer(
    world: ChangingWorld, hub: ChangeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that leaves waits in no line, and nothing is computed for that reader.

    This is so for websockets and for HTTP.
    """
    goes_on, begun, begin = threading.Event(), list[ChangeReader](), hub.begin_reader

    def held(reader: ChangeReader) -> object:
        begun.append(reader)
        while not goes_on.wait(0.01):
            reader.client.ensure_here()
        return begin(reader)

    monkeypatch.setattr(hub, "begin_reader", held)
    upgrade = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    )
    with serving(world, hub) as server, ExitStack() as clients:
        try:
            for more in (upgrade, "") * 4:
                client = clients.enter_context(
                    socket.create_connection(("127.0.0.1", server.port), timeout=20)
                )
                head = "GET /api/v1/tables/totals/changes HTTP/1.1\r\nHost: localhost\r\n"
                client.sendall(f"{head}{more}\r\n".encode())
            readers = lambda: len(getattr(server.state, "change_readers", [()])[0])  # noqa: E731
            wait_until(lambda: readers() == 8)
            clients.close()

            wait_until(lambda: readers() == 0)
            # Two begin at a time: the others were never begun.
            assert len(begun) == 2
        finally:
            goes_on.set()


def test_the_time_of_a_head_ends_no_websocket(world: ChangingWorld, hub: ChangeHub) -> None:
    bounds = Bounds(head_seconds=0.2)
    with (
        serving(world, hub, bounds=bounds) as server,
        connect(websocket_of(server, "newest/changes")) as websocket,
    ):
        time.sleep(3 * bounds.head_seconds)

        assert websocket.ping().wait(20)


def test_open_streams_end_with_the_server_and_nothing_alarms(
    world: ChangingWorld, hub: ChangeHub, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader sees the end of the stream, and continues from its cursor at the next server."""
    both: Any = {"more": (events.router,), "grace_seconds": 60}
    with ExitStack() as clients:
        with serving(world, hub, **both) as server:
            following = Following(server, "newest")
            wait_until(has([following], served(world.store, "newest")))
            streams = [
                clients.enter_context(opened(server, f"/api/v1/{each}"))
                for each in ("changes?table=newest", "events")
            ]
            websocket = clients.enter_context(connect(websocket_of(server, "newest/changes")))
            assert json.loads(websocket.recv(timeout=20))["event"] == "begin"
            begun = time.monotonic()
        # Nothing was cut short after the server's patience of a minute.
        assert time.monotonic() - begun < 30
        for response in streams:
            # It raises if the answer is cut off in the middle.
            response.read()
        with suppress(ConnectionClosed):
            while True:
                websocket.recv(timeout=20)
        assert websocket.close_code == 1012, "the server begins anew"
    consumer = following.stop()
    assert capsys.readouterr().err == ""

    world.fold()
    with serving(world, hub, **both) as server:
        again = Following(server, "newest", f"?since={consumer.cursor}")
        again.consumer = consumer
        wait_until(has([again], served(world.store, "newest")))
        again.stop()
    assert consumer.kinds[0] == "snapshot"
    assert "reset" not in consumer.kinds


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("nothing/changes", 404, "no pipeline serves a table nothing"),
        ("total/changes", 404, "total"),
        ("totals/changes?since=x", 400, "'x' is not a cursor"),
        ("totals/changes?since=9.p-a.1", 409, "past what is served"),
        ("totals/changes?since=1.p-a.999", 409, "past what is served"),
        ("totals/changes?where=rows%20%3E%201%00)", 400, "has a NUL character"),
        ("totals/changes?columns=cost", 400, "has no column cost"),
        ("totals/changes?where=cost%20%3E%201", 400, "names cost, which is not a column"),
        ("totals/changes?where=rows%20%3E", 400, "cannot be read"),
        ("totals/changes?where=rows%20%3E%20sum(rows)", 400, "calls sum"),
        ("totals/changes?where=1)%20union%20(select%202", 400, "condition"),
        ("totals/changes?where=rows%20in%20(from%20events)", 400, "more than comparisons"),
        ("totals/changes?where=k%20%3E%20'a'::int", 400, ""),
    ],
)
def test_what_cannot_be_followed_is_refused(
    still: Server, path: str, status: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing waits for what never comes.
    monkeypatch.setattr(hub_module, "_PATIENCE_SECONDS", 600.0)
    server = still
    answered = server.ask("GET", f"/api/v1/tables/{path}")
    found, _, detail = problem(answered)

    assert (found, words in detail) == (status, True), detail
    # No SQL of ours is shown.
    assert not re.search("select 1|json_serialize_sql", answered.body.decode())
    with pytest.raises(InvalidStatus) as refused:
        connect(websocket_of(server, path)).close()
    assert refused.value.response.status_code == status


def test_a_websocket_needs_the_token_and_a_page_of_ours(
    world: ChangingWorld, hub: ChangeHub
) -> None:
    def refusal(server: Server, **more: Any) -> int:
        with pytest.raises(InvalidStatus) as refused:
            connect(websocket_of(server, "totals/changes"), **more).close()
        return refused.value.response.status_code

    quick = Bounds(wrong_seconds=0.01)
    with serving(world, hub, token="sesame", bounds=quick) as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "kappa=wrong"}):
            assert refusal(server, additional_headers=headers) == 401
        sesame = {"Authorization": "Bearer sesame"}
        with connect(
            websocket_of(server, "totals/changes"), additional_headers=sesame
        ) as websocket:
            assert json.loads(websocket.recv(timeout=20))["event"] == "begin"
    with serving(world, hub) as server:
        assert refusal(server, origin="http://evil.example") == 403


def test_moves_tell_that_tables_have_changed_and_not_how(
    world: ChangingWorld, server: Server
) -> None:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    with closing(connection):
        connection.request("GET", "/api/v1/changes?table=totals&table=newest&table=gone")
        events = events_of(connection.getresponse())
        world.serve(1, asked=False)
        found = [next(events)[:2] for _ in range(2)]

    told = [(event, json.loads(text)) for event, text in found]
    assert {(event, data["table"], data["kind"]) for event, data in told} == {
        ("changed", "totals", "promote"),
        ("changed", "newest", "promote"),
    }
    assert problem(server.ask("GET", "/api/v1/changes?table=gone"))[0] == 404
