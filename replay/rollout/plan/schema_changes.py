"""Finds the changes of a new version that affect readers of tables or events of topics. Pure.

Tables, columns, types, keys and views are compared. A change breaks readers if a query that worked
before may fail or mean something else. A new type that can represent all values of the old type
(type widening of Delta and Spark) breaks no reader. Fields of events may be renamed, widened,
narrowed, new or gone. The earlier declaration is read from its lines in a birth certificate
(kappa/code/fingerprint.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kappa.base.errors import DeclarationError
from kappa.declare.topic import Topic
from kappa.declare.values.columns import (
    INTEGERS,
    Array,
    Column,
    Decimal,
    Scalar,
    Struct,
    Type,
    parse_columns,
    parse_type,
)
from kappa.state.build import Birth
from kappa.state.table import TableBirth


class Effect(StrEnum):
    """The kind of a change that affects readers."""

    ADDED = "added"
    REMOVED = "removed"
    RETYPED = "retyped"
    REKEYED = "rekeyed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class ReaderChange:
    """A change of a table or view, or of a column.

    `before` and `after` are types, keys or queries.
    """

    effect: Effect
    table: str
    text: str
    column: str | None = None
    before: str | None = None
    after: str | None = None
    breaking: bool = False


# Digits of the greatest value of a whole number: a decimal with as many before its point fits.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
# Types whose values a double holds exactly.
_IN_DOUBLE = frozenset({"tinyint", "smallint", "int", "float"})


def reader_changes(
    born: Birth, tables: Iterable[TableBirth], views: Mapping[str, str]
) -> tuple[ReaderChange, ...]:
    """Returns the changes that readers notice if a new version replaces the build `born`.

    `tables` and `views` are those of the new version. `views` maps the name of a view to its query.
    """
    before = {table.name: table for table in born.tables}
    after = {table.name: table for table in tables}
    return (
        *_table_changes(before, after, born.views, views),
        *_view_changes(born.views, views, before, after),
    )


def table_in_words(table: TableBirth) -> str:
    """Returns a table's name for use in sentences: `table delays`, or `view by_day`."""
    return f"{'table' if table.view is None else 'view'} {table.name}"


def _table_changes(
    before: Mapping[str, TableBirth],
    after: Mapping[str, TableBirth],
    old_views: Mapping[str, str],
    new_views: Mapping[str, str],
) -> Iterator[ReaderChange]:
    for name, table in before.items():
        if name in after:
            yield from _column_changes(table, after[name])
        elif name in new_views:
            yield ReaderChange(
                Effect.CHANGED,
                name,
                f"{table_in_words(table)} becomes "
                f"{'a view' if table.view is None else 'one that is computed when it is read'}, "
                "whose columns are not known here",
                breaking=True,
            )
        else:
            yield ReaderChange(Effect.REMOVED, name, f"{table_in_words(table)} goes", breaking=True)
    for name in after:
        if name not in before and name not in old_views:
            yield ReaderChange(Effect.ADDED, name, f"{table_in_words(after[name])} is new")


def _view_changes(
    before: Mapping[str, str],
    after: Mapping[str, str],
    old_tables: Mapping[str, TableBirth],
    new_tables: Mapping[str, TableBirth],
) -> Iterator[ReaderChange]:
    for name, sql in before.items():
        if name in after and after[name] != sql:
            yield ReaderChange(
                Effect.CHANGED,
                name,
                f"view {name} has another query",
                before=sql,
                after=after[name],
            )
        elif name in new_tables:
            yield ReaderChange(
                Effect.CHANGED,
                name,
                f"view {name} becomes "
                f"{'a table' if new_tables[name].view is None else 'a maintained one'}, whose "
                "columns may be others",
                breaking=True,
            )
        elif name not in after:
            yield ReaderChange(Effect.REMOVED, name, f"view {name} goes", breaking=True)
    for name in after:
        if name not in before and name not in old_tables:
            yield ReaderChange(Effect.ADDED, name, f"view {name} is new")


def _column_changes(before: TableBirth, after: TableBirth) -> Iterator[ReaderChange]:
    name, old, new = before.name, dict(before.served), dict(after.served)
    called = table_in_words(after)
    # Readers read by name: the order of keys does not matter.
    if set(before.keys) != set(after.keys):
        was, now = (", ".join(keys) or "none" for keys in (before.keys, after.keys))
        yield ReaderChange(
            Effect.REKEYED,
            name,
            f"the keys of {called} become {now}, from {was}",
            before=was,
            after=now,
            breaking=True,
        )
    for column, kind in old.items():
        if column not in new:
            yield ReaderChange(
                Effect.REMOVED,
                name,
                f"column {column} of {called} goes",
                column,
                before=kind,
                breaking=True,
            )
        elif new[column] != kind:
            breaks = not _widens_by_name(kind, new[column])
            yield ReaderChange(
                Effect.RETYPED,
                name,
                f"column {column} of {called} becomes {new[column]}, from {kind}",
                column,
                kind,
                new[column],
                breaking=breaks,
            )
    for column, kind in new.items():
        if column not in old:
            yield ReaderChange(
                Effect.ADDED,
                name,
                f"column {column} of {called} is new ({kind})",
                column,
                after=kind,
            )


