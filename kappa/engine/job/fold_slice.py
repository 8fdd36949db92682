"""Folds one slice into all tables of a build, whatever leg it is of: decode once, one commit per table, one frontier.

What a table has folded already is skipped, and nothing is computed for it (law 1); a slice that does not follow stops the
job (law 2). A crash between any two steps is answered by folding the same slice again, and many by folding it in pieces
(law 12). Read next: engine/function/decoded.py, engine/function/contribution.py, engine/write/commit.py, engine/write/publisher.py, in the order they are
used here; engine/function/culprits.py for a function that fails on a record.
"""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kappa.base.clock import now
from kappa.base.errors import Broken, KappaError
from kappa.base.failpoint import failpoint
from kappa.base.stopwatch import Stopwatch
from kappa.declare.pipeline import OnError, Pipeline
from kappa.declare.table import REJECTS
from kappa.declare.topic import Topic, TopicKind
from kappa.engine.decode.fate import decoded_columns
from kappa.engine.decode.to_files import Remembering
from kappa.engine.fold.ordered import OrderedFold
from kappa.engine.fold.touched import stored_frame, touched_rows
from kappa.engine.function.contribution import Function, columns_used, raised_here
from kappa.engine.function.culprits import Culprits, only, reject_detail
from kappa.engine.function.decoded import SeenOf
from kappa.engine.function.decoded_at_spark import DecodedAtSpark
from kappa.engine.function.decoded_here import DecodedHere
from kappa.engine.function.prepared import Prepared
from kappa.engine.function.redriven import settle_redriven
from kappa.engine.function.trouble import SPARK_ERRORS, translated
from kappa.engine.job.splits import Splits
from kappa.engine.read.archived import Archives
from kappa.engine.read.identities import Identities
from kappa.engine.read.rows import Rows
from kappa.engine.read.source import Source
from kappa.engine.spark.session import activate
from kappa.engine.write.commit import AT_ONCE, Merging, TableWriter, folded_of
from kappa.engine.write.publisher import Publisher
from kappa.log.client import Log
from kappa.records.tombstones import may_be_missed
from kappa.state.build import Birth, folder
from kappa.state.frontier import Frontier
from kappa.state.kept import moment
from kappa.state.mark import Mark, origin_mark
from kappa.state.offsets import Offsets, lost_ranges
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.tables.archive import one_log
from kappa.tables.delta import files
from kappa.values.tally import Tally

# Where, within a slice's scratch folder, large slices are folded by steps.
_STEPS = "steps"
# So often at most it is asked whether a compacted topic has more than was read.
_HEARD_SECONDS = 60.0


