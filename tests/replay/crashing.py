"""A platform that can die at any failpoint: all that decides and writes is real, but for Spark, Kafka and the processes.

Controller, stage, publisher, aligner, catch-up, maintenance and collection are the real ones, over a real store and Delta
tables. The log is a list; jobs and supervisor are objects that are stepped by hand. Who dies (`Died`) does nothing more,
as a killed process: every effect has a failpoint before it. Then all that was in memory is thrown away.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
from plans import log as log_facts

from kappa import Table, Topic, pipeline
from kappa.build import folder, read_birth, table_path
from kappa.delta import files, newest_version
from kappa.engine.align import Aligner
from kappa.engine.catch_up import CatchUp
from kappa.engine.fold_slice import SliceFolder
from kappa.engine.legs import LegKind, Legs
from kappa.engine.maintenance import Maintenance
from kappa.engine.publisher import Publisher
from kappa.engine.source import Kafka
from kappa.errors import Broken
from kappa.failpoint import acting
from kappa.fingerprint import version_of
from kappa.frontier import Frontiers
from kappa.journal import Journal
from kappa.kept import kept_of
from kappa.lock import Lock
from kappa.log.reader import Record
from kappa.offsets import Offsets
from kappa.settings import RolloutSettings
from kappa.shape import table_births
from kappa.slices import Slice
from kappa.stopped import Stopped, ensure_not_stopped, put_stopped, read_stopped
from kappa.stopwatch import Stopwatch
from kappa.store import Store
from replay.controller import Controller
from replay.gc import gc
from replay.observed import Declared, Observed
from replay.plan import Plan, make_plan
from replay.retire import data_of
from replay.rollout import Phase, Rollout, State, fold
from replay.stage import stage
from replay.verify import Means, ensure_verified
from serving.catalog import pin

SHIPS = Topic("ships", event="id string not null, name string", key="id", partitions=2)
HOUR = 3600.0
# More than any story takes; one that takes more has come to a halt.
_MOST_ROUNDS = 200


class Died(BaseException):  # no Exception: what answers errors must not answer a death
    """This process was killed."""


class Doom:
    """Counts the failpoints that are passed, and kills at some of them, once each. Who is dead passes none any more."""

    def __init__(self, points: Mapping[str, int] | None = None) -> None:
        """`points` says at which passing of each."""
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


class Patience(threading.Event):
    """A stop that is never asked for. Nobody else moves while one waits, so who waits would do so for ever."""

    def wait(self, timeout: float | None = None) -> bool:
        raise AssertionError(f"it would wait for ever (in naps of {timeout} s)")


class FakeLog:
    """A topic of two partitions: even keys in one, odd keys in the other, and what is no JSON in either."""

    def __init__(self) -> None:
        self.records: dict[int, list[tuple[bytes, bytes]]] = {0: [], 1: []}
        self.ids: dict[str, str] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self.records.values()))

    def ensure(self, count: int) -> None:
        """Sees that so many events are in it."""
        for number in range(self.count, count):
            value = b"{" if number % 3 == 2 else json.dumps({"id": f"k{number % 4}", "name": f"ship {number}"}).encode()
            self.records[number % 2].append((f"k{number % 4}".encode(), value))

    def end(self, topics: Iterable[str]) -> Offsets:
        return Offsets({topic: {partition: len(records) for partition, records in self.records.items()} for topic in topics})

    def facts(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id=f"id-of-{name}", name=name)

    def expected(self, at: Offsets) -> dict[str, str]:
        """What the table holds when it has folded the log up to these offsets, by plain Python."""
        valid = [json.loads(value) for partition, records in self.records.items() for _, value in records[: at.at("ships", partition)] if value != b"{"]
        return {event["id"]: event["name"] for event in valid}


class JobLog:
    """The log as one build's job sees it: to a cursed one the topic was made anew."""

    def __init__(self, log: FakeLog, *, cursed: bool) -> None:
        self._log, self._cursed = log, cursed
        self.end = log.end

    def facts(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id="another" if self._cursed else f"id-of-{name}")

    def reader(self) -> JobLog:
        return self

    def read(self, start: Offsets, end: Offsets) -> Iterator[Record]:
        for topic, partition, last in end.items():
            for offset in range(start.at(topic, partition), last):
                key, value = self._log.records[partition][offset]
                yield Record(topic, partition, offset, 1_000 * offset + partition, key, value, ())

    def close(self) -> None:
        pass


def declared(version: str) -> Declared:
    def nothing() -> dict[str, object]:
        return {}

    made = pipeline(name="ships", reads={"ships": SHIPS}, writes=[Table("ships", latest=SHIPS, checks=["id is not null"])])(nothing)
    parts = {"function pipelines/ships.py:ships": version}
    return Declared(made, "pipelines.ships", version_of(parts), parts, table_births(made, {}), {"pipelines/ships.py": version.encode(), "pipelines/more.py": b""})


