"""Rows that are gone leave the files of a root, on a disk and in a bucket alike."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
from changing import RECENT, FoldedBuild

from kappa.objects.address import readable
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.versions import files
from kappa.values.arrow import arrow_schema


def stored(built: FoldedBuild) -> list[str]:
    writer = built.writers["recent"]
    found = (pq.ParquetFile(readable(each)).read() for each in files(writer.path, writer.version))
    return sorted(key for each in found for key in each.column("k").to_pylist())


def test_rows_that_are_gone_leave_the_files(any_store):
    rows = [{"k": f"k{place}", "at": 1_000_000 * place} for place in range(20)]
    table = pa.Table.from_pylist(rows, arrow_schema(RECENT.columns))
    with closing(FoldedBuild(any_store, "b", (RECENT, REJECTS_BIRTH), lambda: 1_000.0)) as built:
        built.fold({"recent": table}, log_time=19_000)
        assert len(stored(built)) == 20

        built.keep_up()

    # A row is gone ten seconds later.
    assert stored(built) == sorted(row["k"] for row in rows[9:])
