"""The columns of tables from which a view computes each of its columns. Pure.

The values of a view's column are computed from these source columns. Columns that only select or
pair rows (in `where`, in a join's condition, in `group by`) are not sources. For a query or a
column that this module does not understand, the result is None: no source is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kappa.base.sql import lowered
from kappa.tables.views.scopes import Scope, Scopes, Tables, Visible
from kappa.tables.views.syntax_tree import Tree, expanded, is_recursive, parts

# A table or view, and one of its columns, both in lower case.
ColumnName = tuple[str, str]
Sources = frozenset[ColumnName]


class _UnknownError(Exception):
    """The error for a part of a query whose source columns cannot be determined."""


def column_sources(statement: Tree, tables: Tables) -> list[Sources | None] | None:
    """Returns the source columns of each column of a query, in order.

    Each element of the list is a set of (table, column) pairs, or None for a column that this
    module does not understand. `statement` is the result of `json_serialize_sql` for the query.
    `tables` contains the types of the columns of each table and view that the query may name.
    Returns None instead of a list if the columns of the query cannot be determined one by one.
    """
    if is_recursive(statement):
        return None
    tree = expanded(statement)
    try:
        return _SourceWalk(tables).query(tree["statements"][0]["node"], ())
    except _UnknownError:
        return None


class _SourceWalk:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._scopes = Scopes(tables)
        self._known: dict[int, list[Sources | None]] = {}

    def query(self, node: Tree, outer: tuple[Scope, ...]) -> list[Sources | None]:
        """Returns the source columns of each column of a query or subquery.

        `node` is the tree of the query. `outer` contains the scopes (the visible columns) of the
        enclosing queries, the innermost first.
        """
        if id(node) not in self._known:
            self._known[id(node)] = self._query(node, outer)
        return self._known[id(node)]

    def _query(self, node: Tree, outer: tuple[Scope, ...]) -> list[Sources | None]:
        match node:
            case {"type": "SET_OPERATION_NODE", "setop_type": str(kind)} if "BY_NAME" not in kind:
                left, right = (self.query(node[side], outer) for side in ("left", "right"))
                if len(left) != len(right):
                    raise _UnknownError
                if kind == "EXCEPT":
                    # The right side only takes rows away.
                    return left
                return [
                    None if one is None or other is None else one | other
                    for one, other in zip(left, right, strict=True)
                ]
            case {"type": "SELECT_NODE"}:
                outputs = self._scopes.outputs(node)
                if outputs is None:
                    raise _UnknownError
                scopes = (self._scopes.of(node), *outer)
                named = {name: each for name, each in outputs if name}
                return [self._known_or_none(each, scopes, named) for _, each in outputs]
        raise _UnknownError

    def _known_or_none(
        self, expression: Any, scopes: Sequence[Scope], named: dict[str, Any]
    ) -> Sources | None:
        try:
            return frozenset(self._expression(expression, tuple(scopes), named))
        except _UnknownError:
            return None

    def _expression(
        self, expression: Any, scopes: tuple[Scope, ...], named: dict[str, Any]
    ) -> Iterator[ColumnName]:
        """Yields the source columns of an expression, as (table, column) pairs.

        `scopes` contains the visible columns of the query and of the enclosing queries. `named`
        maps the names in the select list to their expressions.
        """
        match expression:
            case Visible():
                yield from self._visible(scopes[0], expression, scopes[1:])
            case {"class": "COLUMN_REF", "column_names": [*names]}:
                yield from self._reference(names, scopes, named)
            case {"class": "SUBQUERY", "subquery": {"node": dict(node)}, "subquery_type": kind}:
                if kind not in {"EXISTS", "NOT_EXISTS"}:
                    yield from _all_known(self.query(node, scopes))
                if isinstance(expression.get("child"), dict):
                    yield from self._expression(expression["child"], scopes, named)
            case {"class": "STAR"}:
                raise _UnknownError
            case dict():
                for each in parts(expression):
                    yield from self._expression(each, scopes, named)

    def _reference(
        self, names: Sequence[str], scopes: tuple[Scope, ...], named: dict[str, Any]
    ) -> Iterator[ColumnName]:
        """Yields the source columns of a name in a query, as (table, column) pairs.

        `names` are the parts of the name, which refers to a column, to a field of a column, or to
        an alias in the select list. `named` maps these aliases to their expressions.
        """
        # `a.b.c` may be a column of a table, or a field of a column.
        spelled = [names[:2], names[:1]] if len(names) > 1 else [names[:1]]
        for depth, scope in enumerate(scopes):
            for each in spelled:
                found = scope.find({"class": "COLUMN_REF", "column_names": [*each]})
                if found is not None:
                    yield from self._visible(scope, found, scopes[depth + 1 :])
                    return
        first = lowered(names[0])
        if first in named:
            rest = {name: each for name, each in named.items() if name != first}
            yield from self._expression(named[first], scopes, rest)
            return
        # A name of a lambda has no column, unless rows come from what is not understood here.
        for depth, scope in enumerate(scopes):
            for item in scope.items:
                if not item.columns:
                    if item.tree.get("type") != "TABLE_FUNCTION":
                        raise _UnknownError
                    for part in parts(item.tree.get("function") or {}):
                        yield from self._expression(part, scopes[depth:], {})

    def _visible(
        self, scope: Scope, visible: Visible, outer: tuple[Scope, ...]
    ) -> Iterator[ColumnName]:
        for number, column in visible.places:
            item = scope.items[number]
            if item.columns.count(column) != 1:
                raise _UnknownError
            place = item.columns.index(column)
            if item.tree["type"] == "BASE_TABLE":
                yield lowered(item.tree["table_name"]), item.table_columns[place]
                continue
            # A lateral subquery names columns of the items before it.
            found = self.query(item.tree["subquery"]["node"], (scope, *outer))
            if place >= len(found) or (sources := found[place]) is None:
                raise _UnknownError
            yield from sources


def _all_known(found: Sequence[Sources | None]) -> Iterator[ColumnName]:
    for each in found:
        if each is None:
            raise _UnknownError
        yield from each