class Job:
    """A build's job: the lock, its bounded legs, and a tail whose batches are planned in a checkpoint, as Spark does it."""

    def __init__(self, world: World, build: str, *, again: bool) -> None:
        self._world, self.build = world, build
        self._store = world.store
        with ExitStack() as undone:
            self._lock = Lock(self._store.path(f"{folder(build)}/lock"), what=build)
            self._lock.acquire()
            undone.callback(self._lock.release)
            birth = read_birth(self._store, build)
            log = JobLog(world.log, cursed=birth.version in world.cursed)
            self._slices = SliceFolder(self._store, birth, declared("any").pipeline, log, driver_rows=1_000)  # type: ignore[arg-type]
            undone.callback(self._slices.close)
            try:
                self._slices.check_topics()
            except Broken as error:
                put_stopped(self._store, build, error)
                raise
            self.publisher = Publisher(self._store, birth, hold_seconds=10, keep_every_seconds=world.keep_every_seconds, clock=lambda: world.steady)
            self.publisher.take_over(self._slices.first_frontier())
            self._maintenance = Maintenance(self._store, build, self._slices.writers, self.publisher, seconds=0, keep_seconds=world.keep_seconds, clock=world.clock)
            self._legs = Legs(self._store, build)
            aligner = Aligner(self._store, birth, lease_seconds=60, clock=world.clock)
            self._bounded = CatchUp(self._legs, self._slices, self.publisher, self._maintenance, aligner, log=log, kafka=Kafka("", {}), topics=("ships",))  # type: ignore[arg-type]
            self._again = again
            self._tail: int | None = None
            undone.pop_all()

    def step(self) -> None:
        self.publisher.look()
        if self.publisher.is_held():
            return
        if self._tail is None:
            self._begin()
        else:
            self._batch()
        self._maintenance.run_if_due()

    def close(self) -> None:
        self._slices.close()
        self._lock.release()

    def _begin(self) -> None:
        stop, size = Patience(), {"slice_records": self._world.slice_records, "small": 2}
        if not self._again and not self._legs.has_tail():
            self._bounded.run(lambda: None, stop, **size)  # type: ignore[arg-type, return-value]
        leg = self._bounded.align(lambda: None, stop, again=self._again, **size)  # type: ignore[arg-type, return-value]
        assert leg is not None
        assert leg.kind is LegKind.TAIL
        self._tail = leg.number
        ensure_not_stopped(self._store, self.build)
        self._start = leg.start

    def _batch(self) -> None:
        top = f"{folder(self.build)}/checkpoint/{self._tail}"
        planned, done = len(self._store.names(f"{top}/offsets")), len(self._store.names(f"{top}/commits"))
        if planned == done:
            start = self._start if done == 0 else Offsets.parse(self._store.get_json(f"{top}/offsets/{done - 1}"))
            end = self._world.log.end(["ships"])
            if end.equals(start):
                return
            assert self._store.put_new_json(f"{top}/offsets/{done}", end.plain())
        ends = [self._start, *(Offsets.parse(self._store.get_json(f"{top}/offsets/{number}")) for number in range(done + 1))]
        assert self._tail is not None
        self._slices.fold(Slice(self._tail, done, ends[-2], ends[-1]), None, None, self.publisher, Stopwatch())  # type: ignore[arg-type]
        self._store.put_new_json(f"{top}/commits/{done}", {})


