"""The keys of the view rows that changed rows of a table can affect through joins. Pure.

This module is for tables that do not contain the view's keys as columns. For example, a customer's
row contains no order, but view rows about orders depend on the customer's row. The touched keys are
computed by a query that contains only the joins and conditions of the view's query, and that reads
the changed rows instead of the table. That query is derived from the view's parsed query. If it is
not certain that the derived query finds all touched keys, the result is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kappa.base.sql import lowered
from kappa.tables.views.lineage import blocked, has_limit
from kappa.tables.views.scopes import Scope, Scopes, Visible
from kappa.tables.views.syntax_tree import Tree, conjuncts, copied, trees


def reached_by(scopes: Scopes, node: Tree, reading: Tree, wanted: Mapping[str, str]) -> Tree | None:
    """Returns the query for the keys that changed rows at the place `reading` can affect, or None.

    `node` is the view's query, and `reading` is one place in it at which a table is read. `wanted`
    maps the columns of `node` that form a key to the names in the result. The returned query still
    reads all tables, under the same names. If rows are added or deleted only at that place, the
    result of the returned query contains at least the keys of the view's rows that are added,
    deleted or changed. Returns None if no such query can be derived for certain.
    """
    names = [name for name, _ in scopes.outputs(node) or ()]
    if any(names.count(name) != 1 for name in wanted):
        return None
    return _of_query(scopes, node, reading, {names.index(name): by for name, by in wanted.items()})


def _of_query(scopes: Scopes, node: Tree, reading: Tree, wanted: Mapping[int, str]) -> Tree | None:
    if has_limit(node):
        return None
    match node:
        case {"type": "SET_OPERATION_NODE", "setop_type": str(kind)} if "BY_NAME" not in kind:
            side = next(side for side in ("left", "right") if _has_part(node[side], reading))
            return _of_query(scopes, node[side], reading, wanted)
        case {"type": "SELECT_NODE"}:
            return _of_select(scopes, node, reading, wanted)
    return None


def _of_select(
    scopes: Scopes, select: Tree, reading: Tree, wanted: Mapping[int, str]
) -> Tree | None:
    scope, outputs = scopes.of(select), scopes.outputs(select)
    if outputs is None or not _has_part(select["from_table"], reading):
        return None
    listed, keys = list[Tree](), list[Visible]()
    for number, by in wanted.items():
        name, expression = outputs[number]
        column = scope.find(expression)
        if column is None or blocked(scopes, select, column, number, name) is not None:
            return None
        keys.append(column)
        listed.append({**_output_expression(expression), "alias": by})
    # The condition uses a name of the select list, which has other columns now.
    if any(
        each.get("class") == "COLUMN_REF" and not scope.may_have(lowered(each["column_names"][0]))
        for each in trees(select["where_clause"], within=True)
    ):
        return None
    # Items that a row may lack: without such an item, a key or a condition that reads it could
    # differ.
    lacking = _lacking_items(scope, select["from_table"], reading)
    if lacking is None or any(item in lacking for key in keys for item, _ in key.places):
        return None
    if not all(_is_plain(scopes, item.tree, reading) for item in scope.items):
        return None
    where = [
        each
        for each in conjuncts(select["where_clause"])
        if not lacking or _reads_none_of(scope, each, lacking)
    ]
    found: Tree = {
        **select,
        "modifiers": [],
        "select_list": listed,
        "group_expressions": [],
        "group_sets": [],
        "aggregate_handling": "STANDARD_HANDLING",
        "having": None,
        "qualify": None,
        "where_clause": None
        if not where
        else where[0]
        if len(where) == 1
        else {
            "class": "CONJUNCTION",
            "type": "CONJUNCTION_AND",
            "alias": "",
            "children": where,
        },
    }
    joins = {id(each) for each in _turned_joins(select["from_table"], reading)}
    found["from_table"] = _joined_tree(select["from_table"], joins)
    whole: Tree = copied(found)
    return whole


def _output_expression(expression: Any) -> Tree:
    """Returns the tree of the expression that computes a column of a query's result."""
    if isinstance(expression, Visible):
        names = [expression.alias, expression.name] if expression.alias else [expression.name]
        return {"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": names}
    return dict(expression)


