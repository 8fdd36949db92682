"""A build that is folded in this process, from a log in memory, in slices of any size.

A rehearsal runs the same code as a job, but without a broker and a lock, and with tables in a
separate folder. DuckDB reads the files of the frontier, as in a query. Tests of the law of slices
(kappa/testing.py) compare the tables of rehearsals. Tests of maintained views compare the views'
stored rows with the results of the views' queries.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from kappa.base.clock import Stopwatch
from kappa.base.duck import DUCKDB_ERRORS, Connection, told_by, without_kind
from kappa.base.errors import DeclarationError
from kappa.base.settings import load_settings_anywhere
from kappa.base.sql import quoted
from kappa.code.fingerprint import SEMANTICS
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import Type, parse_type
from kappa.engine.children.call_guard import Watch
from kappa.engine.children.describe import describe
from kappa.engine.slice import SliceRunner
from kappa.engine.spark.session import booting_session
from kappa.engine.write.commit import Merging
from kappa.engine.write.publisher import Publisher, Stopping
from kappa.kafka.client import TopicFacts
from kappa.records.decode.raw_records import RawRange, RawRecord, raw_table
from kappa.records.redrive import Headers
from kappa.state.build import Birth, TopicBirth
from kappa.state.files.address import arrow_source
from kappa.state.files.duckdb_access import open_for_few_rows
from kappa.state.log_clock import log_clock
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.state.witness import LostEnd, Witness, Witnesses
from kappa.tables.parquet import casts_sql
from kappa.tables.versions import files
from kappa.tables.views.changes import Unfit
from kappa.tables.views.exact_rows import rows_of
from kappa.tables.views.served_rows_sql import read_sql
from kappa.tables.views.view_tables import build_tables


@dataclass
class MemoryLog:
    """A log in memory, with the methods of `Log` and `LogSource` that the fold of a slice calls.

    The log can contain offsets without a record.
    """

    records: list[RawRecord] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))

    @classmethod
    def of(cls, records: Iterable[RawRecord]) -> Self:
        """Returns a log that contains `records` at the offsets that the records already have.

        The records of each partition must be in the order of their offsets.
        """
        log = cls()
        for record in records:
            topic, partition, offset, *_ = record
            log.records.append(record)
            log.ends[topic, partition] = offset + 1
        return log

    def add(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        ms: int = 1_700_000_000_000,
        headers: Headers = (),
    ) -> None:
        """Appends a record to a partition. `ms` is the timestamp, in milliseconds since 1970."""
        self.records.append(
            (topic, partition, self.ends[topic, partition], ms * 1000, key, value, tuple(headers))
        )
        self.ends[topic, partition] += 1

    def skip(self, topic: str, partition: int, offsets: int) -> None:
        """Moves the end of a partition by `offsets` offsets, which have no record.

        A Kafka log also has such offsets: of compacted or aborted records, and of transaction
        markers.
        """
        self.ends[topic, partition] += offsets

    @property
    def end(self) -> Offsets:
        """Returns the end of each partition: the offset after the partition's last offset."""
        return Offsets.of_partitions(self.ends)

    def beginning(self, topics: Iterable[str]) -> Offsets:
        """Returns offset 0 in partition 0 of each topic, since a log in memory loses no records."""
        return Offsets.zero(dict.fromkeys(topics, 1))

    def facts(self, name: str) -> TopicFacts:
        """Returns the name, the id and the number of partitions of a topic.

        The topic is never created again in this log, so the topic's id is its name.
        """
        return TopicFacts(
            name,
            name,
            1 + max((partition for topic, partition in self.ends if topic == name), default=0),
        )

    def read_records(self, piece: Slice) -> pa.Table:
        """Returns the raw records of a slice as an Arrow table, with the columns RAW_COLUMNS."""
        return raw_table(
            record
            for record in self.records
            if piece.start.at(*record[:2]) <= record[2] < piece.end.at(*record[:2])
        )

    def witnesses(self) -> Witnesses:
        """Returns an empty mapping, since this log loses no records."""
        return {}

    def last_before(self, _end: Offsets) -> Mapping[tuple[str, int], Witness]:
        """Returns an empty mapping, since this log loses no records."""
        return {}

    def lost_ends(self, _end: Offsets, _witnesses: Witnesses) -> tuple[LostEnd, ...]:
        """Returns an empty tuple, since this log loses no records."""
        return ()

    def ranges(self, piece: Slice, topic: str) -> list[RawRange]:
        """Returns the topic's ranges of offsets in a slice, one per partition that has offsets."""
        of_topic = self.read_records(piece).filter(pc.field("topic") == topic)
        return [
            RawRange(partition, start, end, partial(_in_order, of_topic))
            for partition, end in sorted(piece.end.next.get(topic, {}).items())
            if end > (start := piece.start.at(topic, partition))
        ]