@dataclass
class World:
    """The platform, and a reader beside it that never dies and sees everything."""

    store: Store
    doom: Doom
    keep_every_seconds: float = 60.0
    keep_seconds: float = HOUR
    slice_records: int = 6

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
        """A new supervisor: it knows what is in the store."""
        self.doom.dead = False
        self.jobs: dict[str, Job] = {}
        self.stopped: dict[str, Stopped] = {}
        self.aligning: set[str] = set()
        self.controller = Controller(self.store, log=self.log, processes=self, rules=RolloutSettings(), clock=self.clock)  # type: ignore[arg-type]

    def end(self) -> None:
        """The kernel closes what a process had open."""
        for job in self.jobs.values():
            job.close()
        self.jobs = {}

    def clock(self) -> float:
        return time.time() + self.ahead

    def state(self) -> State:
        return fold(Journal(self.store).after(0))

    # What the controller wants of processes.

    def job_runs(self, build: str) -> bool:
        return build in self.jobs

    def job_stopped(self, build: str) -> Stopped | None:
        return self.stopped.get(build)

    def job_deaths(self, _build: str) -> int:
        return 0

    def ensure_aligned_again(self, build: str) -> None:
        self.aligning.add(build)

    def ensure_verifying(self, rollout: int) -> str | None:
        ensure_verified(self.store, rollout, Means(lease_seconds=60))
        return None

    # What happens.

    def round(self) -> None:
        """All move on once: jobs, the one that serves first, then the controller."""
        state = self.state()
        active = state.active("ships")
        holding = active is not None and active.phase is Phase.HOLDING
        wanted = state.wanted_builds()
        if holding and self.jobless(active):
            wanted -= {state.serving["ships"]}
        for build in tuple(self.jobs):
            if build not in wanted or build in self.aligning:
                self.jobs.pop(build).close()
        for build in sorted(wanted, key=lambda each: each != state.serving.get("ships")):
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
        one = declared(version)
        births = {build: read_birth(self.store, build) for build in state.wanted_builds()}
        return make_plan(Observed(frozenset({"ships"}), {"ships": one}, state, births, log_facts(ids={"ships": "id-of-ships"})))

    def stage(self, version: str, *, auto_promote: bool = True) -> None:
        stage(self.store, self.plan(version, self.state()), auto_promote=auto_promote)

    def rollouts(self, version: str) -> list[Rollout]:
        of = declared(version).version
        return [rollout for rollout in self.state().rollouts if rollout.version == of]

    def serves(self, version: str) -> bool:
        state = self.state()
        return "ships" in state.serving and state.versions[state.serving["ships"]] == declared(version).version

    def is_gone(self, rollout: Rollout) -> bool:
        return rollout.build in self.state().retired and not any(data_of(self.store, rollout.build))

    def collect(self) -> None:
        gc(self.store, keep_seconds=self.keep_seconds, now=self.clock())

    # What must hold.

    def look(self) -> None:
        """A reader comes: nothing has gone back (I3), and what it sees is what the log makes (I1)."""
        self.doom.spares = True
        try:
            self.state()
            with pin(self.store, lease_seconds=60, clock=self.clock) as pinned:
                snapshot = pinned.snapshot
                if not snapshot.serving:
                    assert self.shown == (0, Offsets())
                    return
                frontier = snapshot.frontiers[snapshot.serving["ships"]]
                generation, offsets = self.shown
                assert snapshot.generation >= generation
                assert frontier.offsets.covers(offsets), f"{frontier.offsets} after {offsets}"
                paths = files(table_path(self.store, frontier.build, "ships"), frontier.versions["ships"])
                rows = {row["id"]: row["name"] for path in paths for row in pq.ParquetFile(path).read().to_pylist()}
                assert rows == self.log.expected(frontier.offsets), frontier
                pinned.confirm()
            self.shown = snapshot.generation, frontier.offsets
        finally:
            self.doom.spares = False

    def check_collected(self) -> None:
        """After collection files on disk are files referenced (I5), and no lease is left."""
        state = self.state()
        assert self.store.names("leases") == ()
        assert {path.name for path in self.store.path("builds").iterdir()} == set(state.versions)
        for build in state.versions:
            if build in state.retired:
                assert {path.name for path in self.store.path(folder(build)).iterdir()} <= {"birth.json", "lock"}
                continue
            newest = Frontiers(self.store, build).newest()
            assert newest is not None
            assert len(self.store.names(f"{folder(build)}/frontier")) == 1
            assert len(self.store.names(f"{folder(build)}/floor")) == 1
            for table in read_birth(self.store, build).tables:
                path = table_path(self.store, build, table.name)
                last = newest_version(path)
                assert last is not None
                versions = {last, newest.versions[table.name], *(kept.frontier.versions[table.name] for kept in kept_of(self.store, build))}
                on_disk = {str(file) for file in Path(path).iterdir() if file.is_file()}
                assert on_disk == {file for version in versions for file in files(path, version)}

    def summary(self) -> dict[str, object]:
        """What the story has come to, builds named by their versions."""
        state = self.state()
        return {
            "rollouts": [(rollout.version, rollout.phase, rollout.switch) for rollout in state.rollouts],
            "generation": state.generation,
            "serving": {name: state.versions[build] for name, build in state.serving.items()},
            "idle": {name: state.versions[build] for name, build in state.idle.items()},
            "retired": sorted(state.versions[build] for build in state.retired),
            "shown": self.shown,
            "left": {state.versions[build]: sorted(path.name for path in self.store.path(folder(build)).iterdir()) for build in state.versions},
        }


# One thing that an operator wants: it does what there is to do for it now, and says whether it has come about.
Goal = Callable[[World], bool]


@dataclass(frozen=True)
class Story:
    """Goals, one after the other; the last is always to clean up."""

    goals: tuple[Goal, ...]
    settings: Mapping[str, float] = field(default_factory=dict)

    def play(self, store: Store, doom: Doom) -> World:
        """Plays it to its end; who dies begins again at the goal where it was."""
        with acting(doom):
            world = World(store, doom, **self.settings)  # type: ignore[arg-type]
            for goal in self.goals:
                _reach(world, goal)
            world.end()
        return world


def _reach(world: World, goal: Goal) -> None:
    for _ in range(_MOST_ROUNDS):
        try:
            reached = goal(world)
            if not reached:
                world.round()
        except Died:
            world.end()
            world.look()
            world.begin()
            continue
        world.look()
        if reached:
            return
    raise AssertionError(f"{goal.__name__} was not reached: {world.controller.waits} {world.state().rollouts[-1:]}")
