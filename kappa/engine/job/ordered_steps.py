"""The ordered folds of a pipeline, applied to the rows of one slice."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import KappaError
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.ordered import OrderedFold, StepFails, ensure_none_failed
from kappa.engine.fold.step_loop import Clocks, FailedStep
from kappa.engine.fold.touched import due_rows, stored_frame, touched_rows
from kappa.engine.function.failure import raised_here
from kappa.engine.read.rows import Rows
from kappa.engine.write.commit import TableWriter
from kappa.state.files.address import delete_scratch
from kappa.state.table import TableBirth


class OrderedSteps:
    """The user's steps of one pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        tables: Mapping[str, TableBirth],
        scratch: str,
        *,
        wakes_here: int,
    ) -> None:
        """`scratch` is the folder, by path or URL, for the results of large slices.

        A small slice that wakes more than `wakes_here` keys is folded as a large one.
        """
        self._pipeline = pipeline
        self._folds = OrderedFold.of_pipeline(pipeline, tables)
        self._scratch = scratch
        self._wakes_here = wakes_here
        # How many keys and rows the steps have been given in this process: they make progress.
        self.given = 0

    def applied(
        self,
        rows: Mapping[str, Rows],
        writers: list[TableWriter],
        clocks: Clocks,
        spark: SparkSession,
        *,
        one_by_one: bool = False,
    ) -> Mapping[str, Rows]:
        """Returns the rows of all tables, with the results of the steps in place of their input.

        States are read as they were before the slice. `clocks` are the log times at its end. Raises
        StepFails, of all steps, if records on which they fail are to be rejects. `one_by_one`: a
        batch has one row.
        """
        failed: list[FailedStep] = []
        is_unsure = False
        made, due = dict(rows), {writer.birth.name: writer for writer in writers}
        for fold in self._folds:
            found = made.pop(fold.table.name, None)
            if found is None and fold.on_time is not None:
                # A slice without a row of the function may have moved the log time.
                found = arrow_schema(fold.table.steps_over).empty_table()
            if found is not None:
                try:
                    made |= self._folded(
                        fold, found, due[fold.table.name], clocks, spark, one_by_one=one_by_one
                    )
                except StepFails as fails:
                    failed += fails.failed
                    is_unsure |= not fails.failed
        ensure_none_failed(failed, is_unsure=is_unsure)
        return made

    def clear(self) -> None:
        """Deletes the results of the slice that is over."""
        delete_scratch(self._scratch)

    def _folded(
        self,
        fold: OrderedFold,
        rows: Rows,
        writer: TableWriter,
        clocks: Clocks,
        spark: SparkSession,
        *,
        one_by_one: bool,
    ) -> Mapping[str, Rows]:
        columns, path, version = fold.table.columns, writer.path, writer.version
        due: pa.Table | None = None
        if fold.on_time is not None and isinstance(rows, pa.Table):
            due = due_rows(path, version, columns, fold.on_time, clocks, at_most=self._wakes_here)
            if due is None:
                rows = spark.createDataFrame(rows)
        if isinstance(rows, DataFrame):
            folder = f"{self._scratch}/{fold.table.name}"
            held = stored_frame(spark, path, version, columns)
            return fold.at_spark(spark, rows, held, clocks, folder, one_by_one=one_by_one)
        assert isinstance(rows, pa.Table), "the function gives rows here or at Spark"
        held = touched_rows(path, version, columns, rows.select(fold.table.keys))
        try:
            return fold.here(
                rows,
                held if due is None else pa.concat_tables([held, due]),
                clocks,
                moved=self._note_given,
                one_by_one=one_by_one,
            )
        except (KappaError, StepFails):
            raise
        except Exception as error:
            raise raised_here(error, self._pipeline) from error

    def _note_given(self) -> None:
        self.given += 1
