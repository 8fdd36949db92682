"""The rows of each table that a view's rows can depend on, from the parsed query. Pure.

A view's rows belong together by some of the view's columns, the `by`. Each of these columns may
come unchanged from a column of a table, or be compared with a table's column by a join's equality.
Then rows of certain values depend on no rows of that table that have other values there. So the
view's rows can be computed from the table's rows of these values alone. Nothing is assumed: a query
that is not understood here has a reason in place of a lineage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kappa.base.sql import lowered
from kappa.tables.views.scopes import Scopes, Tables, Visible
from kappa.tables.views.trees import Tree, expanded, is_recursive, meant, trees


@dataclass(slots=True)
class Reading:
    """A place at which a query reads a table.

    `by` maps the columns by which the view's rows belong together to the table's own names, for the
    columns that the table has at this place. `lost` gives the reason for each other column.
    """

    tree: Tree
    by: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """Returns the name of the table."""
        return lowered(str(self.tree["table_name"]))


@dataclass(frozen=True, slots=True)
class Lineage:
    """A query's tree, without named subqueries, and the places that read tables."""

    tree: Tree
    scopes: Scopes
    readings: tuple[Reading, ...]
    # The reason why no column can be followed at all.
    why_not: str | None = None

    @property
    def node(self) -> Tree:
        """Returns the query itself."""
        node: Tree = self.tree["statements"][0]["node"]
        return node


def lineage_of(statement: Tree, tables: Tables, by: Sequence[str]) -> Lineage:
    """Follows the columns `by` of a query to the tables that are read.

    `statement` is the result of `json_serialize_sql` for the query, and `tables` has the types of
    the columns of each table.
    """
    if is_recursive(statement):
        return Lineage(statement, Scopes(tables), (), "its query is recursive")
    tree = expanded(statement)
    readings = {
        id(each): Reading(each)
        for each in trees(tree)
        if each.get("type") == "BASE_TABLE" and _names_tables(each, tables)
    }
    for reading in readings.values():
        reading.lost = dict.fromkeys(by, "its query reads it in a subquery")
    found = Lineage(tree, Scopes(tables), tuple(readings.values()))
    names = [name for name, _ in found.scopes.outputs(found.node) or ()]
    wanted = {names.index(lowered(each)): each for each in by if names.count(lowered(each)) == 1}
    missing = dict.fromkeys(set(by) - set(wanted.values()), "its query's columns cannot be told")
    _Following(found.scopes, readings).follow(found.node, wanted, missing)
    return found


class _Following:
    def __init__(self, scopes: Scopes, readings: Mapping[int, Reading]) -> None:
        self.scopes = scopes
        self._readings = readings

    def follow(self, node: Tree, wanted: Mapping[int, str], lost: Mapping[str, str]) -> None:
        """Follows columns of a query, by number, into the sources; `lost` are the others."""
        if has_limit(node):
            lost = {**lost, **dict.fromkeys(wanted.values(), "the query has a limit")}
            wanted = {}
        match node:
            case {"type": "SET_OPERATION_NODE", "setop_type": str(kind)} if "BY_NAME" not in kind:
                for side in ("left", "right"):
                    self.follow(node[side], wanted, lost)
            case {"type": "SELECT_NODE"}:
                self._follow_select(node, wanted, lost)

    def _follow_select(
        self, select: Tree, wanted: Mapping[int, str], lost: Mapping[str, str]
    ) -> None:
        scope, outputs = self.scopes.of(select), self.scopes.outputs(select)
        lost = dict(lost)
        # For each item: the columns that are followed further.
        further: list[dict[str, str]] = [{} for _ in scope.items]
        for number, by in wanted.items():
            if outputs is None:
                lost[by] = "the query's columns cannot be told one by one"
                continue
            name, expression = outputs[number]
            found = scope.find(expression)
            why = (
                f"{name or by} is computed"
                if found is None
                else "an outer join may leave it out"
                if not found.given
                else "an as-of join takes one row of several"
                if not scope.taken.isdisjoint(found.places)
                else blocked(self.scopes, select, found, number, name)
            )
            if why is not None or found is None:
                lost[by] = why or ""
                continue
            for item, column in sorted(scope.reached(found.places)):
                further[item].setdefault(by, column)
        missing = {by: f"no equality of a join gives {by}" for by in wanted.values()} | lost
        for each, columns in zip(scope.items, further, strict=True):
            left = {by: lost.get(by, why) for by, why in missing.items() if by not in columns}
            places = {by: each.columns.index(column) for by, column in columns.items()}
            if (reading := self._readings.get(id(each.tree))) is not None:
                reading.by = {by: each.table_columns[place] for by, place in places.items()}
                reading.lost = left
            elif each.tree.get("type") == "SUBQUERY":
                inner = {place: by for by, place in places.items()}
                self.follow(each.tree["subquery"]["node"], inner, left)


def blocked(scopes: Scopes, select: Tree, column: Visible, number: int, name: str) -> str | None:
    """Returns why rows with other values of a column decide on these rows, or None.

    `number` and `name` belong to the column in the select list.
    """
    scope, outputs = scopes.of(select), scopes.outputs(select) or []

    def has(expressions: Iterable[Any]) -> bool:
        return any(
            each is outputs[number][1] or _are_same(scope.find(each), column)
            for each in expressions
        )

    if select.get("sample") is not None:
        return "the query samples rows"
    if len(select["group_sets"]) > 1:
        return "the query groups rows in several ways"
    if select["group_expressions"] and not has(scopes.groups(select)):
        return f"rows are not grouped by {name}"
    for modifier in select["modifiers"]:
        targets = modifier.get("distinct_on_targets")
        if targets and not has(each for one in targets for each in meant(one, outputs)):
            return f"rows are not distinct on {name}"
    windows = [*_window_functions(select)]
    if not all(has(each["partitions"]) for each in windows):
        return f"a window is not partitioned by {name}"
    return None


def _are_same(one: Visible | None, other: Visible) -> bool:
    return one is not None and one.places == other.places and one.given == other.given


def _window_functions(select: Tree) -> Iterator[Tree]:
    """Yields the window functions of a select, without subqueries."""
    for part in ("select_list", "qualify", "modifiers"):
        yield from (
            each for each in trees(select[part], within=True) if each.get("class") == "WINDOW"
        )


def has_limit(node: Tree) -> bool:
    """Returns True if a query gives only some of its rows: then each row decides on others."""
    return any("LIMIT" in each["type"] for each in node.get("modifiers", ()))


def _names_tables(tree: Tree, tables: Tables) -> bool:
    return not tree["schema_name"] and lowered(tree["table_name"]) in tables
