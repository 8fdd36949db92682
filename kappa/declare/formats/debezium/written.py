"""The way in which a value was written, by the schema beside it. Pure.

Kafka Connect has few types; what a value means beyond its type is in the schema's name, such as
`io.debezium.time.MicroTimestamp`. Avro's schemas keep that name as `connect.name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Deeper schemas describe no row that a table could have.
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class Written:
    """The way in which a value was written: its meaning by Connect's name, and its parts.

    Without a meaning beyond its type the name is "". `scale` is that of a decimal.
    """

    name: str = ""
    scale: int | None = None
    element: Written | None = None
    fields: Mapping[str, Written] = field(default_factory=dict)


# Of a value with a schema that says nothing beyond its type.
PLAIN = Written()


def of_connect(schema: Any, deep: int = 0) -> Written:
    """Returns how a value was written by Connect's schema in JSON; damaged parts say nothing."""
    if not isinstance(schema, dict) or deep > _DEEPEST:
        return PLAIN
    name, parameters, fields = (schema.get(each) for each in ("name", "parameters", "fields"))
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    return Written(
        name if isinstance(name, str) else "",
        _whole(scale),
        of_connect(schema["items"], deep + 1) if "items" in schema else None,
        {
            each["field"]: of_connect(each, deep + 1)
            for each in (fields if isinstance(fields, list) else ())
            if isinstance(each, dict) and isinstance(each.get("field"), str)
        },
    )


def of_avro(schema: Any, named: Mapping[str, Any], deep: int = 0) -> Written:
    """Returns how a value was written by a parsed schema of Avro."""
    if deep > _DEEPEST:
        return PLAIN
    match schema:
        case str() if schema in named:
            return of_avro(named[schema], named, deep + 1)
        case list():
            others = [each for each in schema if each != "null"]
            return of_avro(others[0], named, deep + 1) if len(others) == 1 else PLAIN
        case {"type": dict() | list() as inner}:
            return of_avro(inner, named, deep + 1)
        case dict():
            name = schema.get("connect.name")
            return Written(
                name if isinstance(name, str) else "",
                _whole(schema.get("scale")),
                of_avro(schema["items"], named, deep + 1) if "items" in schema else None,
                {
                    each["name"]: of_avro(each["type"], named, deep + 1)
                    for each in schema.get("fields", ())
                },
            )
        case _:
            return PLAIN


def _whole(found: Any) -> int | None:
    if isinstance(found, str) and found.isdecimal() and len(found) < 6:
        return int(found)
    return found if type(found) is int and 0 <= found < 100_000 else None
