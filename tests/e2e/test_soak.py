"""A soak: for an hour everything happens at random, and readers see only right answers.

`KAPPA_SOAK_MINUTES` shortens the soak, and `KAPPA_SOAK_SEED` repeats the same draws. Every few
minutes the faults pause, and the served tables must be right (I1, I6). At the end everything is
checked.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ext4
import pytest
from chaos import Chaos, ensure_up, typed
from meanwhile import Asking, Producing, beside
from operators import Operator, overtaken_undo, two_undos
from reading import Seen, how_long, readers
from referenced import assert_files_are_those_referenced
from soak_shop import SOAK_1, SOAK_2, TOPICS, Records, assert_right, version_of
from testbed import Testbed, platform

from kappa.base.errors import ExitCode
from kappa.base.settings import load_settings
from kappa.replay.rollout.rollout import Phase
from kappa.replay.status.run_records import running
from kappa.state.build import folded_by
from kappa.state.journal.events import Served
from kappa.state.journal.journal import Journal

MINUTES = float(os.environ.get("KAPPA_SOAK_MINUTES", "60"))
SEED = int(os.environ.get("KAPPA_SOAK_SEED", str(random.SystemRandom().randrange(10_000))))
pytestmark = [
    pytest.mark.jvm,
    pytest.mark.sweep,
    pytest.mark.fault,
    pytest.mark.timeout(60 * (MINUTES + 30)),
]
READERS = 8
# Faults rest after so many minutes, and at least twice.
_MINUTES_OF_FAULTS = min(4.0, MINUTES / 2)
# By then all code that a supervisor uses has been loaded.
_WARM_MINUTES = min(10.0, MINUTES / 2)
_MOST_GROWTH = 1.5
_LOOK_SECONDS = 2.0
_SETTINGS = """
root = "{root}"
[engine]
hung_seconds = 6
maintenance_seconds = 5
large_rows = 10
tail_records = 2000
[rollout]
soak = "5m"
[history]
every_seconds = 5
keep_seconds = 60
[archive]
every_seconds = 5
"""


@dataclass(slots=True)
class Memory:
    """Resident bytes: the peak of all processes together, and the supervisor's at each pause."""

    most: int = 0
    supervisors: list[tuple[float, int]] = field(default_factory=list)

    def look(self, bed: Testbed) -> None:
        self.most = max(self.most, bed.memory())

    def note(self, bed: Testbed, minutes: float) -> None:
        pages = Path(f"/proc/{bed.supervisor_pid}/statm").read_text(encoding="ascii").split()[1]
        self.supervisors.append((minutes, int(pages) * os.sysconf("SC_PAGE_SIZE")))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    """Yields a separate file system to fill, or None if this machine cannot have one."""
    missing = ext4.why_not()
    if missing is not None:
        print(f"no full disk: {missing}")
        yield None
        return
    with ext4.mounted(tmp_path) as made:
        yield made.folder


def heal(bed: Testbed) -> None:
    """Does what the messages say, and asserts that it is enough: all serves, and is right."""
    if running(load_settings(bed.folder)) is None:
        ensure_up(bed, "healer")
    bed.wait(lambda: bed.log.wait_until_ready(1.0), "the broker")
    if "shop" in bed.state().paused:
        bed.must("resume", "shop")
    active = bed.state().active("shop")
    if active is not None and active.waits:
        bed.must("promote", "shop", "--yes")
    bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
    last = bed.state().rollouts[-1]
    if last.phase is Phase.FAILED:
        again = ("undo", "--yes") if last.switch else ("retry", "shop", "--yes")
        assert typed(bed, "healer", *again).code == 0
    bed.wait_until_folded("shop", bed.log.end(TOPICS))


def check(bed: Testbed) -> str:
    """Asserts that the served tables are right, and that each of two undos reports its own work."""
    heal(bed)
    records = assert_right(bed, bed.live("shop"))
    if "shop" not in bed.state().idle:
        bed.must("replay", "shop", "--yes")
    # Nobody brings a rollout on meanwhile: neither can be done before the other begins.
    said = two_undos(bed, stopped=bed.supervisor_pid)
    assert sorted(each.code for each in said) == [ExitCode.OK, ExitCode.CONFLICT], "\n".join(
        map(str, said)
    )
    assert [each.code for each in overtaken_undo(bed)] == [ExitCode.OK, ExitCode.OK]
    bed.must("doctor")
    bed.must("scrub")
    return f"{records} records are right, and each of two undos tells its own"


@contextmanager
def resting(*threads: Operator | Chaos) -> Iterator[None]:
    with ExitStack() as turns:
        for each in threads:
            turns.enter_context(each.turn)
        yield


