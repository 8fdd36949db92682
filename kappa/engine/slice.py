"""The steps of a slice, from reading its offsets to publishing its frontier.

A slice is processed in seven steps:

- read: the job reads the records of a small slice; Spark workers read the records of a
  large slice
- decode: bytes become valid events and rejects; each topic is decoded once
- judge: a record becomes a reject if the user's function fails on it, or if it
  contributes to expired rows; then Kappa decides which redriven records are duplicates
- apply: the user's function computes rows for its tables
- combine: ordered folds combine their rows with the stored states of the keys
- commit: each table gets one commit; then the maintained views are updated
- publish: a frontier names the versions of all tables

Only the objects of slice_rows.py know whether the rows of a slice are in this process or in Spark.

The frontier alone decides which slices are folded. When a job begins, it reverts all commits after
the frontier. So after a crash between any two steps, the slice is folded again. After repeated
crashes, the slice is folded in parts. The job stops if a slice does not begin where the frontier
ends, or if a table has a version that the frontier does not name. These rules are the laws 1, 12, 2
and 18 in docs/design.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from kappa.base.clock import Stopwatch
from kappa.base.duck import progress_of_queries
from kappa.base.errors import Broken
from kappa.base.failpoint import failpoint
from kappa.base.process import cores_here
from kappa.declare.options import REJECTS
from kappa.declare.pipeline import OnError, Pipeline
from kappa.engine.fold.latest import latest_rows, refuse_truncations
from kappa.engine.fold.step_loop import FailedStep
from kappa.engine.function.failing_records import (
    MOST_FAILING,
    Culprit,
    TooManyFail,
    refused_culprits,
)
from kappa.engine.function.failure import REPLAY, Failure
from kappa.engine.function.function_rows import FunctionRows
from kappa.engine.function.redriven_records import settle_redriven
from kappa.engine.function.spark_errors import SPARK_ERRORS, translated
from kappa.engine.job.drift_watch import DriftWatch
from kappa.engine.job.next_mark import next_mark
from kappa.engine.job.ordered_steps import OrderedSteps, StepFails, noted_rejects
from kappa.engine.job.slice_limit import SliceLimit
from kappa.engine.job.splits import Splits
from kappa.engine.job.topic_guard import TopicGuard
from kappa.engine.read.archive_reader import Archives
from kappa.engine.read.identities import Identities
from kappa.engine.read.source import LogSource
from kappa.engine.slice_in_process import decode_here
from kappa.engine.slice_in_spark import SliceAtSpark
from kappa.engine.slice_rows import ContributedRows, SliceRows, TableRows
from kappa.engine.spark.session_control import progress_of_tasks
from kappa.engine.views.view_maintenance import MaintainedViews, open_tables
from kappa.engine.write.commit import AT_ONCE, Merging, TableWriter
from kappa.engine.write.publisher import Publisher
from kappa.kafka.client import Log
from kappa.records.decode.decode import TooManyBytesError
from kappa.records.decode.parquet_decoder import Remembering
from kappa.state.build import Birth, folder_of_build, slice_scratch
from kappa.state.build_status import DECODED, put_view_costs, read_view_costs, records_read
from kappa.state.frontier import Frontier
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.tables.delta import progress_of_acts
from kappa.tables.durable_versions import take_back_to_frontier
from kappa.tables.stored_table import strangers
from kappa.tables.versions import files


class _ToJudge(Exception):
    """A signal that a slice must be folded again, after its failing records have been rejected.

    The user's function fails on some records of the slice. Parts of the slice may already be
    committed as if no record failed.
    """


class _Failed:
    """The records of a slice on which ordered steps fail.

    When the slice is folded again, these records become rejects.
    """

    def __init__(self) -> None:
        self.culprits: list[Culprit] = []
        # The records of which the rejects tell although they are folded.
        self.noted: Sequence[FailedStep] | None = None
        # Whether steps over batches are given one row each, so that the record is known.
        self.one_by_one = False

    def add(self, fails: StepFails) -> None:
        self.one_by_one |= fails.is_unsure
        self.noted = fails.noted
        self.culprits += (
            Culprit(each.topic, each.partition, each.offset, Failure(each.line, each.error, REPLAY))
            for each in fails.failed
        )

    @property
    def are_too_many(self) -> bool:
        return len(self.culprits) > MOST_FAILING


@dataclass(frozen=True, slots=True)
class _Work:
    """The work on a slice, or on a part of a slice, that is being folded.

    Before the work, the tables are at the frontier `last`. The records in `failed` become rejects.
    """

    piece: Slice
    last: Frontier
    source: LogSource
    session: Callable[[], SparkSession]
    watch: Stopwatch
    views_at: Offsets | None
    failed: _Failed

    @property
    def views_are_due(self) -> bool:
        """Returns True if the maintained views must be computed at the end of this slice."""
        return self.views_at is None or self.piece.end.covers(self.views_at)


class SliceRunner:
    """An object that folds slices into the tables of a build, one slice after the other."""

    def __init__(
        self,
        store: Store,
        birth: Birth,
        pipeline: Pipeline,
        log: Log,
        *,
        driver_rows: int,
        views_are_current: bool = True,
        merging: Merging = AT_ONCE,
        slice_seconds: float = math.inf,
        archives: Archives | None = None,
        cores: int = 0,
        drift: DriftWatch | None = None,
    ) -> None:
        """Reverts all tables to the build's frontier, opens them, and creates missing tables.

        A slice of at most `driver_rows` offsets is decoded in this process, by `cores` threads (0:
        as many threads as this machine has cores). For a larger slice, `TableWriter` decides which
        tables are committed in this process. `slice_seconds` limits the time that a slice may take
        without progress. `views_are_current` is False if earlier slices have postponed the
        computation of maintained views. If `archives` is None, the archives of `store` are used. If
        `drift` is not None, `drift` searches the records, counts and rejects of each slice for
        drift.
        """
        births = {table.name: table for table in birth.tables}
        scratch = slice_scratch(store, birth.build, merging.elsewhere)
        self._birth = birth
        self._pipeline = pipeline
        self._driver_rows = driver_rows
        self._cores = cores or cores_here()
        self._drift = drift
        self._merging = merging
        self._slice_seconds = slice_seconds
        self._store = store
        own = folder_of_build(birth.build)
        self._decoded_folder = store.local.path(f"{own}/{DECODED}")
        self._decoded_elsewhere = f"{scratch}/decoded" if merging.elsewhere else None
        self.writers: list[TableWriter] = []
        self._view_costs = {**read_view_costs(store, birth.build)}
        self._open(views_are_current=views_are_current)
        self.splits = Splits(store, birth.build)
        self._origin = birth.origin_offsets
        memories = store.address(f"{own}/identities")
        self._identities = Identities(memories, pipeline.topics, self._origin)
        self.archives = archives or Archives(store, pipeline.topics, birth.topic_ids, log)
        self.guard = TopicGuard(birth, log, self.archives)
        self._function = FunctionRows(pipeline, births, scratch)
        self._steps = OrderedSteps(pipeline, births, f"{scratch}/steps", wakes_here=driver_rows)
        self._topic_watch = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._committing = ThreadPoolExecutor(len(self.writers), thread_name_prefix="commits")
        # The session and the stopwatch show a slice's progress.
        self._spark: SparkSession | None = None
        self._watch = Stopwatch()
        self._limit = SliceLimit(
            slice_seconds,
            str(pipeline.source),
            signs=self._signs,
            give_up=self.splits.give_up,
        )

    def versions(self) -> dict[str, int]:
        """Returns the newest version of each table, and of each table of recent rows, by name."""
        each = (writer.versions() for writer in self.writers)
        return {name: version for versions in each for name, version in versions.items()}

    def first_frontier(self) -> Frontier:
        """Returns the first frontier of a new build, before any slice.

        The frontier contains the offsets at which the build begins, and names version 0 of each
        table.
        """
        origin = self._birth.origin_offsets
        return Frontier(
            number=1,
            build=self._birth.build,
            epoch=1,
            offsets=origin,
            versions=dict.fromkeys(self.versions(), 0),
            published_at="",
        )

    def rest(self, *, ends: bool = False) -> None:
        """Stores the remembered identities that became due for storing while no slice arrived.

        If `ends` is True, this process stops and another process continues the build. Then all
        identities are stored that the other process would otherwise have to find again by reading
        the log.
        """
        self._identities.rest(ends=ends)

    def prepare(self, session: Callable[[], SparkSession]) -> None:
        """Starts a background thread that plans the function for small slices.

        The thread calls `session` and waits for the Spark session that it returns.
        """
        self._function.prepare(session)

    def run_slice(
        self,
        piece: Slice,
        session: Callable[[], SparkSession],
        source: LogSource,
        publisher: Publisher,
        watch: Stopwatch,
        *,
        heard_at: str | None = None,
        views_at: Offsets | None = None,
    ) -> None:
        """Folds a slice into all tables, and publishes the slice's frontier.

        If the slice is split, a frontier is published after each part. A small slice is read before
        `session` is called, because that call may wait for Spark. `heard_at`, the time up to which
        the build has read all deletions, is published with the last frontier of the slice.
        Maintained views are computed at the end of a slice that reaches `views_at`, or at the end
        of each slice if `views_at` is None. Raises Broken if the job must not continue; then no
        further frontier is published.
        """

        def noted_session() -> SparkSession:
            self._spark = session()
            return self._spark

        self._watch = watch
        left = [*self.splits.parts(piece)]
        while left:
            part, last = left.pop(0), publisher.newest
            ensure_follows(last, part, self.versions())
            if part.distance > self._driver_rows:
                # A cluster without an executor for the slice is no reason to split the slice.
                self._wait_for(noted_session)
            self.splits.begin(part)
            with self._limit.over(part):
                folded = self._fold(
                    _Work(part, last, source, noted_session, watch, views_at, _Failed())
                )
            if folded is None:
                self.splits.give_up(part)
                left = [*self.splits.parts(replace(piece, start=part.start))]
                continue
            heard = heard_at if part.end.equals(piece.end) else None
            self._publish(publisher, *folded, watch, heard)
        self._identities.committed(piece.end)

    def close(self) -> None:
        """Ends the threads that check topics and commit tables.

        Also waits until the threads that drain recent rows have ended.
        """
        self._topic_watch.shutdown(wait=False, cancel_futures=True)
        self._committing.shutdown(wait=False, cancel_futures=True)
        self._close_tables()

    def _open(self, *, views_are_current: bool) -> None:
        """Reverts all tables to the frontier, and opens the tables.

        The list of writers is changed in place, because other objects refer to this list.
        """
        take_back_to_frontier(self._store, self._birth)
        self.writers[:] = open_tables(
            self._store,
            self._birth,
            self._pipeline,
            driver_rows=self._driver_rows,
            merging=self._merging,
        )
        self._views = MaintainedViews(
            self.writers,
            self._birth,
            are_current=views_are_current,
            slice_seconds=self._slice_seconds,
        )

    def _close_tables(self) -> None:
        self._views.close()
        for writer in self.writers:
            writer.close()

    def _signs(self) -> object:
        """Returns values that change as long as the slice makes progress.

        The values are counters of this process, of its queries, and of Spark's tasks.
        """
        return (
            self._watch.seconds,
            records_read(self._store, self._birth.build),
            progress_of_queries(),
            progress_of_acts(),
            self._steps.given,
            self._function.runs,
            # Last: a JVM that hangs gives no answer, and shows none of the other signs.
            () if self._spark is None else progress_of_tasks(self._spark),
        )

    def _wait_for(self, session: Callable[[], SparkSession]) -> None:
        try:
            session()
        except SPARK_ERRORS as error:
            raise translated(error, self._pipeline) from error

    def _fold(self, work: _Work) -> tuple[Mark, Mapping[str, str]] | None:
        """Folds a slice. If records fail, rejects these records and folds the slice again.

        Returns the slice's mark, and the reason for each failing view by the view's name. Returns
        None if so many records fail that the slice must be split.
        """
        are_too_many = False
        while not are_too_many:
            try:
                return self._fold_once(work)
            except _ToJudge:
                pass
            except StepFails as fails:
                work.failed.add(fails)
                are_too_many = work.failed.are_too_many
            except TooManyFail:
                are_too_many = True
            self._close_tables()
            self._open(views_are_current=work.views_at is None)
        return None

    def _fold_once(self, work: _Work) -> tuple[Mark, Mapping[str, str]]:
        """Runs all steps of a slice except the publishing of the frontier.

        Returns the slice's mark, and the reason for each view that fails at the slice's end, by the
        view's name.
        """
        function, watch, last = self._function, work.watch, work.last
        try:
            try:
                with watch.step("read"):
                    records = self._decoded_here(work) or self._decoded_at_spark(work)
                    spark = work.session()
                    found = self.guard.witnessed(last, work.source.witnesses())
            except (Broken, *SPARK_ERRORS):
                # A reader's own error does not name the lost offsets.
                self.guard.explain(last)
                raise
            # The slice is read: a topic that was created again before the reading could have other
            # records (law 2).
            same_topics: Future[None] = self._topic_watch.submit(self.guard.check_topics)
            try:
                judged = self._judge(work, records, spark)
                mark = next_mark(self._birth, last, work.piece, records.counts(), found)
                if records.carries_memories:
                    self._identities.folded(mark)
                with watch.step("topics"):
                    same_topics.result()
                failpoint("job.before_first_commit")
                of_topics, of_function = self._parted()
                with watch.step("topics"):
                    rows = self._rows_of_topics(work, records, of_topics, mark, spark)
                with self._commit(of_topics, rows, mark):
                    with watch.step("function"):
                        applied = self._apply(judged, records, of_function, spark)
                        combined = self._combine(work, applied, of_function, mark, spark)
                    failpoint("job.between_tables")
                    with watch.step("commit"), self._commit(of_function, combined, mark):
                        pass
                failing = self._views.commit(
                    mark, spark, watch, are_due=work.views_are_due, failing=last.failing
                )
                if self._views.costs:
                    self._view_costs |= self._views.costs
                    put_view_costs(self._store, self._birth.build, self._view_costs)
            except SPARK_ERRORS as error:
                if function.is_to_judge(error):
                    raise _ToJudge from error
                raise function.culprits(records, spark).first(
                    error, work.source.read_records
                ) from error
            else:
                if self._drift is not None:
                    self._drift.see_slice(records.counts(), records.reject_examples, last.tally)
                return mark, failing
            finally:
                same_topics.cancel()
                records.close()
                self._steps.clear()
                function.clear()
        except SPARK_ERRORS as error:
            raise translated(error, self._pipeline) from error

    def _decoded_here(self, work: _Work) -> SliceRows | None:
        """Reads and decodes a small slice in this process.

        First loads the identities that the build remembers at the slice's start. Returns None if
        Spark workers must read and decode the slice. This happens if the slice is large, if the
        slice's records are very large, or if the topics have lost records that an archive may
        contain.
        """
        piece, source = work.piece, work.source
        if piece.distance > self._driver_rows:
            return None
        try:
            memories = self._identities.take(piece.start, source)
            return decode_here(
                piece,
                self._pipeline.topics,
                source,
                work.last.log_time,
                memories,
                cores=self._cores,
                sample=None if self._drift is None else self._drift.sample,
            )
        except TooManyBytesError:
            return None
        except Broken:
            if not self.guard.lost_by_topics(piece.start):
                raise
            return None

    def _decoded_at_spark(self, work: _Work) -> SliceRows:
        """Reads and decodes a slice on Spark workers."""
        piece = work.piece
        topics = [
            topic
            for topic in self._pipeline.topics
            if piece.end.only({topic.name}).distance(piece.start) > 0
        ]
        folders = self._identities.folders(piece.start, work.source)
        remembering = {
            name: Remembering(
                path, *(at.next.get(name, {}) for at in (self._origin, piece.start, piece.end))
            )
            for name, path in folders.items()
        }
        return SliceAtSpark(
            work.session(),
            topics,
            piece,
            work.source.ranges,
            work.last.log_time,
            remembering,
            self._decoded_folder,
            self.archives.take,
            # Columns that this slice shows to be unused are left out of later slices.
            self._function.unused(),
            self._decoded_elsewhere,
        )

    def _judge(
        self, work: _Work, records: SliceRows, spark: SparkSession
    ) -> Mapping[str, ContributedRows] | None:
        """Rejects failing records, and decides which redriven records are duplicates.

        A record fails if the function or a step fails on it, if it is a truncation that cannot be
        applied to a table of latest rows, or if it contributes to expired rows.

        The number of rejects is stored with each commit, and rejects decide whether a redriven
        record is folded. So if `FunctionRows.judges` returns True, the function runs here, before
        the first commit, and the function's rows are returned. Otherwise, returns None.
        """
        function, source = self._function, work.source
        if self._pipeline.on_error is OnError.REJECT:
            refuse_truncations(records, self._pipeline, work.piece.end, source)
        if work.failed.culprits:
            records.reject(refused_culprits(work.failed.culprits, self._pipeline, source))
        applied = None
        if function.judges(records):
            with work.watch.step("function"):
                applied = function.judged(records, spark, source)
        before = records.counts()
        self._settle_redriven(records, work.piece)
        if applied is not None and records.counts() != before:
            applied = function.of(records, spark)
        return applied

    def _rows_of_topics(
        self,
        work: _Work,
        records: SliceRows,
        writers: Sequence[TableWriter],
        mark: Mark,
        spark: SparkSession,
    ) -> Mapping[str, TableRows | None]:
        """Returns the rows of the `latest` tables and of the rejects table, by table name.

        Only the tables of `writers` are included. A table that gets no row from the slice is mapped
        to None.
        """
        tables = {writer.birth.name: writer for writer in writers}
        rows: dict[str, TableRows | None] = {
            table.name: latest_rows(records, table.latest, tables[table.name], mark, spark)
            for table in self._pipeline.latest_tables
            if table.name in tables and table.latest is not None
        }
        if REJECTS in tables:
            rejects = tables[REJECTS].birth
            noted = work.failed.noted
            more = noted_rejects(noted, rejects) if noted else None
            rows[REJECTS] = records.rejects(rejects, more)
        return rows

    def _apply(
        self,
        judged: Mapping[str, ContributedRows] | None,
        records: SliceRows,
        writers: Sequence[TableWriter],
        spark: SparkSession,
    ) -> Mapping[str, ContributedRows]:
        """Returns the rows that the user's function computes, by table.

        If the function has already run on the slice, `judged` contains the function's rows and is
        returned unchanged.
        """
        if judged is not None:
            return judged
        return self._function.of(records, spark) if writers else {}

    def _combine(
        self,
        work: _Work,
        rows: Mapping[str, ContributedRows],
        writers: list[TableWriter],
        mark: Mark,
        spark: SparkSession,
    ) -> Mapping[str, ContributedRows]:
        """Folds the rows for ordered folds into the stored states of the rows' keys.

        Rows for all other tables are returned unchanged. The folds of these tables need no order:
        the commit of such a table combines the contributed rows with the stored rows.
        """
        return self._steps.applied(
            rows,
            writers,
            mark.log_time,
            spark,
            noted=work.failed.noted,
            one_by_one=work.failed.one_by_one,
        )

    @contextmanager
    def _commit(
        self, writers: Sequence[TableWriter], rows: Mapping[str, TableRows | None], mark: Mark
    ) -> Iterator[None]:
        """Commits the rows of a slice to the tables of `writers` while the `with` block runs.

        All commits have ended when the block ends. Rows in Spark frames, and rows that Spark may
        have to merge, are committed before the block begins.
        """
        beside: list[Future[str]] = []
        try:
            for writer in writers:
                own = rows.get(writer.birth.name)
                if own is None or own.commits_beside:
                    beside.append(self._committing.submit(writer.commit, own, mark))
                else:
                    writer.commit(own, mark)
            yield
        finally:
            # A table that is still being written may not be touched.
            wait(beside)
        for commit in beside:
            commit.result()

    def _publish(
        self,
        publisher: Publisher,
        mark: Mark,
        failing: Mapping[str, str],
        watch: Stopwatch,
        heard_at: str | None,
    ) -> None:
        """Publishes the slice's frontier, after all commits."""
        failpoint("job.before_frontier")
        with watch.step("frontier"):
            publisher.publish(mark, self.versions(), heard_at=heard_at, failing=failing)

    def _settle_redriven(self, records: SliceRows, piece: Slice) -> None:
        rejects = next((writer for writer in self.writers if writer.birth.name == REJECTS), None)
        if rejects is not None:
            settle_redriven(
                records,
                piece,
                self._birth,
                rejects.birth,
                lambda: files(rejects.path, rejects.version, None),
            )

    def _parted(self) -> tuple[list[TableWriter], list[TableWriter]]:
        """Returns a pair: the writers of tables that topics or files fill, and the other writers.

        The user's function fills the tables of the other writers. The tables of views are in
        neither list.
        """
        others = {REJECTS, *(t.name for t in self._pipeline.tables if t.latest or t.file)}
        tables = [writer for writer in self.writers if writer.birth.view is None]
        return [writer for writer in tables if writer.birth.name in others], [
            writer for writer in tables if writer.birth.name not in others
        ]


def ensure_follows(last: Frontier, piece: Slice, versions: Mapping[str, int]) -> None:
    """Raises Broken if the slice `piece` does not begin where the frontier `last` ends.

    Raises KappaError if a table is not at the version that the frontier names.
    """
    if not last.offsets.equals(piece.start):
        raise Broken(
            f"build {last.build} has folded up to {last.offsets} (slice {last.leg}/{last.slice}), "
            f"and the next slice {piece.leg}/{piece.number} begins at {piece.start}",
            hint="this is a mistake in Kappa; kappa replay makes a new build from offset zero",
        )
    for name, version in versions.items():
        if version != last.versions.get(name, version):
            raise strangers(f"table {name} of build {last.build}", version, last.versions[name])