class SliceFolder:
    """Folds slices into the tables of one build, one after the other."""

    def __init__(
        self,
        store: Store,
        birth: Birth,
        pipeline: Pipeline,
        log: Log,
        *,
        driver_rows: int,
        merging: Merging = AT_ONCE,
        archives: Archives | None = None,
    ) -> None:
        """Opens all tables, or makes those that are not there. A slice of at most `driver_rows` offsets is decoded in this process.

        What of larger ones is committed here, and how, `TableWriter` says. Archives are those of the store, unless others are given.
        """
        origin = origin_mark(birth.build, birth.origin_offsets)
        self._birth = birth
        self._pipeline = pipeline
        self._log = log
        self._driver_rows = driver_rows
        self.writers = tuple(
            TableWriter(
                store, birth.build, table, origin=origin, driver_rows=driver_rows, merging=merging
            )
            for table in birth.tables
        )
        self.splits = Splits(store, birth.build)
        self._identities = Identities(
            store.path(f"{folder(birth.build)}/identities"), pipeline.topics, birth.origin_offsets
        )
        self.archives = (
            Archives(store, pipeline.topics, birth.topic_ids) if archives is None else archives
        )
        self._function = Function(pipeline, {table.name: table for table in birth.tables})
        self._compacted = sorted(
            topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED
        )
        # Where compacted topics ended at which times, the oldest first, until that is read; and when it was asked last.
        self._to_hear: deque[tuple[str, Offsets]] = deque()
        self._asked_at = -math.inf
        self._ordered = OrderedFold.of_pipeline(
            pipeline, {table.name: table for table in birth.tables}
        )
        self._prepared: Prepared | None = None
        # By topic, from its first large slice on, the columns of its events that the function does not use.
        self._unused: dict[str, frozenset[str]] = {}
        # Who has it may make the plan, or run it ahead.
        self._planning = threading.RLock()
        self._scratch = store.path(f"{folder(birth.build)}/slice")
        self._contributed_folder = self._scratch / "contributed"
        self._topic_watch = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._commits = ThreadPoolExecutor(len(self.writers), thread_name_prefix="commits")

    def versions(self) -> dict[str, int]:
        """The newest version of each table, and of its recent ones."""
        return {
            name: version for writer in self.writers for name, version in writer.versions().items()
        }

    def first_frontier(self) -> Frontier:
        """What a build that has published nothing publishes first: its origin, with tables that are empty."""
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
        """Does what is due although no slice comes; or that it will be gone on with by another process."""
        self._identities.rest(ends=ends)

    def prepare(self, spark: SparkSession) -> None:
        """Does, in a thread of its own, what the first small slice would wait two seconds for: plans the function, and runs the plan once over no rows."""
        threading.Thread(target=self._prepare, args=(spark,), name="prepare", daemon=True).start()

    def check_topics(self) -> None:
        """Raises Broken where a topic is not the one that the build was born with (a re-created one has another id)."""
        for name, born in self._birth.topic_ids.items():
            facts = self._log.facts(name)
            if facts is None or facts.id != born:
                what = "is gone" if facts is None else f"was re-created: its id is {facts.id}"
                raise Broken(
                    f"topic {name} {what}, and build {self._birth.build} has folded the one with id {born}",
                    hint=f"kappa replay {self._birth.pipeline} makes a new build from the topic that is there",
                )

    def check_kept(self, start: Offsets) -> None:
        """Raises Broken where topics and archives together have lost records that lie behind `start`: retention has passed what was to be read next."""
        lost = self.lost_by_topics(start) and lost_ranges(
            start, one_log(self._beginning(), self.archives.marks())
        )
        if lost:
            raise Broken(
                f"the log no longer has what build {self._birth.build} was about to read: {', '.join(lost)}",
                hint=f"kappa replay {self._birth.pipeline} --accept-gap makes a new build from what is there; a longer retention.ms keeps it",
            )

    def lost_by_topics(self, start: Offsets) -> tuple[str, ...]:
        """What lies behind `start` and the topics have lost, whether or not an archive has it: a text per partition."""
        return lost_ranges(start, self._beginning())

    def wants_archive(self, start: Offsets) -> bool:
        """True where what lies behind `start` is in archives alone: no tail can read it."""
        return bool(self.archives.marks() and self.lost_by_topics(start))

    def _beginning(self) -> Offsets:
        return self._log.beginning([topic.name for topic in self._birth.topics])

    def check_heard(self, last: Frontier | None, now: datetime) -> None:
        """Raises Broken where the build was away for so long, or reads so slowly, that it may have missed that keys of a compacted topic were deleted (law 5)."""
        if last is None:
            return
        # Where nothing is to be read, nothing was missed.
        for name in (
            name
            for name in self._compacted
            if self._log.end([name]).distance(last.offsets.only({name})) > 0
        ):
            missed = may_be_missed(name, last.heard, self._log.config(name), now)
            if missed is not None:
                raise Broken(
                    f"build {self._birth.build} was away for too long, or reads too slowly: {missed}",
                    hint=f"kappa replay {self._birth.pipeline} makes a new build from the log's beginning; a longer delete.retention.ms keeps tombstones",
                )

    def check_still_heard(self, last: Frontier, now: datetime) -> None:
        """As `check_heard`, with each batch of a tail, which a broker that was away has held up: nobody is asked where all was heard of just now."""
        if self._compacted and (now - moment(last.heard)).total_seconds() >= 2 * _HEARD_SECONDS:
            self.check_heard(last, now)

    def heard_with(self, last: Frontier, read: Offsets) -> str | None:
        """A later time than that of the last frontier, up to which all that compacted topics held is read with these offsets; None where nothing later can be said."""
        heard: str | None = None
        if (
            self._compacted
            and time.monotonic() - self._asked_at >= _HEARD_SECONDS
            and (datetime.now(UTC) - moment(last.heard)).total_seconds() >= _HEARD_SECONDS
        ):
            self._asked_at = time.monotonic()
            # Where records never cease to come, nobody ever stands at the end of now, but behind many that were.
            self._to_hear.append((now(), self._log.end(self._compacted)))
        while self._to_hear and read.covers(self._to_hear[0][1]):
            heard, _ = self._to_hear.popleft()
        return heard

    def fold(
        self,
        piece: Slice,
        spark: SparkSession,
        source: Source,
        publisher: Publisher,
        watch: Stopwatch,
        *,
        heard_at: str | None = None,
    ) -> None:
        """Folds a slice where it is due, in one piece or in its sub-slices, and publishes it, `heard_at` with it. Raises Broken, and then nothing of it is published."""
        marks = {writer: writer.mark() for writer in self.writers}
        pieces = self._pieces(piece, marks.values())
        folded = {writer: folded_of(mark, pieces) for writer, mark in marks.items()}
        for number, part in enumerate(pieces, 1):
            to_fold = [writer for writer in self.writers if folded[writer] < number]
            if to_fold:
                self.splits.begin(part)
                same = [marks[writer] for writer in self.writers if folded[writer] == number]
                mark = self._fold(part, spark, source, to_fold, marks[to_fold[0]], same, watch)
                marks |= dict.fromkeys(to_fold, mark)
                folded |= dict.fromkeys(to_fold, number)
        failpoint("job.before_frontier")
        newest = publisher.newest
        if (newest.leg, newest.slice) != (piece.leg, piece.number):
            with watch.step("frontier"):
                publisher.publish(self.writers[0].mark(), self.versions(), heard_at=heard_at)
        self._identities.committed(piece.end)

    def close(self) -> None:
        """Ends the threads that watch topics and commit, and waits for those that drain."""
        for threads in (self._topic_watch, self._commits):
            threads.shutdown(wait=False, cancel_futures=True)
        for writer in self.writers:
            writer.close()

    def _pieces(self, piece: Slice, marks: Iterable[Mark]) -> tuple[Slice, ...]:
        pieces = self.splits.pieces(piece)
        folded = min(folded_of(mark, pieces) for mark in marks)
        if folded < len(pieces):
            self.splits.split_if_due(piece, pieces[folded])
        return self.splits.pieces(piece)

    def _fold(
        self,
        piece: Slice,
        spark: SparkSession,
        source: Source,
        to_fold: list[TableWriter],
        last: Mark,
        same: list[Mark],
        watch: Stopwatch,
    ) -> Mark:
        topics = [
            topic
            for topic in self._pipeline.topics
            if piece.end.only({topic.name}).distance(piece.start) > 0
        ]
        try:
            try:
                with watch.step("read"):
                    decoded = self._decoded(piece, spark, source, topics, last)
            except (Broken, *SPARK_ERRORS):
                # Whoever read says it in words of its own, and not how much it is.
                self.check_kept(piece.start)
                raise
            # The slice is read: a topic that was re-created before could have given it other records (law 2).
            same_topics: Future[None] = self._topic_watch.submit(self.check_topics)
            try:
                # Marks and rejects tell of records that the function fails on, so it is run before any table has them; and what
                # is redriven is folded or not by whether the record that it stands for is a reject.
                tried = (
                    self._rejecting(decoded, spark, source, watch)
                    if self._pipeline.on_error is OnError.REJECT
                    else None
                )
                before = decoded.seen()
                self._settle_redriven(decoded, piece)
                if tried is not None and decoded.seen() != before:
                    tried = self._computed(self._rows_of_function(decoded, self.writers, spark))
                # Compaction may have taken records away since a crash: all tables tell what was seen the first time.
                mark = same[0] if same else next_mark(self._birth, last, piece, decoded.seen())
                if isinstance(decoded, DecodedHere):
                    self._identities.folded(mark)
                with watch.step("topics"):
                    same_topics.result()
                failpoint("job.before_first_commit")
                of_topics, of_function = self._parted(to_fold)
                with (
                    watch.step("function"),
                    self._committing(of_topics, self._rows_of_topics(decoded, of_topics), mark),
                ):
                    rows = self._stepped(
                        self._rows_of_function(decoded, of_function, spark)
                        if tried is None
                        else tried,
                        of_function,
                        spark,
                    )
                failpoint("job.between_tables")
                with watch.step("commit"):
                    for writers in self._in_order(of_function):
                        with self._committing(writers, rows, mark):
                            pass
            except SPARK_ERRORS as error:
                raise self._culprits(decoded, spark).first(error, source.here) from error
            else:
                return mark
            finally:
                same_topics.cancel()
                decoded.close()
                shutil.rmtree(self._scratch / _STEPS, ignore_errors=True)
                shutil.rmtree(self._contributed_folder, ignore_errors=True)
        except SPARK_ERRORS as error:
            raise translated(error, self._pipeline) from error

    def _decoded(
        self, piece: Slice, spark: SparkSession, source: Source, topics: list[Topic], last: Mark
    ) -> DecodedHere | DecodedAtSpark:
        if piece.distance <= self._driver_rows:
            memories = self._identities.take(piece.start, source)
            try:
                return DecodedHere(source.here(piece), topics, last.log_time, memories)
            except Broken:
                # An archive may have what the topic has lost.
                if not self.lost_by_topics(piece.start):
                    raise
        folders = self._identities.folders(piece.start, source)
        remembering = {
            name: Remembering(path, piece.start.next.get(name, {}), piece.end.next.get(name, {}))
            for name, path in folders.items()
        }
        # What is found with this slice is for later ones.
        unused = dict(self._unused)
        return DecodedAtSpark(
            spark,
            topics,
            piece,
            source.ranges,
            last.log_time,
            remembering,
            self._scratch / "decoded",
            self.archives.take,
            unused,
        )

    def _settle_redriven(self, decoded: DecodedHere | DecodedAtSpark, piece: Slice) -> None:
        rejects = next((writer for writer in self.writers if writer.birth.name == REJECTS), None)
        if rejects is not None:
            settle_redriven(
                decoded,
                piece,
                self._birth,
                rejects.birth,
                lambda: files(rejects.path, rejects.version),
            )

    def _parted(self, writers: list[TableWriter]) -> tuple[list[TableWriter], list[TableWriter]]:
        """The tables that are filled from topics as they are, and those that the function fills."""
        filled = {table.name for table in self._pipeline.tables if table.latest is None}
        return [writer for writer in writers if writer.birth.name not in filled], [
            writer for writer in writers if writer.birth.name in filled
        ]

    def _in_order(self, writers: list[TableWriter]) -> tuple[list[TableWriter], list[TableWriter]]:
        """The tables that are committed first, and the others: a state that has the slice would not emit again what is lost of it (law 1)."""
        emitted = {fold.emitted.name for fold in self._ordered if fold.emitted is not None}
        return [writer for writer in writers if writer.birth.name in emitted], [
            writer for writer in writers if writer.birth.name not in emitted
        ]

    def _rows_of_topics(
        self, decoded: DecodedHere | DecodedAtSpark, writers: list[TableWriter]
    ) -> Mapping[str, Rows]:
        tables = {writer.birth.name: writer.birth for writer in writers}
        rows = {
            table.name: decoded.latest(table.latest, tables[table.name])
            for table in self._pipeline.latest_tables
            if table.name in tables and table.latest is not None
        }
        return {**rows, REJECTS: decoded.rejects(tables[REJECTS])} if REJECTS in tables else rows

    def _rows_of_function(
        self,
        decoded: DecodedHere | DecodedAtSpark,
        writers: Sequence[TableWriter],
        spark: SparkSession,
    ) -> Mapping[str, Rows]:
        seen = decoded.seen()
        fed = any(
            one.decoded
            for topic in self._pipeline.inputs.values()
            for one in seen.get(topic.name, {}).values()
        )
        return self._contributed(decoded, spark) if fed and writers else {}

    def _stepped(
        self, rows: Mapping[str, Rows], writers: list[TableWriter], spark: SparkSession
    ) -> Mapping[str, Rows]:
        """The rows of all tables, in place of those that steps fold what becomes of them; states are read as they were before the slice."""
        made = dict(rows)
        if not made:
            return made
        due = {writer.birth.name: writer for writer in writers}
        for fold in self._ordered:
            found = made.pop(fold.table.name)
            # What it emits is committed before it is: where it has the slice, both have.
            writer = due.get(fold.table.name)
            if writer is not None:
                made |= self._folded_by_step(fold, found, writer, spark)
        return made

    def _folded_by_step(
        self, fold: OrderedFold, rows: Rows, writer: TableWriter, spark: SparkSession
    ) -> Mapping[str, Rows]:
        columns, path, version = fold.table.columns, writer.path, writer.version
        if isinstance(rows, DataFrame):
            folder = self._scratch / _STEPS / fold.table.name
            # A crash has left some; those of other steps are this slice's.
            shutil.rmtree(folder, ignore_errors=True)
            return fold.at_spark(spark, rows, stored_frame(spark, path, version, columns), folder)
        assert rows is not None
        held = touched_rows(path, version, columns, rows.select(fold.table.keys))
        try:
            return fold.here(rows, held)
        except KappaError:
            raise
        except Exception as error:
            raise raised_here(error, self._pipeline) from error

    def _contributed(
        self, decoded: DecodedHere | DecodedAtSpark, spark: SparkSession
    ) -> Mapping[str, Rows]:
        if isinstance(decoded, DecodedAtSpark):
            # A user's function is called by one thread at a time.
            with self._planning:
                rows = self._function.contributions(
                    {
                        name: decoded.accepted(topic, self._pipeline.columns_of(topic))
                        for name, topic in self._pipeline.inputs.items()
                    }
                )
            self._heed_unused(decoded, rows.values())
            return rows
        return self._plan(spark).run(
            {
                topic.name: decoded.accepted(topic, self._pipeline.columns_of(topic))
                for topic in self._pipeline.inputs.values()
            }
        )

    def _heed_unused(self, decoded: DecodedAtSpark, rows: Iterable[DataFrame]) -> None:
        """Takes note, once for each topic, of what later large slices can do without."""
        topics = [
            topic
            for topic in self._pipeline.inputs.values()
            if topic.name in decoded.seen() and topic.name not in self._unused
        ]
        if not topics:
            return
        try:
            read = list(chain.from_iterable(map(columns_used, rows)))
        except SPARK_ERRORS:
            # Whoever runs the frames says what is wrong with them; here it could only have saved time.
            read = []
        # Newest rows are those of the event, with all of its columns.
        whole = {
            table.latest.name for table in self._pipeline.latest_tables if table.latest is not None
        }
        for topic in topics:
            columns = {name for name, _ in decoded_columns(topic)}
            # A plan does not say which topic's files it reads: what may be this one's counts as its own.
            used = [names for there, names in read if there <= columns]
            self._unused[topic.name] = (
                frozenset(column.name for column in topic.columns).difference(*used)
                if used and topic.name not in whole
                else frozenset()
            )

    def _prepare(self, spark: SparkSession) -> None:
        # What is wrong with the function is told by the first slice that it gets.
        with self._planning, suppress(Exception):
            if self._prepared is None and self._pipeline.function_tables:
                activate(spark)
                self._plan(spark).run({})

    def _plan(self, spark: SparkSession) -> Prepared:
        with self._planning:
            if self._prepared is None:
                births = {table.name: table for table in self._birth.tables}
                self._prepared = Prepared(
                    spark, self._pipeline, self._function, births, self._scratch
                )
            return self._prepared

    def _culprits(self, decoded: DecodedHere | DecodedAtSpark, spark: SparkSession) -> Culprits:
        return Culprits(self._pipeline, lambda: self._plan(spark), decoded)

    def _rejecting(
        self,
        decoded: DecodedHere | DecodedAtSpark,
        spark: SparkSession,
        source: Source,
        watch: Stopwatch,
    ) -> Mapping[str, Rows]:
        """What the function contributes without the records that it fails on, which are rejects afterwards."""
        with watch.step("function"):
            try:
                return self._computed(self._rows_of_function(decoded, self.writers, spark))
            except SPARK_ERRORS as error:
                culprits = self._culprits(decoded, spark).all(error)
            raw = pa.concat_tables([source.here(only(culprit)) for culprit in culprits])
            decoded.reject(
                raw,
                {
                    (each.topic, each.partition, each.offset): reject_detail(each, self._pipeline)
                    for each in culprits
                },
            )
            return self._computed(self._rows_of_function(decoded, self.writers, spark))

    def _computed(self, rows: Mapping[str, Rows]) -> Mapping[str, Rows]:
        """The same rows, those that are Spark's in files: by then the function has seen each record, and is not run again for the commits."""
        return {
            name: own
            if not isinstance(own, DataFrame)
            else _written(own, str(self._contributed_folder / name))
            for name, own in rows.items()
        }

    @contextmanager
    def _committing(
        self, writers: list[TableWriter], rows: Mapping[str, Rows], mark: Mark
    ) -> Iterator[None]:
        """Commits a slice to these tables beside what the block does, and has done so when it ends; rows that are Spark's before it begins."""
        beside: list[Future[str]] = []
        try:
            for writer in writers:
                own = rows.get(writer.birth.name)
                if isinstance(own, DataFrame):
                    writer.commit(own, mark)
                else:
                    beside.append(self._commits.submit(writer.commit, own, mark))
            yield
        finally:
            # Nobody may touch a table that is still being written.
            wait(beside)
        for commit in beside:
            commit.result()


