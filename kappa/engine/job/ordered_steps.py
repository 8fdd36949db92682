"""The ordered folds of a pipeline, applied to the rows of a slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import Broken, KappaError
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.reason import Reason
from kappa.engine.fold.affected_rows import due_rows, stored_frame, touched_rows
from kappa.engine.fold.ordered_fold import OrderedFold, Stepped
from kappa.engine.fold.step_loop import EPOCH, MICROSECOND, Clocks, FailedStep, Judging
from kappa.engine.function.failing_records import without_addresses
from kappa.engine.function.failure import REPLAY, raised_here
from kappa.engine.slice_rows import ArrowRows, ContributedRows
from kappa.engine.write.commit import TableWriter
from kappa.state.files.address import delete_scratch
from kappa.state.table import TableBirth

_MOST_TRIES = 10


class StepFails(Exception):
    """A signal that steps fail on records of a slice, so that the slice must be folded again.

    `failed` contains the records on which steps fail. `noted` contains records that are folded but
    also get a row in the rejects table; None means that these records are not known yet.
    `is_unsure` means that a step over batches fails on an unknown record of a batch.
    """

    def __init__(
        self,
        failed: Sequence[FailedStep],
        noted: Sequence[FailedStep] | None,
        *,
        is_unsure: bool = False,
    ) -> None:
        super().__init__(failed, noted)
        self.failed = failed
        self.noted = noted
        self.is_unsure = is_unsure


class OrderedSteps:
    """The ordered folds of a pipeline's tables, and the folder for their results."""

    def __init__(
        self,
        pipeline: Pipeline,
        tables: Mapping[str, TableBirth],
        scratch: str,
        *,
        wakes_here: int,
    ) -> None:
        """Finds the ordered folds of the pipeline.

        `scratch` is the path or URL of a folder for the results of large slices. A small slice that
        wakes more than `wakes_here` keys is folded like a large slice.
        """
        self.pipeline = pipeline
        self._folds = OrderedFold.of_pipeline(pipeline, tables)
        self.scratch = scratch
        self.wakes_here = wakes_here
        # The keys and rows that the steps have been given in this process: each is progress.
        self.given = 0

    def applied(
        self,
        rows: Mapping[str, ContributedRows],
        writers: list[TableWriter],
        clocks: Clocks,
        spark: SparkSession,
        *,
        noted: Sequence[FailedStep] | None = None,
        one_by_one: bool = False,
    ) -> Mapping[str, ContributedRows]:
        """Applies the ordered steps to rows of the function, and returns the rows of all tables.

        The rows that a step returns replace the rows that were passed to the step. The steps begin
        with the states before the slice. `clocks` contains the log times at the slice's end.
        `noted` contains the records that are folded but also get a row in the rejects table, or is
        None if they are not known yet. If `one_by_one` is True, a step over batches gets batches of
        one row.

        Raises one StepFails for all steps if steps fail on records that must become rejects, or if
        there are records to note and `noted` is None. Raises Broken if the records to note differ
        from `noted`.
        """

        def fold(judging: Judging) -> Stepped:
            return self._applied_once(rows, writers, clocks, spark, judging)

        made = fold(Judging(one_by_one=one_by_one))
        if made.failed or made.is_unsure:
            failed, found = judged_records(fold)
            # The first record of each partition fails in any case; a later record by the state left
            # before.
            raise StepFails(failed or _first_each(made.failed), found, is_unsure=made.is_unsure)
        if noted is None and made.noted:
            raise StepFails((), made.noted)
        if _places(made.noted) != _places(noted or ()):
            raise Broken(
                f"{self.pipeline.source}: a step of pipeline {self.pipeline.name} fails in other"
                " places each time that it is woken",
                hint=f"a step may depend on its state alone; {REPLAY}",
            )
        return made.rows

    def _applied_once(
        self,
        rows: Mapping[str, ContributedRows],
        writers: list[TableWriter],
        clocks: Clocks,
        spark: SparkSession,
        judging: Judging,
    ) -> Stepped:
        made, due = dict(rows), {writer.birth.name: writer for writer in writers}
        each: list[Stepped] = []
        for fold in self._folds:
            found = made.pop(fold.table.name, None)
            if found is None and fold.on_time is not None:
                # A slice without a row of the function may have moved the log time.
                found = ArrowRows(arrow_schema(fold.table.steps_over).empty_table())
            if found is not None:
                writer = due[fold.table.name]
                steps = TableSteps(self, fold, writer.path, writer.version, clocks, spark, judging)
                each.append(found.take_steps(steps))
                made |= each[-1].rows
        return Stepped(
            made,
            [failed for one in each for failed in one.failed],
            [note for one in each for note in one.noted],
            any(one.is_unsure for one in each),
        )

    def clear(self) -> None:
        """Deletes the files with the results of steps, once the fold of the slice has ended."""
        delete_scratch(self.scratch)

    def note_given(self) -> None:
        """Counts that a step in this process was given a key or a row, as a sign of progress."""
        self.given += 1


