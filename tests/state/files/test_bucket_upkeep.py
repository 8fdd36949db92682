"""The upkeep of tables on a disk and in a bucket alike, and its requests."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from between import Between
from changing import RECENT, TOTALS, FoldedBuild

from kappa.declare.values.arrow import arrow_schema
from kappa.state.files.address import readable
from kappa.state.kept import Kept, put_kept
from kappa.state.store import Store
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.versions import files

pytestmark = pytest.mark.slow


def stored(built: FoldedBuild) -> list[str]:
    writer = built.writers["recent"]
    found = (
        pq.ParquetFile(readable(each)).read() for each in files(writer.path, writer.version, None)
    )
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


def test_upkeep_between_slices_costs_a_few_requests_however_many_slices_were_before(
    object_store, between, tmp_path
):
    store = Store(object_store.new_root(), storage=between.storage, local=tmp_path / "local")
    with closing(FoldedBuild(store, "b", (TOTALS, REJECTS_BIRTH), lambda: 1_000.0)) as built:
        costs = [upkeep_after(slices, store, built, between) for slices in (1, 10, 60)]

    # The first has no floor and no joined sums before it, which the others delete.
    _, (few, few_between), (many, many_between) = costs
    # Its commits are read, beside slices.
    assert few < many
    # One more frontier is kept.
    assert many_between == few_between + 1 <= 32, costs


def upkeep_after(
    slices: int, store: Store, built: FoldedBuild, between: Between
) -> tuple[int, int]:
    """Returns the requests of upkeep beside slices and between them, after some slices."""
    row = pa.Table.from_pylist([{"k": "k", "rows": 1}], arrow_schema(TOTALS.columns))
    for _ in range(slices):
        built.fold({"totals": row}, 1_000)
    put_kept(store, Kept(built.publisher.newest))
    with between.counting() as beside:
        built.maintenance.prepare()
    built.fold({}, 1_000)
    with between.counting() as at_once:
        built.keep_up()
    return len(beside), len(at_once)
