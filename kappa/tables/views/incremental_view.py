"""Views that are kept by change: each slice adds its counts and sums to the stored counts and sums.

Such a view groups the rows of a single table. A group's new count is the stored count, plus the
number of rows that the slice adds to the group, minus the number of rows that the slice removes
from the group. So the cost of a slice depends on the size of the change, however large the groups
are. In addition to its columns, such a view stores the number of rows of each group, and the number
of values of each sum. Minima and maxima are kept by change only if rows are never changed or
deleted. Averages are not kept by change, because DuckDB computes an average with more digits than a
stored column has. DuckDB parses the queries and derives their types; this module reads no rows.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kappa.base.duck import Connection
from kappa.base.sql import lowered, quoted
from kappa.state.table import TableBirth
from kappa.tables.views.query_binding import why_not_bound
from kappa.tables.views.scopes import Scopes
from kappa.tables.views.syntax_tree import Tree, aggregates, expanded, is_recursive, sql_of, trees

# A group's number of rows.
ROWS = "_rows"
# The state of the groups, as a relation that the outer query reads.
STATE = "_state"
# The states of the rows that a slice brings, and of the rows that it takes.
COME, GONE = "_come", "_gone"


@dataclass(frozen=True, slots=True)
class Counted:
    """A stored aggregate of a group of rows: a count, a minimum, a maximum or a sum.

    `name` is the name of the column in which the view stores the aggregate. For a sum, `values` is
    the name of the column with the number of summed values.
    """

    name: str
    kind: str
    values: str = ""
    # DuckDB's type, as written in a cast.
    type: Any = "BIGINT"


@dataclass(frozen=True, slots=True)
class ByChange:
    """The two queries by which a view is kept by change: `inner` and `outer`.

    The *state* of a group is its stored counts, minima, maxima and sums. `inner` computes the
    states of groups from the table `table`, which it reads once, under that name. `outer` computes
    the view's columns from the relation STATE, which contains the states of the groups. `keys` are
    the columns by which the view groups, and `state` are the columns of a state.
    """

    table: str
    keys: tuple[str, ...]
    inner: str
    outer: str
    state: tuple[Counted, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the names of the columns with stored counts, minima, maxima and sums.

        They are stored in the view's table, in addition to the view's columns.
        """
        return tuple(each.name for each in self.state)

    def whole(self) -> str:
        """Returns the query for all rows of the view, including the stored counts and sums."""
        return f"with {STATE} as ({self.inner}) {self.outer}"

    def changed(self, stored: str, parts: Iterable[str]) -> str:
        """Returns the query for the new counts and sums of groups after a slice.

        `stored` is the query for the groups' counts and sums before the slice. The returned query
        also reads the relation COME, with the counts and sums over the rows that the slice has
        added, and the relation GONE, with those over the rows that the slice has removed. `parts`
        contains the names of those of the two relations that exist.
        """
        keys = ", ".join(map(quoted, self.keys))
        columns = f"{keys}, {', '.join(self.columns)}"
        each = " union all ".join(
            f"select {columns}, {name == GONE} as _is_gone from ({sql})"
            for name, sql in {"": stored, **{name: f"from {name}" for name in parts}}.items()
        )
        computed = ", ".join(f"{self._new(column)} as {column.name}" for column in self.state)
        return (
            f"select {keys}, {computed} from ({each}) group by {keys}"
            f" having {self._new(self.state[0])} > 0"
        )

    def _new(self, column: Counted) -> str:
        if column.kind in {"min", "max"}:
            return f"{column.kind}({column.name})::{column.type}"
        summed = (
            f"(coalesce(sum({column.name}) filter (not _is_gone), 0)"
            f" - coalesce(sum({column.name}) filter (_is_gone), 0))::{column.type}"
        )
        if column.kind == "count":
            return summed
        return f"case when {self._new(Counted(column.values, 'count'))} > 0 then {summed} end"


