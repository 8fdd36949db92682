"""Nulls in as-of joins: a comparison with a null is never true, as in SQL. Pure.

DuckDB 1.5 has two plans for an as-of join. One plan treats a null as the latest time, and the other
plan treats a null as no time. If several columns are compared and have nulls, DuckDB may also match
rows that are not equal. Source: https://github.com/duckdb/duckdb/pull/24199. If the join's
condition excludes nulls, DuckDB always matches the right rows.
"""

from __future__ import annotations

from typing import Any

from kappa.tables.views.syntax_tree import Tree, conjuncts, copied, trees

# The comparisons that are never true for a null.
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


def unsure_asof(tree: Tree) -> tuple[str, str] | None:
    """Returns the first part of a query's as-of joins that DuckDB may compute in two ways.

    The result is a description of the part, and a remedy for the user. Returns None if there is no
    such part.
    """
    return next(filter(None, map(unsure_join, asof_joins(tree))), None)


def unsure_join(join: Tree) -> tuple[str, str] | None:
    """Returns the part of a single as-of join that DuckDB may compute in two ways, and a remedy.

    Returns None if there is no such part.
    """
    if join["join_type"] in {"RIGHT", "FULL"}:
        return (
            f"an asof {join['join_type'].lower()} join, on which DuckDB may hang",
            "write asof join or asof left join, and add the other rows by an anti join",
        )
    if join["using_columns"]:
        columns = ", ".join(join["using_columns"])
        return (
            f"an asof join by using ({columns}), in which a null may be the latest time",
            "write its condition: on t.symbol = p.symbol and t.traded_at >= p.since",
        )
    if any("DISTINCT" in each["type"] for each in conjuncts(join["condition"])):
        return (
            "an asof join on what is (not) distinct, of which DuckDB may miss rows",
            "write =, which no null fulfils",
        )
    return None


def without_nulls(tree: Tree) -> Tree:
    """Returns a query in which the conditions of as-of joins exclude nulls."""
    if not asof_joins(tree):
        return tree
    found: Tree = copied(tree)
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
        "children": [copied(expression)],
    }
