"""Orders of maintained views: an order that may leave ties is refused, a complete one is not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from view_grammar import TABLES, Grammar

from kappa import View
from kappa.base.duck import DuckError, open_connection
from kappa.base.errors import DeclarationError
from kappa.state.table import TableBirth
from kappa.tables.views.repeatable_query import inexact
from kappa.tables.views.syntax_tree import tree_of
from kappa.tables.views.ties import tied
from kappa.tables.views.view_tables import make_empty, view_births

if TYPE_CHECKING:
    from kappa.base.duck import Connection

BIRTHS = {
    "bids": TableBirth("bids", (*TABLES["bids"], ("bid", "string"), ("tags", "array<int>"))),
    "auctions": TableBirth("auctions", TABLES["auctions"], keys=("id",)),
    "persons": TableBirth("persons", (*TABLES["persons"], ("name", "string")), keys=("id",)),
    "prices": TableBirth(
        "prices", (("item", "int"), ("since", "int"), ("cents", "int")), keys=("item", "since")
    ),
    "ticks": TableBirth("ticks", (("item", "int"), ("since", "int"), ("cents", "int"))),
    "tallies": TableBirth(
        "tallies", (("item", "int"), ("n", "int"), ("_number", "bigint")), view="", by=("item",)
    ),
}


def cases() -> Iterator[tuple[str, str]]:
    """Yields the queries of the file, each with the text of its refusal, or ""."""
    decided, open_ones = Path(__file__).with_name("ties.sql").read_text().split("-- OPEN\n")
    for text in (decided, open_ones):
        for each in text.split(";\n"):
            lines = each.strip().splitlines()
            told = [line.removeprefix("-- ") for line in lines if line.startswith("-- ")]
            sql = "\n".join(line for line in lines if not line.startswith("--")).strip()
            if sql:
                yield sql, told[-1] if text is open_ones else ""


@pytest.fixture(scope="module")
def duck() -> Iterator[Connection]:
    with open_connection({"threads": 1}) as found:
        for each in BIRTHS.values():
            make_empty(found, each)
        yield found


@pytest.mark.parametrize(("sql", "told"), [*cases()])
def test_an_order_is_refused_unless_it_decides(duck: Connection, sql: str, told: str) -> None:
    # DuckDB can read it, and it is not refused for another reason.
    duck.sql(sql)
    tree = tree_of(duck, sql)
    assert inexact(duck, tree) is None

    found = tied(tree, BIRTHS)

    assert (found or ("", ""))[0].startswith(told) if told else found is None, found


def test_a_refusal_names_the_view_with_its_line_and_what_to_type() -> None:
    view = View("best", "select auction, price from bids order by auction limit 3", by=("auction",))

    with pytest.raises(DeclarationError) as refused:
        view_births([view], BIRTHS.values())

    assert str(refused.value).startswith(f"{view.source}: view best has a limit whose order")
    assert "order by what no two rows share, as by price too" in str(refused.value.hint)


GIVEN = {
    name: TableBirth(name, columns, keys=() if name == "bids" else ("id",))
    for name, columns in TABLES.items()
}
# In which the law of views found that rows differ: an as-of join takes either of two rows.
EITHER = """
    select distinct coalesce(n1.born, n2.n7) as n8 from persons as n1 full join (
        select distinct on (n6.price) n6.price as n7
        from (select distinct bidder as n5 from bids) as n3
        asof left join bids as n6 on n3.n5 = n6.bidder and n3.n5 >= n6.bidder
        order by n3.n5, n6.auction, n6.bidder, n6.price
    ) as n2 on n1.born = n2.n7 and n1.city <= n2.n7
"""


def shuffled(duck: Connection, sql: str, draw: random.Random) -> Iterator[Counter[object]]:
    """Yields a query's rows several times, with the rows of its tables in different orders."""
    rows = dict[str, list[str]]()
    for name, columns in TABLES.items():
        some = [
            [draw.choice(["null::int", "1", "2", "3"]) for _ in columns]
            for _ in range(1, draw.randrange(1, 15))
        ]
        if GIVEN[name].keys:
            some = list({each[0]: each for each in some}.values())
        rows[name] = [f"({', '.join(each)})" for each in some]
    for _ in range(3):
        for name, each in rows.items():
            names = ", ".join(column for column, _ in TABLES[name])
            values = ", ".join(["(null::int, null, null)", *draw.sample(each, len(each))])
            duck.execute(
                f"create or replace table {name} as from (values {values}) as _t({names}) offset 1"
            )
        yield Counter(duck.execute(sql).fetchall())


@pytest.fixture(scope="module")
def filled() -> Iterator[Connection]:
    with open_connection({"threads": 1}) as found:
        yield found


@pytest.mark.slow
@pytest.mark.law
@examples(150)
@given(st.integers(0, 10_000_000), st.sampled_from(["plain", "ordered", "on", "any"]))
def test_accepted_views_are_free_of_order(filled: Connection, seed: int, kind: str) -> None:
    """Accepted views have the same rows for any order of the rows below."""
    grammar = Grammar(seed)
    sql, _ = grammar.query(2) if kind == "any" else grammar.select(1, kind)
    if tied(tree_of(filled, sql), GIVEN) is not None:
        return
    # DuckDB does not plan every query, and of some it has a mistake of its own.
    with suppress(DuckError):
        for _ in range(2):
            first, *others = shuffled(filled, sql, grammar.draw)
            assert all(each == first for each in others), sql


def test_what_is_refused_has_other_rows_in_another_order(filled: Connection) -> None:
    """A refused query really has other rows in another order, so the law above would detect it."""
    assert tied(tree_of(filled, EITHER), GIVEN) is not None

    found = [[*shuffled(filled, EITHER, random.Random(seed))] for seed in range(20)]

    assert any(each != first for first, *others in found for each in others)


def test_random_queries_have_joins_and_orders_of_both_kinds(filled: Connection) -> None:
    found = Counter[tuple[str, bool]]()
    for seed in range(150):
        sql, _ = Grammar(seed).query(2)
        is_refused = tied(tree_of(filled, sql), GIVEN) is not None
        found.update((word, is_refused) for word in ("asof", " over (") if word in sql)

    assert min(found[word, False] for word in ("asof", " over (")) > 20, found
    assert min(found[word, True] for word in ("asof", " over (")) > 5, found