def by_change(
    duck: Connection, statement: Tree, keys: Sequence[str], tables: Mapping[str, TableBirth]
) -> ByChange | None:
    """Splits a view's query into the two queries by which slices keep the view by change.

    Returns None if the view cannot be kept by change. `statement` is the query's tree, and `keys`
    are the view's keys. `tables` are the tables that the query may read. `duck` is a connection in
    which these tables exist; no rows are read.
    """
    if is_recursive(statement):
        return None
    tree = expanded(statement)
    select = tree["statements"][0]["node"]
    if not _is_simple(select, tables):
        return None
    table = lowered(select["from_table"]["table_name"])
    columns = {lowered(name): kind for name, kind in tables[table].served}
    parts = _Parts(aggregates(), Scopes({table: columns}), is_appended=tables[table].only_grows)
    try:
        nodes = parts.made(select, keys)
    except _NotByChange:
        return None
    first = tree["statements"][0]
    inner, outer = (
        sql_of(duck, {**tree, "statements": [{**first, "node": node}]}) for node in nodes
    )
    state_sql = f"select {', '.join(each.name for each in parts.state)} from ({inner})"
    if why_not_bound(duck, state_sql, {table: f"from {quoted(table)}"}) is not None:
        return None
    kinds = duck.sql(state_sql).types
    state = tuple(replace(each, type=kind) for each, kind in zip(parts.state, kinds, strict=True))
    if why_not_bound(duck, outer, {STATE: inner}) is not None:
        return None
    return ByChange(table, tuple(keys), inner, outer, state)


class _NotByChange(Exception):
    """The error for a query that cannot be kept by change, because of one of its parts."""


def _is_simple(select: Tree, tables: Container[str]) -> bool:
    """Returns True if a query only groups the rows of a single table."""
    if select.get("type") != "SELECT_NODE":
        return False
    source = select["from_table"]
    return (
        source.get("type") == "BASE_TABLE"
        and not source["schema_name"]
        and lowered(source["table_name"]) in tables
        and not source["column_name_alias"]
        and source["sample"] is None
        and select["sample"] is None
        and select["having"] is None
        and select["qualify"] is None
        and len(select["group_sets"]) <= 1
        and bool(select["group_expressions"] or select["aggregate_handling"] == "FORCE_AGGREGATES")
        and all(each["type"] == "ORDER_MODIFIER" for each in select["modifiers"])
        and not any(each.get("class") in {"SUBQUERY", "WINDOW", "STAR"} for each in trees(select))
    )


