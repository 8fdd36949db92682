"""Work of a job on a leg, from the code to the last slice.

The code is the build's own. This module imports everything that takes long to import, so job.py
imports the module while Spark's JVM boots.
"""

from __future__ import annotations

import secrets
import threading
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kappa.base.settings import Settings
from kappa.code.code_snapshot import load_snapshot
from kappa.declare.pipeline import Pipeline
from kappa.engine.job.align import Aligner
from kappa.engine.job.catch_up import CatchUp
from kappa.engine.job.legs import LegKind, Legs
from kappa.engine.job.rejected import ensure_within
from kappa.engine.job.slice_folder import SliceFolder
from kappa.engine.job.tail import Tail
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.engine.spark.workers import tell_workers
from kappa.engine.write.commit import Merging
from kappa.engine.write.maintenance import Maintenance
from kappa.engine.write.publisher import Publisher, Stopping
from kappa.kafka.client import Log
from kappa.kafka.client_options import client_options
from kappa.state.build import Birth, folder_of_build, read_birth
from kappa.state.build_status import ensure_not_stopped, watch_slice
from kappa.state.frontier import Frontiers
from kappa.state.store import Store
from kappa.tables.branch import keep_base

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.spark.leg_session import LegSession


class Legwork:
    """Work of a build's job."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        bootstrap_servers: str,
        build: str,
        session: LegSession,
        stop: threading.Event,
    ) -> None:
        self._store = store
        self._settings = settings
        self._build = build
        self._kafka = KafkaAccess(bootstrap_servers, client_options(settings))
        self._leg_session = session
        self._stop = stop

    def run(self, kind: LegKind) -> None:
        """Runs a leg to its end, or until asked to stop."""
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
        slices = SliceFolder(
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
            ),
            slice_seconds=engine.slice_seconds,
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
                seconds=self._settings.engine.maintenance_seconds,
                keep_seconds=history.keep_seconds,
            )
            runner = self._bounded_legs(birth, slices, source, publisher, maintenance, log)
            match kind:
                case LegKind.BASE:
                    self._base(birth, runner)
                    keep_base(self._store, birth, publisher.newest)
                case LegKind.CATCH_UP:
                    self._catch_up(birth, runner)
                case LegKind.ALIGNMENT | LegKind.TAIL:
                    # A tail whose topic has lost the next records goes on by way of the archive,
                    # too.
                    again = kind is LegKind.ALIGNMENT or slices.guard.wants_archive(
                        publisher.newest.offsets
                    )
                    self._tail(
                        runner, pipeline, slices, source, publisher, maintenance, log, again=again
                    )
            slices.rest(ends=True)
        finally:
            slices.close()
            source.close()

    def _bounded_legs(
        self,
        birth: Birth,
        slices: SliceFolder,
        source: LogSource,
        publisher: Publisher,
        maintenance: Maintenance,
        log: Log,
    ) -> CatchUp:
        topics = tuple(topic.name for topic in birth.topics)
        aligner = Aligner(self._store, birth, lease_seconds=self._settings.rollout.lease_seconds)
        within = partial(ensure_within, self._store, birth)
        return CatchUp(
            Legs(self._store, self._build),
            slices,
            publisher,
            maintenance,
            aligner,
            log=log,
            source=source,
            topics=topics,
            ensure_within=within,
            watch=partial(watch_slice, self._store, self._build),
        )

    def _base(self, birth: Birth, runner: CatchUp) -> None:
        ensure_not_stopped(self._store, self._build)
        runner.to_base(
            birth.begins,
            self._session,
            self._stop,
            slice_records=self._settings.engine.slice_records,
        )

    def _catch_up(self, birth: Birth, runner: CatchUp) -> None:
        engine = self._settings.engine
        ensure_not_stopped(self._store, self._build)
        # Plans of these tables stay with the session that made the plans.
        plans_stay = any(table.is_combined or table.steps_over for table in birth.tables)
        runner.run(
            self._session,
            self._stop,
            at_hand=None if plans_stay else self._at_hand,
            is_warm=not plans_stay and self._leg_session.has_spare,
            slice_records=engine.slice_records,
            small=engine.tail_records,
            tiny=min(engine.driver_rows // 2, engine.tail_records),
        )

    def _tail(
        self,
        bounded: CatchUp,
        pipeline: Pipeline,
        slices: SliceFolder,
        source: LogSource,
        publisher: Publisher,
        maintenance: Maintenance,
        log: Log,
        *,
        again: bool,
    ) -> None:
        engine = self._settings.engine
        leg = bounded.align(
            self._session,
            self._stop,
            slice_records=engine.slice_records,
            small=engine.tail_records,
            again=again,
        )
        if leg is None:
            return
        checkpoint = self._store.local.path(f"{folder_of_build(self._build)}/checkpoint")
        runner = Tail(leg, checkpoint, pipeline, slices, source, publisher, maintenance)
        runner.run(
            self._session(),
            self._kafka,
            log,
            self._stop,
            at_most=engine.tail_records,
            in_bucket=not self._store.is_on_disk,
            on_started=lambda: ensure_not_stopped(self._store, self._build),
        )

    def _session(self) -> SparkSession:
        return self._told(self._leg_session())

    def _at_hand(self) -> SparkSession:
        """Returns a session for a long catch-up's first few records."""
        return self._told(self._leg_session.at_hand())

    def _told(self, spark: SparkSession) -> SparkSession:
        if self._stop.is_set():
            raise Stopping
        # The session's JVM was started before the build's code was loaded.
        tell_workers(spark)
        self._leg_session.begin_workers(self._stop.is_set)
        return spark
