"""A job process: folds the log into the tables of one build, until it is asked to stop or a law does not hold.

    python -m kappa.engine.job --project DIR --root ROOT --bootstrap HOST:PORT --build BUILD --leg base|catch-up|alignment|tail

Exit code 0: asked to stop (SIGTERM), or the catch-up is at its end, or the base of a branch is reached, by the code of the build that it stands on. An `alignment` goes on with the tail, in the same process. Anything else is an error, said on stderr. One that a
restart would not help (a law, a user's mistake) is also left in the build's `stopped.json`; whoever starts jobs starts this
one again after any other. Read next: engine/catch_up.py and engine/tail.py.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from kappa.artifact import load_snapshot
from kappa.branch import keep_base
from kappa.build import Birth, folder, read_birth
from kappa.engine.align import Aligner
from kappa.engine.catch_up import CatchUp
from kappa.engine.fold_slice import SliceFolder
from kappa.engine.legs import LegKind, Legs
from kappa.engine.maintenance import Maintenance
from kappa.engine.publisher import Publisher, Stopping
from kappa.engine.rejected import ensure_within
from kappa.engine.session import Profile, end_process, start_project_session
from kappa.engine.source import Kafka, Source
from kappa.engine.tail import Tail
from kappa.errors import Broken, ExitCode, KappaError, UsageError
from kappa.frontier import Frontiers
from kappa.lock import Lock
from kappa.log.client import Log
from kappa.pipeline import Pipeline
from kappa.settings import Settings, load_settings
from kappa.stopped import ensure_not_stopped, put_stopped
from kappa.store import Store


class Job:
    """One build's job, from the lock to the last slice."""

    def __init__(self, settings: Settings, bootstrap_servers: str, build: str) -> None:
        self._settings = settings
        self._build = build
        self._store = Store(settings.root_url)
        self._kafka = Kafka(bootstrap_servers, settings.kafka.options)
        self._stop = threading.Event()
        self._publisher: Publisher | None = None

    def stop(self) -> None:
        """Asks the job to end after the slice that it is in."""
        self._stop.set()
        if self._publisher is not None:
            self._publisher.stop()

    def run(self, kind: LegKind) -> None:
        """Runs a leg while holding the build's lock. Raises Conflict where another process holds it."""
        with Lock(self._store.path(f"{folder(self._build)}/lock"), what=f"build {self._build}"):
            try:
                self._run(kind)
            except (Broken, UsageError) as error:
                put_stopped(self._store, self._build, error)
                raise
            except Stopping:
                return

    def _run(self, kind: LegKind) -> None:
        own = read_birth(self._store, self._build)
        code = own if kind is not LegKind.BASE or own.base is None else read_birth(self._store, own.base.build)
        # Tables of equal columns: in which order the code gives them, and what its steps see besides, is its own.
        birth = replace(own, tables=code.tables)
        log = Log(self._kafka.bootstrap_servers, self._settings.kafka.options)
        # The session's workers import what this process imports, so the snapshot comes first.
        pipeline = load_snapshot(self._store, code)
        source = Source(self._kafka, log)
        slices = SliceFolder(self._store, birth, pipeline, log, driver_rows=self._settings.engine.driver_rows)
        try:
            slices.check_topics()
            history = self._settings.history
            publisher = Publisher(self._store, birth, hold_seconds=self._settings.rollout.hold_seconds, keep_every_seconds=history.every_seconds)
            self._publisher = publisher
            slices.check_heard(Frontiers(self._store, self._build).newest(), datetime.now(UTC))
            slices.check_kept(publisher.take_over(slices.first_frontier()).offsets)
            keep_base(self._store, birth, publisher.newest)
            maintenance = Maintenance(self._store, self._build, slices.writers, publisher, seconds=self._settings.engine.maintenance_seconds, keep_seconds=history.keep_seconds)
            runner = self._bounded_legs(birth, slices, source, publisher, maintenance, log)
            match kind:
                case LegKind.BASE:
                    self._base(birth, runner)
                    keep_base(self._store, birth, publisher.newest)
                case LegKind.CATCH_UP:
                    self._catch_up(runner)
                case LegKind.ALIGNMENT | LegKind.TAIL:
                    # A tail whose topic has lost what comes next goes on by way of the archive, too.
                    again = kind is LegKind.ALIGNMENT or slices.wants_archive(publisher.newest.offsets)
                    self._tail(runner, pipeline, slices, source, publisher, maintenance, log, again=again)
            slices.rest(ends=True)
        finally:
            slices.close()
            source.close()

    def _bounded_legs(self, birth: Birth, slices: SliceFolder, source: Source, publisher: Publisher, maintenance: Maintenance, log: Log) -> CatchUp:
        topics = tuple(topic.name for topic in birth.topics)
        aligner = Aligner(self._store, birth, lease_seconds=self._settings.rollout.lease_seconds)
        within = partial(ensure_within, self._store, birth)
        return CatchUp(Legs(self._store, self._build), slices, publisher, maintenance, aligner, log=log, source=source, topics=topics, ensure_within=within)

    def _base(self, birth: Birth, runner: CatchUp) -> None:
        with _Session(self._store, self._settings, self._build, Profile.CATCH_UP) as session:
            ensure_not_stopped(self._store, self._build)
            runner.to_base(birth.begins, session, self._stop, slice_records=self._settings.engine.slice_records)

    def _catch_up(self, runner: CatchUp) -> None:
        engine = self._settings.engine
        with _Session(self._store, self._settings, self._build, Profile.CATCH_UP) as session:
            ensure_not_stopped(self._store, self._build)
            runner.run(session, self._stop, slice_records=engine.slice_records, small=engine.tail_records, tiny=min(engine.driver_rows // 2, engine.tail_records))

    def _tail(self, bounded: CatchUp, pipeline: Pipeline, slices: SliceFolder, source: Source, publisher: Publisher, maintenance: Maintenance, log: Log, *, again: bool) -> None:
        engine = self._settings.engine
        with _Session(self._store, self._settings, self._build, Profile.TAIL) as session:
            leg = bounded.align(session, self._stop, slice_records=engine.slice_records, small=engine.tail_records, again=again)
            if leg is None:
                return
            checkpoint = self._store.path(f"{folder(self._build)}/checkpoint/{leg.number}")
            runner = Tail(leg, checkpoint, pipeline, slices, source, publisher, maintenance)
            runner.run(session(), self._kafka, log, self._stop, at_most=engine.tail_records, on_started=lambda: ensure_not_stopped(self._store, self._build))


class _Session:
    """Spark, started when it is asked for first, and ended with the leg."""

    def __init__(self, store: Store, settings: Settings, build: str, profile: Profile) -> None:
        self._settings = settings
        self._build = build
        self._profile = profile
        # The lock's holder alone comes here, so what a dead one left is nobody's.
        self._folder: Path = store.path(f"{folder(build)}/spark")
        self._running: SparkSession | None = None

    def __enter__(self) -> Callable[[], SparkSession]:
        return self._session

    def __exit__(self, *_: object) -> None:
        if self._running is not None:
            self._running.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _session(self) -> SparkSession:
        if self._running is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._running = start_project_session(self._settings, profile=self._profile, name=self._build, local_dir=self._folder)
        return self._running


def main(arguments: list[str] | None = None) -> int:
    """The command: answers by its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kappa.engine.job")
    for name in ("project", "root", "bootstrap", "build"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--leg", required=True, type=LegKind, choices=list(LegKind))
    given = parser.parse_args(arguments)
    try:
        job = Job(load_settings(Path(given.project), root=given.root), given.bootstrap, given.build)
        signal.signal(signal.SIGTERM, lambda _number, _frame: job.stop())
        job.run(given.leg)
    except KappaError as error:
        print(f"{error.message}\n{error.hint}".strip(), file=sys.stderr, flush=True)
        return int(error.exit_code)
    return int(ExitCode.OK)


if __name__ == "__main__":
    end_process(main())
