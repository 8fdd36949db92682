"""The clock of the whole platform jumps, by hours and a day, back and forth (I1 to I4, I9).

All processes have this clock, including the broker, readers and producers. Leases may end early;
then a reader starts over.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jumping_clock
import pytest
from e2e_shop import ASKED, V1, V2, order
from meanwhile import Beside, beside
from reading import assert_right
from testbed import Testbed, platform

from kappa.base.errors import ExitCode
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.serving.query.query import connect_reader
from kappa.state.journal.journal import Journal

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.sweep,
    pytest.mark.fault,
    pytest.mark.skipif(
        jumping_clock.why_not() is not None, reason=f"not run: {jumping_clock.why_not()}"
    ),
]
HOUR = 3600
DAY = 24 * HOUR
# Each from where the one before has left the clock.
JUMPS = (2 * HOUR, 0, -2 * HOUR, DAY, -2 * HOUR, 2 * HOUR, 0, DAY, 0, -DAY, 2 * HOUR, 0)
# The jobs beat each second, and a tail that hangs for longer is ended; slices take seconds.
SETTINGS = """
[engine]
maintenance_seconds = 1
hung_seconds = 20
slice_seconds = 60
[history]
every_seconds = 1
keep_seconds = 600
[rollout]
soak = "9d"
"""
# Asks on and on, as `kappa query` does, until its standard input ends; reports what is wrong.
READER = """
import json, sys, threading
from kappa.state.store import Store
from kappa.serving.query.query import ask_snapshot

store, stop = Store(sys.argv[1]), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
seen, wrong, queries, generation = {}, [], 0, 0


def question(reader, snapshot):
    (counts,) = reader.rows(sys.argv[2]).rows
    return snapshot, counts


while not stop.wait(0.3):
    queries += 1
    try:
        snapshot, row = ask_snapshot(store, question, lease_seconds=20)
        by_customer, by_item, log, bought = row
    except Exception as error:
        wrong.append(f"error: {error!r}")
        continue
    frontier = snapshot.frontiers[snapshot.serving["shop"]]
    decoded = sum(tally.decoded for tally in frontier.tally.get("orders", {}).values())
    if not (by_item == log == decoded and by_customer in (log, bought)):
        wrong.append(f"mixed: {by_customer} {by_item} {log} {decoded} {bought}")
    if snapshot.generation < generation:
        wrong.append(f"backward: generation {snapshot.generation} after {generation}")
    generation = snapshot.generation
    for topic, partition, offset in frontier.offsets.items():
        if offset < seen.get((topic, partition), 0):
            wrong.append(f"backward: {topic} {partition} {offset}")
        seen[topic, partition] = offset
print(json.dumps([queries, generation, wrong]))
"""
QUESTION = """
select (select sum(orders) from by_customer)::bigint, (select sum(orders) from by_item)::bigint,
    (select count(*) from order_log),
    (select count(*) from order_log where amount is null or amount >= 0)
"""


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> jumping_clock.Clock:
    made = jumping_clock.Clock(tmp_path)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    # Another test's may have begun without this clock.
    monkeypatch.setattr(Testbed, "typist", None)
    return made


@contextmanager
def reading(bed: Testbed, script: Path) -> Iterator[list[object]]:
    """Runs two readers within the block; the list contains what they saw after the block."""
    script.write_text(READER, encoding="utf-8")
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(bed.store.folder), QUESTION],
            env=bed.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    seen: list[object] = []
    try:
        yield seen
    finally:
        said = [each.communicate(timeout=60)[0] for each in running]
    seen += [json.loads(each) for each in said]


class Ordering(Beside):
    """Produces orders continuously, each batch in a process whose clock jumps too."""

    def __init__(self, bed: Testbed) -> None:
        super().__init__()
        self._bed = bed
        self._lots = itertools.count()

    def go_on(self) -> None:
        first = 100 * next(self._lots)
        lines = "".join(
            (order(number).value or b"").decode() + "\n" for number in range(first, first + 100)
        )
        # The broker refuses a record that is an hour ahead of it: one that the jump overtook.
        said = self._bed.kappa("produce", "orders", "-", given=lines)
        assert said.code == 0 or "failed to validate record" in said.err, said


def answers(bed: Testbed, pinned: PinnedSnapshot) -> list[tuple[object, ...]]:
    with connect_reader(pinned.snapshot, bed.store) as reader:
        return [row for sql in ASKED.values() for row in sorted(reader.rows(sql).rows, key=repr)]


def jump(bed: Testbed, clock: jumping_clock.Clock, to: int) -> None:
    """Sets the clock, collects, and waits until the whole log is served."""
    clock.jump(to)
    bed.must("gc")
    bed.must("status")
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))


def job_of(bed: Testbed) -> int:
    (pid,) = bed.pids("kappa.engine.job.job", bed.live("shop"), "tail")
    return pid


@pytest.mark.timeout(1800)
def test_whenever_the_clock_jumps_nothing_is_wrong_and_all_goes_on(
    clock: jumping_clock.Clock, tmp_path: Path
) -> None:
    with platform(tmp_path / "shop", SETTINGS, shop=V1) as bed:
        bed.log.produce((order(number) for number in range(500)), "orders")
        bed.must("deploy", "--yes")
        with (
            reading(bed, tmp_path / "reader.py") as seen,
            beside(Ordering(bed)),
            # Good for longer than any jump: collection keeps what it names.
            pin_served(bed.store, lease_seconds=3 * DAY) as pinned,
        ):
            at_first = answers(bed, pinned)
            bed.declare("shop", V2)
            asked = bed.start("deploy", "--yes")
            bed.wait(lambda: bool(bed.state().active_rollouts), "the rollout")
            jumps = itertools.cycle(JUMPS)
            count = 0
            while bed.state().active_rollouts or count < len(JUMPS):
                jump(bed, clock, next(jumps))
                count += 1
            _, told = asked.communicate(timeout=60)
            if asked.returncode:
                # Of rows whose lease ended early nothing is concluded.
                print(told)
                assert asked.returncode == ExitCode.VERIFICATION_FAILED, told
                assert "kappa retry" in told
                bed.must("retry", "shop", "--yes")

            # What a killed job waits for before it is started again is not a time of day.
            clock.jump(DAY)
            killed = job_of(bed)
            os.kill(killed, signal.SIGKILL)
            clock.jump(-DAY)
            bed.wait(lambda: killed not in bed.pids(), "the end of the job")
            bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
            undone = bed.start("undo", "--yes")
            for _ in range(3):
                jump(bed, clock, next(jumps))
            said = undone.communicate(timeout=240)
            assert undone.returncode == 0, said

            clock.jump(0)
            bed.must("gc")
            assert answers(bed, pinned) == at_first
            pinned.confirm_kept()
        print(f"{count} jumps in the rollout; readers: {seen}")
        for queries, generation, wrong in seen:
            assert wrong == []
            assert queries > 0
            assert generation == 3
        bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
        assert_right(bed, version=1)
        told = bed.store.path("logs/supervisor.log").read_text(encoding="utf-8")
        assert "no sign of life" not in told
        ended = [line for line in told.splitlines() if "exit code" in line or "signal" in line]
        print("\n".join(ended))
        stamps = [record.at for record in Journal(bed.store).after(0)]
        assert stamps != sorted(stamps), "no record was written while the clock was behind"
        bed.must("history")
