"""Laws of the server's limits: up to each limit it works, beyond it there is a clear error.

No client without the token keeps out clients that have it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from asking import QUERY, Server, problem, wait_until
from house import HOUSE
from served import DELAYS, ROWS_OF_DELAYS, Platform
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from kappa.serving.http.bounds import Bounds
from kappa.serving.http.events import MOST_LISTENERS
from kappa.serving.http.queries import MOST_WAITING
from kappa.serving.query.pin.pin_places import MOST_PINS
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.store import Store

pytestmark = pytest.mark.slow

TOKEN = "sesame of enough letters"
BEARER = f"Bearer {TOKEN}"


@pytest.fixture(scope="module", autouse=True)
def files_for_many_clients() -> Iterator[None]:
    """Raises the limit of open files for the many clients, because it is often only 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    platform = Platform(Store(tmp_path_factory.mktemp("http-limits") / "root"))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    return platform


@pytest.fixture
def server(platform: Platform) -> Iterator[Server]:
    with Server(platform.store, Allowance(at_once=2)) as server:
        yield server


@pytest.fixture
def guarded(platform: Platform) -> Iterator[Server]:
    with Server(platform.store, Allowance(at_once=1), token=TOKEN) as server:
        yield server


@pytest.fixture
def unhurried(platform: Platform) -> Iterator[Server]:
    """Yields a guarded server that ends no connection because of pauses."""
    bounds = Bounds(head_seconds=600)
    with Server(platform.store, Allowance(at_once=1), token=TOKEN, bounds=bounds) as server:
        server._server.config.timeout_keep_alive = 600
        yield server


@contextlib.contextmanager
def connected(server: Server, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """Opens this many connections, and sends the same bytes on each."""
    with contextlib.ExitStack() as opened:
        clients = []
        for _ in range(count):
            client = opened.enter_context(
                socket.create_connection(("127.0.0.1", server.port), timeout=20)
            )
            client.sendall(sent)
            clients.append(client)
        yield clients


def sql(size: int) -> bytes:
    return b"select 1 as n /*" + b"x" * (size - 18) + b"*/"


@pytest.mark.parametrize("size", [180 << 10, 240 << 10, Bounds().body_bytes])
def test_a_body_of_any_size_up_to_the_limit_is_answered(server: Server, size: int) -> None:
    body = sql(size)

    assert len(body) == size
    found = server.ask("POST", QUERY, body, Content_Type="application/sql")
    assert (found.status, found.document["rows"]) == (200, [{"n": 1}])


def test_a_body_of_one_byte_more_is_refused(server: Server) -> None:
    # The server does not wait for a body that announces more.
    found = server.ask("POST", QUERY, None, Content_Length=str(Bounds().body_bytes + 1))

    assert problem(found) == (413, "request", "the request is larger than 1024 KiB")


def test_beyond_the_requests_that_may_wait_for_a_write_others_are_refused(tmp_path: Path) -> None:
    platform = Platform(Store(tmp_path))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    asked = b"select count(*)::int as n from delays"
    waits = (
        b"POST /api/v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sql\r\n"
        b"Kappa-After: flights:0=24\r\nConnection: close\r\n"
        + f"Content-Length: {len(asked)}\r\n\r\n".encode()
        + asked
    )
    with (
        Server(platform.store, Allowance(at_once=1, seconds=120, wait_seconds=120)) as server,
        connected(server, MOST_WAITING + 8, waits) as waiting,
    ):
        # It is refused as soon as so many wait, and times out before.
        while (
            found := server.query("select 1", Kappa_After="flights:0=24", Kappa_Wait="0")
        ).status != 503:
            assert found.status == 504
        assert problem(found)[2] == f"{MOST_WAITING} requests wait for writes already"
        # They take neither the one place for queries nor a thread.
        assert server.query("select 1 as n").document["rows"] == [{"n": 1}]
        assert server.ask("GET", "/readyz").status == 200
        for client in waiting:
            client.close()
        # Who has left makes room: long before the two minutes of their wait.
        wait_until(
            lambda: (
                server.query("select 1", Kappa_After="flights:0=24", Kappa_Wait="0").status == 504
            ),
            20,
        )


def head_of(size: int) -> bytes:
    start = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    return start + b"X-Long: " + b"x" * (size - len(start) - 12) + b"\r\n\r\n"


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("more", "status"), [(0, b"200 "), (1, b"431 "), (100_000, b"431 ")])
def test_a_head_of_the_limit_is_read_and_one_byte_more_is_refused(
    server: Server, more: int, status: bytes, *, at_once: bool
) -> None:
    head = head_of(Bounds().head_bytes + more)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as client:
        with contextlib.suppress(ConnectionError):
            for piece in [head] if at_once else [head[:20_000], head[20_000:]]:
                client.sendall(piece)
        assert client.recv(100).startswith(b"HTTP/1.1 " + status)


