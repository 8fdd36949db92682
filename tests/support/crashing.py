"""A platform that can die at any failpoint: all is real except Spark, Kafka and the processes.

Controller, stage, publisher, aligner, catch-up, maintenance and collection are the real ones, over
a real store and Delta tables. The log is a list. Jobs and supervisor are objects that a test moves
step by step. A process that has died (`Died`) does nothing more, as if it had been killed, because
a failpoint comes before every effect. Then all memory of the process is thrown away.
"""

from __future__ import annotations

import os
import pickle
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from crashing_job import FakeLog, Job, declared
from plans import log as log_facts

from kappa.base.errors import Broken, Conflict
from kappa.base.failpoint import acting, parsed
from kappa.base.sections import RolloutSettings
from kappa.replay.platform.controller import Controller
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.garbage import collect_garbage, data_of
from kappa.replay.rollout.plan.branch import Branching
from kappa.replay.rollout.plan.facts import Observed
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Plan
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.stage import stage_plan
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.verify import VerificationMeans, verify_and_append_verdict
from kappa.replay.status.doctor.scrub import scrub_root
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.shared_pins import give_up_pin
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.state.build import folder_of_build, read_birth, table_path
from kappa.state.build_status import Stopped, read_stopped
from kappa.state.files.address import arrow_source, files_in, folders_in
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept_frontiers import kept_frontiers_of, shown_frontiers
from kappa.state.lock import Lock
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.delta import open_newest
from kappa.tables.versions import files

HOUR = 3600.0
# More than any story takes; a story that takes more does not move any more.
_MOST_ROUNDS = 200
_OF_A_PROCESS = {"begun.json", "split.json", "lock", "verification.json"}


# No Exception: a handler of errors must not handle a death.
class Died(BaseException):
    """Raised where this process is killed."""


class Doom:
    """A counter of passed failpoints, which kills at some of them, once each.

    A dead process passes no more failpoints.
    """

    def __init__(self, points: Mapping[str, int] | None = None) -> None:
        """Takes in `points`, by failpoint, the number of the passing at which to kill."""
        self.points = dict(points or {})
        self.passed: Counter[str] = Counter()
        self.fired: list[str] = []
        self.dead = self.spares = False

    def __call__(self, name: str) -> None:
        if self.spares:
            return
        if self.dead:
            raise Died(name)
        self.passed[name] += 1
        if self.passed[name] == self.points.get(name):
            self.fired.append(name)
            self.dead = True
            raise Died(name)


class Outage(Doom):
    """A counter of all effects (failpoints and syncs), which kills at the numbers in `at`."""

    def __init__(self, at: set[int] | None = None) -> None:
        super().__init__()
        self.at = at or set()
        self.count = 0

    @property
    def armed(self) -> bool:
        """True while a kill is still to come."""
        return any(number > self.count for number in self.at)

    def __call__(self, name: str) -> None:
        if not self.spares:
            super().__call__(name)
            self.effect()

    def effect(self) -> None:
        """Counts one effect, such as a sync, and dies if its turn has come."""
        if self.spares:
            return
        if self.dead:
            raise Died
        self.count += 1
        if self.count in self.at:
            self.fired.append(str(self.count))
            self.dead = True
            raise Died


