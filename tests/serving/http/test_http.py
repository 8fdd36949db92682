"""Laws of the HTTP server, with real uvicorn on a real root.

Answers name their snapshot, errors are problem documents, and no client can block others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pyarrow as pa
import pytest
from asking import QUERY, Server, problem, wait_until
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.serving.access.accounts import Accounts
from kappa.serving.http.bounds import Bounds, Scope
from kappa.serving.http.request_checks import Gate, Message, Receive, Send
from kappa.serving.http.token import WaitingLine
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.journal.events import CaughtUp, Retired, Staged
from kappa.state.journal.journal import Journal
from kappa.state.lease import sorted_leases
from kappa.state.offsets import Offsets
from kappa.state.store import Store

pytestmark = pytest.mark.slow
PARQUET = "application/vnd.apache.parquet"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    platform = Platform(Store(tmp_path_factory.mktemp("http") / "röot"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES})
    return platform


@pytest.fixture(scope="module")
def server(platform: Platform) -> Iterator[Server]:
    with Server(
        platform.store,
        Allowance(memory=256 << 20, seconds=20, rows=500, at_once=2),
        bounds=Bounds(body_seconds=0.5, send_seconds=1),
    ) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(platform: Platform) -> Iterator[Server]:
    with Server(platform.store, Allowance(), token="sesame") as server:
        yield server


def test_an_answer_names_its_generation_offsets_and_versions(server: Server) -> None:
    found = server.query("select carrier, flights from delays order by flights")

    assert found.status == 200
    assert found.document["rows"][0] == {"carrier": "UA", "flights": 3}
    assert [found.headers[f"x-kappa-{name}"] for name in ("generation", "rows", "truncated")] == [
        *("1", "3", "false")
    ]
    assert json.loads(found.headers["x-kappa-builds"]) == {"flights": "flights-1"}
    assert json.loads(found.headers["x-kappa-offsets"]) == {"flights-1": {"flights": {"0": 12}}}
    assert json.loads(found.headers["x-kappa-versions"]) == {
        "flights-1": {"delays": 0, "planes": 0, "rejects": 0}
    }
    assert found.document["builds"]["flights"]["offsets"] == {"flights": {"0": 12}}


@pytest.mark.parametrize(
    ("accept", "kind", "begins"),
    [
        ("*/*", "application/json", b"{"),
        ("text/html;q=0.9, text/csv;q=0.5", "text/csv; charset=utf-8", b"n\n"),
        (*["application/vnd.apache.arrow.stream"] * 2, b"\xff\xff\xff\xff"),
        ("application/json;q=0.1, application/vnd.apache.parquet", PARQUET, b"PAR1"),
    ],
)
def test_an_answer_is_written_as_it_is_asked_for(
    server: Server, accept: str, kind: str, begins: bytes
) -> None:
    found = server.query("select 1 as n", Accept=accept)

    assert (found.status, found.headers["content-type"]) == (200, kind)
    assert found.body.startswith(begins)
    assert int(found.headers["content-length"]) == len(found.body)


def test_an_arrow_stream_is_read_back_as_it_was(server: Server) -> None:
    found = server.query(
        "select carrier, flights from delays order by flights",
        Accept="application/vnd.apache.arrow.stream",
    )
    assert pa.ipc.open_stream(found.body).read_all().to_pylist() == [
        {"carrier": "UA", "flights": 3},
        {"carrier": "ÅÄ", "flights": 4},
        {"carrier": None, "flights": 5},
    ]


def test_the_sql_itself_may_be_the_body(server: Server) -> None:
    assert server.ask(
        "POST", QUERY, "select 'ö' as o".encode(), Content_Type="application/sql"
    ).document["rows"] == [{"o": "ö"}]


def test_an_answer_that_is_cut_says_so(server: Server) -> None:
    found = server.query("from range(501)")
    less = server.ask("POST", QUERY, {"sql": "from range(501)", "rows": 2})

    assert (found.headers["x-kappa-truncated"], found.document["truncated"]) == ("true", True)
    assert len(found.document["rows"]) == 500
    assert (less.headers["x-kappa-rows"], less.document["truncated"]) == ("2", True)


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind", "said"),
    [
        ({"sql": "select * from delay"}, {}, 400, "usage", "there is no table delay"),
        ({"sql": "drop view delays"}, {}, 400, "usage", "kind drop"),
        ({"sql": "select length(repeat('x', 4000000000))"}, {}, 422, "too-much", "memory"),
        ({"sequel": "select 1"}, {}, 400, "request", "cannot be read"),
        ({"sql": "select 1", "rows": -1}, {}, 400, "request", "rows"),
        ({"sql": "select 1"}, {"Accept": "text/html"}, 406, "request", "text/html"),
        ({"sql": "select 1"}, {"Content_Type": "image/png"}, 415, "request", "image/png"),
        (b"{", {}, 400, "request", "cannot be read"),
        (b"\xff", {"Content_Type": "application/sql"}, 400, "request", "UTF-8"),
        ({"sql": "select 1"}, {"X_Kappa_Snapshot": "nobody"}, 410, "request", "nobody"),
        ({"sql": "select 1"}, {"Host": "evil.example"}, 403, "request", "evil.example"),
        ({"sql": "select 1"}, {"Origin": "http://evil.example"}, 403, "request", "evil.example"),
    ],
)
def test_what_cannot_be_done_is_a_problem_with_a_hint(
    server: Server, body: object, headers: dict[str, str], status: int, kind: str, said: str
) -> None:
    found = server.ask("POST", QUERY, body, **headers)

    assert problem(found)[:2] == (status, kind)
    assert said in found.document["detail"]
    assert found.document["hint"]


def test_what_is_not_there_is_a_problem_too(server: Server) -> None:
    assert problem(server.ask("GET", "/api/v1/nothing"))[0] == 404
    assert problem(server.ask("GET", QUERY))[0] == 405


def test_a_snapshot_that_is_pinned_answers_the_same_over_many_requests(tmp_path: Path) -> None:
    platform = Platform(Store(tmp_path))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    count = "select count(*) as n from delays"
    with Server(platform.store, Allowance(at_once=1)) as server:
        first = server.query(count, X_Kappa_Snapshot="new")
        pinned = first.headers["x-kappa-snapshot"]
        platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)

        again = server.query(count, X_Kappa_Snapshot=pinned)
        for each, rows in ((first, 3), (again, 3), (server.query(count), 6)):
            assert each.document["rows"] == [{"n": rows}]
        assert again.headers["x-kappa-versions"] == first.headers["x-kappa-versions"]
        # The pin that other queries share is given up when none has come for a moment.
        wait_until(lambda: len(sorted_leases(platform.store, time.time())[0]) == 1, 30)

        assert server.ask("DELETE", f"/api/v1/snapshots/{pinned}").status == 204
        assert problem(server.query(count, X_Kappa_Snapshot=pinned))[0] == 410
    assert sorted_leases(platform.store, time.time()) == ((), ())


def test_with_a_token_only_who_brings_it_comes_in(guarded: Server) -> None:
    found = [
        guarded.query("select 1", **({"Authorization": brought} if brought else {})).status
        for brought in ("", "Bearer sesam", "sesame", "Bearer sesame")
    ]

    assert found == [401, 401, 401, 200]
    assert guarded.query("select 1").headers["www-authenticate"] == "Bearer"
    assert guarded.ask("GET", "/healthz").status == 200
    assert guarded.ask("GET", "/api/v1/openapi.json").status == 401


def ensure_each_gets_its_own_answer(server: Server, clients: ThreadPoolExecutor) -> None:
    """Sends 64 queries at once, and asserts that each gets its own answer."""
    found = clients.map(
        lambda number: server.query(f"select {number} as n, count(*) as c from delays"), range(64)
    )
    assert [each.document["rows"] for each in found] == [
        [{"n": number, "c": 3}] for number in range(64)
    ]


def test_sixty_four_ask_at_once_and_each_gets_its_own_answer(platform: Platform) -> None:
    # A place is waited for as long as a query may take: on a busy machine that is long.
    with (
        Server(platform.store, Allowance(seconds=120, at_once=2)) as server,
        ThreadPoolExecutor(64) as clients,
    ):
        ensure_each_gets_its_own_answer(server, clients)
    assert sorted_leases(platform.store, time.time()) == ((), ())


def test_while_queries_run_what_is_quick_stays_quick(server: Server) -> None:
    slow = [
        threading.Thread(target=server.query, args=("select count(*) from range(1000000000)",))
        for _ in range(4)
    ]
    for thread in slow:
        thread.start()
    begun = time.monotonic()
    assert server.ask("GET", "/healthz").status == 200

    assert time.monotonic() - begun < 5
    assert any(thread.is_alive() for thread in slow)
    for thread in slow:
        thread.join()


def head(length: int, kind: str = "application/sql") -> bytes:
    """Returns the head of a query with a body of this length."""
    return (
        f"POST {QUERY} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


@pytest.mark.parametrize("behind", [0, 1, 40])
def test_queries_whose_clients_left_end(platform: Platform, behind: int) -> None:
    """The queries of clients that have left free their places.

    This is so for running queries, and for queries that wait in line or behind another. While a
    request is answered, the server does not read what its client sends after it.
    """
    body = b"select sleep_ms(3600000)"
    with Server(platform.store, Allowance(seconds=30, at_once=2)) as server:
        with contextlib.ExitStack() as clients:
            for _ in range(12):
                client = clients.enter_context(connected(server))
                client.sendall((head(len(body)) + body) * (1 + behind))
            wait_until(lambda: not server.sandbox._slots._value, 20)

        begun = time.monotonic()
        assert server.query("select 1 as n").document["rows"] == [{"n": 1}]
        assert time.monotonic() - begun < 15


def test_a_body_of_a_hundred_megabytes_is_refused_before_it_is_sent(server: Server) -> None:
    with connected(server) as client:
        client.sendall(head(100 << 20) + b"select")
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_say_how_large_it_is_is_cut_off(server: Server) -> None:
    with connected(server) as client:
        client.sendall(
            f"POST {QUERY} HTTP/1.1\r\nHost: localhost\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                client.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_who_sends_drop_by_drop_is_told_that_it_took_too_long(server: Server) -> None:
    with connected(server) as client:
        client.sendall(head(1000) + b"sel")
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")


def test_who_sends_the_head_drop_by_drop_is_left_and_who_is_quick_is_not(
    platform: Platform,
) -> None:
    with (
        Server(platform.store, Allowance(at_once=1), bounds=Bounds(head_seconds=0.4)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=20) as client,
    ):
        answered = b""
        client.settimeout(0.1)
        with contextlib.suppress(ConnectionError):
            for drop in itertools.islice(itertools.cycle("GET /healthz HTTP/1.1\r\nX-Slow: "), 100):
                client.sendall(drop.encode() if not answered else b"")
                with contextlib.suppress(TimeoutError):
                    piece = client.recv(100)
                    answered += piece
                    if not piece:
                        break
        assert answered.startswith(b"HTTP/1.1 408 ")

        # On a kept connection, the time limit begins anew for each request.
        kept = HTTPConnection("127.0.0.1", server.port, timeout=20)
        for _ in range(3):
            time.sleep(0.25)
            kept.request("GET", "/healthz")
            assert kept.getresponse().read() == b'{"status":"ok"}'
        kept.close()


def test_who_takes_nothing_of_an_answer_is_left_and_holds_nobody_up(platform: Platform) -> None:
    with (
        Server(
            platform.store, Allowance(at_once=1, bytes=16 << 20), bounds=Bounds(send_seconds=0.5)
        ) as server,
        socket.socket() as client,
    ):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        body = json.dumps({"sql": "select repeat('x', 100000) as x from range(120)"}).encode()
        client.sendall(head(len(body), kind="application/json") + body)
        assert client.recv(12) == b"HTTP/1.1 200"

        assert server.query("select 1 as n").document["rows"] == [{"n": 1}]
        client.settimeout(20)
        time.sleep(1.0)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(1 << 20):
                taken += len(piece)
        assert taken < 12_000_000


def listen(
    server: Server, path: str = "/api/v1/events", **headers: str
) -> tuple[HTTPResponse, HTTPConnection]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", path, headers=sent)
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("content-type") == "text/event-stream; charset=utf-8"
    return response, connection


def next_event(response: HTTPResponse) -> dict[str, str]:
    """Reads the next event, and returns its fields."""
    fields: dict[str, str] = {}
    while line := response.readline().decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        fields[name] = value
    return fields


def heard(
    server: Server, count: int, path: str = "/api/v1/events", **headers: str
) -> tuple[list[dict[str, str]], HTTPConnection]:
    """Returns the fields of the next `count` events, and the open connection."""
    response, connection = listen(server, path, **headers)
    return [next_event(response) for _ in range(count)], connection


def test_every_record_of_the_journal_is_told_once_and_in_order_to_who_comes_back_too(
    tmp_path: Path,
) -> None:
    platform = Platform(Store(tmp_path))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    journal = Journal(platform.store)
    with Server(platform.store, Allowance(at_once=1)) as server:
        found, connection = heard(server, 3, "/api/v1/events?after=0")
        assert [each["id"] for each in found] == ["0", "1", "2"]
        assert json.loads(found[2]["data"])["event"]["generation"] == 2
        connection.close()

        assert journal.append(3, Retired("flights-1")) is not None
        (_, back), connection = heard(server, 2, Last_Event_ID="2")
        event = json.loads(back["data"])["event"]
        assert (back["id"], back["event"], event["build"]) == ("3", "retired", "flights-1")
        connection.close()
        # A record that is about a rollout has its number beside it.
        for event in (Staged("flights", "f-3", "v", ()), CaughtUp(4, Offsets())):
            assert journal.append(journal.last_served()[0] + 1, event) is not None
        (_, *both), connection = heard(server, 3, Last_Event_ID="3")
        assert [json.loads(each["data"])["rollout"] for each in both] == [1, 1]
        connection.close()
        for wrong in ("x", "9" * 5_000):
            assert problem(server.ask("GET", "/api/v1/events", Last_Event_ID=wrong))[0] == 400


def test_many_listen_and_many_ask_and_nobody_waits_for_the_others(tmp_path: Path) -> None:
    platform = Platform(Store(tmp_path))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    seen, looked = threading.Event(), threading.Semaphore(0)

    class Desk:
        """A desk whose look at the broker blocks until `seen` is set."""

        def change_marker(self) -> bool:
            looked.release()
            return seen.wait(600)

    with (
        Server(platform.store, Allowance(at_once=2, seconds=120), desk=Desk()) as server,
        contextlib.ExitStack() as listeners,
    ):
        listeners.callback(seen.set)
        connected = [listen(server, "/api/v1/events?progress=true") for _ in range(64)]
        for response, connection in connected:
            listeners.callback(connection.close)
            assert next_event(response)["id"] == "1"
        assert looked.acquire(timeout=120)

        with ThreadPoolExecutor(64) as clients:
            ensure_each_gets_its_own_answer(server, clients)
            ready = [*clients.map(lambda _: server.ask("GET", "/readyz"), range(64))]
            assert {each.status for each in ready} == {200}
        # All listeners share one look.
        assert not looked.acquire(blocking=False)

        seen.set()
        assert Journal(platform.store).append(2, Retired("flights-1")) is not None
        for response, _ in connected:
            while (told := next_event(response)).get("event") == "progress":
                pass
            assert told["event"] == "retired"


def test_the_api_is_described(server: Server) -> None:
    described = server.ask("GET", "/api/v1/openapi.json").document

    assert described["openapi"].startswith("3.")
    post = described["paths"][QUERY]["post"]
    assert {*post["requestBody"]["content"]} == {"application/json", "application/sql"}
    assert PARQUET in post["responses"]["200"]["content"]


def test_the_gate_refuses_a_strangers_websocket_and_lets_the_lifespan_pass() -> None:
    passed: list[str] = []
    sent: list[str] = []

    async def inside(scope: Scope, _receive: Receive, _send: Send) -> None:
        passed.append(scope["type"])

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    async def knock() -> None:
        gate = Gate(
            inside, accounts=Accounts(token="sesame"), bounds=Bounds(), wrong=WaitingLine(0)
        )
        for kind in ("lifespan", "websocket"):
            await gate({"type": kind, "path": "/", "headers": []}, receive, send)

    asyncio.run(knock())

    assert passed == ["lifespan"]
    assert sent == ["websocket.http.response.start", "websocket.http.response.body"]


def test_a_person_is_pointed_to_the_overview_and_a_program_to_the_description(
    server: Server,
) -> None:
    page = server.ask("GET", "/nowhere", Accept="text/html")
    program = server.ask("GET", "/api/v1/nowhere", Accept="text/html")

    assert (page.status, program.status) == (404, 404)
    assert "openapi.json" not in page.body.decode()
    assert 'href="/"' in page.body.decode()
    assert "/api/v1/openapi.json" in program.document["hint"]
