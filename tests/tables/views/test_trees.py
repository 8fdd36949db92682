"""A query that is written from its tree has the same meaning as its original text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kappa.base.duck import DUCKDB_ERRORS, open_connection
from kappa.tables.views.syntax_tree import sql_of, tree_of

if TYPE_CHECKING:
    from kappa.base.duck import Connection

NAMES = "abcdef"
JOINS = ("cross join", "full join", "right join", "left join", "join", "semi join", "anti join")


@pytest.fixture(scope="module")
def duck() -> Iterator[Connection]:
    with open_connection() as duck:
        drawn = random.Random(4)
        for name in NAMES:
            duck.execute(f"create table {name} (x int, y int)")
            for _ in range(drawn.choice([0, 1, 2])):
                duck.execute(f"insert into {name} values (?, ?)", [drawn.randint(0, 2)] * 2)
        duck.execute("create table t as from (values (1, 2), (2, 3), (1, 3), (3, null)) as v(x, y)")
        yield duck


def answer(duck: Connection, sql: str) -> tuple[list[str], list[str]]:
    """Returns the rows of a query as sorted texts, and the types of its columns."""
    result = duck.execute(sql)
    kinds = [str(each[1]) for each in result.description or ()]
    return sorted(map(repr, result.fetchall())), kinds


def joined(drawn: random.Random, free: list[str], depth: int) -> tuple[str, list[str]]:
    """Returns nested joins of some tables, and the tables that can be named in the query."""
    if depth == 0 or len(free) == 1 or drawn.random() < 0.3:
        name = free.pop()
        return name, [name]
    left, names = joined(drawn, free, depth - 1)
    if not free:
        return left, names
    right, others = joined(drawn, free, depth - 1)
    how = drawn.choice(JOINS)
    on = f" on {drawn.choice(names)}.x = {drawn.choice(others)}.x" if how != "cross join" else ""
    text = f"{left} {how} {right}{on}"
    return (
        f"({text})" if drawn.random() < 0.7 else text,
        names if how in {"semi join", "anti join"} else names + others,
    )


def test_joins_are_nested_as_they_were(duck: Connection) -> None:
    drawn, held = random.Random(1), 0
    for _ in range(1_000):
        free = random.Random(drawn.random()).sample(NAMES, drawn.randint(3, 5))
        text, names = joined(drawn, free, 3)
        sql = f"select {', '.join(f'{name}.x, {name}.y' for name in names)} from {text}"
        try:
            expected = answer(duck, sql)
        except DUCKDB_ERRORS:
            # A condition names a table that its place does not see.
            continue
        assert answer(duck, sql_of(duck, tree_of(duck, sql))) == expected, sql
        held += 1
    assert held > 500


@pytest.mark.parametrize(
    "expression",
    [
        *("1.5e3", "x * 1e-1", "1e400", "-1e-310", "1.10 * x", "7 // 2", "-x ^ 2", "2 ^ (3 ^ x)"),
        *("2 - (3 - x)", "x << 2 + 1", "not x = 1 and y = 2", "not (x = 1 and y = 2)"),
        *("x not in (1, null)", "not x between 1 and 2", "x is distinct from y", "x::text || 'a'"),
        *("x = any(select y from t)", "x > all(select y from t)", "(x, y) in ((1, 2), (2, 3))"),
        *("interval 3 day + date '2020-01-01'", "'it''s'", "e'a\\nb'"),
        *("'a%' like 'a\\%' escape '\\'", "case when x = 1 then 2 end"),
        *("[1, 2, x][1:2]", "{'a': x, 'b': {'c': y}}.b.c", "list_transform([1, x], v -> v + 1)"),
        *("[v * 2 for v in [1, x] if v > 1]", "'{\"a\": {\"b\": 1}}'::json ->> '$.a.b'"),
        *("lower('Ä') collate nocase", "(x::text)[1]", "decimal '1.10'"),
    ],
)  # fmt: skip
def test_expressions_keep_values_and_types(duck: Connection, expression: str) -> None:
    assert_same(duck, f"select {expression} from t")


@pytest.mark.parametrize(
    "sql",
    [
        "select x from t union all (select y from t intersect select 2)",
        "select x from t except (select y from t union select 1)",
        "(select x from t order by x limit 1) union all (select y from t order by y desc limit 1)",
        "select x, sum(y) filter (where y > 1) from t group by all",
        "select sum(y) over (order by x, y groups 1 preceding exclude ties) from t",
        "select first_value(y ignore nulls) over (order by x, y) from t",
        "select x, y, count(*) from t group by grouping sets ((x), (y), ())",
        "select distinct on (x) x, y from t order by x, y desc",
        "from t qualify row_number() over (partition by x order by y) = 1",
        "with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) from r",
        "with bids(z) as materialized (select x from t) select z from bids",
        "select * from t as one, lateral (select one.x + 1 as z) as two left join a on a.x = two.z",
        "select quantile_cont(y, [0.25, 0.5]), string_agg(x::text, ',' order by y desc) from t",
        "select quantile_cont(y, 5e-1) from t group by x, 1e0",
        "select r.p from t as r(p, q) where r.q > 1",
        "select x, unnest([1, 2]) from t",
        "select x + 1 as x from t where x > 1 order by x",
    ],
)
def test_queries_keep_rows_and_types(duck: Connection, sql: str) -> None:
    assert_same(duck, sql)


def assert_same(duck: Connection, sql: str) -> None:
    written: Any = sql_of(duck, tree_of(duck, sql))
    assert answer(duck, written) == answer(duck, sql), written