@dataclass
class World:
    """The platform, and a reader that never dies and checks everything it sees."""

    store: Store
    doom: Doom
    keep_every_seconds: float = 60.0
    keep_seconds: float = HOUR
    slice_records: int = 6
    driver_rows: int = 2

    def __post_init__(self) -> None:
        self.log = FakeLog()
        self.cursed: set[str] = set()
        # Held still for a while: the controller, or the live build's job.
        self.slow: Callable[[Rollout], bool] = lambda _rollout: False
        self.jobless: Callable[[Rollout], bool] = lambda _rollout: False
        self.ahead, self.steady = 0.0, 0.0
        self.shown = (0, Offsets())
        self.begin()

    def begin(self) -> None:
        """Starts a new supervisor, which knows only the content of the store."""
        self.doom.dead = False
        self.jobs: dict[str, Job] = {}
        self.stopped: dict[str, Stopped] = {}
        self.aligning: set[str] = set()
        self.controller = Controller(
            self.store, log=self.log, processes=self, rules=RolloutSettings(), clock=self.clock
        )  # type: ignore[arg-type]

    def after_death(self) -> None:
        """Is called after a process has died, before the next begins; may cut the power."""

    def end(self) -> None:
        """Closes what a process had open, as the kernel does when the process exits."""
        for job in self.jobs.values():
            job.close()
        self.jobs = {}

    def clock(self) -> float:
        return time.time() + self.ahead

    def state(self) -> State:
        return current_state(self.store)

    # The controller's view of processes.

    def job_runs(self, build: str) -> bool:
        return build in self.jobs

    def job_stopped(self, build: str) -> Stopped | None:
        return self.stopped.get(build)

    def job_deaths(self, _build: str) -> int:
        return 0

    def ensure_aligned_again(self, build: str) -> None:
        self.aligning.add(build)

    def ensure_verifying(self, rollout: int) -> str | None:
        verify_and_append_verdict(self.store, rollout, VerificationMeans(lease_seconds=60))
        return None

    # The steps of the platform.

    def serve(self, version: str, events: int) -> None:
        """Brings a version to serve this many events, and ends all processes."""
        self.log.ensure(events)
        self.stage(version)
        while not self.serves(version):
            self.round()
            self.look()
        self.end()

    def round(self) -> None:
        """Moves everything one step: the live build's job, other jobs, the controller."""
        state = self.state()
        active = state.active("ships")
        holding = active is not None and active.phase is Phase.HOLDING
        wanted = state.wanted_jobs()
        live = state.folded_by(state.serving.get("ships", ""))
        if holding and self.jobless(active):
            wanted -= {live}
        for build in tuple(self.jobs):
            if build not in wanted or build in self.aligning:
                self.jobs.pop(build).close()
        for build in sorted(wanted, key=lambda each: each != live):
            self._run_job(build)
        if holding and self.slow(active):
            self.steady += 11
            return
        self.controller.tick()

    def _run_job(self, build: str) -> None:
        if build in self.stopped:
            return
        try:
            if build not in self.jobs:
                again = build in self.aligning
                self.aligning.discard(build)
                self.jobs[build] = Job(self, build, again=again)
            self.jobs[build].step()
        except Broken:
            found = read_stopped(self.store, build)
            assert found is not None
            self.stopped[build] = found

    def plan(self, version: str, state: State) -> Plan:
        return make_plan(self.observed(version, state))

    def observed(self, version: str, state: State) -> Observed:
        births = {build: read_birth(self.store, build) for build in state.wanted_builds()}
        return Observed(
            frozenset({"ships"}),
            {"ships": declared(version)},
            state,
            births,
            log_facts(ids={"ships": "id-of-ships"}),
        )

    def plan_branch(self, version: str, *, back: int) -> Plan:
        """Plans a branch of the live build.

        The branch begins `back` offsets before those of the newest frontier, in each partition.
        """
        state = self.state()
        build = state.serving["ships"]
        shown = shown_frontiers(self.store, build)
        at = Offsets(
            {
                topic: {partition: offset - back for partition, offset in parts.items()}
                for topic, parts in shown[-1].offsets.next.items()
            }
        )
        return make_plan(
            replace(self.observed(version, state), shown={build: shown}),
            only=("ships",),
            branching=Branching(at),
        )

    def stage(self, version: str, *, auto_promote: bool = True) -> None:
        stage_plan(self.store, self.plan(version, self.state()), auto_promote=auto_promote)

    def rollouts(self, version: str) -> list[Rollout]:
        of = declared(version).version
        return [rollout for rollout in self.state().rollouts if rollout.version == of]

    def serves(self, version: str) -> bool:
        state = self.state()
        return (
            "ships" in state.serving
            and state.versions[state.serving["ships"]] == declared(version).version
        )

    def is_gone(self, rollout: Rollout) -> bool:
        return rollout.build in self.state().retired and not any(data_of(self.store, rollout.build))

    def collect(self) -> None:
        collect_garbage(self.store, keep_seconds=self.keep_seconds, now=self.clock())

    # The assertions.

    def look(self) -> None:
        """Reads as a reader does.

        Asserts that generation and offsets do not go back (I3), and that the rows follow from the
        log (I1).
        """
        self.doom.spares = True
        try:
            self.shown = self.read()
        finally:
            self.doom.spares = False

    def check_writers(self) -> None:
        """Asserts that nobody else can begin to write a build whose job runs (I8)."""
        self.doom.spares = True
        try:
            for build in self.jobs:
                other = Lock(self.store.local.path(f"{folder_of_build(build)}/lock"), what=build)
                with pytest.raises(Conflict):
                    other.acquire()
        finally:
            self.doom.spares = False

    def read(self, pause: Callable[[], None] = lambda: None) -> tuple[int, Offsets]:
        """Reads as a reader does, with a pause before and after the files are read.

        Returns generation and offsets. Asserts that they are not lower than those that were shown
        when the reading began (I3), and that the rows follow from the log (I1).
        """
        generation, offsets = self.shown
        self.state()
        with self._pinned() as pinned:
            snapshot = pinned.snapshot
            if not snapshot.serving:
                # Nothing serves yet, or it is retired: what was seen stays seen.
                assert bool(generation) == bool(snapshot.generation)
                assert snapshot.generation >= generation
                return self.shown
            frontier = snapshot.frontiers[snapshot.serving["ships"]]
            assert snapshot.generation >= generation
            assert frontier.offsets.covers(offsets), f"{frontier.offsets} after {offsets}"
            assert_all_counted(self.store, frontier)
            pause()
            rows = self._rows(frontier)
            pause()
            pinned.confirm_kept()
        assert rows == self.log.expected(frontier.offsets), frontier
        return snapshot.generation, frontier.offsets

    @contextmanager
    def _pinned(self) -> Iterator[PinnedSnapshot]:
        """Pins the serving builds, as a separate process does that exits with the block."""
        with pin_served(self.store, lease_seconds=60, clock=self.clock) as pinned:
            yield pinned
        give_up_pin(self.store)

    def _rows(self, frontier: Frontier) -> dict[str, str] | None:
        """Returns the rows of a frontier, or None if one of its files is gone."""
        try:
            return {
                row["id"]: row["name"]
                for path in files(
                    table_path(self.store, frontier.build, "ships"),
                    frontier.versions["ships"],
                    None,
                )
                for row in pq.ParquetFile(arrow_source(path)).read().to_pylist()
            }
        except (FileNotFoundError, Broken):
            return None

    def check_collected(self) -> None:
        """Asserts that after collection the files on disk are the files referenced (I5).

        Also asserts that no lease is left, and that each file has the checksum of its content.
        """
        scrubbed = scrub_root(self.store)
        assert (scrubbed.bad, scrubbed.unknown) == ((), 0)
        state = self.state()
        assert self.store.names("leases") == ()
        builds = {name for each in self._stores for name in folders_in(each.address("builds"))}
        assert builds == set(state.versions)
        for build in state.versions:
            if build in state.retired:
                assert self._left(build) <= {"birth.json", "lock"}
                continue
            if build in state.overlays:
                # What it serves is kept in shape by the build below it.
                assert self._left(build) - _OF_A_PROCESS == {
                    "birth.json",
                    "birth_copy.json",
                    "code",
                }
                continue
            newest = Frontiers(self.store, build).newest()
            assert newest is not None
            assert len(self.store.names(f"{folder_of_build(build)}/frontier")) == 1
            assert len(self.store.names(f"{folder_of_build(build)}/floor")) == 1
            for table in read_birth(self.store, build).tables:
                path = table_path(self.store, build, table.name)
                last = open_newest(path).version()
                versions = {
                    last,
                    newest.versions[table.name],
                    *(
                        kept.frontier.versions[table.name]
                        for kept in kept_frontiers_of(self.store, build)
                    ),
                }
                there = {f"{path}/{name}" for name in files_in(path)}
                assert there == {
                    file for version in versions for file in files(path, version, None)
                }

    def summary(self) -> dict[str, object]:
        """Returns the end of a story, with builds named by their versions."""
        state = self.state()
        return {
            "rollouts": [
                (rollout.version, rollout.phase, rollout.switch) for rollout in state.rollouts
            ],
            "generation": state.generation,
            "serving": {name: state.versions[build] for name, build in state.serving.items()},
            "idle": {name: state.versions[build] for name, build in state.idle.items()},
            "retired": sorted(state.versions[build] for build in state.retired),
            "shown": self.shown,
            # Some of it is of a process alone, and depends on the one that died.
            "left": {
                state.versions[build]: sorted(self._left(build) - _OF_A_PROCESS)
                for build in state.versions
            },
        }

    @property
    def _stores(self) -> tuple[Store, Store]:
        return self.store, self.store.local

    def _left(self, build: str) -> set[str]:
        """Returns the names of everything that is left of a build, in the root and on this host."""
        places = [each.address(folder_of_build(build)) for each in self._stores]
        there = {name for place in places for name in (*files_in(place), *folders_in(place))}
        # A power loss may take notes of last numbers.
        return {name for name in there if not name.endswith(".newest")}


