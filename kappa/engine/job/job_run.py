"""The work of a job on a leg, from loading the build's code snapshot to the last slice.

This module imports everything that takes long to import. job.py imports this module while Spark's
JVM boots.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kappa.base.process import yielding_to_others
from kappa.base.sections import EngineSettings
from kappa.base.settings import Settings
from kappa.base.units import parse_memory
from kappa.code.code_snapshot import load_snapshot
from kappa.declare.pipeline import Pipeline
from kappa.engine.job.bounded_legs import Aligner, CatchUp, live_beside
from kappa.engine.job.drift_watch import DriftWatch
from kappa.engine.job.legs import LegKind, Legs
from kappa.engine.job.reject_counts import ensure_rejects_within_limit
from kappa.engine.job.tail import Tail
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.engine.slice import SliceRunner
from kappa.engine.spark.workers import tell_workers
from kappa.engine.write.commit import Merging
from kappa.engine.write.maintenance import Maintenance
from kappa.engine.write.publisher import Publisher, Stopping
from kappa.kafka.client import Log
from kappa.kafka.client_options import client_options
from kappa.state.build import Birth, folded_by, read_birth
from kappa.state.build_status import ensure_not_stopped, watch_slice
from kappa.state.drift import read_drifts
from kappa.state.frontier import Frontiers
from kappa.state.store import Store
from kappa.tables.branch import keep_base

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.spark.leg_session import LegSession


@dataclass(frozen=True, slots=True)
class Job:
    """The objects of a build's job that all of the build's legs use.

    `session` returns the leg's Spark session. If `stop` is set, the job ends after the current
    slice.
    """

    store: Store
    birth: Birth
    pipeline: Pipeline
    engine: EngineSettings
    log: Log
    source: LogSource
    slices: SliceRunner
    publisher: Publisher
    maintenance: Maintenance
    session: Callable[[], SparkSession]
    stop: threading.Event


class Legwork:
    """The part of a job that folds one leg of a build, after the start of Spark's JVM."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        bootstrap_servers: str,
        build: str,
        session: LegSession,
        stop: threading.Event,
        *,
        nice: int = 0,
    ) -> None:
        """Stores the objects that job.py has created.

        `nice` is the niceness of the bounded legs before the build's first tail.
        """
        self._nice = nice
        self._store = store
        self._settings = settings
        self._build = build
        self._kafka = KafkaAccess(bootstrap_servers, client_options(settings))
        self._leg_session = session
        self._stop = stop

    def run(self, kind: LegKind) -> None:
        """Runs a leg of the given kind to its end, or until the job is asked to stop."""
        try:
            self._run(kind)
        except Stopping:
            return

    def _run(self, kind: LegKind) -> None:
        own = read_birth(self._store, self._build)
        code = (
            own
            if kind is not LegKind.BASE or own.base is None
            else read_birth(self._store, own.base.build)
        )
        # Columns are equal; the order of columns, and the other inputs of the steps, are the code's
        # own.
        birth = replace(own, tables=code.tables)
        log = Log(self._kafka.bootstrap_servers, client_options(self._settings))
        pipeline = load_snapshot(self._store, code)
        source = LogSource(self._kafka, log)
        engine = self._settings.engine
        history = self._settings.history
        publisher = Publisher(
            self._store,
            birth,
            hold_seconds=self._settings.rollout.hold_seconds,
            keep_every_seconds=history.every_seconds,
            stop=self._stop,
        )
        publisher.take_over()
        newest = Frontiers(self._store, self._build).newest()
        legs = Legs(self._store, self._build)
        within = newest is not None and legs.is_within(newest.offsets)
        live = live_beside(self._store, birth)
        slices = SliceRunner(
            self._store,
            birth,
            pipeline,
            log,
            driver_rows=engine.driver_rows,
            views_are_current=not within,
            merging=Merging(
                engine.merge_bytes,
                engine.large_rows,
                secrets.token_hex(8) if self._leg_session.is_elsewhere else "",
                parse_memory(self._settings.verify.temp_size),
            ),
            slice_seconds=engine.slice_seconds,
            cores=engine.cores,
            drift=DriftWatch(
                self._store,
                self._build,
                pipeline.topics,
                serving=()
                if live is None
                else read_drifts(self._store, folded_by(self._store, live)),
                only_known=live is not None and within,
            ),
        )
        try:
            slices.guard.check_topics()
            slices.guard.check_heard(newest, datetime.now(UTC))
            slices.guard.check_kept(publisher.begin(slices.first_frontier()).offsets)
            slices.guard.check_end(publisher.newest)
            keep_base(self._store, birth, publisher.newest)
            maintenance = Maintenance(
                self._store,
                birth,
                slices.writers,
                publisher,
                seconds=engine.maintenance_seconds,
                keep_seconds=history.keep_seconds,
            )
            job = Job(
                self._store,
                birth,
                pipeline,
                engine,
                log,
                source,
                slices,
                publisher,
                maintenance,
                self._session,
                self._stop,
            )
            self._run_leg(kind, job)
            slices.rest(ends=True)
        finally:
            slices.close()
            source.close()

    def _run_leg(self, kind: LegKind, job: Job) -> None:
        bounded = CatchUp(
            job,
            Aligner(self._store, job.birth, lease_seconds=self._settings.rollout.lease_seconds),
            ensure_rejects_within_limit=partial(
                ensure_rejects_within_limit, self._store, job.birth
            ),
            watch=partial(watch_slice, self._store, self._build),
        )
        match kind:
            case LegKind.BASE:
                ensure_not_stopped(self._store, self._build)
                bounded.run_to_base()
                keep_base(self._store, job.birth, job.publisher.newest)
            case LegKind.CATCH_UP:
                ensure_not_stopped(self._store, self._build)
                tables = job.birth.tables
                # Plans of these tables stay with the session that made the plans.
                plans_stay = any(table.is_combined or table.steps_over for table in tables)
                bounded.run(
                    at_hand=None if plans_stay else self._at_hand,
                    is_warm=not plans_stay and self._leg_session.has_spare,
                )
            case LegKind.ALIGNMENT | LegKind.TAIL:
                # A tail whose topic has lost the next records goes on by way of the archive, too.
                again = kind is LegKind.ALIGNMENT or job.slices.guard.wants_archive(
                    job.publisher.newest.offsets
                )
                # The plan is made while the first slice is read.
                job.slices.prepare(job.session)
                # A build with a tail may serve.
                has_tail = Legs(self._store, self._build).has_tail()
                with yielding_to_others(0 if has_tail else self._nice):
                    leg = bounded.align(again=again)
                if leg is not None:
                    Tail(job, leg).run(self._kafka)

    def _session(self) -> SparkSession:
        return self._prepared_session(self._leg_session())

    def _at_hand(self) -> SparkSession:
        """Returns a session for small slices at the beginning of a long catch-up."""
        return self._prepared_session(self._leg_session.at_hand())

    def _prepared_session(self, spark: SparkSession) -> SparkSession:
        if self._stop.is_set():
            raise Stopping
        # The session's JVM was started before the build's code was loaded.
        tell_workers(spark)
        self._leg_session.begin_workers(self._stop.is_set)
        return spark
