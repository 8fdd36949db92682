"""A fold by a step of the user's, in the order of the log, over the state of each key.

A step takes the rows of a key one by one or in batches. The same loop runs in the job itself for
small slices and in Spark's workers for large ones. The state is the table's row before the slice.
Emitted rows are committed before the state: a slice that was interrupted in between is computed
again from the same state (law 1). engine/job/slice_folder.py commits both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.errors import Broken
from kappa.base.sql import spark_quote
from kappa.declare.ordered import PLACE_COLUMNS, Over, Step
from kappa.declare.pipeline import Pipeline
from kappa.engine.fold.fold import spark_ddl
from kappa.state.build import TableBirth
from kappa.values.arrow import arrow_schema

_PLACE = tuple(name for name, _ in PLACE_COLUMNS)
_place = itemgetter(*_PLACE)
_BATCH_ROWS = 10_000
# Per column type: the class and the condition of Python values that Arrow returns unchanged.
# All other values are converted by Arrow.
_EXACT: Mapping[pa.DataType, tuple[type, Callable[[Any], bool]]] = {
    # Text beyond ASCII may have halves of characters.
    pa.string(): (str, str.isascii),
    pa.bool_(): (bool, lambda _: True),
    pa.float64(): (float, lambda _: True),
    pa.date32(): (date, lambda _: True),
    **{
        kind: (int, range(-(1 << kind.bit_width - 1), 1 << kind.bit_width - 1).__contains__)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    },
}
_NONE_EXACT: tuple[type, Callable[[Any], bool]] = (type(None), lambda _: False)
_MEND = "mend the step and deploy it, as a new version: kappa deploy"

_Key = tuple[Any, ...]
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OrderedFold:
    """A table that is folded by a step, and the table (or none) of the rows that the step emits."""

    table: TableBirth
    emitted: TableBirth | None
    step: Step
    over: Over = Over.ROW

    @classmethod
    def of_pipeline(
        cls, pipeline: Pipeline, tables: Mapping[str, TableBirth]
    ) -> tuple[OrderedFold, ...]:
        """Lists the ordered folds of a pipeline, over the tables of one build."""
        steps = [
            (table.name, table.ordered) for table in pipeline.tables if table.ordered is not None
        ]
        return tuple(
            cls(
                tables[name],
                None if fold.emits is None else tables[fold.emits],
                fold.step,
                fold.over,
            )
            for name, fold in steps
        )

    @property
    def made(self) -> tuple[TableBirth, ...]:
        """Lists the tables whose rows it makes, in the order in which they are committed."""
        return (self.table,) if self.emitted is None else (self.emitted, self.table)

    def here(self, rows: pa.Table, held: pa.Table) -> dict[str, pa.Table]:
        """Folds a small slice. Returns emitted rows and whole rows of states, by table.

        `held` are the table's rows of (at least) the keys of `rows`.
        """
        grouped: dict[_Key, list[_Row]] = {}
        for row in rows.to_pylist():
            grouped.setdefault(self._key(row), []).append(row)
        states = {self._key(state): state for state in held.to_pylist()}
        folding = _Folding(self)
        for key, found in grouped.items():
            folding.fold(key, states.get(key), sorted(found, key=_place))
        return {table.name: folding.take(table) for table in self.made}

    def at_spark(
        self, spark: SparkSession, rows: DataFrame, held: DataFrame, folder: Path
    ) -> dict[str, DataFrame]:
        """Folds a large slice as `here` does, by Spark's workers into files of `folder`."""
        for table in self.made:
            (folder / table.name).mkdir(parents=True)
        keys = [F.col(spark_quote(key)) for key in self.table.keys]
        states = held.select(
            *keys, _whole(held).alias("state"), F.lit(None).cast(rows.schema).alias("row")
        )
        both = states.unionAll(
            rows.select(
                *keys, F.lit(None).cast(held.schema).alias("state"), _whole(rows).alias("row")
            )
        )
        # A key's state is first, then its rows in the order of the log.
        in_order = both.repartition(*keys).sortWithinPartitions(
            *keys, F.col("row").isNotNull(), *(f"row.{name}" for name in _PLACE)
        )
        in_order.mapInArrow(
            partial(_fold_into, fold=self, folder=folder), "folded bigint"
        ).collect()
        return {
            table.name: spark.read.schema(spark_ddl(table.columns)).parquet(
                str(folder / table.name)
            )
            for table in self.made
        }

    def _key(self, row: _Row) -> _Key:
        return tuple(row[key] for key in self.table.keys)


