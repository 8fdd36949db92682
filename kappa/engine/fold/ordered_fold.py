"""A fold by a step that is called with the rows of each key in the order of the log.

The step updates the state of each key. The job itself folds small slices, and Spark workers fold
large slices. The job and the workers use the same loops: over single keys (step_loop.py), or over
columns of many keys at once (column_loop.py), depending on the step's declaration. The state of a
key is the key's row in the table before the slice. The rows that the step emits are committed
before the states (engine/slice.py). So a slice that was interrupted between the two commits is
computed again from the same states. A step may ask to be woken at a time. Such a step is also
called for keys without rows in the slice, if the log time has reached the requested time by the end
of the slice.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.errors import Broken
from kappa.base.sections import StorageSettings
from kappa.base.sql import spark_ddl, spark_quote
from kappa.declare.ordered_fold import PARTITION, Over, Sessions, Step
from kappa.declare.pipeline import OnError, Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.column_loop import ColumnLoop, ColumnsStep, OneKey, numbered
from kappa.engine.fold.session_step import SessionStep
from kappa.engine.fold.step_loop import (
    MEND,
    PLACE,
    Clocks,
    FailedStep,
    Judging,
    Key,
    Row,
    StepLoop,
    place_of,
)
from kappa.engine.slice_rows import ArrowRows, ContributedRows, FrameRows
from kappa.engine.spark.s3a import spark_address
from kappa.state.files.address import open_buckets, opened_bucket_settings, writing_file
from kappa.state.table import TableBirth

# A task reports the name of its files, and the fields of each FailedStep.
_TASK = (("file", "string"), ("failed", "string"), ("noted", "string"), ("is_unsure", "boolean"))
_FAST = Judging()
# Rows that a task folds together, by a step over many keys.
_PART_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class Stepped:
    """The rows that a step computes from a slice, and the records on which the step fails.

    `rows` maps a table's name to its rows. `failed` contains the failing records. `noted` contains
    records that are folded but also get a row in the rejects table. `is_unsure` means that the step
    failed on an unknown record of a batch. If records have failed, `rows` are not the final rows of
    the slice.
    """

    rows: Mapping[str, ContributedRows]
    failed: Sequence[FailedStep] = ()
    noted: Sequence[FailedStep] = ()
    is_unsure: bool = False


@dataclass(frozen=True, slots=True)
class OrderedFold:
    """A table that a step folds, and the table of the rows that the step emits.

    The attribute `emitted` is None if the step emits no rows.
    """

    table: TableBirth
    emitted: TableBirth | None
    step: Step | Sessions
    over: Over = Over.ROW
    on_time: str | None = None
    # Whether records on which the step fails are noted, and not raised.
    notes: bool = False

    @classmethod
    def of_pipeline(
        cls, pipeline: Pipeline, tables: Mapping[str, TableBirth]
    ) -> tuple[OrderedFold, ...]:
        """Returns the ordered folds of a pipeline. `tables` contains the build's tables by name."""
        steps = [
            (table.name, table.ordered) for table in pipeline.tables if table.ordered is not None
        ]
        return tuple(
            cls(
                tables[name],
                None if fold.emits is None else tables[fold.emits],
                fold.folded_by,
                fold.over,
                fold.on_time,
                pipeline.on_error is OnError.REJECT,
            )
            for name, fold in steps
        )

    @property
    def made(self) -> tuple[TableBirth, ...]:
        """Returns the tables that get rows from the fold, in the order of their commits."""
        return (self.table,) if self.emitted is None else (self.emitted, self.table)

    def _loop(self, clocks: Clocks, judging: Judging) -> StepLoop:
        """Returns a new loop that calls the step key by key."""
        step: Step | Sessions = self.step
        if self.over is Over.KEYS:
            step = OneKey(self._columns_step())
        assert not isinstance(step, Sessions), "sessions are folded over many keys"
        return StepLoop(
            self.table,
            self.emitted,
            step,
            self.over,
            self.on_time,
            clocks,
            replace(judging, notes=self.notes),
        )

    def here(
        self,
        rows: pa.Table,
        held: pa.Table,
        clocks: Clocks,
        judging: Judging = _FAST,
        *,
        moved: Callable[[], None] = lambda: None,
    ) -> Stepped:
        """Folds a small slice in this process.

        Returns the emitted rows and the complete rows of the states, by table. `held` contains at
        least the table's rows for the keys of `rows`, and for the keys that are due at the slice's
        end. `clocks` contains the log times at the slice's end. `judging` decides what happens to
        records on which the step fails. `moved` is called as a sign of progress: for each key and
        row, or once if all keys are folded together. If a step over many keys fails, the step is
        called again key by key, so that the failing record is known. Raises Broken if a step fails
        with several keys but with no single key.
        """
        if self.over is not Over.KEYS or judging != _FAST:
            return self._by_key(rows, held, clocks, judging, moved)
        moved()
        try:
            return self._by_columns(rows, held, clocks, moved)
        except Exception as error:
            found = self._by_key(rows, held, clocks, judging, moved)
            if found.failed or found.is_unsure:
                return found
            raise Broken(
                f"the step of table {self.table.name} fails with the rows of several keys, and "
                f"with those of no single key: {type(error).__name__}: {error}",
                hint=f"it treats each key apart; {MEND}",
            ) from error

    def _columns_step(self) -> ColumnsStep:
        step: Callable[..., Any] = (
            SessionStep(
                self.step,
                self.table.keys,
                () if self.emitted is None else tuple(name for name, _ in self.emitted.columns),
            )
            if isinstance(self.step, Sessions)
            else self.step
        )
        return ColumnsStep(self.table, self.emitted, step)

    def _by_columns(
        self, rows: pa.Table, held: pa.Table, clocks: Clocks, moved: Callable[[], None]
    ) -> Stepped:
        """Folds the rows of all keys at once.

        The keys that `ColumnLoop` does not fold are folded key by key.
        """
        found = ColumnLoop(self.table, self._columns_step()).fold(rows, held)
        made = {self.table.name: found.states}
        if self.emitted is not None:
            made[self.emitted.name] = found.emitted
        if found.left is None:
            return Stepped({name: ArrowRows(rows) for name, rows in made.items()})
        others = self._by_key(*found.left, clocks, _FAST, moved)
        together = {
            name: ArrowRows(pa.concat_tables([rows, others.rows[name].to_arrow()]))
            for name, rows in made.items()
        }
        return replace(others, rows=together)

    def _by_key(
        self,
        rows: pa.Table,
        held: pa.Table,
        clocks: Clocks,
        judging: Judging,
        moved: Callable[[], None],
    ) -> Stepped:
        """Folds the rows key by key, and returns the emitted rows and the new states by table."""
        grouped: dict[Key, list[Row]] = {}
        for row in rows.to_pylist():
            grouped.setdefault(self._key(row), []).append(row)
        states: dict[Key, list[Row]] = {}
        for state in held.to_pylist():
            states.setdefault(self._key(state), []).append(state)
        if self.on_time is not None:
            grouped = {**{key: [] for key in states}, **grouped}
        folding = self._loop(clocks, judging)
        for key, found in grouped.items():
            moved()
            folding.fold(key, states.get(key, ()), _telling(sorted(found, key=place_of), moved))
        made = {table.name: ArrowRows(folding.take(table)) for table in self.made}
        return Stepped(made, folding.failed, folding.noted, folding.is_unsure)

    def at_spark(
        self,
        spark: SparkSession,
        rows: DataFrame,
        held: DataFrame,
        clocks: Clocks,
        folder: str,
        judging: Judging = _FAST,
    ) -> Stepped:
        """Folds a large slice on Spark workers. The result equals the result of `here`.

        The workers write files in `folder`. `held` contains all rows of the table.
        """
        keys = [F.col(spark_quote(key)) for key in self.table.keys]
        states = held.select(
            *keys, _row_struct(held).alias("state"), F.lit(None).cast(rows.schema).alias("row")
        )
        both = states.unionAll(
            rows.select(
                *keys, F.lit(None).cast(held.schema).alias("state"), _row_struct(rows).alias("row")
            )
        )
        # A key's states are first, then its rows in the order of the log.
        in_order = both.repartition(*keys).sortWithinPartitions(
            *keys, F.col("row").isNotNull(), *(f"row.{name}" for name in PLACE)
        )
        fold = partial(
            _fold_into,
            fold=self,
            clocks=clocks,
            folder=folder,
            buckets=opened_bucket_settings(),
            judging=judging,
        )
        tasks = in_order.mapInArrow(fold, spark_ddl(_TASK)).collect()
        names = sorted(task.file for task in tasks)
        return Stepped(
            {table.name: FrameRows(self._read(spark, table, folder, names)) for table in self.made},
            [FailedStep(*each) for task in tasks for each in json.loads(task.failed)],
            [FailedStep(*each) for task in tasks for each in json.loads(task.noted)],
            any(task.is_unsure for task in tasks),
        )

    def parts(
        self, batches: Iterable[pa.RecordBatch], clocks: Clocks, judging: Judging
    ) -> Iterator[Stepped]:
        """Folds the batches of one Spark task of `at_spark`, and yields the results in parts.

        In `batches`, the input for a key must be in one piece: first the key's stored states, then
        the key's rows in the order of the log.
        """
        if self.over is Over.KEYS and judging == _FAST:
            yield from self._parts_by_columns(batches, clocks)
            return
        folding = self._loop(clocks, judging)
        for key, held, rows in _by_key(batches, self.table.keys, self.on_time is not None):
            folding.fold(key, held, rows)
            full = [table for table in self.made if folding.is_full(table)]
            if full:
                yield Stepped({table.name: ArrowRows(folding.take(table)) for table in full})
        last = {table.name: ArrowRows(folding.take(table)) for table in self.made}
        yield Stepped(last, folding.failed, folding.noted, folding.is_unsure)

    def _parts_by_columns(
        self, batches: Iterable[pa.RecordBatch], clocks: Clocks
    ) -> Iterator[Stepped]:
        """Folds the rows of many keys at once, in parts of about _PART_ROWS rows.

        A part contains whole keys. If a key has more rows than a part, the key is folded in several
        parts: the states after one part are the states before the next part.
        """
        columns, names = arrow_schema(self.table.columns), (*self.table.keys, PARTITION)
        none = columns.empty_table()
        # Of a key that goes on: all of its states, and the changed states among them.
        begun = changed = none
        for part, ends_key in _in_parts(batches, self.table.keys):
            held = pa.concat_tables([_structs(part, "state", columns), begun])
            made = self.here(
                _structs(part, "row", arrow_schema(self.table.steps_over)), held, clocks
            )
            states = made.rows[self.table.name].to_arrow()
            newer = pa.concat_tables([states, _others(changed, states, names)])
            changed = none if ends_key else newer
            begun = none if ends_key else pa.concat_tables([newer, _others(held, newer, names)])
            written = ArrowRows(newer if ends_key else none)
            yield replace(made, rows={**made.rows, self.table.name: written})

    def _key(self, row: Row) -> Key:
        return tuple(row[key] for key in self.table.keys)

    @staticmethod
    def _read(
        spark: SparkSession, table: TableBirth, folder: str, names: Sequence[str]
    ) -> DataFrame:
        """Returns a frame of the table's rows in the files `names` that tasks have written.

        The files are in `folder`, in the subfolder of the table.
        """
        ddl = spark_ddl(table.columns)
        if not names:
            return spark.createDataFrame([], ddl)
        return spark.read.schema(ddl).parquet(
            *(spark_address(_place(folder, table, name)) for name in names)
        )


