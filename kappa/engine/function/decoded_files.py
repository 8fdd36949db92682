"""Parquet files of one topic in a large slice.

The files are written by Spark's workers or belong to an archive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.errors import KappaError
from kappa.base.sql import spark_quote
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.fold import spark_ddl
from kappa.engine.function.decoded import Columns
from kappa.engine.function.decoded_rows import PLACE_AND_FATE, with_fate
from kappa.engine.function.refused import Refused, rejected_rows
from kappa.engine.function.trouble import raised_at_spark
from kappa.engine.read.archived import Ranges
from kappa.engine.spark.s3a import spark_address
from kappa.records.decode.fate import VALID
from kappa.records.decode.shares import CarriedTimes
from kappa.records.decode.to_files import decoded_file
from kappa.records.redrive import Position
from kappa.state.files.address import arrow_source, writing_file
from kappa.tables.parquet import parquet_sql


@dataclass(frozen=True, slots=True)
class DecodedFiles:
    """The files of a topic, in the order of the partitions.

    The files are paths or URLs. `within` are the slice's ranges if the files contain records beside
    the ranges. `left_out` are columns that no file has. `carried` are log times that join the log
    times in the files.
    """

    topic: str
    files: tuple[str, ...]
    within: Ranges | None
    left_out: frozenset[str]
    carried: CarriedTimes

    def frame(self, spark: SparkSession, columns: Columns) -> DataFrame:
        """Returns the records as Spark reads them.

        Using a column that no file has raises.
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
        """Returns DuckDB's query for the records, except at some places."""
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
        """Reads place and fate of the records that meet a condition."""
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
        """Yields the valid records in this process.

        Columns that no file has are null.
        """
        wanted = dict.fromkeys(("_fate", "_partition", "_offset", *(name for name, _ in columns)))
        for each in self.files:
            with pq.ParquetFile(arrow_source(each)) as file:
                for batch in file.iter_batches(at_most, columns=list(wanted)):
                    rows = self.carried.in_rows(pa.Table.from_batches([batch]))
                    rows = with_fate(_with_null_columns(rows, columns), *VALID)
                    yield rows if self.within is None else rows.filter(_rows_within(self.within))

    def reject(self, refused: Refused) -> None:
        """Rewrites the files, with the refused records as rejects."""
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
    """Returns a column that raises.

    No file has the column's values, and null would be another value.
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