def assert_all_counted(store: Store, frontier: Frontier) -> None:
    """Asserts that each offset between a build's origin and its frontier has one fate (I6)."""
    origin = read_birth(store, frontier.build).origin_offsets
    for partition, tally in frontier.tally.get("ships", {}).items():
        counted = tally.decoded + tally.duplicate + tally.rejected + tally.tombstone + tally.absent
        read = frontier.offsets.at("ships", partition) - origin.at("ships", partition)
        assert counted == read, f"{counted} of {read} in partition {partition}"


# A goal of an operator's. It does what can be done for it now, and returns whether it is reached.
Goal = Callable[[World], bool]


@dataclass(frozen=True)
class Story:
    """A sequence of goals; the last goal is always to clean up."""

    goals: tuple[Goal, ...]
    settings: Mapping[str, float] = field(default_factory=dict)

    def play(self, store: Store, doom: Doom, kind: type[World] = World) -> World:
        """Plays the story to its end. After a death it continues at the same goal."""
        with acting(doom):
            world = kind(store, doom, **self.settings)  # type: ignore[arg-type]
            for goal in self.goals:
                reach(world, goal)
            world.end()
        return world


def reach(world: World, goal: Goal) -> None:
    """Brings the platform to a goal, in spite of deaths."""
    for _ in range(_MOST_ROUNDS):
        try:
            reached = goal(world)
            if not reached:
                world.round()
        except Died:
            world.end()
            world.after_death()
            world.look()
            world.begin()
            continue
        world.look()
        if reached:
            return
    raise AssertionError(
        f"{goal.__name__} was not reached: {world.controller.waits} {world.state().rollouts[-1:]}"
    )