def _in_order(records: pa.Table, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
    offset = pc.field("offset")
    of_range = (pc.field("partition") == partition) & (offset >= start) & (offset < end)
    yield from records.filter(of_range).sort_by("offset").to_batches()


@dataclass(frozen=True)
class LocalPipeline:
    """A pipeline with a Spark session and the columns that the function returns for each table.

    `outputs` maps each table to its columns. `shape` is a digest of the function's plan, or "" if
    the plan or a step runs Python.
    """

    pipeline: Pipeline
    spark: SparkSession
    outputs: Mapping[str, Mapping[str, Type]]
    shape: str = ""


class Rehearsal:
    """A build of a pipeline in a separate folder or root.

    The methods that fold raise Unfit if a maintained view cannot be computed.
    """

    def __init__(
        self,
        root: Path | Store,
        local: LocalPipeline,
        log: MemoryLog,
        *,
        driver_rows: int,
        birth: Birth | None = None,
        leg: int = 1,
    ) -> None:
        """Begins a build, or continues the build `birth`.

        Slices of more than `driver_rows` offsets are computed by Spark only. All slices belong to
        the leg `leg`.
        """
        pipeline = local.pipeline
        self._spark = local.spark
        self.pipeline = pipeline
        self._log = log
        self.store = root if isinstance(root, Store) else Store(root)
        topics = tuple(
            TopicBirth(topic.name, topic.name, str(topic.kind), topic.partitions)
            for topic in pipeline.topics
        )
        self.birth = birth or Birth(
            "b",
            pipeline.name,
            "v",
            {},
            SEMANTICS,
            {},
            "m",
            topics,
            build_tables(pipeline, local.outputs),
            {},
            {},
            {},
            "",
            "",
        )
        self._leg = leg
        self.begin(driver_rows=driver_rows)

    def begin(self, *, driver_rows: int, merge_bytes: int = 0) -> None:
        """Creates the objects of a folding job, in the same way as after a restart of the job.

        Slices of more than `driver_rows` offsets are computed by Spark only. Spark also commits the
        rows that Spark has computed; but this process merges contributions by key of at most
        `merge_bytes` bytes. No table has recent rows.
        """
        self.publisher = Publisher(self.store, self.birth, hold_seconds=1)
        self.publisher.take_over()
        self.slices = SliceRunner(
            self.store,
            self.birth,
            self.pipeline,
            self._log,  # type: ignore[arg-type]  # it answers the one question it is asked
            driver_rows=driver_rows,
            merging=Merging(merge_bytes),
        )
        self.publisher.begin(self.slices.first_frontier())

    def fold(self, end: Offsets, watch: Stopwatch | None = None) -> Slice:
        """Folds the next slice, up to `end`, and returns the slice.

        `watch` measures the time of each step.
        """
        piece = self._next(end)
        self._fold(piece, self.publisher, watch)
        return piece

    def die_before_the_frontier_of(self, end: Offsets) -> None:
        """Commits the next slice, up to `end`, without publishing a frontier, and ends the job.

        The tables are then in the same state as after a job that died before publishing.
        """
        with suppress(Stopping):
            self._fold(self._next(end), _Dying(self.publisher))  # type: ignore[arg-type]  # its half
        self.close()

    def _next(self, end: Offsets) -> Slice:
        newest = self.publisher.newest
        return Slice(
            self._leg, newest.slice + 1 if newest.leg == self._leg else 0, newest.offsets, end
        )

    def _fold(self, piece: Slice, publisher: Publisher, watch: Stopwatch | None = None) -> None:
        watch = watch or Stopwatch()
        self.slices.run_slice(piece, lambda: self._spark, self._log, publisher, watch)  # type: ignore[arg-type]  # what a source gives, from memory
        # A build goes on without a failing view; a test of a pipeline has to report the failure.
        sources = {view.name: view.source for view in self.pipeline.views}
        for name, why in publisher.newest.failing.items():
            raise Unfit(f"{sources[name]}: {why}", hint="fix the view's query, or its keys")

    def table(self, name: str) -> pa.Table:
        """Returns the rows of a table at the newest frontier, with the columns that Kappa adds."""
        writer = next(writer for writer in self.slices.writers if writer.birth.name == name)
        schema = arrow_schema(writer.birth.columns)
        # The two writers have different Arrow types for a type of Delta.
        stored = [
            pq.ParquetFile(arrow_source(path), pre_buffer=True)
            .read()
            .select(schema.names)
            .cast(schema)
            for path in files(writer.path, self.publisher.newest.versions[name], None)
        ]
        return pa.concat_tables([schema.empty_table(), *stored])

    def close(self) -> None:
        """Stops the threads of the job."""
        self.slices.close()


class _Dying:
    """A publisher that raises Stopping instead of publishing, as if the job ended there."""

    def __init__(self, publisher: Publisher) -> None:
        self.newest = publisher.newest

    def publish(self, *_: object, **__: object) -> None:
        raise Stopping


@contextmanager
def local_session(start: Path = Path()) -> Iterator[SparkSession]:
    """Yields this process's Spark session, or a new session that ends with the `with` block.

    If there is a project around the folder `start`, a new session uses the jars that this project
    configures.
    """
    spark = SparkSession.getActiveSession()
    if spark is not None:
        yield spark
        return
    with booting_session(load_settings_anywhere(start).jars) as session:
        yield session()


@contextmanager
def local_pipeline(pipeline: Pipeline) -> Iterator[LocalPipeline]:
    """Describes a pipeline in this process's Spark session, and yields the description.

    If the process has no session, a new session begins, which ends with the `with` block. Raises
    DeclarationError if the function fails or uses an operation that is not allowed.
    """
    with local_session() as spark:
        # The pipeline's file is in its project's `pipelines`, or beside a test.
        found = describe(spark, pipeline, Watch(Path(pipeline.source.file).parent))
        yield LocalPipeline(
            pipeline,
            spark,
            {
                name: {column: parse_type(kind) for column, kind in columns}
                for name, columns in found.tables.items()
            },
            found.shape,
        )


_SHOWN = 3


def rows_of_log(local: LocalPipeline, log: MemoryLog) -> dict[str, list[dict[str, Any]]]:
    """Folds a log in one slice, and returns the rows that readers would see, by table or view.

    Each row is a dict of values by column. Raises the errors of folding a slice, and
    DeclarationError if a view cannot be read or computed.
    """
    with tempfile.TemporaryDirectory(prefix="kappa-tables-") as scratch:
        build = Rehearsal(Path(scratch), local, log, driver_rows=log.end.distance(Offsets()))
        try:
            build.fold(log.end)
            return served_rows(build)
        finally:
            build.close()


def served_rows(build: Rehearsal) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows of all tables and views at the newest frontier, by table or view.

    The rows are sorted by all columns. Raises DeclarationError if a view cannot be read or
    computed.
    """
    tables = _tables(build)
    views = build.pipeline.view_queries
    found = {}
    with _opened(build, tables, views) as duck:
        for name in (*tables, *views):
            with _told_of_views(build, name):
                found[name] = [*rows_of(duck, f"from {quoted(name)} order by all")]
    return found


def unlike_queries(build: Rehearsal) -> list[str]:
    """Returns a sentence for each difference between a maintained view and the view's query.

    The stored rows and the query's result are compared at the build's newest frontier. Returns an
    empty list if there is no difference. Raises DeclarationError if a view cannot be read or
    computed.
    """
    births = [table for table in build.birth.tables if table.view is not None]
    tables, found = _tables(build), list[str]()
    queries = {view.name: view.sql for view in build.pipeline.views}
    stored = {birth.name: tables.pop(birth.name) for birth in births}
    for birth in births:
        # A view over this view reads columns of the served types: a hugeint is a decimal there.
        queries[birth.name] = f"select {casts_sql(birth.served)} from (\n{queries[birth.name]}\n)"
    with _opened(build, tables, queries) as duck:
        for birth in births:
            sides = (f"({stored[birth.name]})", quoted(birth.name))
            for (one, other), is_stored in ((sides, True), (sides[::-1], False)):
                with _told_of_views(build, birth.name):
                    rows = [*rows_of(duck, f"from {one} except all from {other} order by all")]
                if rows:
                    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
                    found.append(
                        f"view {birth.name} {'stores' if is_stored else 'lacks'}"
                        f" {', '.join(map(str, rows[:_SHOWN]))}{more},"
                        f" which its query {'does not have' if is_stored else 'has'}"
                    )
    return found


def _tables(build: Rehearsal) -> dict[str, str]:
    """Returns a SQL query for the rows of each table at the frontier, by the table's name."""
    newest = build.publisher.newest
    clock = log_clock(build.birth, newest.log_time)
    return {
        writer.birth.name: read_sql(
            writer.birth,
            files(
                writer.path,
                newest.versions[writer.birth.name],
                newest.file_lists.get(writer.birth.name),
            ),
            clock=clock,
        )
        for writer in build.slices.writers
    }


@contextmanager
def _opened(
    build: Rehearsal, tables: Mapping[str, str], views: Mapping[str, str]
) -> Iterator[Connection]:
    with open_for_few_rows() as duck:
        for name, sql in tables.items():
            duck.execute(f"create view {quoted(name)} as {sql}")
        pending = dict(views)
        while pending:
            refused = {
                name: why for name, sql in pending.items() if (why := _make(duck, name, sql))
            }
            if len(refused) == len(pending):
                # A view that reads a refused view is refused only for that reason.
                source = {view.name: view.source for view in build.pipeline.views}
                name, why = next(iter(refused.items()))
                raise DeclarationError(f"{source[name]}: view {name} cannot be read: {why}")
            pending = {name: views[name] for name in refused}
        yield duck


@contextmanager
def _told_of_views(build: Rehearsal, name: str) -> Iterator[None]:
    """Runs the `with` block, and raises DeclarationError if DuckDB cannot compute the view `name`.

    The error names the line that declares the view. If `name` is a table, DuckDB's error is raised.
    """
    try:
        yield
    except DUCKDB_ERRORS as error:
        for view in build.pipeline.views:
            if view.name == name:
                raise DeclarationError(
                    f"{view.source}: view {name} cannot be computed over these records: "
                    f"{without_kind(told_by(error)[0])}",
                    hint="fix its query: other records may be fit for it, and these are not",
                ) from error
        raise


def _make(duck: Connection, name: str, sql: str) -> str:
    try:
        duck.execute(f"create view {quoted(name)} as {sql}")
    except DUCKDB_ERRORS as error:
        return without_kind(told_by(error)[0])
    return ""
