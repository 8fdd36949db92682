"""Law of changes: if the changes are folded into the stored rows, these equal the query's rows."""

from __future__ import annotations

import random

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import View
from kappa.base.duck import Connection, DuckError, open_connection
from kappa.state.table import TableBirth
from kappa.tables.merge import merged_sql
from kappa.tables.views.changes import changes_sql
from kappa.tables.views.view_tables import view_births

ITEMS = TableBirth("items", (("id", "bigint"), ("kind", "string"), ("n", "bigint")))
VIEWS = (
    View(
        "keyed",
        "select kind, count(*) as rows, avg(n) as n from items group by kind",
        keys=("kind",),
    ),
    View("pairs", "select kind, n from items", by=("kind",)),
    View("alone", "select n, kind from items where n is null", by=("n", "kind")),
)
BIRTHS = {birth.name: birth for birth in view_births(VIEWS, (ITEMS,))}


def put(duck: Connection, draw: random.Random) -> None:
    """Replaces the items with new random ones: few kinds, nulls, and equal rows."""
    duck.execute("create or replace table base (id bigint, kind varchar, n bigint)")
    for number in range(draw.randrange(9)):
        row = (number, draw.choice(["a", "b", None]), draw.choice([1, 2, None]))
        duck.execute("insert into base values (?, ?, ?)", row)


@pytest.mark.law
@examples(30)
@given(st.sampled_from(sorted(BIRTHS)), st.integers(0, 10_000))
def test_stored_rows_with_the_changes_are_the_rows_of_the_query(name: str, seed: int) -> None:
    view, draw = BIRTHS[name], random.Random(seed)
    listed = ", ".join(column for column, _ in view.columns)
    shown = ", ".join(column for column, _ in view.served)
    stored = "select * from stored where not _deleted"
    with open_connection() as duck:
        put(duck, draw)
        duck.execute("create view items as select * from base")
        changes = changes_sql(
            view, view.view, {"items": "select * from base"}, "select * from old", 1
        )
        duck.execute(f"create table old as select {listed} from ({_none(view)})")
        duck.execute(f"create table stored as {changes}")
        for since in range(2, 5):
            put(duck, draw)
            duck.execute(
                "create or replace table contributed as "
                + changes_sql(view, view.view, {"items": "select * from base"}, stored, since)
            )
            (count,) = duck.execute(f"select count(*) from ({view.view})").fetchone() or (0,)
            merged = merged_sql(view, "select * from stored", ["select * from contributed"])
            duck.execute(f"create or replace table merged as select {listed} from ({merged})")
            duck.execute("create or replace table stored as select * from merged")
            found = f"select {shown} from stored where not _deleted"
            wanted = f"select {shown} from ({view.view})"

            assert duck.execute(f"select count(*) from ({found})").fetchone() == (count,)
            assert duck.execute(f"{wanted} except all {found}").fetchall() == []
            # Nothing has changed: nothing is contributed.
            again = changes_sql(view, view.view, {"items": "select * from base"}, stored, since + 1)
            assert duck.execute(again).fetchall() == []


def _none(view: TableBirth) -> str:
    return (
        "select "
        + ", ".join(f"null::{_duck(kind)} as {name}" for name, kind in view.columns)
        + " where false"
    )


def _duck(kind: str) -> str:
    return {"string": "varchar"}.get(kind, kind)


def test_several_rows_of_one_key_are_refused_with_the_first_keys_and_rows() -> None:
    (view,) = view_births(
        [View("v", "select kind, n, id from items", keys=("kind", "n"))], (ITEMS,)
    )
    with open_connection() as duck:
        duck.execute("create table base (id bigint, kind varchar, n bigint)")
        duck.execute("insert into base values (2, '', 1), (1, '', 1), (3, 'b', null), (0, 'a', 9)")
        duck.execute("insert into base select id, kind, 7 from base where kind in ('a', 'b')")
        duck.execute("insert into base select id + 4, kind, n from base where kind <> ''")
        duck.execute("create view items as select * from base")
        duck.execute(f"create table stored as select * from ({_none(view)})")

        with pytest.raises(DuckError) as refused:
            duck.execute(
                changes_sql(view, view.view, {"items": "select * from base"}, "from stored", 1)
            ).fetchall()

    assert str(refused.value).endswith(
        "several rows have the keys"
        " kind='', n=1: {'kind': '', 'n': 1, 'id': 1}, {'kind': '', 'n': 1, 'id': 2};"
        " kind='a', n=7: {'kind': a, 'n': 7, 'id': 0}, {'kind': a, 'n': 7, 'id': 4};"
        " kind='a', n=9: {'kind': a, 'n': 9, 'id': 0}, {'kind': a, 'n': 9, 'id': 4};"
        " and 2 keys more"
    )