def _written(rows: DataFrame, path: str) -> DataFrame:
    rows.write.mode("overwrite").parquet(path)
    return rows.sparkSession.read.schema(rows.schema).parquet(path)


def next_mark(birth: Birth, last: Mark, piece: Slice, seen: SeenOf) -> Mark:
    """The mark of a slice that follows another: log times and tallies carried on over what was seen in it. Pure.

    Offsets of the slice that no record was seen at are counted as absent: compacted away, aborted, or a marker of a
    transaction. So the tally adds up to the distance (I6).
    """
    log_time = {topic: dict(parts) for topic, parts in last.log_time.items()}
    tally = {topic: dict(parts) for topic, parts in last.tally.items()}
    for topic, partition, end in piece.end.items():
        span = end - piece.start.at(topic, partition)
        if span == 0:
            continue
        one = seen.get(topic, {}).get(partition)
        more = (
            Tally(one.decoded, one.duplicate, one.rejected, one.tombstone, late=one.late)
            if one
            else Tally()
        )
        absent = span - more.decoded - more.duplicate - more.rejected - more.tombstone
        if absent < 0:
            raise Broken(
                f"{topic} partition {partition} gave {-absent} more records than the slice {piece.start} to {piece.end} has offsets",
                hint="this is a mistake in Kappa; kappa logs has the slice",
            )
        tally.setdefault(topic, {})[partition] = tally.get(topic, {}).get(
            partition, Tally()
        ) + replace(more, absent=absent)
        if one:
            log_time.setdefault(topic, {})[partition] = one.log_time
    return Mark(birth.build, "", piece.leg, piece.number, piece.start, piece.end, log_time, tally)