@dataclass(frozen=True, slots=True)
class TableSteps:
    """The ordered step of one table, applied to the rows of one slice."""

    steps: OrderedSteps
    fold: OrderedFold
    path: str
    version: int
    clocks: Clocks
    spark: SparkSession
    judging: Judging

    def here(self, rows: pa.Table) -> Stepped:
        """Folds rows in this process, or on Spark workers if the slice wakes very many keys.

        Raises Broken, with the line of the user's code, if the step raises an error.
        """
        fold, columns = self.fold, self.fold.table.columns
        due: pa.Table | None = None
        if fold.on_time is not None:
            due = due_rows(
                self.path,
                self.version,
                columns,
                fold.on_time,
                self.clocks,
                at_most=self.steps.wakes_here,
            )
            if due is None:
                return self.at_spark(self.spark.createDataFrame(rows))
        held = touched_rows(self.path, self.version, columns, rows.select(fold.table.keys))
        try:
            return fold.here(
                rows,
                held if due is None else pa.concat_tables([held, due]),
                self.clocks,
                self.judging,
                moved=self.steps.note_given,
            )
        except KappaError:
            raise
        except Exception as error:
            raise raised_here(error, self.steps.pipeline) from error

    def at_spark(self, rows: DataFrame) -> Stepped:
        """Folds the rows of a Spark frame on Spark workers."""
        fold = self.fold
        folder = f"{self.steps.scratch}/{fold.table.name}"
        held = stored_frame(self.spark, self.path, self.version, fold.table.columns)
        return fold.at_spark(self.spark, rows, held, self.clocks, folder, self.judging)


def noted_rejects(noted: Sequence[FailedStep], rejects: TableBirth) -> pa.Table:
    """Returns rows of the rejects table for records that are folded but also get a row there.

    If a step failed when it was woken, the row contains the place of the key's last record, and the
    time for which the step asked. If readers do not see a state because the key is in several
    partitions, the row contains the place of the state's first record.
    """
    columns = dict(rejects.columns)
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "timestamp": None if each.woken_at is None else EPOCH + each.woken_at * MICROSECOND,
            "reason": str(Reason.SPLIT_KEY if each.woken_at is None else Reason.WAKE_FAILED),
            "detail": ": ".join(filter(None, (each.line, without_addresses(each.error)))),
        }
        for each in sorted(noted)
    ]
    return pa.Table.from_pylist(rows, arrow_schema([*columns.items()]))


def judged_records(
    fold: Callable[[Judging], Stepped],
) -> tuple[Sequence[FailedStep], Sequence[FailedStep] | None]:
    """Returns a pair: the records to reject because steps fail on them, and the records to note.

    A record to note is folded but also gets a row in the rejects table. A record is rejected if a
    step fails on this record after all earlier records that are not rejected. Each try calls `fold`
    without the records that failed in the previous try. Usually a record reaches a single key. Then
    the first try finds all failing records, and the second try confirms the result. If a record
    reaches several keys, each try decides at least one more record correctly, in the order of the
    log. If ten tries do not settle all records, only the records that certainly fail are returned,
    with None instead of the records to note.
    """
    before: frozenset[tuple[Any, ...]] = frozenset()
    failed: dict[tuple[Any, ...], FailedStep] = {}
    for _ in range(_MOST_TRIES):
        without = frozenset(failed)
        tried = fold(Judging(one_by_one=True, without=without))
        before, failed = without, {}
        for each in sorted(tried.failed, key=itemgetter(0, 1, 2, 3, 4)):
            failed.setdefault(each[:3], each)
        if failed.keys() == before:
            return [*failed.values()], tried.noted
    # In a partition all is right up to the first record in which the last two tries differ.
    differs: dict[tuple[Any, ...], int] = {}
    for *part, offset in sorted(before ^ failed.keys(), reverse=True):
        differs[tuple(part)] = offset
    return [
        each for each in failed.values() if each.offset <= differs.get(each[:2], each.offset)
    ], None


def _first_each(failed: Sequence[FailedStep]) -> list[FailedStep]:
    first: dict[tuple[Any, ...], FailedStep] = {}
    for each in sorted(failed, key=itemgetter(0, 1, 2, 3, 4)):
        first.setdefault(each[:2], each)
    return [*first.values()]


def _places(noted: Sequence[FailedStep]) -> list[tuple[Any, ...]]:
    # The errors may name an object by its address.
    return sorted((*each[:3], each.woken_at or 0, each.woken_at is None) for each in noted)
