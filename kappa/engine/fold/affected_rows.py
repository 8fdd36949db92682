"""The stored rows of a table that a slice may change, read at one version of the table.

A slice may change the rows of its keys, and the rows that are due: rows whose step asked to be
woken at a time that the log has reached. The caller passes the version, which must be the table's
version in the previous slice's frontier, never the newest version. So a slice that was interrupted
is computed again from the same rows (law 1 in docs/design.md). Null keys match null keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.base.sql import spark_ddl, spark_quote
from kappa.declare.ordered_fold import PLACE_COLUMNS
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.step_loop import Clocks
from kappa.engine.spark.s3a import spark_address
from kappa.state.files.address import arrow_source
from kappa.tables.versions import files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Names and Spark's types.
Columns = Sequence[tuple[str, str]]

# So many rows are in memory beside the kept rows; a row with sketches may have tens of kilobytes.
_BATCH_ROWS = 4096
# Of these types the statistics in a file's footer are bounds, by either writer. Text is cut short
# in the statistics, which still are bounds.
_BOUNDED = (pa.types.is_integer, pa.types.is_date, pa.types.is_string)


def touched_rows(path: str, version: int, columns: Columns, keys: pa.Table) -> pa.Table:
    """Returns the rows with a key in `keys`, from one version of the table at `path`.

    `columns` are the columns to return. `keys` contains exactly the table's key columns, with the
    same types; a null is a key like any other. Row groups whose bounds exclude every key are not
    read. In the other row groups, the key columns are read first. So memory contains only the rows
    that are found, and some thousand other rows.
    """
    schema = arrow_schema(columns)
    among = _Among(keys)
    found = (
        [
            batch
            for file in files(path, version, None)
            for batch in _matching_batches(file, schema, among)
        ]
        if keys.num_rows
        else []
    )
    return pa.Table.from_batches(found, schema)


def due_rows(
    path: str, version: int, columns: Columns, on_time: str, clocks: Clocks, *, at_most: int
) -> pa.Table | None:
    """Returns the due rows: rows whose time in the column `on_time` the log has reached.

    The log has reached a row's time if the log time of the row's partition is equal or later.
    `clocks` contains the log times. `columns` are the columns to return. Returns None if more than
    `at_most` rows are due. Usually no row is due, and the bounds of the row groups already show
    this.
    """
    schema, due = arrow_schema(columns), _Due(on_time, clocks)
    found: list[pa.RecordBatch] = []
    for file in files(path, version, None):
        for batch in _matching_batches(file, schema, due):
            found.append(batch)
            at_most -= len(batch)
            if at_most < 0:
                return None
    return pa.Table.from_batches(found, schema)


def touched_frame(
    spark: SparkSession, path: str, version: int, columns: Columns, keys: DataFrame
) -> DataFrame:
    """Returns a Spark frame of the rows with a key in `keys`, like `touched_rows`.

    `keys` is a Spark frame and may contain duplicates. The returned frame reads exactly the files
    of the table's version `version`.
    """
    stored = stored_frame(spark, path, version, columns)
    match = reduce(
        and_,
        (stored[spark_quote(name)].eqNullSafe(keys[spark_quote(name)]) for name in keys.columns),
    )
    return stored.join(keys, match, "left_semi")


def stored_frame(spark: SparkSession, path: str, version: int, columns: Columns) -> DataFrame:
    """Returns a frame of all rows in one version of the table at `path`.

    The frame reads exactly the files of this version.
    """
    read = files(path, version, None)
    return (
        spark.read.schema(spark_ddl(columns)).parquet(*map(spark_address, read))
        if read
        else spark.createDataFrame([], spark_ddl(columns))
    )


def _matching_batches(
    file: str, schema: pa.Schema, among: _Among | _Due
) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(arrow_source(file), pre_buffer=True) as stored:
        for group in range(stored.num_row_groups):
            if not among.may_be_in(stored.metadata.row_group(group)):
                continue
            hits = [
                among.of(batch)
                for batch in stored.iter_batches(
                    _BATCH_ROWS, row_groups=[group], columns=among.names
                )
            ]
            if not any(hit.true_count for hit in hits):
                continue
            batches = stored.iter_batches(_BATCH_ROWS, row_groups=[group], columns=schema.names)
            for batch, hit in zip(batches, hits, strict=True):
                if hit.true_count:
                    # The two writers have different Arrow types for one type of Delta's, and not
                    # all Arrow types can be filtered.
                    yield batch.select(schema.names).cast(schema).filter(hit)


class _Among:
    """A set of wanted keys that finds the rows with a wanted key.

    The key of a row is turned into a number, column by column. For the first column, the number is
    the index of the value among the wanted values. For each further column, the number is the index
    of the pair (number so far, value) among the wanted pairs. So nulls match nulls, and the numbers
    stay below the square of the number of keys.
    """

    def __init__(self, keys: pa.Table) -> None:
        self.names = keys.column_names
        self._schema = keys.schema
        self._values = [keys.column(name).unique() for name in self.names]
        self._pairs: list[pa.Array] = []
        places = pc.index_in(keys.column(0), self._values[0])
        for name, values in zip(self.names[1:], self._values[1:], strict=True):
            paired = _paired(places, keys.column(name), values)
            self._pairs.append(paired.unique())
            places = pc.index_in(paired, self._pairs[-1])

    def may_be_in(self, group: Any) -> bool:
        """Returns False if the bounds of a row group's columns exclude all wanted keys.

        A row group is excluded if the bounds of one key column exclude all wanted values of this
        column. `group` is the Parquet metadata of the row group.
        """
        columns = {
            group.column(number).path_in_schema: group.column(number)
            for number in range(group.num_columns)
        }
        return all(
            _may_be_in(values, columns[name].statistics)
            for name, values in zip(self.names, self._values, strict=True)
        )

    def of(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Returns a mask of the rows with a wanted key."""
        rows = rows.select(self.names).cast(self._schema)
        places = pc.index_in(rows.column(0), self._values[0])
        for name, values, pairs in zip(self.names[1:], self._values[1:], self._pairs, strict=True):
            # The place of a value that is not wanted is null, and no pair has a null place.
            places = pc.index_in(_paired(places, rows.column(name), values), pairs)
        return places.is_valid()


