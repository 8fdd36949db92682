"""Filters: the part of a table's changes that a reader wants.

A filter selects columns by name, and rows by a condition. As in a view, a row that begins to meet
the condition counts as inserted, and a row that no longer meets it counts as deleted. A condition
may come from an untrusted client, and the server's own process computes it. So a condition may only
compare columns with values, and call only a few cheap functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kappa.base.errors import UsageError
from kappa.base.sql import quoted
from kappa.serving.query.reader.reader import open_reader
from kappa.state.table import TableBirth
from kappa.tables.parquet import parquet_sql
from kappa.tables.views.syntax_tree import trees

Columns = tuple[tuple[str, str], ...]

_CLASSES = frozenset({"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "BETWEEN", "CAST"})
_OPERATORS = frozenset(
    {"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_IN", "COMPARE_NOT_IN"}
)
_FUNCTIONS = frozenset(
    {"~~", "!~~", "~~*", "!~~*", "lower", "upper", "contains", "starts_with", "ends_with"}
    | {"abs", "length", "+", "-", "*", "/", "%"}
)
_LONGEST = 2_000
_HINT = (
    "compare columns with values: price > 100 and carrier in ('AA', 'UA'); for more, let a "
    "maintained view select the rows, and follow that"
)


@dataclass(frozen=True, slots=True)
class Filter:
    """The columns and the condition that a reader has requested.

    If the columns are None, all columns are selected. If the condition is None, all rows are
    selected. The key columns are always included, because a reader could not use the change of an
    unidentified row.
    """

    columns: tuple[str, ...] | None = None
    where: str | None = None

    @property
    def is_all(self) -> bool:
        """Returns True if the filter selects all columns and all rows."""
        return self.columns is None and self.where is None

    def shown_columns(self, columns: Columns, keys: tuple[str, ...]) -> Columns:
        """Returns those of a table's columns that the filter selects, including the keys."""
        if self.columns is None:
            return columns
        return tuple(each for each in columns if each[0] in self.columns or each[0] in keys)

    def filtered_sql(self, changes: str, before: Columns, after: Columns) -> str:
        """Returns the query for those changes in the relation `changes` that the filter selects.

        `before` and `after` are the selected columns of the old rows and of the new rows.
        """
        sides = [
            self._side_sql(changes, side, columns)
            for side, columns in (("before", before), ("after", after))
        ]
        alike = "b.row is not distinct from a.row" if before == after else "false"
        return (
            "select case when b.row is null then 'insert' when a.row is null then 'delete' "
            "else 'update' end as op, coalesce(a.times, b.times) as times, b.row as before, "
            f"a.row as after from ({sides[0]}) as b full join ({sides[1]}) as a on a._id = b._id "
            f"where b.row is null or a.row is null or not ({alike})"
        )

    def _side_sql(self, changes: str, side: str, columns: Columns) -> str:
        packed = ", ".join(f"{quoted(name)} := {quoted(name)}" for name, _ in columns)
        condition = "true" if self.where is None else self.where
        return (
            f"select _id, _times as times, struct_pack({packed}) as row from (select rowid as _id, "
            f"times as _times, unnest({side}) from {changes} where {side} is not null) "
            # The condition has its own line: a comment at its end must not reach the bracket.
            f"where (\n{condition}\n)"
        )


def filter_of(columns: str | None, where: str | None) -> Filter | None:
    """Returns a filter with the given columns and condition, or None if neither is given.

    `columns` is a text in which commas separate the names. `where` is the condition.
    """
    if columns is None and where is None:
        return None
    names = None if columns is None else tuple(each.strip() for each in columns.split(","))
    return Filter(names, where)


def ensure_fits(chosen: Filter, table: TableBirth) -> None:
    """Raises UsageError if a filter does not fit a table.

    A filter does not fit if it names a column that the table does not have, if its condition is not
    allowed, or if a comparison fails because of the types.
    """
    _ensure_fits(chosen, table.name, table.served)


# Of a table with hundreds of readers nearly all have the same filter.
@functools.lru_cache(maxsize=256)
def _ensure_fits(chosen: Filter, table: str, columns: Columns) -> None:
    with open_reader(None, served=True) as reader:
        ensure_filter(chosen, columns, reader.parser_tree, table)
        if chosen.where is not None:
            rows = parquet_sql(columns, ())
            reader.describe_columns(f"select 1 from ({rows}) where (\n{chosen.where}\n)")


def ensure_filter(chosen: Filter, columns: Columns, tree: Callable[[str], Any], table: str) -> None:
    """Raises UsageError if a filter is not allowed for a table.

    A filter is refused if it names a column that the table does not have, or if its condition
    contains more than comparisons and the allowed functions. `tree` returns DuckDB's parse tree of
    a query.
    """
    there = [name for name, _ in columns]
    for name in chosen.columns or ():
        if name not in there:
            raise UsageError(
                f"table {table} has no column {name}", hint=f"it has {', '.join(there)}"
            )
    if chosen.where is None:
        return
    if len(chosen.where) > _LONGEST:
        raise UsageError(f"the condition is longer than {_LONGEST:,} characters", hint=_HINT)
    if "\0" in chosen.where:
        raise UsageError(f"the condition {chosen.where!r} has a NUL character", hint=_HINT)
    parsed = tree(f"select 1 where (\n{chosen.where}\n)")
    if parsed.get("error"):
        raise UsageError(
            f"the condition {chosen.where!r} cannot be read: {parsed.get('error_message', '')}",
            hint=_HINT,
        )
    nodes = [each["node"] for each in parsed["statements"]]
    if len(nodes) != 1 or nodes[0].get("type") != "SELECT_NODE" or not nodes[0]["where_clause"]:
        raise UsageError(f"{chosen.where!r} is not one condition", hint=_HINT)
    if nodes[0]["modifiers"] or nodes[0]["group_expressions"]:
        raise UsageError(f"{chosen.where!r} is not one condition", hint=_HINT)
    for refused in _refused_parts(trees(nodes[0]["where_clause"]), there):
        raise UsageError(f"the condition {chosen.where!r} {refused}", hint=_HINT)


def _refused_parts(parts: Iterable[Any], columns: list[str]) -> Iterator[str]:
    for each in parts:
        match each:
            case {"class": "COLUMN_REF", "column_names": [str(name)]}:
                if name.lower() not in map(str.lower, columns):
                    yield f"names {name}, which is not a column: there are {', '.join(columns)}"
            case {"class": "COLUMN_REF"}:
                yield "names a column of another relation"
            case {"class": "FUNCTION", "function_name": str(name)}:
                if name.lower() not in _FUNCTIONS:
                    yield f"calls {name}, which a condition cannot"
            case {"class": "OPERATOR", "type": str(kind)}:
                if kind not in _OPERATORS:
                    yield f"has more than comparisons ({kind.lower()})"
            case {"class": str(kind)}:
                if kind not in _CLASSES:
                    yield f"has more than comparisons ({kind.lower()})"
