"""Nulls in as-of joins: what a null compares with is never true, as in SQL. Pure.

DuckDB 1.5 takes a null for the latest time in one of its plans, and for no time in the other. With
nulls among several columns that it compares, it may also find rows that are not equal. Source:
https://github.com/duckdb/duckdb/pull/24199. It takes no such row if the condition rules nulls out.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from kappa.parsed.trees import Tree, conjuncts, trees

# Of these a null makes nothing true.
_COMPARISONS = {
    "COMPARE_EQUAL",
    "COMPARE_GREATERTHAN",
    "COMPARE_GREATERTHANOREQUALTO",
    "COMPARE_LESSTHAN",
    "COMPARE_LESSTHANOREQUALTO",
}


def asof_joins(tree: Any) -> list[Tree]:
    """Lists the as-of joins of a query."""
    return [each for each in trees(tree) if each.get("ref_type") == "ASOF"]


def without_nulls(tree: Tree) -> Tree:
    """Returns a query whose as-of joins have conditions that no null fulfils."""
    if not asof_joins(tree):
        return tree
    found = deepcopy(tree)
    for join in asof_joins(found):
        there = [
            _is_there(each[side])
            for each in conjuncts(join["condition"])
            if each["type"] in _COMPARISONS
            for side in ("left", "right")
        ]
        join["condition"] = {
            "class": "CONJUNCTION",
            "type": "CONJUNCTION_AND",
            "alias": "",
            "children": [*conjuncts(join["condition"]), *there],
        }
    return found


def _is_there(expression: Tree) -> Tree:
    return {
        "class": "OPERATOR",
        "type": "OPERATOR_IS_NOT_NULL",
        "alias": "",
        "children": [deepcopy(expression)],
    }
