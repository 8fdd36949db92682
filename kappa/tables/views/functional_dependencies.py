"""Finds values that are equal in all rows in which certain other values are equal. Pure.

Two rows of a table with equal keys are the same row. Two rows of a subquery are also the same row
if they have equal values in all columns by which the subquery groups, or in all columns of its
`distinct`. A query that this module does not understand is treated as a query without keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from kappa.base.sql import lowered
from kappa.state.table import TableBirth
from kappa.tables.views.repeatable_query import is_by_order
from kappa.tables.views.scopes import Item, Place, Scopes, Visible
from kappa.tables.views.syntax_tree import (
    Tree,
    conjuncts,
    functions_in,
    joins,
    meant,
    parts,
    sorts,
    trees,
)

# These functions make several rows of a single row.
_UNNESTS = {"unnest", "unlist", "generate_subscripts"}


class TableKeys:
    """The keys of the tables that a query may read, and of the query's subqueries."""

    def __init__(self, tables: Mapping[str, TableBirth], aggregates: Collection[str]) -> None:
        """Collects the keys and columns of `tables`, which are the tables that a query may read.

        `aggregates` are the names of DuckDB's aggregate functions.
        """
        self._keys = {
            lowered(name): {*map(lowered, table.keys or table.row_keys)}
            for name, table in tables.items()
        }
        served = {lowered(name): table.served for name, table in tables.items()}
        self.scopes = Scopes(
            {name: {lowered(column): kind for column, kind in served[name]} for name in served}
        )
        self._aggregates = aggregates

    def groups(self, select: Tree) -> list[Any] | None:
        """Returns the expressions by which a select groups rows, or None if it does not group rows.

        In the list, None stands for an expression that this class does not understand.
        """
        outputs = self.scopes.outputs(select)
        if select["aggregate_handling"] == "FORCE_AGGREGATES":
            return [None] if outputs is None else [e for _, e in outputs if not self._counts(e)]
        if select["group_expressions"]:
            return self.scopes.groups(select)
        return [] if self._counts([select["select_list"], select["having"]]) else None

    def _counts(self, tree: Any) -> bool:
        found = (each for each in trees(tree, within=True) if each.get("class") == "FUNCTION")
        return any(str(each["function_name"]).lower() in self._aggregates for each in found)

    def item(self, item: Item, names: Collection[str]) -> tuple[bool, Collection[str]]:
        """Finds the columns of an item that are equal in rows with equal values in `names`.

        An item is a table or a subquery in a `from` clause, and `names` are some of its columns.
        The first value is True if the item has at most one row with given values in `names`. The
        second value contains the names of the columns found.
        """
        rows, decided = False, names
        match item.tree:
            case {"type": "BASE_TABLE", "table_name": str(table)} if item.columns:
                own = {item.table_columns[item.columns.index(each)] for each in names}
                rows = set() < self._keys[lowered(table)] <= own
            case {"subquery": {"node": {"type": "SET_OPERATION_NODE", "setop_all": every}}}:
                rows = not every and {*names} == {*item.columns} != set()
            case {"subquery": {"node": {"type": "SELECT_NODE"} as select}} if item.columns:
                outputs = self.scopes.outputs(select) or []
                alike = Alike(self, select, [outputs[item.columns.index(e)][1] for e in names])
                both = zip(item.columns, outputs, strict=True)
                decided = [name for name, (_, each) in both if alike.decides(each)]
                rows = alike.rows and _UNNESTS.isdisjoint(functions_in(select["select_list"]))
                for each in select["modifiers"]:
                    if each["type"] == "DISTINCT_MODIFIER":
                        wanted = each["distinct_on_targets"] or [each for _, each in outputs]
                        found = [each for one in wanted for each in meant(one, outputs)]
                        rows = rows or all(map(alike.decides, found))
        return rows, item.columns if rows else decided

    def named(self, visible: Iterable[Visible], tree: Any) -> Iterator[Visible]:
        """Yields those of the columns `visible` that the expressions in `tree` name.

        A name in a subquery of the tree counts only if the subquery itself has no column of that
        name.
        """
        found = [each for each in trees(tree, within=True) if each.get("class") == "COLUMN_REF"]
        for select in trees(tree):
            if select.get("type") == "SELECT_NODE":
                inner = self.scopes.of(select)
                within = trees([*select.values()], within=True)
                refs = (each for each in within if each.get("class") == "COLUMN_REF")
                found += [each for each in refs if inner.find(each) is None]
        for names in ([lowered(name) for name in each["column_names"]] for each in found):
            for one in visible:
                is_qualified = names[:2] == [one.alias, one.name] or names == [one.alias]
                if is_qualified or (one.bare and names[0] == one.name):
                    yield one


