"""The way of a view, and the advice of a plan about it."""

from __future__ import annotations

import ast
import re

import pytest

from kappa import View
from kappa.base.duck import open_connection
from kappa.state.table import TableBirth
from kappa.tables.views.view_tables import make_empty, view_births
from kappa.tables.views.ways import Way, way_of, ways_of

TABLES = {
    "auctions": TableBirth(
        "auctions", (("id", "int"), ("category", "string"), ("at", "timestamp"), ("seller", "int"))
    ),
    "bids": TableBirth(
        "bids", (("auction", "int"), ("bidder", "bigint"), ("price", "int"), ("at", "timestamp"))
    ),
    "persons": TableBirth("persons", (("id", "int"), ("name", "string"))),
}
PER_CATEGORY = """
    select a.category, count(*) as n from auctions a join bids b on a.id = b.auction
    group by category
"""
WITH_NAMES = """
    with best as (select auction, max(price) as price from bids group by auction)
    select auction, price, name
    from best join auctions on id = auction left join persons on persons.id = seller
"""


@pytest.mark.parametrize(
    ("by", "sql", "told"),
    [
        (
            "auction",
            "select auction, count(*) as n from bids group by 1",
            "by touched keys (auction)",
        ),
        ("category", PER_CATEGORY, "by touched keys (category)"),
        ("auction", WITH_NAMES, "by touched keys (auction)"),
        ("id", "select id from auctions anti join bids on auction = id", "by touched keys (id)"),
        (
            "auction",
            "select b.* from bids b asof join auctions a on b.auction = a.id and b.at >= a.at",
            "by touched keys (auction)",
        ),
        (
            "id",
            "select coalesce(auction, id) as id from bids full join auctions on id = auction",
            "by touched keys (id)",
        ),
        (
            "k",
            "select auction as k from bids union all select id from auctions",
            "by touched keys (k)",
        ),
        (
            "auction",
            "from bids where auction in (select id from auctions)",
            "by touched keys (auction)",
        ),
        (
            "auction",
            "from bids where auction not in (select id from auctions)",
            (
                "by touched keys (auction); whole when auctions changes: its query reads it in a"
                " subquery"
            ),
        ),
        (
            "auction",
            "from bids qualify rank() over (partition by bidder order by price) = 1",
            "whole: a window is not partitioned by auction",
        ),
        (
            "auction",
            "from bids qualify rank() over (order by price) = 1",
            "whole: a window is not partitioned by auction",
        ),
        ("k", "select upper(category) as k from auctions", "whole: k is computed"),
        ("auction", "select auction from bids order by 1 limit 3", "whole: the query has a limit"),
        (
            "auction",
            "select auction from bids group by grouping sets ((auction), (bidder, auction))",
            "whole: the query groups rows in several ways",
        ),
        (
            "id",
            "with recursive r as (select 1 as id union select id from auctions) select id from r",
            "whole: its query is recursive",
        ),
        # A column of another type is converted where it is compared: nothing follows from that.
        (
            "bidder",
            "select b.bidder from bids b semi join persons p on p.id = b.bidder",
            "by touched keys (bidder)",
        ),
    ],
)
def test_a_plan_says_the_way_of_a_view_and_why(by: str, sql: str, told: str) -> None:
    reads = tuple(name for name in TABLES if name in sql)
    view = TableBirth("v", (), view=sql, by=(by,), reads=reads)

    with open_connection() as duck:
        for table in TABLES.values():
            make_empty(duck, table)

        way = way_of(duck, view, TABLES)

        assert str(way) == told
        # What was taken apart can still be read.
        for read in way.reads:
            duck.execute(f"create view {read.name} as from {read.table}")
        for query in (way.sql, *(read.reaches for read in way.reads)):
            if query is not None:
                duck.execute(query)


@pytest.mark.parametrize(
    ("keys", "by", "told"),
    [
        (("seller", "id"), (), 'add by=("seller",)'),
        (("id",), (), 'give keys=("seller", "id"), by=("seller",)'),
        (("seller", "id"), ("id",), 'give by=("seller",)'),
        ((), ("id",), 'give by=("seller",)'),
    ],
)
def test_a_plan_says_which_by_keeps_a_window(
    keys: tuple[str, ...], by: tuple[str, ...], told: str
) -> None:
    sql = "select id, seller, rank() over (partition by seller order by id) as n from auctions"

    whole, kept = _told_ways(View("ranked", sql, keys=keys, by=by), told)

    assert whole == f"whole: a window is not partitioned by id; {told}"
    assert kept == "by touched keys (seller)"


@pytest.mark.parametrize(
    ("keys", "sql"),
    [
        (("id",), "select id, rank() over (order by id) as n from auctions"),
        (("k",), "select id, upper(category) as k from auctions"),
        # The window's only column is no column of the view.
        (("id",), "select id, rank() over (partition by seller order by id) as n from auctions"),
        # A column of this type can be no key.
        (
            ("id",),
            """
            select id, x, rank() over (partition by x order by id) as n
            from (select id, seller::double as x from auctions)
            """,
        ),
    ],
)
def test_a_plan_advises_no_by_that_would_not_help(keys: tuple[str, ...], sql: str) -> None:
    (way,) = _ways([View("ranked", sql, keys=keys)]).values()

    assert str(way).startswith("whole: ")
    assert "by=" not in str(way)


def _told_ways(view: View, told: str) -> tuple[str, str]:
    """Returns the view's way, and its way with the arguments that the advice names, as texts."""
    given = dict(re.findall(r"(keys|by)=(\([^)]*\))", told))
    arguments = {name: ast.literal_eval(text) for name, text in given.items()}
    mended = View(view.name, view.sql, **{"keys": view.keys, **arguments})
    one, other = (str(_ways([each])[view.name]) for each in (view, mended))
    return one, other


def _ways(views: list[View]) -> dict[str, Way]:
    tables = tuple(TABLES.values())
    return ways_of((*tables, *view_births(views, tables)))