class _Folding:
    """Keys that are folded one after the other, and the resulting rows until they are taken."""

    def __init__(self, fold: OrderedFold) -> None:
        self._fold = fold
        self._state = [
            name for name, _ in fold.table.columns if name not in {*fold.table.keys, *_PLACE}
        ]
        self._emitted = (
            frozenset(name for name, _ in fold.emitted.columns)
            if fold.emitted is not None
            else frozenset()
        )
        self._into = "" if fold.emitted is None else fold.emitted.name
        self._given = arrow_schema(fold.table.steps_over)
        kept = arrow_schema(fold.table.columns)
        self._columns = [
            (
                name,
                kept.field(name),
                *(
                    _NONE_EXACT
                    if fold.over is Over.PANDAS
                    else _EXACT.get(kept.field(name).type, _NONE_EXACT)
                ),
            )
            for name in self._state
        ]
        self._rows: dict[str, list[_Row]] = {table.name: [] for table in fold.made}

    def fold(self, key: _Key, held: _Row | None, rows: Iterable[_Row]) -> None:
        """Folds the rows of one key into its state (None: it has none yet).

        The rows are in the order of the log.
        """
        state = (
            dict.fromkeys(self._state)
            if held is None
            else {name: held[name] for name in self._state}
        )
        at = None if held is None else _place(held)
        in_order = self._in_order(key, at, rows)
        batch_rows = 1 if self._fold.over is Over.ROW else _BATCH_ROWS
        while batch := list(islice(in_order, batch_rows)):
            self._step(state, batch, key)
            # As the table would return it, so that the next step gets the same state whether a
            # batch or a slice ends here.
            for name, field, kind, is_exact in self._columns:
                value = state[name]
                if value is not None and not (type(value) is kind and is_exact(value)):
                    state[name] = self._array(self._fold.table, field, [value]).to_pylist()[0]
            at = _place(batch[-1])
        if at is not None:
            self._rows[self._fold.table.name].append(
                {
                    **dict(zip(self._fold.table.keys, key, strict=True)),
                    **state,
                    **dict(zip(_PLACE, at, strict=True)),
                }
            )

    def _in_order(self, key: _Key, at: _Key | None, rows: Iterable[_Row]) -> Iterator[_Row]:
        """Yields the rows of a key in the order of the log.

        The rows of one record have an order that does not depend on how they arrive. Raises Broken
        if two records have no order between them.
        """
        for place, found in groupby(rows, key=_place):
            if at is not None and at[:2] != place[:2]:
                raise Broken(
                    self._elsewhere(key, at, place),
                    hint="produce each key to one partition; after partitions were added, "
                    "a topic made anew and produced to again has one order",
                )
            at = place
            same = list(found)
            yield from (
                same if len(same) == 1 else sorted(same, key=lambda row: repr(sorted(row.items())))
            )

    def waiting(self, table: TableBirth) -> int:
        """Counts a table's rows that wait to be taken."""
        return len(self._rows[table.name])

    def take(self, table: TableBirth) -> pa.Table:
        """Returns a table's rows made since the last call, and forgets them.

        Raises Broken if a value does not fit its column.
        """
        rows, self._rows[table.name] = self._rows[table.name], []
        schema = arrow_schema(table.columns)
        return pa.Table.from_arrays(
            [self._array(table, field, [row.get(field.name) for row in rows]) for field in schema],
            schema=schema,
        )

    def _array(self, table: TableBirth, field: pa.Field, values: list[Any]) -> pa.Array:
        try:
            # Otherwise Arrow does not read pandas' nulls as nulls.
            return pa.array(values, field.type, from_pandas=self._fold.over is Over.PANDAS)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Broken(
                f"{self._who} gives {field.name} of table {table.name}, "
                f"which is {field.type}, what does not fit: {error}",
                hint=_MEND,
            ) from error

    def _step(self, state: dict[str, Any], batch: Sequence[_Row], key: _Key) -> None:
        try:
            # Copied at once: the step may yield its own state and change it afterwards.
            emitted = [
                deepcopy(each)
                for each in self._as_rows(self._fold.step(state, self._as_asked(batch)))
            ]
        except Exception as error:
            # The caller adds the line that raised; only here the record is known.
            first, last = batch[0], batch[-1]["_offset"]
            offsets = (
                f"offset {last}" if len(batch) == 1 else f"offsets {first['_offset']} to {last}"
            )
            error.add_note(
                f"{self._who} was at {first['_topic']} partition {first['_partition']} "
                f"{offsets}, key {_told(key)}"
            )
            raise
        for each in emitted:
            if not isinstance(each, Mapping) or not self._emitted.issuperset(each):
                raise Broken(
                    f"{self._who} emits {each!r}",
                    hint=f"it emits mappings with columns of {self._into}: "
                    f"{', '.join(sorted(self._emitted))}"
                    if self._into
                    else "say into which table: ordered(..., emits=...)",
                )
        self._rows.get(self._into, []).extend(emitted)
        if len(state) != len(self._state) or not all(name in state for name in self._state):
            raise Broken(
                f"{self._who} leaves the state of key {_told(key)} "
                f"with {', '.join(map(str, state)) or 'nothing'}",
                hint=f"it has {', '.join(self._state)}; {_MEND}",
            )

    def _as_asked(self, batch: Sequence[_Row]) -> Any:
        if self._fold.over is Over.ROW:
            return batch[0]
        table = pa.Table.from_pylist(batch, schema=self._given)
        if self._fold.over is Over.ARROW:
            return table
        # Its import takes as long as folding a small slice, and few steps use it.
        import pandas as pd  # noqa: PLC0415

        # With types of its own, pandas would make doubles of integers beside a null.
        return table.to_pandas(types_mapper=pd.ArrowDtype)

    def _as_rows(self, returned: Any) -> Iterable[Any]:
        """Returns an iterator over the rows that a step returns or yields."""
        if type(returned).__module__.partition(".")[0] == "pandas":
            returned = pa.Table.from_pandas(returned, preserve_index=False)
        if isinstance(returned, pa.Table | pa.RecordBatch):
            returned = returned.to_pylist()
        return iter(returned or ())

    @property
    def _who(self) -> str:
        return f"the step of table {self._fold.table.name}"

    def _elsewhere(self, key: _Key, at: tuple[Any, ...], place: tuple[Any, ...]) -> str:
        one, other = (f"{topic} partition {partition}" for topic, partition, _ in (at, place))
        return (
            f"table {self._fold.table.name} is folded in the order of the log, "
            f"and rows of key {_told(key)} lie in {one} and in {other}, "
            "which have no order between them"
        )


