"""The event of a topic, as declared: by DDL or a JSON Schema, with old names and defaults.

Pure, but for reading the schema file that a declaration names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.described import described, shown
from kappa.declare.named_files import read_schema_file
from kappa.declare.values.columns import Column
from kappa.declare.values.json_schema import read_schema
from kappa.declare.values.reason import Rejected
from kappa.declare.values.schema_place import SchemaPlace
from kappa.declare.values.schema_rules import rule_of
from kappa.declare.values.value import check_of, default_of

_WAS = 'write was={"page": "url"}, or was={"page": ("url", "uri")}'


def schema_of_event(event: str | Mapping[str, Any] | Path, source: Source) -> SchemaPlace | None:
    """Reads the JSON Schema that declares an event. Returns None if the event is DDL."""
    match event:
        case str() if event.endswith(".json"):
            raise DeclarationError(
                f"event={event!r} is no DDL",
                hint=f'give a schema\'s file as a path: event=Path("{event}")',
            )
        case str():
            return None
        case Path():
            try:
                return read_schema(read_schema_file(event, source.file))
            except DeclarationError as error:
                raise DeclarationError(
                    error.message.replace("the schema", f"{event}", 1), hint=error.hint
                ) from None
        case Mapping():
            return read_schema(event)
        case _:
            raise DeclarationError(
                f"event is {described(event)}, which declares nothing",
                hint=(
                    'give DDL ("id string not null, at timestamp"), a JSON Schema, '
                    "or the Path of one"
                ),
            )


def renamed(
    columns: tuple[Column, ...], was: Mapping[str, str | Sequence[str]]
) -> tuple[Column, ...]:
    """Returns the columns with their old names, as `was` declares them."""
    if not isinstance(was, Mapping):
        raise DeclarationError(
            f"was is {described(was)}, which gives no column an old name", hint=_WAS
        )
    names = [column.name for column in columns]
    taken = dict.fromkeys(names, "a column")
    old_names: dict[str, tuple[str, ...]] = {}
    for name, given in was.items():
        if name not in names:
            hint = (
                "only a column of its own was renamed, nothing inside of one"
                if "." in name
                else f"write was={{new name: old name}}; its columns are {', '.join(names)}"
            )
            raise DeclarationError(f"was names {name}, which is no column", hint=hint)
        if not isinstance(given, Iterable):
            raise _no_old_name(name, given)
        old_names[name] = (given,) if isinstance(given, str) else tuple(given)
        for old in old_names[name]:
            if not isinstance(old, str) or not old:
                raise _no_old_name(name, old)
            if old in taken:
                # A record with both would be ambiguous.
                raise DeclarationError(
                    f"column {name} was {old}, which is {taken[old]}",
                    hint="a name means one thing in all events, old and new",
                )
            taken[old] = f"what {name} was already"
    return tuple(replace(column, was=old_names.get(column.name, ())) for column in columns)


def _no_old_name(column: str, given: object) -> DeclarationError:
    return DeclarationError(f"column {column} was {shown(given)}, which is no name", hint=_WAS)


def check_defaults(
    source: Source, topic: str, columns: tuple[Column, ...], schema: SchemaPlace | None
) -> None:
    """Raises DeclarationError if a default is no value of its column."""
    try:
        for column in columns:
            default_of(column, check_of(column.type))
        if schema is not None:
            rule_of(schema)
    except Rejected as rejected:
        raise DeclarationError(
            f"{source}: topic {topic}: {rejected.detail}",
            hint="a default is a value that the column may have",
        ) from None
