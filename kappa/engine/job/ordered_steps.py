"""The ordered folds of a pipeline, applied to the rows of one slice."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import KappaError
from kappa.declare.pipeline import Pipeline
from kappa.engine.fold.ordered import OrderedFold
from kappa.engine.fold.touched import stored_frame, touched_rows
from kappa.engine.function.failure import raised_here
from kappa.engine.read.rows import Rows
from kappa.engine.write.commit import TableWriter
from kappa.state.table import TableBirth


class OrderedSteps:
    """The user's steps of one pipeline."""

    def __init__(self, pipeline: Pipeline, tables: Mapping[str, TableBirth], scratch: Path) -> None:
        """`scratch` is the folder for the results of large slices."""
        self._pipeline = pipeline
        self._folds = OrderedFold.of_pipeline(pipeline, tables)
        self._scratch = scratch

    def applied(
        self, rows: Mapping[str, Rows], writers: list[TableWriter], spark: SparkSession
    ) -> Mapping[str, Rows]:
        """Returns the rows of all tables, with the results of the steps in place of their input.

        States are read as they were before the slice.
        """
        made, due = dict(rows), {writer.birth.name: writer for writer in writers}
        if not made:
            # The slice has no row.
            return made
        for fold in self._folds:
            found = made.pop(fold.table.name)
            made |= self._folded(fold, found, due[fold.table.name], spark)
        return made

    def clear(self) -> None:
        """Deletes the results of the slice that is over."""
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _folded(
        self, fold: OrderedFold, rows: Rows, writer: TableWriter, spark: SparkSession
    ) -> Mapping[str, Rows]:
        columns, path, version = fold.table.columns, writer.path, writer.version
        if isinstance(rows, DataFrame):
            folder = self._scratch / fold.table.name
            # A crash has left some; those of other steps are this slice's.
            shutil.rmtree(folder, ignore_errors=True)
            return fold.at_spark(spark, rows, stored_frame(spark, path, version, columns), folder)
        assert isinstance(rows, pa.Table), "the function gives rows here or at Spark"
        held = touched_rows(path, version, columns, rows.select(fold.table.keys))
        try:
            return fold.here(rows, held)
        except KappaError:
            raise
        except Exception as error:
            raise raised_here(error, self._pipeline) from error