class LastingLog(FakeLog):
    """A log that outlives the process that plays a story."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file
        if file.exists():
            super().ensure(int(file.read_text(encoding="ascii")))

    def ensure(self, count: int) -> None:
        super().ensure(count)
        self._file.write_text(str(self.count), encoding="ascii")


class LastingWorld(World):
    """A platform that continues where the process before this one has died.

    The log, and what the reader has seen, are stored in a folder.
    """

    def __init__(self, folder: Path, **settings: float) -> None:
        super().__init__(Store(folder / "root"), Doom(), **settings)  # type: ignore[arg-type]
        self.log = LastingLog(folder / "log")
        self._seen = folder / "seen"
        if self._seen.exists():
            self.shown = pickle.loads(self._seen.read_bytes())
        self.begin()
        self.look()

    def look(self) -> None:
        super().look()
        self._seen.write_bytes(pickle.dumps(self.shown))


def ended_for_real(play: Callable[[], None], point: str = "") -> int:
    """Forks a process that calls `play`, and returns its exit code.

    If `point` is given, the child dies at that failpoint. The process that forks must not play
    anything itself before, because libraries start threads when they are used.
    """
    pid = os.fork()
    if not pid:
        try:
            action = parsed(point and f"{point}:kill")
            with nullcontext() if action is None else acting(action):
                play()
        except BaseException:  # noqa: BLE001  # whatever it is, the parent is told
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
