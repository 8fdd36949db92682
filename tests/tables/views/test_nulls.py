"""As-of joins over nulls give the rows that SQL defines, with each of DuckDB's plans."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa.base.duck import Connection
from kappa.state.files.duckdb_access import open_exact
from kappa.tables.views.nulls import without_nulls
from kappa.tables.views.syntax_tree import sql_of, tree_of

KEYS = ("k", "m", "n")
Row = dict[str, int | None]


def some_rows(draw: random.Random, keys: Sequence[str]) -> list[Row]:
    """Returns rows, no two of which have the same keys and time."""
    rows = [
        {name: draw.choice([None, 1, 2, 3]) for name in (*KEYS, "t")}
        for _ in range(draw.choice([0, 1, 2, 5, 20]))
    ]
    alone = {tuple(row[name] for name in (*keys, "t")): row for row in rows}
    return [{**row, "id": number} for number, row in enumerate(alone.values())]


def nearest(left: Row, right: Sequence[Row], keys: Sequence[str]) -> int | None:
    """Returns the id of the right row that an as-of join finds, by a loop in Python."""
    found = [
        (row["t"], row["id"])
        for row in right
        if all(row[key] is not None and row[key] == left[key] for key in keys)
        if row["t"] is not None and left["t"] is not None and left["t"] >= row["t"]
    ]
    return max(found)[1] if found else None


def fill(duck: Connection, name: str, rows: Sequence[Row]) -> None:
    columns = ", ".join(f"{column} int" for column in (*KEYS, "t", "id"))
    duck.execute(f"create or replace table {name} ({columns})")
    for row in rows:
        duck.execute(f"insert into {name} values (?, ?, ?, ?, ?)", [*row.values()])


@pytest.mark.slow
@pytest.mark.law
@examples(30)
@given(st.integers(0, 10_000_000))
def test_no_null_is_equal_to_or_later_than_anything(seed: int) -> None:
    draw = random.Random(seed)
    keys = KEYS[: draw.randrange(4)]
    left, right = some_rows(draw, keys), some_rows(draw, keys)
    found = {row["id"]: nearest(row, right, keys) for row in left}
    wanted = {
        "": Counter((one, other) for one, other in found.items() if other is not None),
        "left": Counter(found.items()),
        "semi": Counter((one, None) for one, other in found.items() if other is not None),
        "anti": Counter((one, None) for one, other in found.items() if other is None),
    }
    later = draw.choice(["l.t >= r.t", "r.t <= l.t"])
    condition = " and ".join([*(f"l.{key} = r.{key}" for key in keys), later])
    with open_exact({"threads": draw.choice([1, 2])}) as duck:
        fill(duck, "l", left)
        fill(duck, "r", right)
        for kind, rows in wanted.items():
            other = "null" if kind in {"semi", "anti"} else "r.id"
            query = f"select l.id, {other} from l asof {kind} join r on {condition}"
            sql = sql_of(duck, without_nulls(tree_of(duck, query)))
            for threshold in (0, 1_000):
                duck.execute(f"set asof_loop_join_threshold = {threshold}")
                assert Counter(duck.execute(sql).fetchall()) == rows, (threshold, sql)
