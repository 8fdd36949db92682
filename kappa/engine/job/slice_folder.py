"""Folding of a slice: decoding, commits, and a frontier.

A slice is decoded once, and each table has a single commit. The frontier alone decides the slices
to fold. A job begins by taking back all that its tables have behind the frontier. So a crash
between any two steps is answered by folding the slice again (law 1), and repeated crashes by
folding the slice in parts (law 12). A slice that does not follow the frontier stops the job (law
2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from kappa.base.clock import Stopwatch
from kappa.base.duck import progress_of_queries
from kappa.base.errors import Broken
from kappa.base.failpoint import failpoint
from kappa.declare.options import REJECTS
from kappa.declare.pipeline import OnError, Pipeline
from kappa.declare.topic import Topic
from kappa.engine.fold.step_loop import FailedStep
from kappa.engine.function.culprits import (
    MOST_FAILING,
    Culprit,
    TooManyFail,
    refused_culprits,
)
from kappa.engine.function.decoded_at_spark import DecodedAtSpark
from kappa.engine.function.decoded_here import DecodedHere
from kappa.engine.function.failure import REPLAY, Failure
from kappa.engine.function.redriven import settle_redriven
from kappa.engine.function.trouble import SPARK_ERRORS, translated
from kappa.engine.job.function_rows import FunctionRows
from kappa.engine.job.next_mark import next_mark
from kappa.engine.job.ordered_steps import OrderedSteps, StepFails, noted_rejects
from kappa.engine.job.slice_limit import SliceLimit
from kappa.engine.job.splits import Splits
from kappa.engine.job.topic_guard import TopicGuard
from kappa.engine.read.archived import Archives
from kappa.engine.read.identities import Identities
from kappa.engine.read.rows import Rows
from kappa.engine.read.source import LogSource
from kappa.engine.spark.running import progress_of_tasks
from kappa.engine.views.maintained import MaintainedViews
from kappa.engine.views.opened import open_tables
from kappa.engine.write.commit import AT_ONCE, Merging, TableWriter
from kappa.engine.write.commits import Commits
from kappa.engine.write.follows import ensure_follows
from kappa.engine.write.of_topics import refuse_truncations, rows_of_topics, with_more_rejects
from kappa.engine.write.publisher import Publisher
from kappa.kafka.client import Log
from kappa.records.decode.to_files import Remembering
from kappa.state.build import Birth, folder_of_build, slice_scratch
from kappa.state.build_status import DECODED, records_read
from kappa.state.frontier import Frontier
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.tables.delta import progress_of_acts
from kappa.tables.lasting import take_back_to_frontier
from kappa.tables.versions import files


class _ToJudge(Exception):
    """Signal that a slice must be folded again, with judged records.

    Records of the slice fail, and some of the slice may be committed as if no record failed.
    """


class _Failed:
    """Records on which steps failed; the slice is folded without them."""

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


class SliceFolder:
    """Folder of slices into the tables of a build.

    Slices are folded one after the other.
    """

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
    ) -> None:
        """Takes all tables back to the build's frontier and opens them.

        Missing tables are made. A slice of at most `driver_rows` offsets is decoded in this
        process. `TableWriter` decides the tables of a larger slice that are committed here;
        `slice_seconds`: see `SliceLimit`. Archives are the store's, unless others are given.
        `views_are_current`: see `MaintainedViews`.
        """
        births = {table.name: table for table in birth.tables}
        scratch = slice_scratch(store, birth.build, merging.elsewhere)
        self._birth = birth
        self._pipeline = pipeline
        self._driver_rows = driver_rows
        self._merging = merging
        self._store = store
        own = folder_of_build(birth.build)
        self._decoded_folder = store.local.path(f"{own}/{DECODED}")
        self._decoded_elsewhere = f"{scratch}/decoded" if merging.elsewhere else None
        self.writers: list[TableWriter] = []
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
        self._commits = Commits(len(self.writers))
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
        """Returns the newest version of each table and of its recent rows."""
        each = (writer.versions() for writer in self.writers)
        return {name: version for versions in each for name, version in versions.items()}

    def first_frontier(self) -> Frontier:
        """Returns the first frontier of a new build.

        The frontier has the build's origin, with tables as they are made.
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
        """Does the work that is due between slices.

        `ends` announces that another process goes on.
        """
        self._identities.rest(ends=ends)

    def prepare(self, spark: SparkSession) -> None:
        """Plans the function for the first small slice, in a thread."""
        self._function.prepare(spark)

    def fold(
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
        """Folds a slice into all tables, and publishes its frontier.

        If the slice is split, each part has a frontier. A small slice is read before `session` is
        asked for, which may wait for the session. `heard_at` is published with the last frontier.
        Maintained views are computed where a slice ends at `views_at`, or at each end if `views_at`
        is None. Raises Broken, and then nothing more is published.
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
                mark: Mark | None = None
                are_due = views_at is None or part.end.covers(views_at)
                failed = _Failed()
                fold = partial(
                    self._fold, part, noted_session, source, last, watch, views_are_due=are_due
                )
                while True:
                    try:
                        mark, failing = fold(failed)
                        break
                    except _ToJudge:
                        pass
                    except StepFails as fails:
                        failed.add(fails)
                        if failed.are_too_many:
                            break
                    except TooManyFail:
                        break
                    self._reopen(views_are_current=views_at is None)
            if mark is None:
                self.splits.give_up(part)
                self._reopen(views_are_current=views_at is None)
                left = [*self.splits.parts(replace(piece, start=part.start))]
                continue
            failpoint("job.before_frontier")
            with watch.step("frontier"):
                publisher.publish(
                    mark,
                    self.versions(),
                    heard_at=heard_at if part.end.equals(piece.end) else None,
                    failing=failing,
                )
        self._identities.committed(piece.end)

    def close(self) -> None:
        """Ends the threads of this folder.

        The threads watch topics and commit. Waits for threads that drain recent rows.
        """
        self._topic_watch.shutdown(wait=False, cancel_futures=True)
        self._commits.close()
        self._close_tables()

    def _open(self, *, views_are_current: bool) -> None:
        """Takes all tables back to the frontier and opens them.

        The list of tables, which other objects have, stays the same object.
        """
        take_back_to_frontier(self._store, self._birth)
        self.writers[:] = open_tables(
            self._store,
            self._birth,
            self._pipeline,
            driver_rows=self._driver_rows,
            merging=self._merging,
        )
        self._views = MaintainedViews(self.writers, self._birth, are_current=views_are_current)

    def _reopen(self, *, views_are_current: bool) -> None:
        """Opens all tables anew, as a restarted job does."""
        self._close_tables()
        self._open(views_are_current=views_are_current)

    def _close_tables(self) -> None:
        self._views.close()
        for writer in self.writers:
            writer.close()

    def _signs(self) -> object:
        """Returns signs that change while a slice makes progress anywhere."""
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

    def _fold(
        self,
        piece: Slice,
        session: Callable[[], SparkSession],
        source: LogSource,
        last: Frontier,
        watch: Stopwatch,
        failed: _Failed,
        *,
        views_are_due: bool,
    ) -> tuple[Mark, Mapping[str, str]]:
        """Folds a slice or a part of a slice into the tables.

        The tables are at `last`. Returns the slice's mark, and the views that fail at the slice's
        end, with the reasons. Records that have `failed` are rejects.
        """
        function = self._function
        try:
            try:
                with watch.step("read"):
                    decoded = self._decoded(piece, session, source, last)
                    spark = session()
                    found = self.guard.witnessed(last, source.witnesses())
            except (Broken, *SPARK_ERRORS):
                # A reader's own error does not name the lost offsets.
                self.guard.explain(last)
                raise
            # The slice is read: a topic that was made anew before the reading could have other
            # records (law 2).
            same_topics: Future[None] = self._topic_watch.submit(self.guard.check_topics)
            try:
                if self._pipeline.on_error is OnError.REJECT:
                    refuse_truncations(decoded, self._pipeline, piece.end, source)
                if failed.culprits:
                    decoded.reject(refused_culprits(failed.culprits, self._pipeline, source))
                # Marks and rejects count the records that the function judges: the function runs
                # before any table has the records. Whether a redriven record is folded also depends
                # on the rejects.
                tried = None
                if function.judges(decoded):
                    with watch.step("function"):
                        tried = function.judged(decoded, spark, source)
                before = decoded.counts()
                self._settle_redriven(decoded, piece)
                if tried is not None and decoded.counts() != before:
                    tried = function.of(decoded, spark)
                mark = next_mark(self._birth, last, piece, decoded.counts(), found)
                if isinstance(decoded, DecodedHere):
                    self._identities.folded(mark)
                with watch.step("topics"):
                    same_topics.result()
                failpoint("job.before_first_commit")
                self._commit_tables(decoded, tried, mark, spark, watch, failed)
                failing = self._views.commit(
                    mark, spark, watch, are_due=views_are_due, failing=last.failing
                )
            except SPARK_ERRORS as error:
                if function.is_to_judge(error):
                    raise _ToJudge from error
                raise function.culprits(decoded, spark).first(error, source.here) from error
            else:
                return mark, failing
            finally:
                same_topics.cancel()
                decoded.close()
                self._steps.clear()
                function.clear()
        except SPARK_ERRORS as error:
            raise translated(error, self._pipeline) from error

    def _commit_tables(
        self,
        decoded: DecodedHere | DecodedAtSpark,
        tried: Mapping[str, Rows] | None,
        mark: Mark,
        spark: SparkSession,
        watch: Stopwatch,
        failed: _Failed,
    ) -> None:
        """Commits a slice to all tables but views.

        `tried` are the function's rows, or None if the function has not run yet.
        """
        of_topics, of_function = self._parted()
        tables = {writer.birth.name: writer for writer in of_topics}
        with watch.step("topics"):
            latest = rows_of_topics(decoded, self._pipeline, tables, mark, spark)
            if failed.noted and REJECTS in tables:
                noted = noted_rejects(failed.noted, tables[REJECTS].birth)
                latest = {**latest, REJECTS: with_more_rejects(latest[REJECTS], noted, spark)}
        with self._commits.beside(of_topics, latest, mark):
            with watch.step("function"):
                if tried is None:
                    tried = self._function.of(decoded, spark) if of_function else {}
                rows = self._steps.applied(
                    tried,
                    of_function,
                    mark.log_time,
                    spark,
                    noted=failed.noted,
                    one_by_one=failed.one_by_one,
                )
            failpoint("job.between_tables")
            with watch.step("commit"), self._commits.beside(of_function, rows, mark):
                pass

    def _decoded(
        self,
        piece: Slice,
        session: Callable[[], SparkSession],
        source: LogSource,
        last: Frontier,
    ) -> DecodedHere | DecodedAtSpark:
        topics: Sequence[Topic] = [
            topic
            for topic in self._pipeline.topics
            if piece.end.only({topic.name}).distance(piece.start) > 0
        ]
        if piece.distance <= self._driver_rows:
            memories = self._identities.take(piece.start, source)
            try:
                return DecodedHere(source.here(piece), topics, last.log_time, memories)
            except Broken:
                # An archive may have records that the topic has lost.
                if not self.guard.lost_by_topics(piece.start):
                    raise
        folders = self._identities.folders(piece.start, source)
        remembering = {
            name: Remembering(
                path, *(at.next.get(name, {}) for at in (self._origin, piece.start, piece.end))
            )
            for name, path in folders.items()
        }
        return DecodedAtSpark(
            session(),
            topics,
            piece,
            source.ranges,
            last.log_time,
            remembering,
            self._decoded_folder,
            self.archives.take,
            # Columns that this slice shows to be unused are left out of later slices.
            self._function.unused(),
            self._decoded_elsewhere,
        )

    def _settle_redriven(self, decoded: DecodedHere | DecodedAtSpark, piece: Slice) -> None:
        rejects = next((writer for writer in self.writers if writer.birth.name == REJECTS), None)
        if rejects is not None:
            settle_redriven(
                decoded,
                piece,
                self._birth,
                rejects.birth,
                lambda: files(rejects.path, rejects.version, None),
            )

    def _parted(self) -> tuple[list[TableWriter], list[TableWriter]]:
        """Parts the tables into two lists.

        The first tables are filled from topics, the second by the function.
        """
        others = {REJECTS, *(t.name for t in self._pipeline.tables if t.latest or t.file)}
        tables = [writer for writer in self.writers if writer.birth.view is None]
        return [writer for writer in tables if writer.birth.name in others], [
            writer for writer in tables if writer.birth.name not in others
        ]
