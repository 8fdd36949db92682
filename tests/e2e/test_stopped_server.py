"""The server of a root in a bucket is suspended, or its host: how soon everything continues.

The times are those of docs/explain/faults.md, with allowance for a busy machine. One platform
serves all tests of this file, with the same two builds.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from e2e_shop import LEAN_1, LEAN_2, order
from losing import Restarted
from object_store import ObjectStore, bucket_settings
from testbed import Testbed, platform
from victims import go_on, jobs_of, standing_still, stop

from kappa.replay.rollout.rollout import Phase
from kappa.replay.status.run_records import served_at

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(1800)]

COUNTED = "select sum(orders)::bigint as orders from by_customer"
# How long the server stands still in a promote, and is away while people look.
STILL_SECONDS, AWAY_SECONDS = 30.0, 60.0
# What faults.md says, in seconds; a busy machine may take so many times as long.
SHOWN, ANSWERED, TOLD, MOVED = 10.0, 30.0, 5.0, 15.0
ROOM = 4


@pytest.fixture(scope="module")
def shop(
    kafka: Restarted, object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Testbed]:
    """Yields a platform in a bucket, with a serving build and a candidate that waits for a yes."""
    settings = bucket_settings(
        object_store.new_root(), object_store.storage, kafka.broker.bootstrap_servers
    )
    settings += "[engine]\nhung_seconds = 600\n"
    folder = tmp_path_factory.mktemp("stopped") / "shop"
    with platform(folder, settings, listen="127.0.0.1:0", shop=LEAN_1) as bed:
        bed.log.produce((order(number) for number in range(700)), "orders")
        bed.must("deploy", "--yes")
        bed.declare("shop", LEAN_2)
        bed.must("stage", "shop", "--yes")
        bed.wait(lambda: bed.state().rollouts[-1].waits, "a candidate that waits for a yes")
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
        yield bed


@contextmanager
def stopped(store: ObjectStore) -> Iterator[None]:
    """Suspends the server within the block: it accepts connections, but answers nothing."""
    assert store.process is not None
    os.kill(store.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(store.process.pid, signal.SIGCONT)


def counted(bed: Testbed) -> int:
    (row,) = bed.rows(COUNTED)
    return int(row["orders"])


def seconds_of(what: Callable[[], object]) -> float:
    began = time.monotonic()
    what()
    return time.monotonic() - began


def status_of_query(url: str) -> int:
    """Sends a query over HTTP; returns the status of the answer."""
    request = Request(f"{url}/api/v1/query", COUNTED.encode(), {"Content-Type": "application/sql"})
    try:
        with urlopen(request, timeout=ANSWERED * ROOM) as answered:
            return int(answered.status)
    except HTTPError as error:
        return error.code


def test_events_of_a_stop_in_a_promote_are_shown_soon_after_it(
    shop: Testbed, object_store: ObjectStore
) -> None:
    before = counted(shop)
    (live,) = jobs_of(shop, shop.live("shop"))
    with standing_still(live):
        asked = shop.start("promote", "shop", "--yes")
        shop.wait(lambda: shop.state().rollouts[-1].phase is Phase.HOLDING, "the hold")
        with stopped(object_store):
            ends = time.monotonic() + STILL_SECONDS
            go_on(live)
            # The broker acknowledges them.
            shop.log.produce((order(number, amount=1) for number in range(50)), "orders")
            time.sleep(max(0.0, ends - time.monotonic()))  # The time of a stop is what is tried.

    # The candidate has no returns; before it serves, all have been counted.
    kept = sum(number % 7 == 0 or number % 5 != 0 for number in range(700))
    shown = seconds_of(
        lambda: shop.wait(lambda: counted(shop) in {before + 50, kept + 50}, "the events")
    )

    print(f"shown {shown:.1f} s after the server went on")
    assert shown < SHOWN * ROOM
    out, err = asked.communicate(timeout=300)
    assert asked.returncode == 0, (out, err, shop.logs())
    assert counted(shop) == kept + 50


def test_who_asks_while_the_server_is_silent_for_a_minute_is_told_soon(
    shop: Testbed, object_store: ObjectStore
) -> None:
    url = served_at(shop.store)
    assert url is not None
    answered, told = list[float](), list[float]()
    with stopped(object_store):
        ends = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < ends:
            began = time.monotonic()
            assert status_of_query(url) == 500
            answered.append(time.monotonic() - began)
            began = time.monotonic()
            said = shop.kappa("status")
            assert (said.code, "see whether the server can be reached" in said.err) == (1, True)
            told.append(time.monotonic() - began)

    print(f"HTTP answered after {answered} s, kappa status after {told} s")
    assert max(answered) < ANSWERED * ROOM
    assert max(told) < TOLD * ROOM
    shop.wait(lambda: status_of_query(url) == 200, "an answer")


def test_a_host_that_takes_over_brings_on_an_undo_and_a_replay_soon(
    shop: Testbed, tmp_path: Path
) -> None:
    """The new host finishes an undo and a replay that the suspended host had begun."""
    if "shop" not in shop.state().idle:
        shop.must("promote", "shop", "--yes")
    settings = (shop.folder / "kappa.toml").read_text(encoding="utf-8")
    other, generation = Testbed(tmp_path / "other", settings), shop.state().generation
    other.declare("shop", LEAN_1)
    live = shop.live("shop")
    shop.wait(lambda: bool(jobs_of(shop, live)), "the live job")
    try:
        # Of the live job, which stands still, comes no acknowledgement.
        with standing_still(max(jobs_of(shop, live))):
            undoing = shop.start("undo", "shop", "--yes")
            shop.wait(lambda: shop.state().rollouts[-1].phase is Phase.HOLDING, "the hold")
            with all_standing_still(shop):
                began = time.monotonic()
                other.must("up", "-d", "--take-over")
                up = time.monotonic() - began
                other.wait(lambda: other.state().generation > generation, "the switch")
                undone = time.monotonic() - began
        undoing.communicate(timeout=300)

        other.declare("shop", LEAN_2)
        replaying = other.start("replay", "shop", "--yes")
        other.wait(lambda: bool(other.state().active_rollouts), "the rollout")
        build = other.state().rollouts[-1].build
        other.wait(lambda: bool(jobs_of(other, build)), "the candidate's job")
        with all_standing_still(other):
            began = time.monotonic()
            shop.must("up", "-d", "--take-over")
            up_again = time.monotonic() - began
            shop.wait(lambda: bool(jobs_of(shop, build)), "the candidate's job")
            moved = time.monotonic() - began
            shop.wait(lambda: not shop.state().active_rollouts, "the end of the replay")
        replaying.communicate(timeout=300)
    finally:
        other.ensure_gone()

    print(f"up after {up:.1f} s, undone after {undone:.1f} s")
    print(f"up after {up_again:.1f} s, the replay goes on after {moved:.1f} s")
    assert max(undone, moved) < MOVED * ROOM
    assert shop.live("shop") == build
    kept = sum(number % 7 == 0 or number % 5 != 0 for number in range(700))
    shop.wait_until_folded("shop", shop.log.end(["orders"]))
    assert counted(shop) - kept in {0, 50}


@contextmanager
def all_standing_still(bed: Testbed) -> Iterator[None]:
    """Suspends all processes of a host within the block, and waits until they have exited."""
    stopped_ones: list[int] = []
    # A process that is stopped starts no other.
    while more := [pid for pid in bed.pids() if pid not in stopped_ones and stop(pid)]:
        stopped_ones += more
    try:
        yield
    finally:
        for pid in stopped_ones:
            go_on(pid)
        bed.wait(lambda: not bed.pids(), "the end of what had stood still")
