"""Large slices of a sample are tried once per engine and plan shape (law_cache.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kappa.declare.ordered_fold import ordered
from kappa.declare.table import Table
from kappa.engine.children import law_program
from kappa.engine.children.law_cache import (
    has_held,
    large_slices_key,
    remember_held,
    shape_of,
)
from kappa.engine.children.law_check import LawTrials


def filtered(literal: object, *, column: str = "n", number: int = 7) -> list[Any]:
    """Returns the plan of a filter by a literal, in the JSON form of Spark's plans."""
    catalyst = "org.apache.spark.sql.catalyst"
    attribute = {
        "class": f"{catalyst}.expressions.AttributeReference",
        "num-children": 0,
        "name": column,
        "dataType": "integer",
        "exprId": {"product-class": f"{catalyst}.expressions.ExprId", "id": number, "jvmId": "a"},
    }
    value = {"class": f"{catalyst}.expressions.Literal", "value": literal, "dataType": "integer"}
    greater = {"class": f"{catalyst}.expressions.GreaterThan", "left": 0, "right": 1}
    return [
        {
            "class": f"{catalyst}.plans.logical.Filter",
            "num-children": 1,
            "condition": [greater, attribute, value],
        },
        {"class": "org.apache.spark.sql.execution.LogicalRDD", "num-children": 0, "rdd": number},
    ]


def remember_nothing(_state: object, _row: object) -> None:
    """Does nothing, as the step of an ordered fold."""


def test_the_shape_of_a_plan_has_no_values_of_literals() -> None:
    shape = shape_of({"t": filtered("10")}, [])

    assert shape == shape_of({"t": filtered("20", number=99)}, [])
    assert shape != shape_of({"t": filtered("10", column="m")}, [])
    assert shape != shape_of({"t": filtered("10")[:1]}, [])
    assert shape != shape_of({"u": filtered("10")}, [])


def test_a_plan_that_runs_python_has_no_shape() -> None:
    """A plan that runs Python has no shape, because a UDF's code is not in the plan.

    Otherwise, different code would count as the same.
    """
    udf = {"class": "org.apache.spark.sql.catalyst.expressions.PythonUDF", "name": "f"}
    plan = filtered("10")
    plan[0]["condition"].append(udf)

    assert shape_of({"t": plan}, []) == ""


def test_a_step_of_an_ordered_fold_has_no_shape() -> None:
    """A step has no shape: the plan ends before the step, whose code may change separately."""
    steps = Table("t", keys=("n",), fold=ordered(remember_nothing, state="seen bigint"))

    assert shape_of({"t": filtered("10")}, [steps]) == ""


def test_what_held_is_remembered_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not has_held("one")

    remember_held("one")

    assert has_held("one")
    assert not has_held("other")


JVM = SimpleNamespace(System=SimpleNamespace(getProperty=lambda _name: "17.0.1"))
SPARK: Any = SimpleNamespace(_jvm=JVM)


def test_a_key_names_all_that_decides_the_way_of_large_slices() -> None:
    key = large_slices_key(SPARK, "a shape", "declared so")

    assert key == large_slices_key(SPARK, "a shape", "declared so")
    assert key != large_slices_key(SPARK, "another shape", "declared so")
    assert key != large_slices_key(SPARK, "a shape", "declared otherwise")
    assert large_slices_key(SPARK, "", "declared so") is None


@pytest.fixture
def try_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bool, int]]:
    """Returns a function that tries the law on a pipeline with a plan shape.

    The function returns whether large slices were tried, and the number of ways.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def try_one(
        shape: str, declared: str, tried: int, *, fills_all: bool = True
    ) -> tuple[bool, int]:
        large: list[bool] = []

        def hold(*_: object, by_spark: bool, **__: object) -> LawTrials:
            large.append(by_spark)
            return LawTrials(min(tried, 2 + by_spark), 2 + by_spark, Counter(), fills_all)

        @contextmanager
        def local(_pipeline: object) -> Iterator[object]:
            yield SimpleNamespace(spark=SPARK, shape=shape)

        monkeypatch.setattr(law_program, "hold_to_law", hold)
        monkeypatch.setattr(law_program, "local_pipeline", local)
        request = {
            "seconds": 9.0,
            "by_spark": ["web"],
            "declared": {"web": declared},
            "records": {"web": []},
        }
        pipelines: Any = {"web": None}
        (answer,) = dict(law_program.tried_in_time(request, pipelines, lambda _name: None)).values()
        return large[0], answer["of"]

    return try_one


def test_large_slices_are_tried_once_per_shape(
    try_law: Callable[..., tuple[bool, int]],
) -> None:
    """Large slices are tried once per shape. Each deploy tries small slices with the real code."""
    # Large slices whose time was not enough have not held.
    assert try_law("a shape", "so", 2) == (True, 3)
    assert try_law("a shape", "so", 3) == (True, 3)
    assert try_law("a shape", "so", 3) == (False, 2)
    assert try_law("another shape", "so", 3) == (True, 3)
    assert try_law("a shape", "otherwise", 3) == (True, 3)


def test_large_slices_that_left_a_table_empty_prove_nothing(
    try_law: Callable[..., tuple[bool, int]],
) -> None:
    """Another literal in a filter has the same shape, but may let other records through.

    So a trial that left a table empty does not count.
    """
    assert try_law("a shape", "so", 3, fills_all=False) == (True, 3)
    assert try_law("a shape", "so", 3) == (True, 3)
    assert try_law("a shape", "so", 3) == (False, 2)


def test_large_slices_of_python_code_are_tried_each_time(
    try_law: Callable[..., tuple[bool, int]],
) -> None:
    assert try_law("", "so", 3) == try_law("", "so", 3) == (True, 3)