def soak(bed: Testbed, chaos: Chaos, operator: Operator, memory: Memory) -> float:
    """Runs everything, and checks every few minutes; returns the minutes that it took."""
    began = time.monotonic()
    rests = began + 60 * _MINUTES_OF_FAULTS
    minutes = 0.0
    while minutes < MINUTES:
        time.sleep(_LOOK_SECONDS)
        assert chaos.failed is None, chaos.failed
        assert operator.failed is None, operator.failed
        memory.look(bed)
        minutes = (time.monotonic() - began) / 60
        if time.monotonic() > rests or minutes >= MINUTES:
            with resting(operator, chaos):
                told = check(bed)
                memory.note(bed, minutes)
            print(f"{minutes:.1f} min: {sum(chaos.done.values())} faults, {told}", flush=True)
            rests = time.monotonic() + 60 * _MINUTES_OF_FAULTS
    return minutes


def assert_all_is_well(bed: Testbed) -> int:
    """Asserts that both builds are at the end and right, as doctor, scrub and a proof confirm."""
    heal(bed)
    if "shop" not in bed.state().idle:
        bed.must("replay", "shop", "--yes")
    end, live, idle = bed.log.end(TOPICS), bed.live("shop"), bed.state().idle["shop"]
    bed.wait(
        lambda: all(
            (found := bed.frontier(folded_by(bed.store, build))) is not None
            and found.offsets.covers(end)
            for build in (live, idle)
        ),
        "both at the end",
    )
    records = assert_right(bed, live)
    assert assert_right(bed, idle) == records
    bed.must("doctor")
    bed.must("scrub")
    assert typed(bed, "healer", "prove", "shop").code == 0
    bed.must("archive", "verify")
    bed.must("down")
    assert not bed.pids()
    bed.must("gc")
    assert_files_are_those_referenced(bed)
    return records


def test_whatever_happens_for_an_hour_readers_see_what_is_right(
    tmp_path: Path, disk: Path | None
) -> None:
    print(f"\nKAPPA_SOAK_SEED={SEED} KAPPA_SOAK_MINUTES={MINUTES:g}", flush=True)
    root = (disk or tmp_path) / "root"
    memory = Memory()
    with platform(
        tmp_path / "shop", _SETTINGS.format(root=root), listen="127.0.0.1:0", shop=SOAK_1
    ) as bed:
        with beside(Producing(bed, Records(SEED))) as produced:
            bed.must("deploy", "--yes")
            bed.declare("shop", SOAK_2)
            bed.must("deploy", "--yes")
            with (
                readers(bed, READERS, rest_seconds=1.0, script=tmp_path / "reader.py") as seen,
                beside(Asking(bed)) as http,
            ):
                with beside(Operator(bed, SEED)) as operator, beside(Chaos(bed, SEED, disk)) as it:
                    minutes = soak(bed, it, operator, memory)
                heal(bed)
                answers = http.answers
                bed.wait(lambda: http.answers > answers, "an answer over HTTP")
        print(figures(bed, minutes, it, operator, seen, http, produced, memory), flush=True)
        versions = {build: version_of(bed, build) for each in seen for build in each.counted}
        assert [fault for each in seen for fault in each.faults] == []
        assert http.faults == []
        for each in seen:
            assert each.counted == {build: [versions[build]] for build in each.counted}
            assert each.generations > 1
        at_first = next(size for at, size in memory.supervisors if at >= _WARM_MINUTES)
        assert memory.supervisors[-1][1] <= _MOST_GROWTH * at_first
        print(f"{assert_all_is_well(bed)} records are right in both builds; nothing is left")


def figures(
    bed: Testbed,
    minutes: float,
    chaos: Chaos,
    operator: Operator,
    seen: list[Seen],
    http: Asking,
    produced: Producing,
    memory: Memory,
) -> str:
    """Returns a summary of what happened, and how it affected readers."""
    state = bed.state()
    served = sum(isinstance(record.event, Served) for record in Journal(bed.store).after(0))
    ends = Counter(str(rollout.phase) for rollout in state.rollouts if not rollout.switch)
    undone = Counter(str(rollout.phase) for rollout in state.rollouts if rollout.switch)
    faults = [*http.faults, *(fault for each in seen for fault in each.faults)]
    kinds = Counter(fault.partition(":")[0] for fault in faults)
    asked = sum(each.queries for each in seen)
    first, *_, last = (size for _, size in memory.supervisors)
    return "\n".join(
        (
            f"minutes {minutes:.1f}, seed {SEED}",
            f"faults {sum(chaos.done.values())}: {listed(chaos.done)}",
            f"commands {sum(operator.done.values())}, by exit code: {listed(operator.done)}",
            *(f"  refused, {count} times: {told}" for told, count in operator.told.most_common()),
            (
                f"generations {state.generation} ({served} switches); rollouts: {listed(ends)}; "
                f"undos: {listed(undone)}"
            ),
            how_long(bed),
            (
                f"queries {asked} by {READERS} readers, {http.answers} over HTTP ("
                f"{http.away} times away)"
            ),
            f"errors {kinds['error']}, mixed {kinds['mixed']}, backward {kinds['backward']}",
            f"records {produced.acknowledged} acknowledged, {produced.outages} outages",
            (
                f"memory: at most {memory.most >> 20} MiB in all; the supervisor {first >> 20} MiB "
                f"at first, {last >> 20} at the end"
            ),
        )
    )


def listed(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counted.items()) if count)