def _fold_into(
    batches: Iterable[pa.RecordBatch],
    fold: OrderedFold,
    clocks: Clocks,
    folder: str,
    buckets: Sequence[tuple[str, StorageSettings]],
    judging: Judging,
) -> Iterator[pa.RecordBatch]:
    """Folds the keys of a Spark task into one file per table.

    In `batches`, the states of a key come before the key's rows. Yields one batch with one row: the
    name that the files have, and the records on which the step has failed. If Spark considers a
    task lost and repeats the task, the second attempt writes files with other names.
    """
    open_buckets(buckets)
    name = f"{secrets.token_hex(8)}.parquet"
    failed, noted, is_unsure = list[FailedStep](), list[FailedStep](), False
    with ExitStack() as ending:
        files = {
            table.name: ending.enter_context(
                pq.ParquetWriter(
                    ending.enter_context(writing_file(_place(folder, table, name))),
                    arrow_schema(table.columns),
                )
            )
            for table in fold.made
        }
        for part in fold.parts(batches, clocks, judging):
            for into, rows in part.rows.items():
                files[into].write_table(rows.to_arrow())
            failed += part.failed
            noted += part.noted
            is_unsure |= part.is_unsure
    yield pa.RecordBatch.from_pydict(
        {
            "file": [name],
            "failed": [json.dumps(failed)],
            "noted": [json.dumps(noted)],
            "is_unsure": [is_unsure],
        },
        schema=arrow_schema(_TASK),
    )


