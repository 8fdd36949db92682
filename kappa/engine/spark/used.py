"""The columns of topics that a pipeline's function uses.

Pure: reads Spark's optimised plan as JSON (TreeNode.toJSON).
"""

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
    """Returns all columns and the used columns of each file that a plan reads, by name.

    Any part of the plan, or its output (`List(a#0, b#1L)`), may use columns. If the plan reads
    parts of structs, Spark has already left unused columns out of the first names.
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
    """Lists the references to columns in a part of a plan: name, and number within the plan."""
    return [
        (str(each["name"]), int(each["exprId"]["id"]))
        for each in nested(part)
        if class_of(each) == "AttributeReference"
    ]
