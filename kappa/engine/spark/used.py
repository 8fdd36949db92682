"""Which columns of its topics a pipeline's function uses, by Spark's plan. Pure: reads the optimised plan as JSON (TreeNode.toJSON)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from kappa.engine.spark.rowlocal import class_of, nested

_READ = "LogicalRelation"
_ID = re.compile(r"#(\d+)")


def used_columns(
    plan: Iterable[Mapping[str, Any]], output: str
) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Of all files that a row-local plan reads (engine/spark/rowlocal.py): the names of their columns, and of those that anything in it, or its output (`List(a#0, b#1L)`), refers to.

    Where it reads parts of structs, Spark has left the columns that it does not use out of the first, too.
    """
    nodes = list(plan)
    used = {
        number for node in nodes if class_of(node) != _READ for _, number in _attributes(node)
    } | set(map(int, _ID.findall(output)))
    read = [_attributes(node["output"]) for node in nodes if class_of(node) == _READ]
    return [
        (
            frozenset(name for name, _ in columns),
            frozenset(name for name, number in columns if number in used),
        )
        for columns in read
    ]


def _attributes(part: Any) -> list[tuple[str, int]]:
    """Each reference to a column in a part of a plan: its name, and its number within the plan."""
    return [
        (str(each["name"]), int(each["exprId"]["id"]))
        for each in nested(part)
        if class_of(each) == "AttributeReference"
    ]
