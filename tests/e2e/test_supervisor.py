"""Laws of the supervisor, with a real broker.

One supervisor runs per root. Only HTTP outlives it, and the next supervisor continues its work.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from e2e_shop import V1, order
from testbed import Testbed, platform

from kappa.base.process import ProcessId, process_id
from kappa.base.settings import load_settings
from kappa.replay.status.run_records import running, served_at

pytestmark = pytest.mark.jvm


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("supervisor") / "shop"
    with platform(folder, listen="127.0.0.1:0", shop=V1) as bed:
        yield bed


def named(pid: int) -> ProcessId:
    found = process_id(pid)
    assert found is not None
    return found


def broker_of(bed: Testbed) -> ProcessId:
    (pid,) = bed.pids("kafka.Kafka")
    return named(pid)


@pytest.mark.fault
def test_a_broker_or_a_supervisor_that_was_killed_is_followed_by_the_next(bed: Testbed) -> None:
    """Each successor continues the work; what a killed supervisor started ends with it.

    Only HTTP continues, until the next supervisor serves it. If a port was taken meanwhile, the
    broker and the HTTP server take another one.
    """
    bed.must("up", "-d")
    acknowledged = bed.log.produce((order(number) for number in range(50)), "orders")
    killed, where = broker_of(bed), bed.log.bootstrap_servers

    os.kill(killed.pid, signal.SIGKILL)
    bed.wait(lambda: not killed.alive() and bool(bed.pids("kafka.Kafka")), "another broker")
    bed.wait(lambda: bed.log.wait_until_ready(1.0), "its answer")

    assert bed.log.bootstrap_servers == where
    assert bed.log.end(["orders"]).covers(acknowledged.offsets)
    before, broker = bed.supervisor_pid, broker_of(bed)
    bed.wait(lambda: served_at(bed.store) is not None, "the HTTP server")

    os.kill(before, signal.SIGKILL)
    bed.wait(lambda: not broker.alive(), "the end of the broker", 30)
    assert running(load_settings(bed.folder)) is None
    http = ensure_http_comes_back_by_itself(bed)
    port = int(where.partition(":")[2])
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        bed.must("up", "-d", KAPPA__SERVE__LISTEN=f"127.0.0.1:{port}")

        assert bed.supervisor_pid != before
        assert bed.log.bootstrap_servers != where
        assert bed.log.end(["orders"]).covers(acknowledged.offsets)
        assert not http.alive()
        ensure_http_is_served_elsewhere(bed, port)


@pytest.mark.fault
@pytest.mark.long
def test_a_copy_of_a_running_root_ends_nothing_and_begins_only_once_it_is_adopted(
    bed: Testbed,
) -> None:
    """The first root's broker, HTTP and supervisor continue, whatever is run on the copy.

    They were once killed, because the copied locks and broker.json name them. Jobs and what they
    leave behind are tested in tests/state/test_root.py.
    """
    bed.must("up", "-d")
    bed.wait(lambda: served_at(bed.store) is not None, "the HTTP server")
    first = {named(pid) for pid in bed.pids()}
    folder, copy = bed.store.folder, bed.folder / "copy"
    subprocess.run(["cp", "-a", str(folder), str(copy)], check=True)

    for typed in (("up", "-d"), ("up",), ("deploy", "--yes"), ("gc",)):
        said = bed.kappa("--root", str(copy), *typed)
        assert said.code == 6, said
        assert f"the root {copy} is a copy of root" in said.err
        assert "kappa root adopt" in said.err
    assert bed.kappa("--root", str(copy), "down").out == ""
    assert bed.kappa("--root", str(copy), "query", "select 1 as n", "-o", "json").json()
    assert all(each.alive() for each in first)

    try:
        bed.must("--root", str(copy), "root", "adopt")
        bed.must("--root", str(copy), "up", "-d")

        assert (
            len(bed.pids("kafka.Kafka")) == len(bed.pids("kappa.replay.platform.supervisor")) == 2
        )
        assert all(each.alive() for each in first)
    finally:
        bed.must("--root", str(copy), "down")
    assert all(each.alive() for each in first)


def test_one_supervisor_runs_per_root_and_down_twice_is_down_once(bed: Testbed) -> None:
    bed.must("up", "-d")
    pid = bed.supervisor_pid

    again, second = bed.kappa("up", "-d"), bed.kappa("up")

    assert again.code == 0
    assert second.code == 6
    assert f"kappa is up already (process {pid})" in second.err
    assert bed.supervisor_pid == pid

    bed.must("down")
    bed.must("down")

    assert not bed.pids()


def read(url: str, path: str, body: bytes | None = None) -> bytes:
    asked = Request(f"{url}{path}", body, {"Content-Type": "application/sql"})
    with urlopen(asked, timeout=60) as answered:
        return bytes(answered.read())


def ensure_answers_after_its_server_is_killed(bed: Testbed, url: str) -> None:
    """Asserts that a client that connects meanwhile waits, and is not refused or redirected."""
    (server,) = bed.pids("kappa.replay.platform.serve")
    os.kill(server, signal.SIGKILL)

    assert json.loads(read(url, "/api/v1/query", b"select 1 as n"))["rows"] == [{"n": 1}]
    assert served_at(bed.store) == url
    assert bed.pids("kappa.replay.platform.serve") != [server]


def ensure_http_comes_back_by_itself(bed: Testbed) -> ProcessId:
    """Asserts that HTTP comes back while no supervisor runs. Returns the process that does it."""
    url = served_at(bed.store)
    assert url is not None
    assert json.loads(read(url, "/api/v1/query", b"select 1 as n"))["rows"] == [{"n": 1}]
    assert b"\nkappa_up 0\n" in read(url, "/metrics")
    assert b"Kappa is not up" in read(url, "/")
    ensure_answers_after_its_server_is_killed(bed, url)
    found = bed.kappa("status").out.splitlines()
    assert found[0].startswith("kappa is not up")
    assert f"HTTP at {url}" in found
    (http,) = bed.pids("kappa.replay.platform.http_supervisor")
    return named(http)


def ensure_http_is_served_elsewhere(bed: Testbed, port: int) -> None:
    bed.wait(lambda: served_at(bed.store) is not None, "the HTTP server")
    url = served_at(bed.store)
    assert url is not None
    assert url != f"http://127.0.0.1:{port}"
    topics = json.loads(read(url, "/api/v1/topics"))
    assert [(each["topic"], each["on_broker"]) for each in topics] == [
        ("items", True),
        ("orders", True),
    ]
    assert b"\nkappa_up 1\n" in read(url, "/metrics")
    ensure_answers_after_its_server_is_killed(bed, url)


@pytest.mark.long
def test_who_is_told_to_end_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """`kappa up` leaves nothing if it is interrupted while it starts.

    Of two later `kappa up` at once, one runs, and both commands succeed.
    """
    bed = Testbed(tmp_path / "shop", listen="127.0.0.1:0")
    try:
        starting = bed.start("up")
        bed.wait(lambda: bool(bed.pids("kafka.Kafka")), "the broker's process")

        starting.send_signal(signal.SIGINT)
        starting.communicate(timeout=60)

        assert not bed.pids()
        assert running(load_settings(bed.folder)) is None

        both = [bed.start("up", "-d"), bed.start("up", "-d")]
        said = [each.communicate(timeout=120) for each in both]

        assert [each.returncode for each in both] == [0, 0], said
        # The one that did not come up may be about to end.
        for program in (
            "kappa.replay.platform.supervisor",
            "kappa.replay.platform.http_supervisor",
        ):
            bed.wait(lambda program=program: len(bed.pids(program)) == 1, f"one {program}")
        bed.must("down")
        assert not bed.pids()
    finally:
        bed.ensure_gone()


@pytest.mark.long
def test_a_broker_of_the_user_that_is_down_is_said(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        bed = Testbed(tmp_path / "shop", f'[kafka]\nbootstrap_servers = "{servers}"\n')
        try:
            said = bed.kappa("up", "-d")

            assert said.code == 1
            assert f"no Kafka broker answers at {servers}" in said.err
            assert "kafka.bootstrap_servers" in said.err
            assert not bed.pids()
        finally:
            bed.ensure_gone()
