"""Rewrites as-of joins so that a null matches nothing, as in standard SQL. Pure.

DuckDB 1.5 has two plans for an as-of join. One plan treats a null as the latest time, and in the
other plan a null matches nothing. If several columns are compared and have nulls, DuckDB may also
match rows that are not equal. Source: https://github.com/duckdb/duckdb/pull/24199. If the join's
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
    """Returns the first as-of join in a query that cannot be rewritten to exclude nulls.

    The result is a description of the join, and a remedy for the user. Returns None if all as-of
    joins can be rewritten.
    """
    return next(filter(None, map(unsure_join, asof_joins(tree))), None)


def unsure_join(join: Tree) -> tuple[str, str] | None:
    """Describes an as-of join that cannot be rewritten to exclude nulls, with a remedy.

    DuckDB may compute wrong rows for such a join, or may hang. Returns None if the join can be
    rewritten.
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
    """Returns the tree of a query in which the conditions of as-of joins exclude nulls."""
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
