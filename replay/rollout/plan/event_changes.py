"""The changes between two declarations of a topic's events, field by field. Pure.

Fields may be renamed, widened, narrowed, new or gone. The declaration before is known from the
lines that a birth certificate keeps (kappa/code/declaration.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from kappa.base.errors import DeclarationError
from kappa.declare.topic import Topic
from kappa.declare.values.columns import Column, parse_columns
from kappa.replay.rollout.plan.readers import widens


def event_changes(topic: Topic, before: str) -> Iterator[str]:
    """Yields a sentence for each field of old events that is read otherwise than before.

    One is about their format, if it is declared otherwise.
    """
    old_format, new_format = _format(before.splitlines()), [*topic.format.lines()]
    if old_format != new_format:
        yield (
            f"topic {topic.name} is read as {_spelled(new_format)}, and was read as "
            f"{_spelled(old_format)}"
        )
    # The first of these lines names the key.
    keyed = [line for line in before.splitlines() if line.startswith("key ")][1:]
    old_keys, new_keys = [line.removeprefix("key ") for line in keyed], [*topic.key_lines()]
    if old_keys != new_keys:
        yield (
            f"keys of topic {topic.name} are read as {_spelled(new_keys, 'text')}, and were read "
            f"as {_spelled(old_keys, 'text')}"
        )
    old = {
        column.name: column for column in map(_column, before.splitlines()) if column is not None
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
        yield from (f"{field} {change}" for change in _changes(old[name], column))
    for name in old:
        if name not in read:
            yield f"field {name} of topic {topic.name} is no longer read"


def _format(lines: list[str]) -> list[str]:
    """Returns the lines of a format among a topic's: they are right before its columns."""
    first = next((n for n, line in enumerate(lines) if line.startswith("column ")), len(lines))
    return [
        line for line in lines[:first] if line.split(" ")[0] not in {"kind", "partitions", "key"}
    ]


def _spelled(lines: list[str], otherwise: str = "JSON") -> str:
    return ", ".join(lines).removeprefix("format ") or otherwise


def _changes(old: Column, new: Column) -> Iterator[str]:
    if str(old.type) != str(new.type):
        if widens(old.type, new.type):
            yield f"is widened: {new.type}, from {old.type}"
        elif widens(new.type, old.type):
            yield f"is narrowed: {new.type}, from {old.type}; what does not fit is rejected"
        else:
            yield f"is of another type: {new.type}, from {old.type}; what is not of it is rejected"
    if old.nullable and not new.nullable:
        yield f"may not be null any more: {_where_missing(new)}"


def _where_missing(column: Column) -> str:
    if column.default is not None:
        return f"events without it have {column.default}"
    return "events without it have null" if column.nullable else "events without it are rejected"


def _column(line: str) -> Column | None:
    """Returns the column of a declaration's line, with its name, type and null only."""
    kind, _, declared = line.partition(" ")
    if kind != "column":
        return None
    words = declared.partition(" default ")[0].partition(" was ")[0].split(" ")
    # The line has no backquotes, and a name that was declared in them may have spaces.
    for end in range(1, len(words)):
        try:
            (column,) = parse_columns(f"`{' '.join(words[:end])}` {' '.join(words[end:])}")
        except DeclarationError:
            continue
        return column
    return None
