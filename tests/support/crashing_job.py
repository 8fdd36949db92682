"""The log and the jobs of a platform that can die at any failpoint (crashing.py).

Spark and Kafka are replaced by simple objects; everything else is real.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING

from kappa import Table, Topic, View, pipeline
from kappa.base.clock import Stopwatch
from kappa.base.errors import Broken
from kappa.base.sections import EngineSettings
from kappa.code.fingerprint import version_of
from kappa.engine.job.bounded_legs import Aligner, CatchUp
from kappa.engine.job.job_run import Job as LegJob
from kappa.engine.job.legs import LegKind, Legs
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.engine.slice import SliceRunner
from kappa.engine.write.maintenance import Maintenance
from kappa.engine.write.publisher import Publisher
from kappa.kafka.reader import Record
from kappa.replay.rollout.plan.facts import Declared
from kappa.state.build import folder_of_build, read_birth
from kappa.state.build_status import ensure_not_stopped, put_stopped
from kappa.state.lock import Lock
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.tables.branch import keep_base, stands_before_base
from kappa.tables.shape import table_births

if TYPE_CHECKING:
    from crashing import World

SHIPS = Topic("ships", event="id string not null, name string", key="id", partitions=2)


class Patience(threading.Event):
    """A stop event that is never set, and that fails if something waits for it.

    Nothing else moves while one process waits, so the wait would never end.
    """

    def wait(self, timeout: float | None = None) -> bool:
        raise AssertionError(f"it would wait for ever (in naps of {timeout} s)")


class Waiting(threading.Event):
    """A stop event that is never set. While a job waits for it, a second passes for all."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002  # an event's form
        self._world.steady += 1
        return False


class FakeLog:
    """A topic of two partitions: even keys in one, odd keys in the other, invalid text in both.

    The invalid text is not JSON.
    """

    def __init__(self) -> None:
        self.records: dict[int, list[tuple[bytes, bytes]]] = {0: [], 1: []}
        self.ids: dict[str, str] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self.records.values()))

    def ensure(self, count: int) -> None:
        """Adds events until the log has `count` events."""
        for number in range(self.count, count):
            value = (
                b"{"
                if number % 3 == 2
                else json.dumps({"id": f"k{number % 4}", "name": f"ship {number}"}).encode()
            )
            self.records[number % 2].append((f"k{number % 4}".encode(), value))

    def end(self, topics: Iterable[str]) -> Offsets:
        return Offsets(
            {
                topic: {partition: len(records) for partition, records in self.records.items()}
                for topic in topics
            }
        )

    def facts(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id=f"id-of-{name}", name=name)

    def expected(self, at: Offsets) -> dict[str, str]:
        """Computes in plain Python the content of the table after the log up to these offsets."""
        valid = [
            json.loads(value)
            for partition, records in self.records.items()
            for _, value in records[: at.at("ships", partition)]
            if value != b"{"
        ]
        return {event["id"]: event["name"] for event in valid}


class JobLog:
    """The log as one build's job sees it. To a cursed job, the topic appears as created again."""

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
    """Returns the declaration of a version: `CODE`, or `CODE/VIEW` with one more view."""
    code, _, view = version.partition("/")

    def nothing() -> dict[str, object]:
        return {}

    made = pipeline(
        name="ships",
        reads={"ships": SHIPS},
        writes=[
            Table("ships", latest=SHIPS, checks=["id is not null"]),
            *([View(view, "select name from ships")] if view else []),
        ],
    )(nothing)
    parts = {"function pipelines/ships.py:ships": code, **({f"view {view}": "1"} if view else {})}
    return Declared(
        made,
        "pipelines.ships",
        version_of(parts),
        parts,
        table_births(made, {}),
        {"pipelines/ships.py": version.encode(), "pipelines/more.py": b""},
    )


class Job:
    """A build's job: the lock, its bounded legs, and a tail."""

    def __init__(self, world: World, build: str, *, again: bool) -> None:
        self._world, self.build = world, build
        self._store = world.store
        with ExitStack() as undone:
            self._lock = Lock(self._store.local.path(f"{folder_of_build(build)}/lock"), what=build)
            self._lock.acquire()
            undone.callback(self._lock.release)
            birth = read_birth(self._store, build)
            log = JobLog(world.log, cursed=birth.version in world.cursed)
            self._source = LogSource(KafkaAccess("", {}), log)  # type: ignore[arg-type]
            self.publisher = Publisher(
                self._store,
                birth,
                hold_seconds=10,
                keep_every_seconds=world.keep_every_seconds,
                stop=Waiting(world),
                clock=lambda: world.steady,
            )
            self.publisher.take_over()
            pipeline = declared("any").pipeline
            self._slices = SliceRunner(self._store, birth, pipeline, log, driver_rows=1_000)  # type: ignore[arg-type]
            undone.callback(self._slices.close)
            try:
                self._slices.guard.check_topics()
            except Broken as error:
                put_stopped(self._store, build, error)
                raise
            self.publisher.begin(self._slices.first_frontier())
            keep_base(self._store, birth, self.publisher.newest)
            self._birth = birth
            self._maintenance = maintenance = Maintenance(
                self._store,
                birth,
                self._slices.writers,
                self.publisher,
                seconds=0,
                keep_seconds=world.keep_seconds,
                clock=world.clock,
            )
            self._legs = Legs(self._store, build)
            aligner = Aligner(self._store, birth, lease_seconds=60, clock=world.clock)
            job = LegJob(
                self._store,
                birth,
                pipeline,
                # A tiny rest is one offset.
                EngineSettings(
                    slice_records=world.slice_records,
                    tail_records=2,
                    driver_rows=world.driver_rows,
                ),
                log,
                self._source,
                self._slices,
                self.publisher,
                maintenance,
                lambda: None,
                Patience(),
            )  # type: ignore[arg-type]
            self._bounded = CatchUp(job, aligner, ensure_rejects_within_limit=lambda *_: None)
            in_pairs = dataclasses.replace(job, engine=EngineSettings(slice_records=2))
            self._base = CatchUp(in_pairs, aligner, ensure_rejects_within_limit=lambda *_: None)
            self._again = again
            self._tail: int | None = None
            undone.pop_all()

    def step(self) -> None:
        self.publisher.follow_journal()
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
        if stands_before_base(self._store, self.build):
            self._base.run_to_base()
            keep_base(self._store, self._birth, self.publisher.newest)
        if not self._again and not self._legs.has_tail():
            self._bounded.run()
        leg = self._bounded.align(again=self._again)
        assert leg is not None
        assert leg.kind is LegKind.TAIL
        self._tail = leg.number
        ensure_not_stopped(self._store, self.build)

    def _batch(self) -> None:
        newest, end = self.publisher.newest, self._world.log.end(["ships"])
        if end.equals(newest.offsets):
            return
        assert self._tail is not None
        number = newest.slice + 1 if newest.leg == self._tail else 0
        self._slices.run_slice(
            Slice(self._tail, number, newest.offsets, end),
            lambda: None,
            self._source,
            self.publisher,
            Stopwatch(),
        )  # type: ignore[arg-type]
