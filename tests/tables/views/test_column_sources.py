"""The law of column sources: a view's column depends only on its sources, none of them guessed."""

from __future__ import annotations

import pytest

from kappa.state.files.duckdb_access import open_for_few_rows
from kappa.tables.views.column_sources import column_sources
from kappa.tables.views.syntax_tree import tree_of

TABLES = {
    "a": {"id": "BIGINT", "x": "BIGINT", "y": "BIGINT", "tags": "VARCHAR[]"},
    "b": {"id": "BIGINT", "z": "BIGINT"},
}
AX, AY, BZ, AI, BI = ("a", "x"), ("a", "y"), ("b", "z"), ("a", "id"), ("b", "id")


def sources(sql: str) -> list[set[tuple[str, str]] | None] | None:
    with open_for_few_rows() as duck:
        found = column_sources(tree_of(duck, sql), TABLES)
    return None if found is None else [None if each is None else set(each) for each in found]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("from b", [{BI}, {BZ}]),
        ("select X + 1 as v, count(*) as n, 7 from a", [{AX}, set(), set()]),
        # Columns that choose rows are no sources of a value.
        ("select sum(x) filter (where y > 0) from a where id > 1 group by y", [{AX, AY}]),
        ("select a.x + b.z from a join b using (id)", [{AX, BZ}]),
        ("select id from a full join b using (id)", [{AI, BI}]),
        ("select id from a left join b using (id)", [{AI}]),
        # Named subqueries, subqueries, and names of the select list.
        ("with c as (select x * y as p from a) select p + 1 as q, q * 2 from c", [{AX, AY}] * 2),
        ("select s.w from (select z as w, id from b) as s", [{BZ}]),
        ("select c.v from (from b) as c(k, v)", [{BZ}]),
        ("select x from a union all select z from b", [{AX, BZ}]),
        ("select x from a except select z from b", [{AX}]),
        # Subqueries in expressions, and columns of the query around.
        ("select (select max(z + a.y) from b where b.id = a.id) from a", [{BZ, AY}]),
        ("select exists (from b where b.id = a.id), x in (select z from b) from a",
         [set(), {AX, BZ}]),
        ("select rank() over (partition by id order by y) from a", [{AI, AY}]),
        ("select list_transform(tags, t -> upper(t)) from a", [{("a", "tags")}]),
        ("select t from a, unnest(a.tags) as u(t)", [{("a", "tags")}]),
        ("select l.v from a, lateral (select a.x + z as v from b) as l", [{AX, BZ}]),
        # What is not understood has no answer.
        ("select columns(*) from a", None),
        ("select * replace (x + 1 as x) from a", None),
        ("with recursive r as (select 1 as n union all select n + 1 from r) from r", None),
        ("select v from (pivot a on x in (1, 2) using sum(y)) as p(v)", [None]),
        ("from a union all by name from b", None),
    ],
)  # fmt: skip
def test_columns_have_the_sources_of_their_values(
    sql: str, found: list[set[tuple[str, str]] | None] | None
) -> None:
    assert sources(sql) == found