class Alike:
    """A group of rows of a select: the rows that have the same values of certain expressions.

    The methods say which other expressions have the same value in all of these rows.
    """

    def __init__(
        self,
        keys: TableKeys,
        select: Tree,
        same: Collection[Any],
        *,
        window: Tree | None = None,
        is_grouped: bool = True,
    ) -> None:
        """Finds the columns and items that are equal in all rows with equal values of `same`.

        An item is a table or a subquery in the select's `from` clause. `same` are expressions over
        the select. `is_grouped` is False for the rows that an aggregate reads, which are not
        grouped yet. `window` is a window function of the select, or None. Another window function
        with the same order as `window` counts as equal in two rows if all of its parts are equal.
        """
        self._given = keys
        self._scope = keys.scopes.of(select)
        self._same = {self._plain(each) for each in same}
        self._order = None if window is None else self._order_of(window)
        self._named = {lowered(e["alias"]): e for e in select["select_list"] if e.get("alias")}
        self._joins = [*joins(select.get("from_table"))]
        # A `where` adds items after the items of the `from` clause.
        self._count = max((end for *_, end in self._joins), default=1)
        items = self._scope.items[: self._count]
        self._is_known = all(each.columns and _unique(each) == {*each.columns} for each in items)
        # A semi join shows nothing of its right side.
        self._items = {
            number
            for join, _, middle, end in self._joins
            if join["join_type"] in {"SEMI", "ANTI"}
            for number in range(middle, end)
        }
        self._places = set[Place]()
        self._is_grouped, self.rows = False, False
        groups = keys.groups(select) if is_grouped else None
        if is_grouped and len(select["group_sets"]) > 1:
            # A column is null in some of the groups of a row.
            self._is_known, groups = False, [None]
        else:
            self._places = {each for one in same for each in self._place(one)}
            self._follow([*conjuncts(select.get("where_clause"))])
            self.rows = len(self._items) == self._count
        if groups is not None:
            self.rows = self.rows or all(map(self.decides, groups))
        self._is_grouped = groups is not None

    def decides(self, expression: Any, *, by_name: bool = True) -> bool:
        """Returns True if an expression has the same value in all rows of the group.

        If `by_name` is True, a name in the expression may also be an alias in the select list.
        """
        if expression is None:
            return False
        if self._plain(expression) in self._same:
            return True
        if (found := self._scope.find(expression)) is not None:
            return {*found.places} <= self._places
        match expression:
            case {"class": "CONSTANT"}:
                return True
            case {"class": "COLUMN_REF", "column_names": [*names, str(last)]}:
                if names:
                    # A field of a column.
                    return self.decides({**expression, "column_names": names}, by_name=by_name)
                if (known := self._named.get(lowered(last))) is not None:
                    return by_name and self.decides(known, by_name=False)
                # A name that is not the select's own is of a query around it, where its value is
                # the same throughout.
                own = {name for each in self._scope.visible for name in (each.alias, each.name)}
                return self._is_known and lowered(last) not in own
            case {"class": "POSITIONAL_REFERENCE", "index": int(place)}:
                visible = self._scope.visible
                return place <= len(visible) and self.decides(visible[place - 1])
            case {"class": "SUBQUERY" | "STAR"}:
                return self.rows
            case {"class": "WINDOW"}:
                if is_by_order(expression):
                    is_same = self._order_of(expression) == self._order
                    return self.rows or (is_same and all(map(self.decides, parts(expression))))
                # Of other rows, its value depends on the rows in the frame; of its own row, on the
                # bounds of the frame.
                bounds = [expression[each] for each in ("start_expr", "end_expr")]
                own = expression["children"] if expression["exclude_clause"] != "NO_OTHER" else []
                by = [each for one in ("orders", "arg_orders") for each in sorts(expression[one])]
                by += [*expression["partitions"], *own, *bounds]
                return all(self.decides(each) for each in by if each is not None)
            case {"class": "FUNCTION", "function_name": str(name), "is_operator": operator}:
                if name.lower() in _UNNESTS:
                    return False
                if self._is_grouped and not operator:
                    return self.rows
        return isinstance(expression, dict) and all(
            self.decides(each, by_name=by_name) for each in parts(expression)
        )

    def left_open(self, expressions: Iterable[Any]) -> list[str]:
        """Returns the names in `expressions` whose values may differ between rows of the group.

        The names are for an error message. The list is empty if no expression may differ.
        """
        left = [each for each in expressions if not self.decides(each)]
        names = [
            each.name if isinstance(each, Visible) else str(each["column_names"][-1])
            for one in left
            for each in ([one] if isinstance(one, Visible) else trees(one))
            if isinstance(each, Visible)
            or (each.get("class") == "COLUMN_REF" and not self.decides(each))
        ]
        return list(dict.fromkeys(names)) or ["something else"] * bool(left)

    def _follow(self, conditions: list[Tree]) -> None:
        """Adds the columns and items that are equal because the columns found so far are equal.

        `conditions` are the conditions of the select's `where` clause, which may require columns to
        be equal.
        """
        edges = self._scope.edges
        # The columns of a compared full join may come from either side.
        full = {
            number
            for join, first, _, end in self._joins
            if join["join_type"] == "FULL"
            for number in range(first, end)
        }
        before = -1
        while before != (before := len(self._places) + len(self._items)):
            self._places |= {
                other
                for one, other in edges
                if one in self._places
                and (other, one) in edges
                and full.isdisjoint({one[0], other[0]})
            }
            for each in conditions:
                if each.get("type") == "COMPARE_EQUAL":
                    for one, other in ("left", "right"), ("right", "left"):
                        if self.decides(each[other]):
                            self._places |= {
                                place
                                for place in self._place(each[one])
                                if not self._is_converted(place, each[other])
                            }
            for number in range(self._count):
                self._follow_item(number)

    def _follow_item(self, number: int) -> None:
        item = self._scope.items[number]
        earlier = [one for one in self._scope.visible if min(one.places)[0] < number]
        if number in self._items or not all(
            # A subquery may name columns of the items before it.
            map(self.decides, self._given.named(earlier, item.tree))
        ):
            return
        # An outer join may leave out a row: all its columns are null then. Its keys may be null
        # too, if they are compared with nothing.
        compared = {place for _, place in self._scope.edges}
        mine = {place for place in self._places if place[0] == number}
        is_given = all(
            one.given for one in self._scope.visible if number in {n for n, _ in one.places}
        )
        rows, decided = False, set[str]()
        if is_given or not mine.isdisjoint(compared):
            rows, decided = self._decided(item, mine)
        for join, first, middle, end in self._joins:
            if (
                (first, middle, end) == (0, number, number + 1)
                and join["join_type"] in {"INNER", "LEFT"}
                and {*range(number)} <= self._items
            ):
                # A single row of all items before it meets all rows with its values, or none.
                reached = self._scope.reached([*self._places])
                found = {place for place in reached if place[0] == number}
                rows = rows or join["ref_type"] == "ASOF" or self._decided(item, found)[0]
        if rows:
            self._items.add(number)
            decided = {*item.columns}
        self._places |= {(number, name) for name in decided}

    def _decided(self, item: Item, places: Iterable[Place]) -> tuple[bool, set[str]]:
        unique = _unique(item)
        rows, decided = self._given.item(item, {name for _, name in places} & unique)
        return rows, {*decided} & unique

    def _place(self, expression: Any) -> set[Place]:
        """Returns a set with the column that an expression names, as (item number, column name).

        The set is empty if the expression is not exactly one column.
        """
        found = self._scope.find(expression)
        return set() if found is None or len(found.places) != 1 else {*found.places}

    def _is_converted(self, place: Place, other: Tree) -> bool:
        """Returns True if a text column is compared with a constant of another type.

        Then DuckDB converts the texts before it compares them, so that '1' and '01' may be equal.
        `place` is the column, and `other` is the expression with which the column is compared.
        """
        kind = self._given.scopes.kind(self._scope.items[place[0]], place[1])
        constants = [
            each["value"]["type"] for each in trees(other) if each.get("class") == "CONSTANT"
        ]
        return kind == "string" and any(each["id"] != "VARCHAR" for each in constants)

    def _plain(self, expression: Any) -> str:
        """Returns a text of an expression. Two equal expressions have the same text."""
        match expression:
            case {"class": "COLUMN_REF"} | Visible() if found := self._scope.find(expression):
                return str(found.places)
            case dict():
                kept = (each for each in expression.items() if each[0] not in _NOT_COMPARED)
                return str([(key, self._plain(each)) for key, each in kept])
            case list():
                return str([self._plain(each) for each in expression])
        return repr(expression)

    def _order_of(self, window: Tree) -> str:
        return self._plain([window["partitions"], window["orders"], window["arg_orders"]])


def _unique(item: Item) -> set[str]:
    return {each for each in item.columns if each and item.columns.count(each) == 1}


# The fields in which two equal expressions may differ.
_NOT_COMPARED = {"alias", "query_location"}
