"""The meaning of a changed declaration for old events is reported field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from journals import NOWHERE, served, staged, verified
from msgspec import structs
from plans import birth, declared, observed

from kappa import Topic
from kappa.code.declaration import declarations
from kappa.replay.rollout.plan.event_changes import event_changes
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan_text import plan_text
from kappa.state.journal.events import CaughtUp


def changes(old: str, new: str, was: Mapping[str, str | Sequence[str]] | None = None) -> list[str]:
    before = declarations(declared(topic=Topic("t", event=old)).pipeline)["topic t"]
    return [
        each.replace(" of topic t", "")
        for each in event_changes(Topic("t", event=new, was=was), before)
    ]


def lines_of(topic: Topic) -> str:
    return declarations(declared(topic=topic).pipeline)["topic t"]


def test_the_same_declaration_changes_nothing() -> None:
    ddl = (
        "id string not null default ' was ', n struct<default:int,was:string>, tags "
        "array<decimal(10,2)>"
    )

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
    assert changes(
        "a int, b int, c int not null", "a int not null, b int not null default 7, c int"
    ) == [
        "field a may not be null any more: events without it are rejected",
        "field b may not be null any more: events without it have 7",
    ]


def test_a_renamed_field_may_be_widened_too() -> None:
    assert changes("n int", "m bigint", {"m": "n"}) == [
        "field m is renamed: it reads n, too",
        "field m is widened: bigint, from int",
    ]


def test_a_plan_tells_it() -> None:
    journal = (staged("a"), CaughtUp(1, NOWHERE), verified(1), served(1, 1, "a"))
    old, new = (
        declared(),
        declared(topic=Topic("orders", event="id string, n bigint", partitions=2, key="id")),
    )
    new = replace(new, parts={**new.parts, "topic orders": "2"}, version="2")
    born = structs.replace(birth("a", old), declarations=declarations(old.pipeline))

    plan = make_plan(observed(new, journal=journal, births=(born,)))

    assert "  events: field n of topic orders is widened: bigint, from int\n" in plan_text(plan)
    assert (
        make_plan(observed(new, journal=journal, births=(birth("a", old),))).steps[0].events == ()
    )


def test_another_format_is_a_change_and_the_one_of_before_is_named() -> None:
    as_json, as_csv = Topic("t", event="a int"), Topic("t", event="a int", format="csv")

    assert [*event_changes(as_csv, lines_of(as_csv))] == []
    assert [*event_changes(as_csv, lines_of(as_json))] == [
        "topic t is read as csv separated by ',', and was read as JSON"
    ]
    assert [*event_changes(as_json, lines_of(as_csv))] == [
        "topic t is read as JSON, and was read as csv separated by ','"
    ]


def test_another_format_of_keys_is_a_change() -> None:
    text = Topic("t", event="id string not null", key="id")
    as_json = Topic("t", event="id string not null", key="id", key_format="json")

    assert [*event_changes(as_json, lines_of(text))] == [
        "keys of topic t are read as json, and were read as text"
    ]
    assert [*event_changes(text, lines_of(as_json))] == [
        "keys of topic t are read as text, and were read as json"
    ]
