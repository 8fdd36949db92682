"""The changes that readers see if one build's tables replace another's. Pure.

Tables, columns, types, keys and views are compared. A change breaks readers if a query that ran may
fail or mean something else. A type that holds all values of the one before (type widening of Delta
and Spark) breaks none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kappa.base.errors import DeclarationError
from kappa.declare.values.columns import INTEGERS, Array, Decimal, Scalar, Struct, Type, parse_type
from kappa.state.build import Birth
from kappa.state.table import TableBirth


class Effect(StrEnum):
    """A change of something that readers use."""

    ADDED = "added"
    REMOVED = "removed"
    RETYPED = "retyped"
    REKEYED = "rekeyed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class ReaderChange:
    """One change: of a `table` or view, or of its `column`.

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
# What a double holds exactly.
_IN_DOUBLE = frozenset({"tinyint", "smallint", "int", "float"})


def reader_changes(
    born: Birth, tables: Iterable[TableBirth], views: Mapping[str, str]
) -> tuple[ReaderChange, ...]:
    """Returns what readers of a build will find changed in `tables` and `views`."""
    before = {table.name: table for table in born.tables}
    after = {table.name: table for table in tables}
    return (*_tables(before, after, born.views, views), *_views(born.views, views, before, after))


def called_of(table: TableBirth) -> str:
    """Returns a table as sentences name it: `table delays`, or `view by_day` if it is one."""
    return f"{'table' if table.view is None else 'view'} {table.name}"


def _tables(
    before: Mapping[str, TableBirth],
    after: Mapping[str, TableBirth],
    old_views: Mapping[str, str],
    new_views: Mapping[str, str],
) -> Iterator[ReaderChange]:
    for name, table in before.items():
        if name in after:
            yield from _columns(table, after[name])
        elif name in new_views:
            yield ReaderChange(
                Effect.CHANGED,
                name,
                f"{called_of(table)} becomes "
                f"{'a view' if table.view is None else 'one that is computed when it is read'}, "
                "whose columns are not known here",
                breaking=True,
            )
        else:
            yield ReaderChange(Effect.REMOVED, name, f"{called_of(table)} goes", breaking=True)
    for name in after:
        if name not in before and name not in old_views:
            yield ReaderChange(Effect.ADDED, name, f"{called_of(after[name])} is new")


def _views(
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


def _columns(before: TableBirth, after: TableBirth) -> Iterator[ReaderChange]:
    name, old, new = before.name, dict(before.served), dict(after.served)
    called = called_of(after)
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
            breaks = not _widens(kind, new[column])
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


def _widens(old: str, new: str) -> bool:
    try:
        return widens(parse_type(old), parse_type(new))
    except DeclarationError:
        # A type that only the platform's own tables have.
        return False


def widens(old: Type, new: Type) -> bool:
    """Returns whether every value of the old type is one of the new.

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
            return widens(narrow_element, wide_element)
        case Struct(), Struct():
            known = {field.name: field.type for field in new.fields}
            return all(
                field.name in known and widens(field.type, known[field.name])
                for field in old.fields
            )
        case _:
            return False