def _telling(rows: Iterable[Row], moved: Callable[[], None]) -> Iterator[Row]:
    for row in rows:
        moved()
        yield row


def _place(folder: str, table: TableBirth, name: str) -> str:
    return f"{folder}/{table.name}/{name}"


def _by_key(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str], and_others: bool
) -> Iterator[tuple[Key, list[Row], Iterator[Row]]]:
    """Yields (key, states, rows) for each key that has rows.

    The rows stay in the given order. If `and_others` is True, keys that have states but no rows are
    also yielded.
    """
    for key, found in groupby(
        (each for batch in batches for each in batch.to_pylist()),
        key=lambda each: tuple(each[name] for name in keys),
    ):
        of_key, held, begun = iter(found), list[Row](), None
        for each in of_key:
            if each["state"] is None:
                begun = each
                break
            held.append(each["state"])
        if begun is not None:
            yield key, held, (each["row"] for each in chain([begun], of_key))
        elif and_others:
            yield key, held, iter(())


def _in_parts(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str]
) -> Iterator[tuple[pa.Table, bool]]:
    """Yields pairs (part of the rows, True if the part contains only whole keys).

    The second value is False if further rows of the part's last key follow in the next part. Then
    the part contains rows of a single key, and ends at the end of a record.
    """
    waiting = list[pa.RecordBatch]()
    for batch in batches:
        waiting.append(batch)
        if sum(map(len, waiting)) < _PART_ROWS:
            continue
        together = pa.Table.from_batches(waiting)
        end, ends_key = _last_border(together, keys)
        if end:
            yield together.slice(0, end), ends_key
            waiting = together.slice(end).to_batches()
    if waiting:
        yield pa.Table.from_batches(waiting), True


