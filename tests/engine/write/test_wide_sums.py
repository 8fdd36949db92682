"""A sum that does not fit its type is null as long as it does not fit (law 9).

DuckDB folds contributions as readers and rewrites do, delta-rs as the driver does. Spark's part is
in tests/engine/fold/test_fold.py.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from near_ends import FULL, Value, born, contribution, drawn, expected, rows
from waiting import Twins

from kappa.base.errors import Broken
from kappa.engine.write.recent_rows import sum_limits
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns, merged_sql


@pytest.mark.parametrize("of", "ndwx")
def test_sums_beyond_their_type_are_null_and_come_back(of: str) -> None:
    """A sum beyond its type is null, and comes back when it fits.

    Two ways of folding the same contributions agree to the last digit, after every slice.
    """
    table, slices = born(of), drawn(of, 6)
    given = [
        rows([contribution(*each) for each in part.items()], contribution_columns(table))
        for part in slices
    ]
    none = rows([], table.columns)
    overflowed = set()
    with duckdb.connect() as duck:
        stored = none
        for number, part in enumerate(given):
            duck.register("stored", stored)
            duck.register("given", part)
            merged = duck.execute(merged_sql(table, "from stored", ["from given"]))
            stored = merged.to_arrow_table().select(none.column_names).cast(none.schema)
            for row in stored.to_pylist():
                wanted = expected([p[row["k"]] for p in slices[: number + 1] if row["k"] in p])
                assert {name: row[name] for name in wanted} == wanted
                overflowed.add(row[f"{of}_total_overflow"])
        # The last slices first, and two at once.
        once = none
        for early, late in zip(given[-2::-2], given[::-2], strict=True):
            for name, part in {"stored": once, "early": early, "late": late}.items():
                duck.register(name, part)
            merged = duck.execute(merged_sql(table, "from stored", ["from late", "from early"]))
            once = merged.to_arrow_table().select(none.column_names).cast(none.schema)

    assert overflowed == {True, False}
    if of != "x":
        assert once.sort_by("k").to_pylist() == stored.sort_by("k").to_pylist()


@pytest.mark.slow
def test_writers_agree_on_sums_too_wide(tmp_path: Path) -> None:
    """Contributions may also wait beside such a table, and no sum is refused in a drain."""
    table = born("nwx")
    assert sum_limits(table) == {}
    twins = Twins(tmp_path, table)
    seen: list[dict[str, Value]] = []
    for n, w, x in [(2**63 - 1, FULL - 1, 1.7e308), (1, 1, 1.7e308), (-1, -FULL, -1.7e308)]:
        seen.append({"n": n, "w": w, "x": x})
        contributed = [contribution(key, seen[-1]) for key in ("a", None)]
        twins.fold(rows(contributed, contribution_columns(table)))
        found = twins.assert_equal()
        wanted = expected(seen)
        for row in found:
            assert {name: row[name] for name in wanted} == wanted
        lost = len(seen) == 2
        assert [row["x_total"] for row in found] == [None if lost else 1.7e308] * 2
        assert [row["x_total_overflow"] for row in found] == [lost] * 2
        mean = pytest.approx((1.7e308, 1.7e308, 1.7e308 / 3)[len(seen) - 1])
        assert [row["x_mean"] for row in found] == [mean] * 2
    assert twins.waits.recent is not None
    assert twins.waits.recent.holds
    twins.waits.recent.drain()
    twins.assert_equal()


def test_a_build_born_with_narrow_sums_goes_on_and_refuses_what_does_not_fit(
    tmp_path: Path,
) -> None:
    narrow = TableBirth("t", (("k", "string"), ("n", "bigint")), ("k",), {"n": ("sum", "n")})
    twins = Twins(tmp_path, narrow)
    for total in (2**62, 2**62 - 1):
        twins.fold(rows([{"k": "a", "n": Decimal(total)}], contribution_columns(narrow)))
    assert twins.assert_equal() == [{"k": "a", "n": 2**63 - 1}]
    with pytest.raises(Broken):
        twins.fold(rows([{"k": "a", "n": Decimal(1)}], contribution_columns(narrow)))
