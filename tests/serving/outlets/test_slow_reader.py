"""A subscriber that does not read costs the server no memory, and delays no other reader."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from asking import Server
from changing import NEWEST, ChangingWorld
from house import HOUSE
from swarm import Subscriber, Swarm, served

from kappa.base.settings import load_settings
from kappa.declare.values.arrow import arrow_schema
from kappa.serving.http import changes
from kappa.serving.http.bounds import Bounds
from kappa.serving.outlets.changes.follower_registry import ChangeHub
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.store import Store
from kappa.tables.merge import contribution_columns

pytestmark = [pytest.mark.long, pytest.mark.slow]

_PATIENCE_SECONDS = 180.0
# Each slice changes so many rows of so many characters, from one text to another.
ROWS, CHARACTERS = 8, 150_000
A_SET = 2 * ROWS * CHARACTERS


def fold(world: ChangingWorld, number: int) -> None:
    """Folds a slice whose change set has several megabytes of text."""
    rows = [
        {
            "id": each,
            "city": f"{number}" * (CHARACTERS // len(str(number))),
            "_log_time": 1_000 * number,
            "_partition": 0,
            "_offset": 10 * number + each,
            "_deleted": False,
        }
        for each in range(ROWS)
    ]
    schema = arrow_schema(contribution_columns(NEWEST))
    world.live.fold({"newest": pa.Table.from_pylist(rows, schema)}, 1_000 * number)


class SlowReader:
    """A subscriber on a socket with a small window, which reads only when a test demands it."""

    def __init__(self, port: int, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(_PATIENCE_SECONDS)
        self._socket.connect(("127.0.0.1", port))
        since = "" if subscriber.cursor is None else f"Last-Event-ID: {subscriber.cursor}\r\n"
        self._socket.sendall(
            f"GET /api/v1/tables/newest/changes HTTP/1.1\r\nHost: localhost\r\n{since}\r\n".encode()
        )
        self._file = self._socket.makefile("rb")
        assert self._file.readline().startswith(b"HTTP/1.1 200 ")
        while self._file.readline().strip():
            pass
        self._pending = b""

    def read_until(self, rows: Counter[str]) -> None:
        """Reads until the subscriber has these rows."""
        while self.subscriber.rows != rows:
            assert self._read_on(), "the server has ended it"

    def read_to_the_end(self) -> None:
        """Reads the remaining bytes of a connection that the server has cut."""
        with contextlib.suppress(ConnectionError, ValueError):
            while self._read_on():
                pass
        # A change set that was not whole counts for nothing.
        self.subscriber.forget()

    def _read_on(self) -> bool:
        size = self._file.readline()
        if not size.strip():
            return False
        self._pending += self._file.read(int(size, 16) + 2)[:-2]
        *whole, self._pending = self._pending.split(b"\n\n")
        for each in whole:
            fields = dict(line.split(": ", 1) for line in each.decode().splitlines())
            if "event" in fields:
                self.subscriber.take(fields["event"], fields["data"])
        return True

    def close(self) -> None:
        self._file.close()
        self._socket.close()


@contextmanager
def serving(folder: Path) -> Iterator[tuple[int, str]]:
    """Runs `kappa serve` in another process; yields its pid and address."""
    with (folder / "serve.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cli", "serve", "--listen", "127.0.0.1:0"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(HOUSE)},
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (
            found := re.search(
                r"http://127\.0\.0\.1:\d+", (folder / "serve.log").read_text(encoding="utf-8")
            )
        ):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process.pid, found[0]
    except BaseException:
        print((folder / "serve.log").read_text(encoding="utf-8"))
        raise
    finally:
        process.terminate()
        process.wait(60)


def resident(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) << 10


def sockets(pid: int) -> int:
    count = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        # One may be closed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            count += each.readlink().name.startswith("socket:")
    return count


def test_one_that_reads_again_gets_the_net_of_what_it_has_missed(tmp_path: Path) -> None:
    with closing(ChangingWorld(Store(tmp_path), 4)) as world:
        fold(world, 1)
        hub = ChangeHub(world.store, lease_seconds=600, keep_seconds=600, limits=None)
        with (
            Server(
                world.store,
                Allowance(at_once=1),
                router=changes.router,
                changes=hub,
                bounds=Bounds(send_seconds=3_600),
            ) as server,
            closing(SlowReader(server.port, Subscriber())) as slow,
        ):
            slow.read_until(served(world.store, "newest"))
            with Swarm(f"http://127.0.0.1:{server.port}", "newest", streams=2) as swarm:
                for number in range(2, 32):
                    fold(world, number)
                    rows = served(world.store, "newest")
                    swarm.wait_for(rows)
                    if number % 10 == 0:
                        world.live.keep_up()
                assert all(len(each.kinds) > 30 for each in swarm.subscribers)
            slow.read_until(rows)

    found = slow.subscriber.kinds
    assert {*found[1:]} == {"slice"}
    # Those that were on the way already, and one more for all the others.
    assert len(found) < 20


@pytest.mark.timeout(900)
def test_one_that_does_not_read_is_cut_off_and_the_servers_memory_does_not_grow(
    tmp_path: Path,
) -> None:
    (tmp_path / "kappa.toml").touch()
    store = Store(load_settings(tmp_path).root_url)
    with closing(ChangingWorld(store, 4, now=time.time())) as world, serving(tmp_path) as running:
        pid, url = running
        port = int(url.rpartition(":")[2])
        fold(world, 1)
        with Swarm(url, "newest", streams=2, websockets=1) as swarm:
            numbers = iter(range(2, 1_000))

            def follow(slices: int) -> None:
                for _ in range(slices):
                    fold(world, next(numbers))
                    swarm.wait_for(served(store, "newest"))
                world.live.keep_up()

            follow(20)
            before, there = resident(pid), sockets(pid)
            slow = SlowReader(port, Subscriber())
            slow.read_until(served(store, "newest"))
            deadline = time.monotonic() + 500
            missed = 0
            while sockets(pid) > there or missed < 60:
                follow(10)
                missed += 10
                assert time.monotonic() < deadline, "it was not cut off"
            # Up to 32 MiB wait for a reader; the rest is what change sets take that are computed.
            assert resident(pid) - before < missed * A_SET * 2 / 3, (before, resident(pid), missed)

            slow.read_to_the_end()
            kinds = len(slow.subscriber.kinds)
            slow.close()
            with closing(SlowReader(port, slow.subscriber)) as again:
                again.read_until(served(store, "newest"))
            assert {*again.subscriber.kinds[kinds:]} <= {"slice", "reset"}
