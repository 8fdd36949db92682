"""The rows of a large slice, in files that Spark reads while the slice is folded.

A file was either written by a Spark worker that decoded records of the slice, or belongs to an
archive.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.errors import KappaError
from kappa.base.sql import spark_ddl, spark_quote
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.latest import latest_input, latest_sql
from kappa.engine.function.decoded_rows import (
    NO_TRUNCATIONS,
    ORDER_AND_FATE,
    PLACE_AND_FATE,
    REJECT_COLUMNS,
    attempts_in,
    hidden_rows,
    rejects_at,
    topics_of,
    topics_with_attempts,
    with_duplicates_counted,
    with_fate,
    with_rejects_counted,
    without_places,
)
from kappa.engine.function.refused_records import Refused, rejected_rows
from kappa.engine.function.spark_errors import raised_at_spark
from kappa.engine.read.archive_reader import ArchivedRange, Ranges
from kappa.engine.slice_rows import (
    ArrowRows,
    Columns,
    ContributedRows,
    CountsOf,
    FrameRows,
    QueryRows,
    SliceRows,
)
from kappa.engine.spark.s3a import spark_address
from kappa.records.decode.decoder import Clock
from kappa.records.decode.outcome import VALID, Counts, Fate, decoded_columns, joined
from kappa.records.decode.parquet_decoder import (
    CarriedTimes,
    Remembering,
    decode_to_files,
    decoded_file,
    linked_for_workers,
)
from kappa.records.decode.raw_records import RawRange
from kappa.records.redrive import Attempt, Position, Settled
from kappa.state.build_status import read_counter
from kappa.state.files.address import arrow_source, delete_scratch, writing_file
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.table import TableBirth
from kappa.tables.parquet import parquet_sql

if TYPE_CHECKING:
    from kappa.engine.function.function_rows import FunctionRows

_PLACE = (("_partition", "int"), ("_offset", "bigint"))
# Links an archive's files of the beginnings of a topic's ranges into a folder
# (read/archive_reader.py).
Archived = Callable[[Topic, Ranges, Clock, Path], Mapping[int, ArchivedRange]]


class SliceAtSpark(SliceRows):
    """A large slice that Spark workers have decoded."""

    is_judged_first = carries_memories = False

    def __init__(
        self,
        spark: SparkSession,
        topics: Iterable[Topic],
        piece: Slice,
        raw: Callable[[Slice, str], Sequence[RawRange]],
        clocks: Mapping[str, Clock],
        remembering: Mapping[str, Remembering],
        folder: Path,
        archived: Archived,
        left_out: Mapping[str, frozenset[str]],
        elsewhere: str | None = None,
    ) -> None:
        """Empties `folder`, and decodes the slice into files of this folder.

        If the workers cannot write files of this machine, they write to `elsewhere`, a URL. The
        function `raw` returns the ranges of a topic in a slice. The function `archived` links an
        archive's files into a folder and returns the ranges that these files contain; these ranges
        need no decoding. `remembering` contains the identities that the build remembers at the
        slice's start. `left_out` names, for each topic, the columns that the function does not use.
        Spark raises an error if a frame nevertheless uses such a column; in the tables of `chunks`,
        such a column is null.
        """
        self._spark = spark
        self._folder, self._elsewhere = folder, elsewhere
        self._files: dict[str, DecodedFiles] = {}
        self._frames: dict[str, DataFrame] = {}
        self._folded: Mapping[Position, int] = {}
        self._duplicates: frozenset[Position] = frozenset()
        seen_of: dict[str, Mapping[int, Counts]] = {}
        self.close()  # A crash may have left files.
        for number, topic in enumerate(topics):
            name = topic.name
            path = folder / str(number)
            # A lost task may have kept the folder and still write; the task's file is not read.
            path.mkdir(parents=True, exist_ok=True)
            place = str(path) if elsewhere is None else f"{elsewhere}/{number}"
            clock = clocks.get(name, {})
            ranges = {
                partition: (start, end)
                for partition, end in piece.end.next.get(name, {}).items()
                if end > (start := piece.start.at(name, partition))
            }
            taken = archived(topic, ranges, clock, path)
            read_counter(path, "archived")(
                sum(one.end - ranges[partition][0] for partition, one in taken.items())
            )
            unused = left_out.get(name, frozenset())
            seen = {partition: one.seen for partition, one in taken.items() if one.seen is not None}
            # The log is read from exactly the archive's end, in its log time too.
            archived_to = Offsets({name: {partition: one.end for partition, one in taken.items()}})
            decoded = decode_to_files(
                spark,
                raw(replace(piece, start=piece.start.highest_with(archived_to)), name),
                topic,
                {**clock, **{partition: one.log_time for partition, one in seen.items()}},
                remembering.get(name, Remembering()),
                place,
                left_out=unused,
            )
            seen_of[name] = joined(seen, decoded.counts)
            read = (*(linked_for_workers(path, place) if taken else ()), *decoded.files)
            within = None if all(one.is_whole for one in taken.values()) else ranges
            self._files[name] = DecodedFiles(name, read, within, unused, decoded.carried)
            self._frames[name] = self._files[name].frame(spark, decoded_columns(topic))
        self._seen: CountsOf = seen_of

    def counts(self) -> CountsOf:
        """Returns the counts of the records, per topic and partition.

        Each count is the sum of what the decoding tasks have counted and what the archive's files
        contain.
        """
        return self._seen

    def attempts(self) -> tuple[Attempt, ...]:
        """Returns the redriven records of the slice.

        Arrow reads them from the decoded files, since they are few.
        """
        return tuple(
            each
            for name in topics_with_attempts(self._seen)
            for each in attempts_in(
                name, self._files[name].places(pc.field("_redrives").is_valid())
            )
        )

    def rejected(self, places: Collection[Position]) -> dict[Position, int | None]:
        """Returns the places in `places` that are rejects of this slice.

        Each such place is mapped to the offset of the record that the reject redrives, or to None
        if the reject is not a redriven record. Arrow reads the rejects from the files, since
        rejects are few.
        """
        offsets = pc.field("_offset").isin([place.offset for place in places])
        return {
            place: of
            for name in topics_of(places)
            if name in self._files
            for place, of in rejects_at(name, self._files[name].places(offsets), places)
        }

    def settle(self, found: Settled) -> None:
        """Stores which redriven records are folded, and removes those that are duplicates.

        `found` contains the decisions. An anti join removes the duplicates from the frames. The
        duplicates remain in the files.
        """
        self._folded, self._duplicates = found.folded, found.duplicates
        self._seen = with_duplicates_counted(self._seen, found.duplicates)
        for name in topics_of(found.duplicates):
            rows = [
                {"_partition": place.partition, "_offset": place.offset}
                for place in found.duplicates
                if place.topic == name
            ]
            left_out = self._spark.createDataFrame(
                pa.Table.from_pylist(rows, schema=arrow_schema(_PLACE))
            )
            self._frames[name] = self._frames[name].join(
                F.broadcast(left_out), [column for column, _ in _PLACE], "left_anti"
            )

    def _accepted(self, topic: Topic, columns: Columns) -> DataFrame:
        """Returns a DataFrame of a topic's valid records in the slice.

        The DataFrame is not cached. Each time Spark computes the DataFrame, Spark reads the topic's
        decoded files again.
        """
        frame = self._frames.get(topic.name)
        if frame is None:
            return self._spark.createDataFrame(arrow_schema(columns).empty_table())
        return frame.where(f"_fate in ({', '.join(map(str, sorted(map(int, VALID))))})").select(
            *(spark_quote(name) for name, _ in columns)
        )

    def chunks(self, topic: Topic, columns: Columns, at_most: int) -> Iterator[pa.Table]:
        """Yields a topic's valid records, partition by partition.

        The records are read from the decoded files, in tables of at most `at_most` rows. Columns
        that the function does not use may be missing in the files; such columns are null.
        """
        files = self._files.get(topic.name)
        for found in () if files is None else files.valid(columns, at_most):
            rows = without_places(found, topic.name, self._duplicates)
            if rows.num_rows:
                yield rows.select([name for name, _ in columns])

    def reject(self, refused: Refused) -> None:
        """Rewrites the decoded files so that the records in `refused` are rejects."""
        for topic in {topic for topic, _ in refused}:
            self._files[topic].reject(refused)
            # Spark remembers how long files are, so the frame is made anew.
            columns = [
                (field.name, field.dataType.simpleString())
                for field in self._frames[topic].schema.fields
            ]
            self._frames[topic] = self._files[topic].frame(self._spark, columns)
        self._seen = with_rejects_counted(self._seen, refused)

    def apply(self, function: FunctionRows, _spark: SparkSession) -> dict[str, FrameRows]:
        """Runs the function on this slice's frames, and returns a frame of rows by table name."""
        frames = {
            topic.name: self._accepted(topic, columns) for topic, columns in function.inputs()
        }
        found = function.frames(frames, self._seen)
        return {name: FrameRows(own) for name, own in found.items()}

    def latest(self, topic: Topic, table: TableBirth) -> QueryRows | None:
        """Returns a DuckDB query for the newest record per key in the topic's files.

        Returns None if the slice has no offsets of the topic.
        """
        files = self._files.get(topic.name)
        if files is None:
            return None
        decoded = files.sql(latest_input(table), self._duplicates)
        return QueryRows(latest_sql(table, decoded), self._spark)

    def truncations(self, topic: Topic) -> pa.Table:
        """Returns the truncations among the topic's records.

        Arrow reads them from the decoded files, since they are few.
        """
        if not any(seen.truncations for seen in self._seen.get(topic.name, {}).values()):
            return NO_TRUNCATIONS
        truncates = pc.field("_fate") == int(Fate.TRUNCATION)
        found = self._files[topic.name].places(truncates, ORDER_AND_FATE)
        return without_places(found, topic.name, self._duplicates)

    def rejects(self, table: TableBirth, more: pa.Table | None = None) -> ContributedRows | None:
        """Returns the rows of the rejects table.

        The rows are a Spark frame if any topic has rejects in the slice, otherwise an Arrow table.
        Returns None if the rejects table gets no row.
        """
        others = hidden_rows(table, self._folded)
        if more is not None:
            others = pa.concat_tables([others, more])
        rows: DataFrame | None = None
        for name, frame in self._frames.items():
            if any(seen.rejected for seen in self._seen[name].values()):
                columns = (
                    F.col(REJECT_COLUMNS[column])
                    if column in REJECT_COLUMNS
                    else F.lit(None).cast(kind)
                    for column, kind in table.columns
                )
                rejected = frame.where(f"_fate = {int(Fate.REJECTED)}").select(
                    *(
                        source.alias(column)
                        for (column, _), source in zip(table.columns, columns, strict=True)
                    )
                )
                rows = rejected if rows is None else rows.unionAll(rejected)
        if rows is None:
            return ArrowRows(others) if others.num_rows else None
        if others.num_rows == 0:
            return FrameRows(rows)
        return FrameRows(rows.unionAll(self._spark.createDataFrame(others)))

    def close(self) -> None:
        """Deletes the decoded files."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._elsewhere is not None:
            delete_scratch(self._elsewhere)


@dataclass(frozen=True, slots=True)
class DecodedFiles:
    """The files with a topic's decoded records, in the order of the partitions.

    `files` are paths or URLs. `within` contains the slice's ranges if the files also contain
    records outside these ranges, otherwise `within` is None. `left_out` names the columns that the
    files lack. The log times in the files may be too low; `carried` contains the minimum log times
    that replace lower log times.
    """

    topic: str
    files: tuple[str, ...]
    within: Ranges | None
    left_out: frozenset[str]
    carried: CarriedTimes

    def frame(self, spark: SparkSession, columns: Columns) -> DataFrame:
        """Returns a Spark frame of the records.

        If a column in `left_out` is used, the computation of the frame fails.
        """
        ddl = spark_ddl([column for column in columns if column[0] not in self.left_out])
        read = spark.read.schema(ddl).parquet(*map(spark_address, self.files))
        frame = self.carried.in_frame(read)
        if self.left_out:
            frame = frame.select(
                *(
                    _raising_column(self.topic, *column)
                    if column[0] in self.left_out
                    else F.col(spark_quote(column[0]))
                    for column in columns
                )
            )
        return frame if self.within is None else frame.where(_sql_within(self.within))

    def sql(self, columns: Columns, without: Iterable[Position]) -> str:
        """Returns a DuckDB query for the topic's records, without the records at `without`."""
        conditions = [
            *([] if self.within is None else [f"({_sql_within(self.within)})"]),
            *(
                f"not (_partition = {each.partition} and _offset = {each.offset})"
                for each in without
                if each.topic == self.topic
            ),
        ]
        where = f" where {' and '.join(conditions)}" if conditions else ""
        return self.carried.in_sql(parquet_sql(tuple(columns), self.files, where))

    def places(self, where: pc.Expression, columns: Sequence[str] = PLACE_AND_FATE) -> pa.Table:
        """Reads `columns` of the records that meet the condition `where`, into this process."""
        within = self.within
        where = where if within is None else where & _rows_within(within)
        found = [
            pq.read_table(
                arrow_source(each), columns=list(columns), filters=where, partitioning=None
            )
            for each in self.files
        ]
        return self.carried.in_rows(pa.concat_tables(found))

    def valid(self, columns: Columns, at_most: int) -> Iterator[pa.Table]:
        """Yields the valid records, in Arrow tables of at most `at_most` rows.

        A column that a file lacks is null in the file's records.
        """
        wanted = dict.fromkeys(("_fate", "_partition", "_offset", *(name for name, _ in columns)))
        for each in self.files:
            with pq.ParquetFile(arrow_source(each)) as file:
                for batch in file.iter_batches(at_most, columns=list(wanted)):
                    rows = self.carried.in_rows(pa.Table.from_batches([batch]))
                    rows = with_fate(_with_null_columns(rows, columns), *VALID)
                    yield rows if self.within is None else rows.filter(_rows_within(self.within))

    def reject(self, refused: Refused) -> None:
        """Rewrites the files so that the records in `refused` are rejects."""
        for each in self.files:
            with (
                writing_file(each) as path,
                pq.ParquetFile(arrow_source(each)) as file,
                decoded_file(path, file.schema_arrow) as into,
            ):
                for batch in file.iter_batches():
                    rows = pa.Table.from_batches([batch], schema=file.schema_arrow)
                    into.write_table(rejected_rows(rows, self.topic, refused))


def _rows_within(ranges: Ranges) -> pc.Expression:
    part, offset = pc.field("_partition"), pc.field("_offset")
    return reduce(
        or_,
        (
            (part == partition) & (offset >= start) & (offset < end)
            for partition, (start, end) in ranges.items()
        ),
    )


def _sql_within(ranges: Ranges) -> str:
    return " or ".join(
        f"(_partition = {partition} and _offset >= {start} and _offset < {end})"
        for partition, (start, end) in ranges.items()
    )


def _raising_column(topic: str, name: str, kind: str) -> Column:
    """Returns a Spark column in place of a column that decoding has left out of the files.

    Spark raises an error if it computes the column. The values are in no file, and null would be a
    wrong value.
    """
    error = KappaError(
        f"column {name} of topic {topic} is used in this slice, and was not in one before",
        hint="the function may give one plan only; a job begins again with all columns",
    )
    return F.raise_error(F.lit(raised_at_spark(error))).cast(kind).alias(name)


def _with_null_columns(table: pa.Table, columns: Columns) -> pa.Table:
    for field in arrow_schema(columns):
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table
