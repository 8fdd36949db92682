"""Laws of the changes that readers find between two builds, and of breaking ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.declare.values.columns import parse_type
from kappa.replay.rollout.plan.readers import Effect, ReaderChange, reader_changes, widens
from kappa.state.build import Birth
from kappa.state.table import TableBirth


def born(*tables: TableBirth, views: dict[str, str] | None = None) -> Birth:
    return Birth("a", "flights", "v1", {}, 1, {}, "", (), tables, views or {}, {}, {}, "then", "me")


def table(*columns: tuple[str, str], name: str = "t", keys: tuple[str, ...] = ()) -> TableBirth:
    return TableBirth(name, columns, keys=keys)


def only(changes: tuple[ReaderChange, ...]) -> ReaderChange:
    (change,) = changes
    return change


def test_the_same_tables_change_nothing() -> None:
    same = table(("k", "int"), ("n", "bigint"), keys=("k",))

    assert reader_changes(born(same, views={"v": "select 1"}), (same,), {"v": "select 1"}) == ()


def test_a_new_column_breaks_nobody() -> None:
    change = only(
        reader_changes(born(table(("n", "int"))), (table(("n", "int"), ("m", "date")),), {})
    )

    assert change == ReaderChange(
        Effect.ADDED, "t", "column m of table t is new (date)", "m", after="date"
    )


def test_a_column_that_goes_breaks() -> None:
    change = only(
        reader_changes(born(table(("n", "int"), ("m", "date"))), (table(("n", "int")),), {})
    )

    assert (change.effect, change.column, change.before, change.breaking) == (
        Effect.REMOVED,
        "m",
        "date",
        True,
    )


def test_hidden_columns_are_nobodys_business() -> None:
    assert (
        reader_changes(
            born(table(("n", "int"), ("_s", "binary"))), (table(("n", "int"), ("_t", "date")),), {}
        )
        == ()
    )


def test_other_keys_break_and_their_order_does_not() -> None:
    columns = (("a", "int"), ("b", "int"), ("n", "int"))

    rekeyed = only(
        reader_changes(born(table(*columns, keys=("a",))), (table(*columns, keys=("a", "b")),), {})
    )
    assert (rekeyed.text, rekeyed.breaking) == ("the keys of table t become a, b, from a", True)
    assert (
        reader_changes(
            born(table(*columns, keys=("a", "b"))), (table(*columns, keys=("b", "a")),), {}
        )
        == ()
    )


def test_a_view_with_another_query_is_told_and_one_that_goes_breaks() -> None:
    changes = reader_changes(
        born(views={"v": "select 1", "w": "select 1"}), (), {"v": "select 2", "x": "select 3"}
    )

    assert [(change.text, change.breaking) for change in changes] == [
        ("view v has another query", False),
        ("view w goes", True),
        ("view x is new", False),
    ]


def test_a_table_and_a_view_that_change_places_may_break() -> None:
    changes = reader_changes(
        born(table(("n", "int"), name="a"), views={"b": "select 1"}),
        (table(("n", "int"), name="b"),),
        {"a": "select 1"},
    )

    assert [(change.table, change.effect, change.breaking) for change in changes] == [
        ("a", Effect.CHANGED, True),
        ("b", Effect.CHANGED, True),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tinyint", "bigint"),
        ("int", "double"),
        ("float", "double"),
        ("int", "decimal(10,0)"),
        ("bigint", "decimal(22,2)"),
        ("decimal(10,2)", "decimal(12,4)"),
        ("array<int>", "array<bigint>"),
        ("struct<a:int>", "struct<a:bigint,b:string>"),
    ],
)
def test_a_type_that_holds_all_values_breaks_nobody_and_the_way_back_does(
    old: str, new: str
) -> None:
    assert widens(parse_type(old), parse_type(new))
    assert not widens(parse_type(new), parse_type(old))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bigint", "double"),
        ("int", "string"),
        ("date", "timestamp"),
        ("int", "float"),
        ("decimal(10,2)", "decimal(12,1)"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("int", "decimal(9,0)"),
    ],
)
def test_a_type_that_loses_values_or_means_something_else_breaks(old: str, new: str) -> None:
    assert not widens(parse_type(old), parse_type(new))


def test_a_type_of_the_platforms_own_is_compared_by_name() -> None:
    assert only(
        reader_changes(born(table(("v", "binary"))), (table(("v", "string")),), {})
    ).breaking


_TYPES = st.sampled_from(
    [
        parse_type(each)
        for each in (
            "tinyint",
            "smallint",
            "int",
            "bigint",
            "float",
            "double",
            "decimal(5,0)",
            "decimal(10,2)",
            "decimal(20,0)",
            "string",
            "date",
        )
    ]
)


@given(_TYPES, _TYPES, _TYPES)
def test_widening_twice_is_widening(one: object, two: object, three: object) -> None:
    if widens(one, two) and widens(two, three):
        assert widens(one, three)
    if widens(one, two) and widens(two, one):
        assert one == two