def _last_border(rows: pa.Table, keys: Sequence[str]) -> tuple[int, bool]:
    """Returns the number of rows before the last key, and True.

    If all rows have the same key, returns the number of rows before the last record, and False.
    This number is 0 if all rows belong to one record.
    """
    if end := _last_begins(rows, keys):
        return end, True
    places = [pc.struct_field(rows.column("row"), name) for name in PLACE[1:]]
    return _last_begins(pa.table(places, names=PLACE[1:]), PLACE[1:]), False


def _last_begins(rows: pa.Table, names: Sequence[str]) -> int:
    (numbers,) = numbered([rows], names)
    borders = np.flatnonzero(np.diff(numbers))
    return int(borders[-1]) + 1 if len(borders) else 0


def _structs(rows: pa.Table, name: str, schema: pa.Schema) -> pa.Table:
    """Returns the structs in the column `name` as a table with `schema`. Nulls are left out."""
    column = rows.column(name)
    found = column.filter(pc.is_valid(column)).combine_chunks()
    return pa.Table.from_arrays(found.flatten(), names=schema.names).cast(schema)


def _others(states: pa.Table, newer: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns the states for which `newer` has no state with the same key and partition."""
    numbers, newer_numbers = numbered([states, newer], names)
    return states.filter(pa.array(~np.isin(numbers, newer_numbers)))


def _row_struct(frame: DataFrame) -> Column:
    return F.struct(*(F.col(spark_quote(name)) for name in frame.columns))