class _Due:
    """A condition for rows that are due: the row's time is not after its partition's log time."""

    def __init__(self, on_time: str, clocks: Clocks) -> None:
        self._schema = arrow_schema([(on_time, "timestamp"), *PLACE_COLUMNS[:2]])
        self.names = self._schema.names
        self._reached = [
            (topic, pa.array([*times], pa.int32()), pa.array([ms * 1000 for ms in times.values()]))
            for topic, times in clocks.items()
            if times
        ]
        self._last = max((pc.max(micros).as_py() for _, _, micros in self._reached), default=None)

    def may_be_in(self, group: Any) -> bool:
        """Returns False if the bounds of a row group show that no row in it is due."""
        found = [group.column(number) for number in range(group.num_columns)]
        statistics = next(
            column.statistics for column in found if column.path_in_schema == self.names[0]
        )
        if self._last is None:
            return False
        if statistics is None or not statistics.has_min_max:
            return True
        # In microseconds, by either writer.
        return bool(statistics.min_raw <= self._last)

    def of(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Returns a mask of the rows that are due."""
        time, topic, partition = rows.select(self.names).cast(self._schema).columns
        micros = time.cast(pa.int64())
        due = [
            pc.and_kleene(
                pc.equal(topic, name),
                pc.less_equal(micros, reached.take(pc.index_in(partition, partitions))),
            )
            for name, partitions, reached in self._reached
        ]
        return pc.fill_null(reduce(pc.or_kleene, due), fill_value=False)


def _paired(places: pa.Array, column: pa.Array, values: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(places.cast(pa.int64()), len(values)), pc.index_in(column, values))


def _may_be_in(values: pa.Array, statistics: Any) -> bool:
    if (
        statistics is None
        or not statistics.has_min_max
        or not any(is_bounded(values.type) for is_bounded in _BOUNDED)
    ):
        return True
    # If nulls were not counted, the column may have nulls.
    nulls = values.null_count > 0 and (not statistics.has_null_count or statistics.null_count > 0)
    # Python has no days after 9999: a date is the number of its day.
    is_date = pa.types.is_date(values.type)
    bounds = pc.min_max(values.cast(pa.int32()) if is_date else values)
    least, most = (
        (statistics.min_raw, statistics.max_raw) if is_date else (statistics.min, statistics.max)
    )
    # A footer orders text by its bytes, as Arrow does here.
    known = bounds["min"].is_valid
    return nulls or (
        known and bool(bounds["min"].as_py() <= most) and bool(least <= bounds["max"].as_py())
    )