class _Parts:
    """The parts of a view's query while the query is split into an inner and an outer query.

    The inner query computes counts and sums of groups; the outer query computes the view's columns
    from these counts and sums.
    """

    def __init__(self, known: frozenset[str], scopes: Scopes, *, is_appended: bool) -> None:
        self._aggregates = known
        self._scopes = scopes
        self._is_appended = is_appended
        self.state = [Counted(ROWS, "count")]
        self._inner: list[Tree] = [_function_tree("count_star", alias=ROWS)]
        # Each known part of an expression, and its stand-in in the outer query.
        self._known: list[tuple[Tree, str]] = []

    def made(self, select: Tree, keys: Sequence[str]) -> tuple[Tree, Tree]:
        """Returns the trees of the inner and the outer query of a view.

        `select` is the tree of the view's query, and `keys` are the view's keys. Raises
        _NotByChange if the view cannot be kept by change.
        """
        groups = [each for each in select["select_list"] if not self._aggregates_in(each)]
        names = [_name(each) for each in groups]
        all_named = all(_name(each) for each in select["select_list"])
        if not all_named or sorted(names) != sorted(lowered(key) for key in keys):
            raise _NotByChange
        if select["group_expressions"] and not self._are_groups(select, groups):
            raise _NotByChange
        self._known = [(_bare(each), name) for each, name in zip(groups, names, strict=True)]
        shown = [{**self._outer(each), "alias": _name(each)} for each in select["select_list"]]
        inner = {
            **select,
            "modifiers": [],
            "select_list": [
                *({**each, "alias": name} for each, name in zip(groups, names, strict=True)),
                *self._inner,
            ],
            # By place: a name in a select list may also be the name of another column.
            "group_expressions": [_place_tree(number) for number in range(1, len(groups) + 1)],
            "group_sets": [list(range(len(groups)))],
            "aggregate_handling": "STANDARD_HANDLING",
        }
        outer = {
            **select,
            "modifiers": [],
            "select_list": [*shown, *(_column_tree(each.name) for each in self.state)],
            "from_table": {**select["from_table"], "alias": "", "table_name": STATE},
            "where_clause": None,
            "group_expressions": [],
            "group_sets": [],
            "aggregate_handling": "STANDARD_HANDLING",
        }
        return inner, outer

    def _are_groups(self, select: Tree, groups: Sequence[Tree]) -> bool:
        """Returns True if a select groups by exactly the columns `groups` of its select list."""
        find = self._scopes.of(select).find
        by = self._scopes.groups(select)

        def same(one: Any, other: Tree) -> bool:
            if one is None:
                return False
            found = find(one)
            return one is other or (
                _bare(one) == _bare(other) if found is None else found == find(other)
            )

        return all(any(same(one, each) for each in groups) for one in by) and all(
            any(same(one, each) for one in by) for each in groups
        )

    def _aggregates_in(self, expression: Tree) -> list[Tree]:
        return [each for each in trees(expression) if self._is_aggregate(each)]

    def _is_aggregate(self, expression: Tree) -> bool:
        return (
            expression.get("class") == "FUNCTION"
            and str(expression["function_name"]).lower() in self._aggregates
        )

    def _outer(self, expression: Any) -> Any:
        """Rewrites an expression of the view so that it reads the stored counts and sums.

        Raises _NotByChange if that is impossible.
        """
        match expression:
            case list():
                return [self._outer(each) for each in expression]
            case dict():
                known = next((n for part, n in self._known if part == _bare(expression)), None)
                if known is None and self._is_aggregate(expression):
                    known = self._counted(expression)
                if known is not None:
                    return _column_tree(known)
                if expression.get("class") == "COLUMN_REF":
                    raise _NotByChange
                return {key: self._outer(each) for key, each in expression.items()}
        return expression

    def _counted(self, aggregate: Tree) -> str:
        """Adds a column for an aggregate to the stored counts and sums, and returns its name.

        Raises _NotByChange if the aggregate cannot be kept by change.
        """
        name, children = aggregate["function_name"].lower(), aggregate["children"]
        plain = not aggregate["distinct"] and not aggregate["order_bys"]["orders"]
        number = len(self.state)
        if plain and name in {"count", "count_star"}:
            return self._add(Counted(f"_n{number}", "count"), aggregate)
        if plain and name == "sum":
            counting = {**aggregate, "function_name": "count"}
            values = self._add(Counted(f"_n{number}", "count"), counting)
            return self._add(Counted(f"_s{number}", "sum", values), aggregate)
        if plain and name in {"min", "max"} and len(children) == 1 and self._is_appended:
            return self._add(Counted(f"_m{number}", name), aggregate)
        raise _NotByChange

    def _add(self, column: Counted, aggregate: Tree) -> str:
        self.state.append(column)
        self._inner.append({**aggregate, "alias": column.name})
        return column.name


def _name(expression: Tree) -> str:
    """Returns the name of a column in a select list, or "" for an unnamed expression."""
    names = expression.get("column_names") or [""]
    return lowered(str(expression.get("alias") or names[-1]))


def _bare(tree: Any) -> Any:
    """Returns a part of a query's tree without aliases and positions in the query's text."""
    match tree:
        case dict():
            return {
                key: _bare(each)
                for key, each in tree.items()
                if key not in {"query_location", "alias"}
            }
        case list():
            return [_bare(each) for each in tree]
    return tree


def _column_tree(name: str) -> Tree:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]}


def _place_tree(number: int) -> Tree:
    value = {"type": {"id": "INTEGER", "type_info": None}, "is_null": False, "value": number}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "value": value}


def _function_tree(name: str, *, alias: str) -> Tree:
    return {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "alias": alias,
        "function_name": name,
        "schema": "",
        "children": [],
        "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False,
        "is_operator": False,
        "export_state": False,
        "catalog": "",
    }
