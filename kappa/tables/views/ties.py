"""Finds orders in a query that may leave rows tied, so that DuckDB may pick any tied row.

A query with such an order is refused, and the error names the part. Rows that are equal in all
values that a select uses are interchangeable. So an order is sufficient if it contains all of these
values, or a key of each table and subquery of the `from` clause (functional_dependencies.py). Any
other order is refused. Recursive queries are not examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kappa.base.sql import lowered
from kappa.state.table import TableBirth
from kappa.tables.views.functional_dependencies import Alike, TableKeys
from kappa.tables.views.nulls import unsure_join
from kappa.tables.views.repeatable_query import BY_ORDER, has_row_frame, is_by_order
from kappa.tables.views.scopes import Visible
from kappa.tables.views.syntax_tree import (
    Tree,
    aggregates,
    conjuncts,
    expanded,
    is_recursive,
    joins,
    meant,
    sorts,
    trees,
)

# A part of a query, and its replacement to type.
_Found = tuple[str, str]
_Outputs = Sequence[tuple[str, Any]] | None
_ONE_OF_EACH = (
    "join one row of each, as in asof join (select symbol, since, max(price) as price from prices"
    " group by all) p; or give the table keys among them"
)
# Windows that give each of tied rows another value; other windows give tied rows the same value.
_EACH_ANOTHER = {"row_number", "ntile", "lag", "lead"}
# The order decides only between rows with equal second arguments.
_BY_SECOND = {
    *("arg_max", "argmax", "max_by", "arg_max_null"),
    *("arg_min", "argmin", "min_by", "arg_min_null"),
}


def tied(statement: Tree, tables: Mapping[str, TableBirth]) -> _Found | None:
    """Returns a part of a query for which DuckDB may pick any of several rows, and a remedy.

    Both are texts for the user. Returns None if there is no such part. `tables` are the tables that
    the query may read.
    """
    if is_recursive(statement):
        return None
    keys = TableKeys(tables, aggregates())
    for node in trees(expanded(statement)):
        if node.get("type") in ("SELECT_NODE", "SET_OPERATION_NODE"):
            outputs = keys.scopes.outputs(node)
            checks = (
                (_open_limits, _open_asof_joins, _open_calls)
                if node["type"] == "SELECT_NODE"
                else (_open_limits,)
            )
            for found in (each for check in checks for each in check(keys, node, outputs)):
                return found
    return None


def _open_limits(keys: TableKeys, node: Tree, outputs: _Outputs) -> Iterator[_Found]:
    """Yields each limit and each `distinct on` whose order may leave rows tied, with a remedy."""
    order, targets, is_limited = _order_and_limit(node, outputs)
    if node["type"] == "SET_OPERATION_NODE":
        left = [name for name, _ in outputs or [("all", None)] if name not in order]
        if is_limited and left:
            yield _open("a limit", left)
        return
    shown = node["select_list"] if outputs is None else [each for _, each in outputs]
    if is_limited and (left := Alike(keys, node, order).left_open(shown)):
        yield _open("a limit", left)
    if targets and (left := Alike(keys, node, [*targets, *order]).left_open(shown)):
        yield _open("distinct on", left)


def _open_calls(keys: TableKeys, select: Tree, outputs: _Outputs) -> Iterator[_Found]:
    """Yields the windows and aggregates whose value depends on the order of tied rows.

    Each is yielded as a description, with a remedy for the user.
    """
    order, targets, _ = _order_and_limit(select, outputs)
    shown = select["select_list"] if outputs is None else [each for _, each in outputs]
    rest = [select[each] for each in ("having", "qualify") if select[each] is not None]
    used = [*shown, *order, *targets, *rest]
    for each in trees(used, within=True):
        name, kind = str(each.get("function_name", "")).lower(), each.get("class")
        args = each.get("children", [])
        needs, beside = (args[:1], args[1:2]) if name in _BY_SECOND else (args, [])
        if kind == "WINDOW" and is_by_order(each):
            by = [*each["partitions"], *sorts(each["arg_orders"] or each["orders"]), *beside]
            alike = Alike(keys, select, by, window=each)
            if name in _EACH_ANOTHER or has_row_frame(each):
                needs = used
        elif kind == "FUNCTION" and name in BY_ORDER and each["order_bys"]["orders"]:
            groups = keys.groups(select) or []
            by = [*groups, *sorts(each["order_bys"]["orders"]), *beside]
            alike = Alike(keys, select, by, is_grouped=False)
        else:
            continue
        if left := alike.left_open(needs):
            yield _open(name, left)


def _open_asof_joins(keys: TableKeys, select: Tree, outputs: _Outputs) -> Iterator[_Found]:
    """Yields the as-of joins that may match any of several rows, each with a remedy.

    These rows are equal in the columns that the join compares, but differ in columns that the
    select uses.
    """
    scope = keys.scopes.of(select)
    for join, _, middle, end in joins(select["from_table"]):
        if join["ref_type"] != "ASOF":
            continue
        if (unsure := unsure_join(join)) is not None:
            yield unsure
        if join["join_type"] in {"SEMI", "ANTI"}:
            continue
        compared = {(middle, lowered(name)) for name in join["using_columns"]}
        for condition in conjuncts(join["condition"]):
            for each in (scope.find(condition.get(side)) for side in ("left", "right")):
                compared |= set() if each is None or len(each.places) > 1 else {*each.places}
        names, rows = [name for number, name in compared if number == middle], False
        if end == middle + 1:
            rows, decided = keys.item(scope.items[middle], names)
            compared |= {(middle, name) for name in decided}
        if rows:
            continue
        shown = [each for _, each in outputs or () if isinstance(each, Visible)]
        used = {
            place
            for each in (*shown, *keys.named(scope.visible, [*select.values()]))
            for place in each.places
            if middle <= place[0] < end
        }
        if outputs is None or used - compared:
            tree = scope.items[middle].tree
            right = tree.get("table_name") or tree.get("alias") or "a subquery"
            yield (
                f"an asof join to {right}, of which several rows may have the same "
                + ", ".join(sorted(names)),
                _ONE_OF_EACH,
            )


def _order_and_limit(node: Tree, outputs: _Outputs) -> tuple[list[Any], list[Any], bool]:
    """Returns the expressions of a query's `order by` and of its `distinct on`.

    The third value is True if the query has a limit. For a set operation, such as a `union`, a
    column is represented by its name instead of an expression.
    """
    named = [(name, name if each is None else each) for name, each in outputs or ()]
    order, targets = list[Any](), list[Any]()
    for each in node["modifiers"]:
        order += (one for sort in sorts(each.get("orders", ())) for one in meant(sort, named))
        targets += (
            one for target in each.get("distinct_on_targets", ()) for one in meant(target, named)
        )
    return order, targets, any("LIMIT" in each["type"] for each in node["modifiers"])


def _open(what: str, left: Sequence[str]) -> _Found:
    rest = ", ".join(left[:3])
    return (
        f"{what} whose order may leave ties: rows alike in it may differ in {rest}",
        f"order by what no two rows share, as by {rest} too"
        + ("; or use rank()" if what == "row_number" else ""),
    )
