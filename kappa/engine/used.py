"""Which columns of its topics a pipeline's function uses, by Spark's plan. Pure: reads the optimised plan as JSON (TreeNode.toJSON)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

_READ = "LogicalRelation"
# Leaves that are known to hold no rows of a topic; any other (kept rows, an RDD) hides how they were made.
_OWN_ROWS = {"LocalRelation", "OneRowRelation", "Range"}
_ID = re.compile(r"#(\d+)")


def used_columns(plan: Iterable[Mapping[str, Any]], output: str) -> list[tuple[tuple[str, ...], frozenset[str]]] | None:
    """Of all files that a plan reads: the names of their columns, and of those that anything in it, or its output (`List(a#0, b#1L)`), refers to.

    None where that cannot be told: of rows that came here by another way than from files, or of a subquery, whose plan is no part of this one.
    """
    nodes = list(plan)
    leaves = {_name(node) for node in nodes if node["num-children"] == 0}
    if leaves - _OWN_ROWS - {_READ} or any("Subquery" in name for node in nodes for name in _names(node)):
        return None
    used = {_id(each) for node in nodes if _name(node) != _READ for each in _attributes(node)} | set(map(int, _ID.findall(output)))
    read = [[(str(each["name"]), _id(each)) for each in _attributes(node["output"])] for node in nodes if _name(node) == _READ]
    return [(tuple(name for name, _ in columns), frozenset(name for name, number in columns if number in used)) for columns in read]


def _name(part: Mapping[str, Any]) -> str:
    return str(part.get("class", "")).rpartition(".")[2]


def _names(part: Any) -> Iterator[str]:
    """The classes of all that is in a part of a plan, however deep."""
    if isinstance(part, Mapping):
        yield _name(part)
        yield from chain.from_iterable(map(_names, part.values()))
    elif isinstance(part, list):
        yield from chain.from_iterable(map(_names, part))


def _attributes(part: Any) -> Iterator[Mapping[str, Any]]:
    """Each reference to a column in a part of a plan, however deep."""
    if isinstance(part, Mapping):
        if _name(part) == "AttributeReference":
            yield part
        yield from chain.from_iterable(map(_attributes, part.values()))
    elif isinstance(part, list):
        yield from chain.from_iterable(map(_attributes, part))


def _id(attribute: Mapping[str, Any]) -> int:
    return int(attribute["exprId"]["id"])
