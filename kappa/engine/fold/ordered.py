"""A fold by the user's step, in the order of the log.

The step folds over the state of each key. Small slices are folded in the job itself, large slices
in Spark's workers, by the same loop (step_loop.py). The state is the table's row before the slice.
Emitted rows are committed before the state (engine/slice.py). So a slice that was
interrupted in between is computed again from the same state (law 1). A step that is woken on time
folds keys without rows, too: the keys whose time the slice has reached.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.sections import StorageSettings
from kappa.base.sql import spark_ddl, spark_quote
from kappa.declare.ordered import Over, Step
from kappa.declare.pipeline import OnError, Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.step_loop import (
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


@dataclass(frozen=True, slots=True)
class Stepped:
    """The rows that a step makes of a slice, and the step's failures.

    The `rows` are by table. `failed` are failing records. `noted` are records that are folded and
    yet have a row in the rejects. `is_unsure` means that the step failed on some record of a batch.
    If records have failed, the rows are not the rows of the slice.
    """

    rows: Mapping[str, ContributedRows]
    failed: Sequence[FailedStep]
    noted: Sequence[FailedStep]
    is_unsure: bool


@dataclass(frozen=True, slots=True)
class OrderedFold:
    """A table that a step folds, and the table of emitted rows.

    `emitted` is None if the step emits no rows.
    """

    table: TableBirth
    emitted: TableBirth | None
    step: Step
    over: Over = Over.ROW
    on_time: str | None = None
    # Whether records on which the step fails are noted, and not raised.
    notes: bool = False

    @classmethod
    def of_pipeline(
        cls, pipeline: Pipeline, tables: Mapping[str, TableBirth]
    ) -> tuple[OrderedFold, ...]:
        """Lists a pipeline's ordered folds, over a build's tables."""
        steps = [
            (table.name, table.ordered) for table in pipeline.tables if table.ordered is not None
        ]
        return tuple(
            cls(
                tables[name],
                None if fold.emits is None else tables[fold.emits],
                fold.step,
                fold.over,
                fold.on_time,
                pipeline.on_error is OnError.REJECT,
            )
            for name, fold in steps
        )

    @property
    def made(self) -> tuple[TableBirth, ...]:
        """Lists the tables that the fold makes, in the order of commits."""
        return (self.table,) if self.emitted is None else (self.emitted, self.table)

    def loop(self, clocks: Clocks, judging: Judging = _FAST) -> StepLoop:
        """Returns a loop that has folded no key yet."""
        return StepLoop(
            self.table,
            self.emitted,
            self.step,
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
        """Folds a small slice.

        Returns emitted rows and whole rows of states, by table. `held` are the table's rows of (at
        least) the keys of `rows`, and of the keys that are due at the slice's end. `clocks` are the
        log times there. `moved` is called at each key and row.
        """
        grouped: dict[Key, list[Row]] = {}
        for row in rows.to_pylist():
            grouped.setdefault(self._key(row), []).append(row)
        states: dict[Key, list[Row]] = {}
        for state in held.to_pylist():
            states.setdefault(self._key(state), []).append(state)
        if self.on_time is not None:
            grouped = {**{key: [] for key in states}, **grouped}
        folding = self.loop(clocks, judging)
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
        """Folds a large slice as `here` does, by Spark's workers.

        The workers write files in `folder`. `held` are all rows of the table.
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

    def _key(self, row: Row) -> Key:
        return tuple(row[key] for key in self.table.keys)

    @staticmethod
    def _read(
        spark: SparkSession, table: TableBirth, folder: str, names: Sequence[str]
    ) -> DataFrame:
        """Returns a table's rows from the tasks' files of these names."""
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
    """Folds a task's keys into a file per table.

    Each key's state comes before the key's rows. Yields the name of the files, and the failures. If
    a task is taken for lost, its second attempt writes files of other names.
    """
    open_buckets(buckets)
    folding = fold.loop(clocks, judging)
    name = f"{secrets.token_hex(8)}.parquet"
    with ExitStack() as ending:
        places = [
            ending.enter_context(writing_file(_place(folder, table, name))) for table in fold.made
        ]
        writers = [
            ending.enter_context(pq.ParquetWriter(place, arrow_schema(table.columns)))
            for table, place in zip(fold.made, places, strict=True)
        ]
        files = list(zip(fold.made, writers, strict=True))
        for key, held, rows in _by_key(batches, fold.table.keys, fold.on_time is not None):
            folding.fold(key, held, rows)
            for table, file in files:
                if folding.is_full(table):
                    file.write_table(folding.take(table))
        for table, file in files:
            file.write_table(folding.take(table))
    yield pa.RecordBatch.from_pydict(
        {
            "file": [name],
            "failed": [json.dumps(folding.failed)],
            "noted": [json.dumps(folding.noted)],
            "is_unsure": [folding.is_unsure],
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
    """Yields each key that has rows, with the key's states and rows.

    The rows keep the given order. With `and_others`, also yields the keys that have only states.
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


def _row_struct(frame: DataFrame) -> Column:
    return F.struct(*(F.col(spark_quote(name)) for name in frame.columns))
