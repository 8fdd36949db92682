"""The rows of each table on which a view's rows can depend, from the parsed query. Pure.

View rows with the same values in the columns `by` of the view belong together. A column in `by` may
be the unchanged column of a table, or a join may require that the column equals a column of a
table. Then view rows with certain values in `by` depend only on those rows of that table that have
the same values in that column. So these view rows can be computed from these table rows alone. For
a query that this module does not understand, the result contains the reason instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kappa.base.sql import lowered
from kappa.tables.views.scopes import Scopes, Tables, Visible
from kappa.tables.views.syntax_tree import Tree, expanded, is_recursive, meant, trees


@dataclass(slots=True)
class Reading:
    """A place at which a view's query reads a table.

    `by` maps each `by` column of the view to the column of the table with the same value, if there
    is one. `lost` maps each other `by` column to the reason why no such column of the table is
    known.
    """

    tree: Tree
    by: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        """Returns the name of the table that is read, in lower case."""
        return lowered(str(self.tree["table_name"]))


@dataclass(frozen=True, slots=True)
class Lineage:
    """A view's query, and the places where the query reads tables.

    `tree` is the query's tree, in which each named subquery (`with`) is replaced by its query.
    """

    tree: Tree
    scopes: Scopes
    readings: tuple[Reading, ...]
    # The reason why no column can be followed at all.
    why_not: str | None = None

    @property
    def node(self) -> Tree:
        """Returns the node of the query itself, without the statement around it."""
        node: Tree = self.tree["statements"][0]["node"]
        return node


def lineage_of(statement: Tree, tables: Tables, by: Sequence[str]) -> Lineage:
    """Finds the columns of tables that have the same values as the columns `by` of a query.

    The result contains such columns for each place at which the query reads a table. `statement` is
    the result of `json_serialize_sql` for the query, and `tables` contains the types of the columns
    of each table.
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
        """Follows columns of a query into the tables and subqueries that the query reads.

        `wanted` contains the followed columns: it maps the number of a column of the query to the
        name of the view's `by` column. `lost` maps each `by` column that cannot be followed to the
        reason.
        """
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
    """Returns the reason why rows with other values of a column can affect the result, or None.

    If the result is None, the rows of the select with one value of the column do not depend on rows
    with another value. `number` and `name` are the column's position and name in the select list.
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
    """Yields the window functions of a select, except the window functions in its subqueries."""
    for part in ("select_list", "qualify", "modifiers"):
        yield from (
            each for each in trees(select[part], within=True) if each.get("class") == "WINDOW"
        )


def has_limit(node: Tree) -> bool:
    """Returns True if a query has a limit: then a row may be absent because of other rows."""
    return any("LIMIT" in each["type"] for each in node.get("modifiers", ()))


def _names_tables(tree: Tree, tables: Tables) -> bool:
    return not tree["schema_name"] and lowered(tree["table_name"]) in tables
