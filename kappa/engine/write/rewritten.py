"""A merge of many contributions that writes a not much larger table anew.

DuckDB folds the contributions as readers fold waiting contributions (kappa/tables/merge.py), and
spills to disk when its memory is exceeded. The merge of delta-rs takes ten to forty times the
contributions' bytes, and the merge of Spark takes ten times as long. DuckDB also finds
contributions in a slice's decoded files.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.duck import Connection, DuckError, Setting, showing_progress
from kappa.base.errors import Broken, KappaError
from kappa.base.sql import quoted, text
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.fold import spark_ddl
from kappa.engine.read.rows import HERE, RowsInFiles
from kappa.state.files.duckdb_access import open_exact
from kappa.state.table import TableBirth
from kappa.tables.delta import OVERFLOW_HINT, Guard
from kappa.tables.merge import contribution_columns, merged_sql
from kappa.tables.parquet import parquet_sql
from kappa.tables.versions import files
from kappa.tables.views.changes import view_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.state.mark import Mark
    from kappa.tables.stored_table import StoredTable

# A table of at most this many rows per contribution is written anew: Spark's merge may leave files
# alone.
_MOST_ROWS = 4
# DuckDB needs some memory for each of its threads.
_LEAST_BYTES = 256 << 20
# DuckDB's errors about a value that does not fit.
_UNFIT = ("Conversion Error", "Out of Range Error")
# Rows that the table is written in.
_BATCH_ROWS = 100_000


class Rewriting:
    """The rewrites of a table; `folder` is for a slice's contributions and for spills."""

    def __init__(self, birth: TableBirth, stored: StoredTable, folder: Path, memory: int) -> None:
        """Limits DuckDB's memory to about `memory` bytes."""
        self._birth = birth
        self._stored = stored
        # A folder of Parquet files.
        self.contributed = folder / "contributed"
        self._found = self.contributed / "found.parquet"
        self._contributions = arrow_schema(contribution_columns(birth))
        self._folder = folder
        self._memory = max(memory, _LEAST_BYTES)

    @property
    def bounds(self) -> dict[str, Setting]:
        """Returns DuckDB's settings for its memory, and for spilling what exceeds the memory."""
        return {
            "memory_limit": f"{self._memory}B",
            "temp_directory": str(self._folder / "spilled"),
            "preserve_insertion_order": False,
        }

    def find(self, rows: RowsInFiles) -> tuple[int, int]:
        """Writes the rows of a query into the folder `contributed`.

        Returns the number of rows, and their bytes.
        """
        self.clear()
        self.contributed.mkdir(parents=True)
        path = self._found
        with self._duck() as duck:
            if rows.here is not None:
                duck.register(HERE, rows.here)
            duck.execute(
                f"copy ({rows.sql}) to {text(str(path))} (format parquet, compression lz4)"
            )
        found = pq.read_metadata(path)
        groups = (found.row_group(number) for number in range(found.num_row_groups))
        return found.num_rows, sum(group.total_byte_size for group in groups)

    def found(self) -> pa.Table:
        """Returns the found rows as an Arrow table."""
        return pq.ParquetFile(self._found).read().cast(self._contributions)

    def found_at(self, spark: SparkSession) -> DataFrame:
        """Returns the found rows as rows of Spark."""
        ddl = spark_ddl(contribution_columns(self._birth))
        return spark.read.schema(ddl).parquet(str(self.contributed))

    def clear(self) -> None:
        """Deletes contributed and spilled files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def takes(self, contributions: int) -> bool:
        """Returns True if this many contributions justify writing the table anew."""
        return self._stored.rows() <= _MOST_ROWS * contributions

    def fold(self, mark: Mark, guard: Guard) -> None:
        """Folds the rows in `contributed`, one row per key, into the table.

        Deletes the contributed rows then. Raises Broken if a value overflows.
        """
        try:
            with self._duck() as duck:
                merged = duck.execute(self._sql()).to_arrow_reader(_BATCH_ROWS)
                schema = arrow_schema(self._birth.columns)
                self._stored.replace(
                    pa.RecordBatchReader.from_batches(schema, _typed(merged, schema)), mark, guard
                )
        finally:
            self.clear()

    @contextmanager
    def _duck(self) -> Iterator[Connection]:
        try:
            with open_exact(self.bounds) as duck, showing_progress(duck):
                yield duck
        except DuckError as error:
            raise self._explained(str(error)) from error

    def _sql(self) -> str:
        paths = sorted(map(str, self.contributed.glob("*.parquet")))
        merged = merged_sql(
            self._birth,
            parquet_sql(self._birth.columns, files(self._stored.path, self._stored.version, None)),
            [parquet_sql(contribution_columns(self._birth), paths)],
        )
        if self._birth.view is None:
            return merged
        # A view is read by keys at each slice, and neighbouring keys often come together.
        keys = ", ".join(map(quoted, self._birth.row_keys))
        return f"select * from ({merged}) order by {keys}"

    def _explained(self, told: str) -> KappaError:
        if self._birth.view is not None:
            return view_error(self._birth.name, told)
        why = f"contributions could not be folded into table {self._birth.name}: {told}"
        if any(word in told for word in _UNFIT):
            return Broken(why, hint=OVERFLOW_HINT)
        return KappaError(why, hint="see whether the disk is full; the slice is folded again")


def _typed(merged: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in merged:
        yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()