def test_as_many_listen_as_stated_and_no_more_and_who_left_makes_room(server: Server) -> None:
    def listen(_: int) -> tuple[HTTPConnection, HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", "/api/v1/events")
        return connection, connection.getresponse()

    with ThreadPoolExecutor(64) as clients:
        found = list(clients.map(listen, range(420)))
    let_in = [each for each in found if each[1].status == 200]
    refused = [each for each in found if each[1].status == 503]
    assert (len(let_in), len(refused)) == (MOST_LISTENERS, 420 - MOST_LISTENERS)
    assert json.loads(refused[0][1].read())["detail"] == f"{MOST_LISTENERS} listen already"
    for connection, _ in found:
        connection.close()

    deadline = time.monotonic() + 20
    while (again := listen(0))[1].status != 200:
        again[0].close()
        assert time.monotonic() < deadline
    again[0].close()


def test_a_client_leaves_places_for_snapshots_to_others(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client has a limited number of snapshots, including those that are still being pinned."""
    from kappa.serving.http import snapshots
    from kappa.serving.http.problem import HttpError

    most = MOST_PINS // 2
    asked = threading.Barrier(most, timeout=20)
    pin = snapshots.pin_served

    @contextlib.contextmanager
    def slow_pin(store: Store, *, lease_seconds: float) -> Iterator[object]:
        asked.wait()
        with pin(store, lease_seconds=lease_seconds) as pinned:
            yield pinned

    monkeypatch.setattr(snapshots, "pin_served", slow_pin)
    kept = snapshots.Snapshots(platform.store, lease_seconds=60)

    def hold(client: str) -> str:
        try:
            with kept.held(snapshots.NEW, client):
                return ""
        except HttpError as error:
            return f"{error.status}: {error.message}"

    with ThreadPoolExecutor(most + 8) as clients:
        found = list(clients.map(hold, ["ada"] * (most + 8)))
    assert found.count("") == most
    assert {*found} - {""} == {
        f"503: ada holds {most} snapshots, as many as are left for all others"
    }

    monkeypatch.setattr(snapshots, "pin_served", pin)
    assert [hold("bob") for _ in range(most)].count("") == most // 2
    assert hold("eve") == ""
    kept.let_go([*kept._held][-1])
    assert hold("eve") == ""
    kept.close()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"GET /api/v1/query HTTP/1.1\r\nHost: x\r\nX-Half: ", id="half a head"),
        pytest.param(
            b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", id="half a body"
        ),
        pytest.param(
            b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n\r\n",
            id="a wrong token",
        ),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", id="an open path"),
    ],
)
def test_any_number_of_strangers_keeps_no_client_with_the_token_out(
    unhurried: Server, sent: bytes
) -> None:
    with connected(unhurried, 1100, sent):
        for _ in range(3):
            found = unhurried.query("select 1 as n", Authorization=BEARER)
            assert (found.status, found.document) == (200, {**found.document, "rows": [{"n": 1}]})
        # Who was let in once stays in, whoever comes after.
        kept = HTTPConnection("127.0.0.1", unhurried.port, timeout=120)
        kept.request("GET", QUERY, headers={"Authorization": BEARER})
        assert kept.getresponse().read()
        with connected(unhurried, 600, sent):
            # One that comes after them is answered: so all of them are in.
            assert unhurried.query("select 1", Authorization=BEARER).status == 200
            kept.request("GET", QUERY, headers={"Authorization": BEARER})
            assert kept.getresponse().status == 405
        kept.close()


def test_a_refused_request_with_a_body_ends_its_connection(guarded: Server) -> None:
    """If it stayed open, a refused client could send the rest of its body slowly for ever."""
    sent = b"POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nsel"
    with connected(guarded, 1, sent) as (client,):
        answered = b""
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(1 << 16):
                answered += piece
        assert answered.startswith(b"HTTP/1.1 401 ")
        assert b"\r\nconnection: close\r\n" in answered.lower()


@pytest.mark.parametrize("files", [(256, 4096), (600, 600)])
def test_a_server_with_few_files_is_not_kept_from_accepting(
    tmp_path: Path, files: tuple[int, int]
) -> None:
    """The server raises its own limit if it may, and otherwise accepts fewer connections."""
    (tmp_path / "kappa.toml").touch()
    Platform(Store(tmp_path / ".kappa")).serve("flights", {DELAYS: ROWS_OF_DELAYS})
    serving = subprocess.Popen(
        [
            *(sys.executable, str(HOUSE / "cli.py"), "--project", str(tmp_path)),
            *("serve", "--listen", "127.0.0.1:0"),
        ],
        env={**os.environ, "KAPPA__SERVE__TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files),  # noqa: PLW1509
    )
    assert serving.stdout is not None
    port = int(serving.stdout.readline().partition("http://127.0.0.1:")[2].partition(",")[0])
    try:
        with contextlib.ExitStack() as opened:
            for _ in range(1100):
                client = opened.enter_context(
                    socket.create_connection(("127.0.0.1", port), timeout=120)
                )
                client.sendall(b"GET / HTTP/1.1\r\nX-Half: ")
            for _ in range(3):
                asking = HTTPConnection("127.0.0.1", port, timeout=120)
                asking.request(
                    "POST", QUERY, b'{"sql": "select 1 as n"}', {"Authorization": BEARER}
                )
                assert json.loads(asking.getresponse().read())["rows"] == [{"n": 1}]
                asking.close()
    finally:
        serving.terminate()
        said = serving.communicate(timeout=30)[0]
    assert "Too many open files" not in said


def test_one_connection_too_many_is_refused_by_a_sentence_and_room_is_made(
    platform: Platform,
) -> None:
    bounds = Bounds(connections=20)
    with Server(platform.store, Allowance(at_once=1), bounds=bounds) as server:
        refused, status = b'{"type": "urn:kappa:problem:request"', 0
        with connected(server, 20, b"GET / HTTP/1.1\r\nX-Half: "):
            answered = server.ask("GET", "/healthz")
            assert problem(answered)[::2] == (503, "20 connections are open already")
            with pytest.raises(InvalidStatus) as error:
                connect(f"ws://127.0.0.1:{server.port}/api/v1/tables/x/changes").close()
            assert error.value.response.body.startswith(refused)
        deadline = time.monotonic() + 20
        while status != 200:
            status = server.ask("GET", "/healthz").status
            assert time.monotonic() < deadline
