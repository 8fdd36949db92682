"""Random values of a type or by a schema, for tests of pipelines; repeats are likely."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from kappa.declare.values.columns import INTEGERS, Array, Decimal, Scalar, Struct, Type
from kappa.declare.values.json_schema import SchemaPlace
from kappa.declare.values.reason import Rejected
from kappa.declare.values.schema_rules import rule_of


def some_value(kind: Type, draw: random.Random) -> Any:
    """Draws a value of a type, as JSON has the value."""
    match kind:
        case Scalar("string"):
            return draw.choice(["a", "b", "", "Ä", "\U0001f600"])
        case Scalar("boolean"):
            return draw.random() < 0.5
        case Scalar("float" | "double"):
            return draw.choice([0.0, -0.0, 0.5, -1.25, 1024.0])
        case Scalar("date"):
            return draw.choice(["2024-01-01", "2024-02-29", "1969-12-31"])
        case Scalar("timestamp"):
            return (
                datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=draw.randrange(100))
            ).isoformat()
        case Scalar(name):
            most = 2 ** (min(INTEGERS[name], 40) - 1) - 1
            return draw.choice([0, 1, 2, -1, most, -most - 1])
        case Decimal():
            return draw.choice([0, 1, -1])
        case Array():
            return [some_value(kind.element, draw) for _ in range(draw.randrange(3))]
        case Struct():
            return {field.name: some_value(field.type, draw) for field in kind.fields}


def some_of_schema(place: SchemaPlace, draw: random.Random) -> Any:
    """Draws a value that a JSON Schema allows; of the column's type alone if none is found."""
    limits = {keyword: json.loads(value) for keyword, value in place.limits}
    if place.nullable and draw.random() < 0.1:
        return None
    match place.json_type:
        case "object":
            return {
                field.name: some_of_schema(field.place, draw)
                for field in place.fields
                if field.required or draw.random() < 0.8
            }
        case "array" if place.element is not None:
            least = limits.get("minItems", 0)
            length = draw.randint(least, min(limits.get("maxItems", least + 2), least + 2))
            return [some_of_schema(place.element, draw) for _ in range(length)]
        case _:
            found = [
                value
                for value in _candidate_values(place, limits, draw)
                if _is_allowed(value, place)
            ]
            return draw.choice(found) if found else some_value(place.column, draw)


def _candidate_values(
    place: SchemaPlace, limits: Mapping[str, Any], draw: random.Random
) -> list[Any]:
    if "const" in limits or "enum" in limits:
        return [each for each in limits.get("enum", [limits.get("const")]) if each is not None]
    if "format" in limits:
        return [str(uuid.UUID(int=draw.randrange(5)))]
    some = [
        some_value(
            Scalar("bigint")
            if (place.json_type, place.column) == ("integer", Scalar("timestamp"))
            else place.column,
            draw,
        )
        for _ in range(32)
    ]
    if place.json_type == "string" and limits:
        return [
            each.ljust(limits.get("minLength", 0), "x")[: limits.get("maxLength")] for each in some
        ]
    bounds = [
        value for keyword, value in limits.items() if "inimum" in keyword or "aximum" in keyword
    ]
    near = [bound + step for bound in bounds for step in (-1, 0, 1)]
    middle = [sum(bounds) / 2] if len(bounds) == 2 else []
    return [
        *some,
        *(
            each
            for each in (*near, *middle)
            if place.json_type == "number" or isinstance(each, int)
        ),
    ]


def _is_allowed(value: Any, place: SchemaPlace) -> bool:
    rule = rule_of(place)
    try:
        if rule is not None:
            rule(value, "it")
    except Rejected:
        return False
    return True
