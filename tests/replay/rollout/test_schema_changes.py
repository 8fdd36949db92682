"""Laws of the differences between two versions: in tables for readers, and in fields of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from births import make_birth
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from plans import A_SERVES, birth, declared, observed

from kappa import Topic
from kappa.code.fingerprint import declaration_lines
from kappa.declare.values.columns import parse_type
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan_text import plan_text
from kappa.replay.rollout.plan.schema_changes import (
    Effect,
    ReaderChange,
    event_changes,
    reader_changes,
    widens_type,
)
from kappa.state.build import Birth
from kappa.state.table import TableBirth


def born(*tables: TableBirth, views: dict[str, str] | None = None) -> Birth:
    return make_birth("a", pipeline="flights", tables=tables, views=views or {})


def table(*columns: tuple[str, str], name: str = "t", keys: tuple[str, ...] = ()) -> TableBirth:
    return TableBirth(name, columns, keys=keys)


def only_change(before: TableBirth, after: TableBirth) -> ReaderChange:
    (change,) = reader_changes(born(before), (after,), {})
    return change


def test_the_same_tables_change_nothing() -> None:
    same = table(("k", "int"), ("n", "bigint"), keys=("k",))

    assert reader_changes(born(same, views={"v": "select 1"}), (same,), {"v": "select 1"}) == ()


def test_a_new_column_breaks_nobody() -> None:
    change = only_change(table(("n", "int")), table(("n", "int"), ("m", "date")))

    text = "column m of table t is new (date)"
    assert change == ReaderChange(Effect.ADDED, "t", text, "m", after="date")


def test_a_column_that_goes_breaks() -> None:
    change = only_change(table(("n", "int"), ("m", "date")), table(("n", "int")))

    assert (change.effect, change.breaking) == (Effect.REMOVED, True)
    assert (change.column, change.before) == ("m", "date")


def test_hidden_columns_are_nobodys_business() -> None:
    before = table(("n", "int"), ("_s", "binary"))
    assert reader_changes(born(before), (table(("n", "int"), ("_t", "date")),), {}) == ()


def test_other_keys_break_and_their_order_does_not() -> None:
    columns = (("a", "int"), ("b", "int"), ("n", "int"))
    one, both, turned = (table(*columns, keys=keys) for keys in (("a",), ("a", "b"), ("b", "a")))

    rekeyed = only_change(one, both)
    assert (rekeyed.text, rekeyed.breaking) == ("the keys of table t become a, b, from a", True)
    assert reader_changes(born(both), (turned,), {}) == ()


def test_a_view_with_another_query_is_told_and_one_that_goes_breaks() -> None:
    before, after = {"v": "select 1", "w": "select 1"}, {"v": "select 2", "x": "select 3"}
    changes = reader_changes(born(views=before), (), after)

    assert [(change.text, change.breaking) for change in changes] == [
        ("view v has another query", False),
        ("view w goes", True),
        ("view x is new", False),
    ]


def test_a_table_and_a_view_that_change_places_may_break() -> None:
    before = born(table(("n", "int"), name="a"), views={"b": "select 1"})
    changes = reader_changes(before, (table(("n", "int"), name="b"),), {"a": "select 1"})

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
def test_wider_type_breaks_nobody_and_narrower_does(old: str, new: str) -> None:
    assert widens_type(parse_type(old), parse_type(new))
    assert not widens_type(parse_type(new), parse_type(old))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        *(("bigint", "double"), ("int", "string"), ("date", "timestamp"), ("int", "float")),
        *(("decimal(10,2)", "decimal(12,1)"), ("decimal(10,2)", "decimal(11,4)")),
        ("int", "decimal(9,0)"),
    ],
)
def test_a_type_that_loses_values_or_means_something_else_breaks(old: str, new: str) -> None:
    assert not widens_type(parse_type(old), parse_type(new))


def test_a_type_of_the_platforms_own_is_compared_by_name() -> None:
    assert only_change(table(("v", "binary")), table(("v", "string"))).breaking


_NAMES = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "string", "date"),
    *("decimal(5,0)", "decimal(10,2)", "decimal(20,0)"),
)
_TYPES = st.sampled_from([parse_type(each) for each in _NAMES])


@given(_TYPES, _TYPES, _TYPES)
def test_widening_twice_is_widening(one: object, two: object, three: object) -> None:
    if widens_type(one, two) and widens_type(two, three):
        assert widens_type(one, three)
    if widens_type(one, two) and widens_type(two, one):
        assert one == two


def changes(old: str, new: str, was: Mapping[str, str | Sequence[str]] | None = None) -> list[str]:
    before = lines_of(Topic("t", event=old))
    found = event_changes(Topic("t", event=new, was=was), before)
    return [each.replace(" of topic t", "") for each in found]


def lines_of(topic: Topic) -> str:
    return declaration_lines(declared(topic=topic).pipeline)["topic t"]


def test_the_same_declaration_changes_nothing() -> None:
    defaults = "id string not null default ' was ', n struct<default:int,was:string>"
    ddl = f"{defaults}, tags array<decimal(10,2)>"

    assert changes(ddl, ddl) == []


def test_a_name_in_backquotes_is_known_again() -> None:
    assert changes("`größe` int, `a b` int not null, `web-page` array<int>", "`größe` bigint") == [
        "field größe is widened: bigint, from int",
        "field a b is no longer read",
        "field web-page is no longer read",
    ]


def test_fields_that_are_renamed_widened_narrowed_new_and_gone_are_told() -> None:
    found = changes(
        "url string, n int, m bigint, x string, gone date, price decimal(10,2) default 1, d bigint",
        "page string, n bigint, m int, x int, price decimal(12,2), d double, new string, "
        "needed string not null, told int not null default 0",
        {"page": ("uri", "url")},
    )

    assert found == [
        "field page is renamed: it reads url, too",
        "field n is widened: bigint, from int",
        "field m is narrowed: int, from bigint; what does not fit is rejected",
        "field x is of another type: int, from string; what is not of it is rejected",
        "field price is widened: decimal(12,2), from decimal(10,2)",
        "field d is of another type: double, from bigint; what is not of it is rejected",
        "field new is new: events without it have null",
        "field needed is new: events without it are rejected",
        "field told is new: events without it have 0",
        "field gone is no longer read",
    ]


def test_a_field_that_must_be_there_now_is_told_and_so_is_what_stands_for_it() -> None:
    before, after = (
        "a int, b int, c int not null",
        "a int not null, b int not null default 7, c int",
    )
    assert changes(before, after) == [
        "field a may not be null any more: events without it are rejected",
        "field b may not be null any more: events without it have 7",
    ]


def test_a_renamed_field_may_be_widened_too() -> None:
    assert changes("n int", "m bigint", {"m": "n"}) == [
        "field m is renamed: it reads n, too",
        "field m is widened: bigint, from int",
    ]


def test_a_plan_tells_it() -> None:
    topic = Topic("orders", event="id string, n bigint", partitions=2, key="id")
    old, new = declared(), declared(topic=topic)
    new = replace(new, parts={**new.parts, "topic orders": "2"}, version="2")
    born = structs.replace(birth("a", old), declarations=declaration_lines(old.pipeline))

    plan = make_plan(observed(new, journal=A_SERVES, births=(born,)))
    unknown = make_plan(observed(new, journal=A_SERVES, births=(birth("a", old),)))

    assert "  events: field n of topic orders is widened: bigint, from int\n" in plan_text(plan)
    assert unknown.steps[0].events == ()


def test_another_format_is_a_change_and_the_one_of_before_is_named() -> None:
    as_json, as_csv = Topic("t", event="a int"), Topic("t", event="a int", format="csv")
    comma = "csv separated by ','"

    assert [*event_changes(as_csv, lines_of(as_csv))] == []
    (one,), (other,) = (
        event_changes(as_csv, lines_of(as_json)),
        event_changes(as_json, lines_of(as_csv)),
    )
    assert one == f"topic t is read as {comma}, and was read as JSON"
    assert other == f"topic t is read as JSON, and was read as {comma}"


def test_another_format_of_keys_is_a_change() -> None:
    text = Topic("t", event="id string not null", key="id")
    as_json = Topic("t", event="id string not null", key="id", key_format="json")

    (one,) = event_changes(as_json, lines_of(text))
    (other,) = event_changes(text, lines_of(as_json))
    assert one == "keys of topic t are read as json, and were read as text"
    assert other == "keys of topic t are read as text, and were read as json"
