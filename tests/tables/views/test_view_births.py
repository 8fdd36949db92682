"""Maintained views as tables: their columns, the relations that they read, and refusals."""

from __future__ import annotations

import pytest

from kappa import View
from kappa.base.errors import DeclarationError
from kappa.state.table import TableBirth
from kappa.tables.views.view_tables import view_births

PRICED = (("auction", "bigint"), ("price", "decimal(12,2)"))
BIDS = TableBirth("bids", (*PRICED, ("at", "timestamp"), ("tags", "array<int>")))
AUCTIONS = TableBirth("auctions", (("id", "bigint"), ("x", "double")), keys=("id",))
TABLES = (BIDS, AUCTIONS)


def born(*views: View) -> dict[str, TableBirth]:
    return {birth.name: birth for birth in view_births(views, TABLES)}


def test_a_views_columns_have_the_types_that_a_table_keeps() -> None:
    sql = """
        select auction, count(*) as bids, sum(price) as total, sum(auction) as whole,
            avg(price) as mean, max("at") as last, list(auction order by price) as all_of_them,
            min(tags) as t,
            {'a': 1, 'B': 'x'} as both, null as nothing, 1::utinyint as small
        from bids group by auction
    """

    (view,) = born(View("best", sql, keys=("auction",))).values()

    assert view.columns == (
        ("auction", "bigint"),
        ("bids", "bigint"),
        ("total", "decimal(38,2)"),
        ("whole", "decimal(38,0)"),
        ("mean", "double"),
        ("last", "timestamp"),
        ("all_of_them", "array<bigint>"),
        ("t", "array<int>"),
        ("both", "struct<a:int,B:string>"),
        ("nothing", "int"),
        ("small", "smallint"),
        ("_deleted", "boolean"),
        ("_since", "bigint"),
    )
    assert (view.keys, view.by, view.reads) == (("auction",), ("auction",), ("bids",))
    assert view.row_keys == ("auction",)


def test_rows_without_keys_are_numbered_among_those_that_belong_together() -> None:
    (view,) = born(View("pairs", "select * from bids", by=("auction",))).values()

    assert view.columns[-3:] == (
        ("_number", "bigint"),
        ("_deleted", "boolean"),
        ("_since", "bigint"),
    )
    assert (view.keys, view.row_keys) == ((), ("auction", "_number"))


def test_a_view_is_made_after_those_it_reads_and_has_the_others_queries_in_its_own() -> None:
    found = born(
        View("last", "select id, n from third", keys=("id",)),
        View("third", "select id, n from second where n > 0"),
        View("second", "select id, count(*) as n from first group by id", keys=("id",)),
        View("first", "select auctions.id from auctions join bids on auction = id"),
        View("unread", "select 1 as one"),
    )

    assert [*found] == ["second", "last"]
    assert found["second"].reads == ("auctions", "bids")
    assert found["last"].reads == ("second",)
    assert "unread" not in f"{found['second'].view}{found['last'].view}"
    assert "third" in str(found["last"].view)


def test_a_column_may_be_named_rowid() -> None:
    sql = "select rowid from (select auction as rowid from bids)"

    assert [*born(View("v", sql, by=("rowid",)))] == ["v"]


def test_views_that_are_not_maintained_are_no_tables() -> None:
    assert view_births([View("a", "select broken")], TABLES) == ()


def v(sql: str, *, key: str = "id") -> View:
    return View("v", sql, keys=(key,))


def grouped(value: str) -> View:
    """Returns a view with a value for each auction's bids."""
    return v(f"select auction, {value} as p from bids group by 1", key="auction")


def by_auction(sql: str) -> View:
    return View("v", sql, by=("auction",))


def w(sql: str) -> View:
    return View("w", sql, keys=("id",))


SEMI = "select bids.id as k from auctions as bids semi join bids on true"
AVERAGED = "select id, avg(x / 2) over (partition by id) as s from auctions"
NUMBERED = "select * from bids qualify row_number() over (partition by auction) = 1"
UNKEPT = "its column t is of DuckDB's type TIMESTAMP, which no table can keep"
UNKNOWN = r'cannot be read: Referenced column "idd" not found .* \(did you mean "id"\?\)$'


@pytest.mark.parametrize(
    ("views", "told"),
    [
        ([v("select id from auctions", key="nr")], "has nr among its keys.*no such"),
        ([v("select 1 as id, count(*) as n from bids")], "has rows where its tables have none"),
        ([View("v", "select id from auctions", by=("nr",))], "has nr among its by.*no such column"),
        ([v("select x from auctions", key="x")], "has x of type double among its keys"),
        ([v("select id, id from auctions")], "has a column id"),
        ([v('select id, 1 as "ID" from auctions')], "has a column id twice"),
        ([v("select id, timestamp '2020-01-01' as t from auctions")], UNKEPT),
        ([v(SEMI, key="k")], "v cannot be kept: "),
        ([v("select id, 1 as _n from auctions")], "has a column _n"),
        ([v("select id, interval 1 day as d from auctions")], "INTERVAL"),
        ([v("select id, sum(x) as s from auctions group by id")], "sum of a double"),
        ([by_auction("select auction, rowid from bids")], "v has rowid, which"),
        (
            [by_auction("select auction from bids natural join (bids as b cross join auctions)")],
            "a natural join with a join in parentheses",
        ),
        (
            [v("select id from w"), View("w", "select b.ROWID as id from bids b")],
            "v has rowid, which numbers",
        ),
        ([v("select id, s from w"), View("w", AVERAGED)], "avg of a double"),
        (
            [by_auction("select auction, list(price) as p from bids group by 1")],
            "list without an order",
        ),
        ([grouped('arg_max(price, "at")')], "arg_max without"),
        ([v(NUMBERED, key="auction")], "row_number over rows without"),
        ([grouped("stddev(price)")], "stddev, whose result"),
        ([by_auction("select auction from bids limit 3")], "a limit without an order"),
        (
            [v("select distinct on (auction) * from bids", key="auction")],
            "distinct on without an order",
        ),
        ([by_auction("select auction from bids tablesample 10%")], "a sample of rows"),
        ([v("select idd from auctions", key="idd")], UNKNOWN),
        ([v("select id from v")], "view v reads itself"),
        ([v("select id from nowhere")], "view v cannot be read.*nowhere"),
        ([v("select id from w"), w("select id from v")], "views v and w read each other"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_views_line(views: list[View], told: str) -> None:
    with pytest.raises(DeclarationError, match=rf"test_view_births.py:\d+: view.*{told}|{told}"):
        born(*views)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"keys": "id"}, r"keys='id'"),
        ({"keys": ("id", "id")}, "twice among its keys"),
        ({"expire": "at", "after": "1 day"}, "has expire or after, and its rows end with its"),
        ({"by": ("_id",)}, "among its by"),
        ({"keys": ("id",), "by": ("x",)}, "rows belong together by a column that is not a key"),
        ({"checks": ["x > 0"]}, "has checks, and is not maintained"),
        ({"max_added": 0.5}, "has a threshold, and is not maintained"),
        ({"by": ("id",), "max_changed": 0.5}, "max_changed and no keys"),
        ({"keys": ("id",), "max_changed": 2}, "not a share of its rows"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_is(options: dict[str, object], told: str) -> None:
    with pytest.raises(DeclarationError, match=f"view v.*{told}"):
        View("v", "select 1", **options)  # type: ignore[arg-type]
