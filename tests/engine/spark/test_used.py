"""A plan uses the columns to which anything other than the reading of files refers."""

from __future__ import annotations

from typing import Any

from kappa.engine.function.contribution import used_columns

CATALYST = "org.apache.spark.sql.catalyst"


def attribute(name: str, number: int) -> dict[str, Any]:
    return {
        "class": f"{CATALYST}.expressions.AttributeReference",
        "num-children": 0,
        "name": name,
        "exprId": {"id": number, "jvmId": "x"},
    }


def relation(*columns: tuple[str, int]) -> dict[str, Any]:
    return {
        "class": "org.apache.spark.sql.execution.datasources.LogicalRelation",
        "num-children": 0,
        "output": [[attribute(*each)] for each in columns],
    }


def node(name: str, *expressions: Any) -> dict[str, Any]:
    return {
        "class": f"{CATALYST}.plans.logical.{name}",
        "num-children": 1,
        "expressions": list(expressions),
    }


def test_what_is_only_read_is_not_used() -> None:
    plan = [
        node("Project", [attribute("a", 1)]),
        node("Filter", [{"class": "IsNotNull", "child": 0}, attribute("b", 2)]),
        relation(("a", 1), ("b", 2), ("c", 3)),
    ]

    assert used_columns(plan, "List(a#1)") == [({"a", "b", "c"}, {"a", "b"})]


def test_what_passes_through_to_the_output_is_used() -> None:
    assert used_columns([relation(("a", 1), ("b", 12))], "List(a#1L, b#12)") == [
        ({"a", "b"}, {"a", "b"})
    ]
    assert used_columns(
        [node("Filter", [attribute("a", 1)]), relation(("a", 1), ("b", 12))], "Vector(b#12)"
    ) == [({"a", "b"}, {"a", "b"})]


def test_each_reading_of_files_has_its_own_columns() -> None:
    plan = [
        node("Union"),
        node("Project", [attribute("a", 1)]),
        relation(("a", 1), ("b", 2)),
        node("Project", [attribute("b", 4)]),
        relation(("a", 3), ("b", 4)),
    ]

    assert used_columns(plan, "List(a#1)") == [({"a", "b"}, {"a"}), ({"a", "b"}, {"b"})]


def test_rows_that_stand_in_a_plan_are_no_files() -> None:
    own = {
        "class": f"{CATALYST}.plans.logical.LocalRelation",
        "num-children": 0,
        "output": [[attribute("b", 3)]],
    }

    assert used_columns(
        [node("Union"), node("Project", attribute("a", 1)), relation(("a", 1), ("b", 2)), own],
        "List(a#1)",
    ) == [({"a", "b"}, {"a"})]