def _widens_by_name(old: str, new: str) -> bool:
    try:
        return widens_type(parse_type(old), parse_type(new))
    except DeclarationError:
        # Only the platform's own tables have such a type.
        return False


def widens_type(old: Type, new: Type) -> bool:
    """Returns True if the new type can represent every value of the old type.

    Source: https://docs.delta.io/latest/delta-type-widening.html.
    """
    match old, new:
        case _ if old == new:
            return True
        case Scalar(name=narrow), Scalar(name="double"):
            return narrow in _IN_DOUBLE
        case Scalar(name=narrow), Scalar(name=wide):
            return narrow in INTEGERS and wide in INTEGERS and INTEGERS[wide] >= INTEGERS[narrow]
        case Scalar(name=narrow), Decimal(precision=precision, scale=scale):
            return narrow in _DIGITS and precision - scale >= _DIGITS[narrow]
        case Decimal(), Decimal():
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        case Array(element=narrow_element), Array(element=wide_element):
            return widens_type(narrow_element, wide_element)
        case Struct(), Struct():
            known = {field.name: field.type for field in new.fields}
            return all(
                field.name in known and widens_type(field.type, known[field.name])
                for field in old.fields
            )
        case _:
            return False


def event_changes(topic: Topic, before: str) -> Iterator[str]:
    """Yields a sentence for each change in how old events of a topic are read.

    There may be a sentence for the format, one for the keys, and one for each changed field.
    `before` are the lines of the earlier declaration.
    """
    old_format, new_format = _format_lines(before.splitlines()), [*topic.format.declared_lines()]
    if old_format != new_format:
        yield (
            f"topic {topic.name} is read as {_spelled_lines(new_format)}, and was read as "
            f"{_spelled_lines(old_format)}"
        )
    # The first of these lines names the key.
    keyed = [line for line in before.splitlines() if line.startswith("key ")][1:]
    old_keys, new_keys = [line.removeprefix("key ") for line in keyed], [*topic.key_lines()]
    if old_keys != new_keys:
        yield (
            f"keys of topic {topic.name} are read as {_spelled_lines(new_keys, 'text')}, and were "
            "read "
            f"as {_spelled_lines(old_keys, 'text')}"
        )
    old = {
        column.name: column
        for column in map(_parsed_column, before.splitlines())
        if column is not None
    }
    read = set()
    for column in topic.columns:
        name = next((name for name in (column.name, *column.was) if name in old), None)
        field = f"field {column.name} of topic {topic.name}"
        if name is None:
            yield f"{field} is new: {_where_missing(column)}"
            continue
        read.add(name)
        if name != column.name:
            yield f"{field} is renamed: it reads {name}, too"
        yield from (f"{field} {change}" for change in _field_changes(old[name], column))
    for name in old:
        if name not in read:
            yield f"field {name} of topic {topic.name} is no longer read"


def _format_lines(lines: list[str]) -> list[str]:
    """Returns those lines of a declaration that describe the format.

    These are the lines before the columns, without the lines for kind, partitions and keys.
    """
    first = next((n for n, line in enumerate(lines) if line.startswith("column ")), len(lines))
    return [
        line for line in lines[:first] if line.split(" ")[0] not in {"kind", "partitions", "key"}
    ]


def _spelled_lines(lines: list[str], otherwise: str = "JSON") -> str:
    return ", ".join(lines).removeprefix("format ") or otherwise


def _field_changes(old: Column, new: Column) -> Iterator[str]:
    if str(old.type) != str(new.type):
        if widens_type(old.type, new.type):
            yield f"is widened: {new.type}, from {old.type}"
        elif widens_type(new.type, old.type):
            yield f"is narrowed: {new.type}, from {old.type}; what does not fit is rejected"
        else:
            yield f"is of another type: {new.type}, from {old.type}; what is not of it is rejected"
    if old.nullable and not new.nullable:
        yield f"may not be null any more: {_where_missing(new)}"


def _where_missing(column: Column) -> str:
    if column.default is not None:
        return f"events without it have {column.default}"
    return "events without it have null" if column.nullable else "events without it are rejected"


def _parsed_column(line: str) -> Column | None:
    """Parses a line of a declaration that describes a column. Returns None for any other line.

    Only the name, the type and the nullability of the returned column are set.
    """
    kind, _, declared = line.partition(" ")
    if kind != "column":
        return None
    words = declared.partition(" default ")[0].partition(" was ")[0].split(" ")
    # The line has no backquotes, and a name declared in backquotes may have spaces.
    for end in range(1, len(words)):
        try:
            (column,) = parse_columns(f"`{' '.join(words[:end])}` {' '.join(words[end:])}")
        except DeclarationError:
            continue
        return column
    return None
