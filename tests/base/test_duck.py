"""DuckDB means the same in every connection, and for few rows as for many."""

from __future__ import annotations

import pytest

from kappa.base.duck import open_connection
from kappa.objects.in_duckdb import open_exact


@pytest.mark.parametrize("rows", [3, 5_000])
def test_an_as_of_join_means_the_same_over_few_rows_and_many(rows: int) -> None:
    with open_connection() as duck:
        duck.execute(f"create table events as select 1 as k, null::int as t from range({rows})")
        duck.execute("create table rates as from (values (1, 2), (1, 4)) as _(k, since)")

        found = duck.execute(
            "select distinct since from events e asof left join rates r"
            " on e.k = r.k and e.t >= r.since"
        ).fetchall()

        assert found == [(4,)]


def test_a_joins_filter_is_not_moved_below_a_limit() -> None:
    with open_exact() as duck:
        duck.execute("create table bids as from (values (1, 1), (1, 2), (2, 3), (3, 4)) as _(k, n)")
        duck.execute("create table wanted as select 3 as k")

        found = duck.execute(
            "select * from (select * from bids order by k, n limit 2) as b"
            " semi join wanted as w on b.k = w.k"
        ).fetchall()

    assert found == []