def _joins_above(tree: Tree, reading: Tree) -> Iterator[tuple[Tree, str]]:
    """Yields the joins in a `from` clause that contain the place `reading`, outermost first.

    Each join is yielded with the side ("left" or "right") on which the place is. `reading` is a
    place at which the query reads a table.
    """
    while tree.get("type") == "JOIN":
        side = "left" if _has_part(tree["left"], reading) else "right"
        yield tree, side
        tree = tree[side]


def _turned_joins(tree: Tree, reading: Tree) -> Iterator[Tree]:
    """Yields the joins that must become inner or semi joins in the query for touched keys.

    They contain the place `reading`, at which the query reads a table. After the change, the joins
    return exactly the rows that match a row read at that place.
    """
    yield from (join for join, side in _joins_above(tree, reading) if _may_lack(join, side))


def _may_lack(join: Tree, side: str) -> bool:
    """Returns True if a row of a join's result may have no matching row on the side `side`.

    `side` is "left" or "right".
    """
    if side == "left":
        return bool(join["join_type"] == "RIGHT")
    return join["join_type"] in {"LEFT", "SEMI", "ANTI"} or join["ref_type"] == "ASOF"


def _is_followed(join: Tree) -> bool:
    """Returns True if Kappa can find the rows of a join's result that depend on a given row.

    The given row is on either side of the join.
    """
    return join["ref_type"] in {"REGULAR", "ASOF", "CROSS"} and join["join_type"] != "FULL"


def _lacking_items(scope: Scope, tree: Tree, reading: Tree) -> set[int] | None:
    """Returns the numbers of the tables and subqueries that a row of the result may lack.

    These are the tables and subqueries on one side of the outermost join that `_turned_joins`
    yields: the side with the place `reading`. Returns None if no query can find the rows that
    depend on a row read at that place.
    """
    lacking, upper = set[int](), list[Tree]()
    for join, side in _joins_above(tree, reading):
        if not _is_followed(join):
            return None
        if _may_lack(join, side):
            if not lacking:
                lacking = {
                    number
                    for number, item in enumerate(scope.items)
                    if _has_part(join[side], item.tree)
                }
            if any(
                each["using_columns"] or not _reads_none_of(scope, each["condition"], lacking)
                for each in upper
            ):
                return None
        upper.append(join)
    return lacking


def _reads_none_of(scope: Scope, expression: Any, items: Iterable[int]) -> bool:
    """Returns True if an expression certainly reads no column of certain tables and subqueries.

    `items` contains their numbers in the `from` clause.
    """
    for each in trees(expression):
        if each.get("class") == "SUBQUERY" or each.get("class") == "STAR":
            return False
        if each.get("class") == "COLUMN_REF":
            found = scope.find(each)
            if found is None or any(item in items for item, _ in found.places):
                return False
    return True


def _is_plain(scopes: Scopes, tree: Tree, reading: Tree) -> bool:
    """Returns True if each row of a subquery comes from a single row at the place `reading`.

    `tree` is the table or subquery, and `reading` is a place at which a table is read. Also returns
    True if `tree` is that place itself, or does not contain it.
    """
    if tree is reading or not _has_part(tree, reading):
        return True
    if tree.get("type") != "SUBQUERY":
        return False
    node = tree["subquery"]["node"]
    if node.get("type") != "SELECT_NODE" or has_limit(node) or node["sample"] is not None:
        return False
    computes = (
        node["group_expressions"]
        or node["aggregate_handling"] != "STANDARD_HANDLING"
        or node["having"] is not None
        or any(each.get("distinct_on_targets") for each in node["modifiers"])
        or any(each.get("class") in {"WINDOW", "FUNCTION"} for each in trees(node["select_list"]))
        or node["qualify"] is not None
    )
    if computes or not _has_part(node["from_table"], reading):
        return False
    return all(
        _is_followed(join) and not _may_lack(join, side)
        for join, side in _joins_above(node["from_table"], reading)
    ) and all(_is_plain(scopes, each.tree, reading) for each in scopes.of(node).items)


def _joined_tree(tree: Tree, turned: set[int]) -> Tree:
    if tree.get("type") != "JOIN":
        return tree
    sides = {side: _joined_tree(tree[side], turned) for side in ("left", "right")}
    kind = tree["join_type"]
    if id(tree) in turned:
        # Expressions cannot name the right side of a semi or anti join, and still cannot.
        kind = "SEMI" if kind in {"SEMI", "ANTI"} else "INNER"
    return {**tree, **sides, "join_type": kind}


def _has_part(tree: Any, part: Tree) -> bool:
    return any(each is part for each in trees(tree))