def _fold_into(
    batches: Iterable[pa.RecordBatch], fold: OrderedFold, folder: Path
) -> Iterator[pa.RecordBatch]:
    """Folds one task's keys, each state before its rows, into a file per table.

    Yields the number of keys.
    """
    from pyspark import TaskContext  # noqa: PLC0415  # is a worker's

    context = TaskContext.get()
    assert context is not None
    folding, folded = _Folding(fold), 0
    with ExitStack() as ending:
        # A task that is retried writes its files again.
        places = [folder / table.name / f"{context.partitionId()}.parquet" for table in fold.made]
        writers = [
            ending.enter_context(pq.ParquetWriter(place, arrow_schema(table.columns)))
            for table, place in zip(fold.made, places, strict=True)
        ]
        files = list(zip(fold.made, writers, strict=True))
        for key, held, rows in _by_key(batches, fold.table.keys):
            folding.fold(key, held, rows)
            folded += 1
            for table, file in files:
                if folding.waiting(table) >= _BATCH_ROWS:
                    file.write_table(folding.take(table))
        for table, file in files:
            file.write_table(folding.take(table))
    yield pa.RecordBatch.from_pydict(
        {"folded": [folded]}, schema=arrow_schema((("folded", "bigint"),))
    )


def _by_key(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str]
) -> Iterator[tuple[_Key, _Row | None, Iterator[_Row]]]:
    """Yields each key that has rows, with its state and its rows in the given order."""
    for key, found in groupby(
        (each for batch in batches for each in batch.to_pylist()),
        key=lambda each: tuple(each[name] for name in keys),
    ):
        of_key = iter(found)
        first = next(of_key)
        held, begun = (
            (first["state"], next(of_key, None)) if first["state"] is not None else (None, first)
        )
        if begun is not None:
            yield key, held, (each["row"] for each in chain([begun], of_key))


def _whole(frame: DataFrame) -> Column:
    return F.struct(*(F.col(spark_quote(name)) for name in frame.columns))


def _told(key: _Key) -> str:
    return ", ".join(map(repr, key))
