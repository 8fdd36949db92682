"""Large slices of a sample are tried once per engine and shape of plan (large_slices.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kappa.engine.children.large_slices import has_held, remember_held, shape_of


def filtered(literal: object, *, column: str = "n", number: int = 7) -> list[Any]:
    """Returns the plan of a filter by a literal, as Spark writes plans as JSON."""
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


def test_the_shape_of_a_plan_has_no_values_of_literals() -> None:
    shape = shape_of({"t": filtered("10")})

    assert shape == shape_of({"t": filtered("20", number=99)})
    assert shape != shape_of({"t": filtered("10", column="m")})
    assert shape != shape_of({"t": filtered("10")[:1]})
    assert shape != shape_of({"u": filtered("10")})


def test_a_plan_that_runs_python_has_no_shape() -> None:
    """The code of a UDF is not in the plan: another code would be taken for the same."""
    udf = {"class": "org.apache.spark.sql.catalyst.expressions.PythonUDF", "name": "f"}
    plan = filtered("10")
    plan[0]["condition"].append(udf)

    assert shape_of({"t": plan}) == ""


def test_what_held_is_remembered_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not has_held("one")

    remember_held("one")

    assert has_held("one")
    assert not has_held("other")
