"""The law of change: a state with added changes equals that of all rows, and gives the view."""

from __future__ import annotations

import random
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import View
from kappa.base.duck import open_connection
from kappa.state.table import TableBirth
from kappa.tables.views.incremental_view import COME, GONE, by_change
from kappa.tables.views.syntax_tree import tree_of
from kappa.tables.views.view_tables import view_births
from kappa.tables.views.ways import ways_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kappa.base.duck import Connection
    from kappa.tables.views.incremental_view import ByChange

KINDS = {"id": "bigint", "kind": "string", "n": "bigint", "p": "decimal(12,2)", "x": "double"}
ITEMS = TableBirth("items", tuple(KINDS.items()), keys=("id",))
ADDED = TableBirth("added", ITEMS.columns)
COLUMNS = "id bigint, kind varchar, n bigint, p decimal(12, 2), x double"
AGGREGATES = (
    *("count(*)", "count(n)", "sum(n)", "sum(p)", "sum(n) filter (p > 1)", "sum(n) // 2"),
    *("count(*) filter (where n = 2)", "sum(n) / count(n)"),
    "coalesce(sum(p), 0)::decimal(38, 2) * 2 - count(*)",
    "case when count(*) > 1 then sum(n) else -1 end",
)
ONLY_ADDED = ("max(p)", "min(kind)", "max(n) - min(n)")
GROUPS = (("kind",), ("n % 2",), ("kind", "n"), ("upper(kind)", "p"))


def a_query(draw: random.Random, table: str) -> tuple[str, tuple[str, ...]]:
    """Returns a random query that groups a table's rows, and its keys."""
    groups = draw.choice(GROUPS)
    keys = tuple(f"k{number}" for number in range(len(groups)))
    known = [*AGGREGATES, *(ONLY_ADDED if table == "added" else ())]
    computed = draw.sample(known, draw.choice([1, 2, 4]))
    listed = [
        *(f"{group} as {key}" for group, key in zip(groups, keys, strict=True)),
        *(f"{each} as a{number}" for number, each in enumerate(computed)),
    ]
    draw.shuffle(listed)
    where = draw.choice(["", " where n > 1", " where kind is not null and p <> 2"])
    by = draw.choice(["all", ", ".join(groups), ", ".join(keys)])
    return f"select {', '.join(listed)} from {table}{where} group by {by}", keys


def fill(duck: Connection, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    duck.execute(f"create or replace table {name} ({COLUMNS})")
    if rows:
        places = ", ".join(["(?, ?, ?, ?, ?)"] * len(rows))
        duck.execute(f"insert into {name} values {places}", [*chain.from_iterable(rows)])


def some(draw: random.Random) -> tuple[object, ...]:
    kind, n = draw.choice(["a", "B", None]), draw.choice([1, 2, 3, None])
    return draw.randrange(9), kind, n, draw.choice(["1.5", "2", None]), 0.5


@pytest.mark.slow
@pytest.mark.law
@examples(60)
@given(st.sampled_from(["items", "added"]), st.integers(0, 1_000_000))
def test_a_slices_changes_give_the_view(table: str, seed: int) -> None:
    draw = random.Random(seed)
    sql, keys = a_query(draw, table)
    with open_connection() as duck:
        rows = [some(draw) for _ in range(draw.randrange(12))]
        fill(duck, table, rows)
        born = {table: ITEMS if table == "items" else ADDED}
        change = by_change(duck, tree_of(duck, sql), keys, born)
        assert change is not None, sql
        state(duck, "state", change.inner)
        for _ in range(3):
            gone = [] if table == "added" else draw.sample(rows, draw.randrange(len(rows) + 1))
            come = [some(draw) for _ in range(draw.randrange(5))]
            for name, changed in ((COME, come), (GONE, gone)):
                fill(duck, table, changed)
                state(duck, name, change.inner)
            for row in gone:
                rows.remove(row)
            rows += come
            fill(duck, table, rows)
            state(duck, "next_state", change.changed("from state", (COME, GONE)))
            columns = names(duck, change.inner)
            ensure_same(duck, f"from next_state select {columns}", change.inner, sql)
            duck.execute("create or replace table state as from next_state")
            ensure_same(duck, shown(change, sql, duck), sql, sql)
            ensure_same(duck, f"from ({change.whole()}) select {names(duck, sql)}", sql, sql)


def state(duck: Connection, name: str, sql: str) -> None:
    duck.execute(f"create or replace table {name} as {sql}")


def shown(change: ByChange, sql: str, duck: Connection) -> str:
    """Returns the query that computes the view's columns from the state."""
    return f"with _state as (from state) from ({change.outer}) select {names(duck, sql)}"


def names(duck: Connection, sql: str) -> str:
    return ", ".join(duck.sql(sql).columns)


def ensure_same(duck: Connection, one: str, other: str, what: str) -> None:
    for left, right in ((one, other), (other, one)):
        assert duck.execute(f"({left}) except all ({right})").fetchall() == [], what


@pytest.mark.parametrize(
    "sql",
    [
        "select kind, avg(n) as m from items group by kind",
        "select kind, max(n) as m from items group by kind",
        "select kind, count(distinct n) as m from items group by kind",
        "select kind, list(n order by n) as m from items group by kind",
        "select kind, count(*) as m from items group by kind, n % 2",
        "select kind, count(*) as m from items group by kind having count(*) > 1",
        "select kind, count(*) as m from items join added using (kind) group by kind",
        "select kind, count(*) as m from (select * from items where n > 1) group by kind",
        "select kind, count(*) + (select count(*) from items) as m from items group by kind",
        "select distinct kind, count(*) as m from items group by kind",
        "select kind, 1 as m from items group by all limit 3",
    ],
)
def test_what_no_change_can_be_added_to_is_not_kept_so(sql: str) -> None:
    with open_connection() as duck:
        fill(duck, "items", [])
        fill(duck, "added", [])

        tree = tree_of(duck, sql)

        assert by_change(duck, tree, ("kind",), {"items": ITEMS, "added": ADDED}) is None


def test_a_plan_says_so_and_the_state_is_stored_beside_the_view() -> None:
    sql = "select kind, sum(p) as total from items group by kind"
    (born,) = view_births([View("counted", sql, keys=("kind",))], [ITEMS])

    assert born.columns == (
        *(("kind", "string"), ("total", "decimal(38,2)"), ("_rows", "bigint")),
        *(("_n1", "bigint"), ("_s1", "decimal(38,2)")),
        *(("_deleted", "boolean"), ("_since", "bigint")),
    )
    way = str(ways_of((ITEMS, born))["counted"])
    assert way == "by change: its counts and sums take what the slice adds"
