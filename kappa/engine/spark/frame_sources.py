"""The fields of a function's inputs from which each column of a frame is computed. Pure.

This module reads Spark's analysed plan as JSON (TreeNode.toJSON): the nodes of the plan in order,
each before its children, and the expressions of a node likewise. Only plans that rowlocal.py allows
are understood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.engine.spark.rowlocal import class_of, nested

# The number of a leaf of the plan, and a field of the leaf's frame.
Field = tuple[int, str]


@dataclass(frozen=True, slots=True)
class _OutputColumn:
    """A column of a node's output, with Spark's number of the column."""

    number: int
    name: str
    fields: frozenset[Field]


def frame_sources(plan: Sequence[Any]) -> Mapping[str, frozenset[Field]]:
    """Returns the sources of each column of a frame, by the name of the column.

    The values of a column follow from its sources. Fields that only choose rows (`where`) are no
    sources. Leaves are numbered in the order of the plan. A plan with an unknown operator has no
    columns.
    """
    try:
        found = _PlanOutputs(plan).outputs()
    except (LookupError, TypeError, ValueError):
        # Another version of Spark may write plans in another way.
        return {}
    return {each.name: each.fields for each in found}


class _PlanOutputs:
    def __init__(self, nodes: Sequence[Any]) -> None:
        self._nodes = iter(nodes)
        self._leaves = 0

    def outputs(self) -> list[_OutputColumn]:
        """Returns the output of the next node, whose children follow it."""
        node = next(self._nodes)
        if node["num-children"] == 0:
            leaf, self._leaves = self._leaves, self._leaves + 1
            return [
                _OutputColumn(number, name, frozenset({(leaf, name)}))
                for number, name in map(_named, _heads(node["output"]))
            ]
        children = [self.outputs() for _ in range(node["num-children"])]
        match class_of(node):
            case "Filter" | "SubqueryAlias" | "View" | "ResolvedHint":
                return children[0]
            case "Project":
                return [_computed(each, children[0]) for each in node["projectList"]]
            case "Generate":
                made = _fields_in(node["generator"], children[0])
                left_out = set(node.get("unrequiredChildIndex") or ())
                return [
                    *(each for place, each in enumerate(children[0]) if place not in left_out),
                    *(
                        _OutputColumn(number, name, made)
                        for number, name in map(_named, _heads(node["generatorOutput"]))
                    ),
                ]
            case "Union":
                return [
                    _OutputColumn(same[0].number, same[0].name, _united(same))
                    for same in zip(*children, strict=True)
                ]
            case "Expand":
                rows = [
                    [_fields_in(each, children[0]) for each in row] for row in node["projections"]
                ]
                return [
                    _OutputColumn(number, name, frozenset().union(*(row[place] for row in rows)))
                    for place, (number, name) in enumerate(map(_named, _heads(node["output"])))
                ]
        raise LookupError(class_of(node))


def _heads(expressions: Sequence[Any]) -> Iterator[Any]:
    """Yields the outermost part of each expression."""
    return (each[0] if isinstance(each, list) else each for each in expressions)


def _named(head: Any) -> tuple[int, str]:
    return int(head["exprId"]["id"]), str(head["name"])


def _computed(expression: Any, below: Sequence[_OutputColumn]) -> _OutputColumn:
    number, name = _named(next(_heads([expression])))
    return _OutputColumn(number, name, _fields_in(expression, below))


def _fields_in(expression: Any, below: Sequence[_OutputColumn]) -> frozenset[Field]:
    """Returns the sources of an expression over a node's output."""
    known = {each.number: each.fields for each in below}
    found = {
        int(each["exprId"]["id"])
        for each in nested(expression)
        if class_of(each) == "AttributeReference"
    }
    return frozenset().union(*(known[number] for number in found))


def _united(columns: Sequence[_OutputColumn]) -> frozenset[Field]:
    return frozenset().union(*(each.fields for each in columns))
