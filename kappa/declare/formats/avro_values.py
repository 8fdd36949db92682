"""Values of JSON as Avro has them, for events that are written by hand. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from decimal import Decimal as Number
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.values.columns import Scalar
from kappa.declare.values.reason import Rejected, shown
from kappa.declare.values.value import check_of

_MILLIS = "timestamp-millis"
_EVENT = "the event"


def avro_value(schema: Any, named: Mapping[str, Any], value: Any, path: str) -> Any:
    """Returns a value as it is written by a schema without logical types.

    `path` is its place in the event; the event's own is empty. A field that is missing has its
    default, or is null. Raises UsageError if it is no such value.
    """
    if value is None and not _may_be_null(schema):
        raise UsageError(f"{path or _EVENT} is null, and its schema has no null")
    match schema:
        case str() if schema in named:
            return avro_value(named[schema], named, value, path)
        case list():
            others = [each for each in schema if each != "null"]
            if value is None or len(others) != 1:
                return value
            return avro_value(others[0], named, value, path)
        case {"logicalType": str() as logical}:
            return _logical(logical, schema, value, path)
        case {"type": "record", "fields": fields}:
            if not isinstance(value, Mapping):
                raise UsageError(f"{path or _EVENT} is no mapping of its fields")
            _ensure_known(value, schema, path)
            return {field["name"]: _field(field, named, value, path) for field in fields}
        case {"type": "enum", "symbols": symbols}:
            if value not in symbols:
                raise UsageError(f"{path} is {shown(value)}, which is none of {', '.join(symbols)}")
            return value
        case {"type": "array", "items": items}:
            return [avro_value(items, named, each, path) for each in value]
        case {"type": "map", "values": values}:
            # As an object, or as rows have it.
            pairs = (
                value.items()
                if isinstance(value, Mapping)
                else ((each["key"], each["value"]) for each in value)
            )
            return {key: avro_value(values, named, each, path) for key, each in pairs}
        case {"type": dict() | list() as inner}:
            return avro_value(inner, named, value, path)
        case _:
            return value


def _field(
    field: Mapping[str, Any], named: Mapping[str, Any], value: Mapping[str, Any], path: str
) -> Any:
    name = field["name"]
    inner = f"{path}.{name}" if path else name
    if name in value:
        return avro_value(field["type"], named, value[name], inner)
    if "default" not in field and not _may_be_null(field["type"]):
        raise UsageError(f"{inner} is missing, and its schema has no default")
    return field.get("default")


def _may_be_null(schema: Any) -> bool:
    match schema:
        case list():
            return any(map(_may_be_null, schema))
        case {"type": inner}:
            return _may_be_null(inner)
        case _:
            return bool(schema == "null")


def _ensure_known(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> None:
    """Raises UsageError if a value has a field that its record has not: it would be lost."""
    names = [field["name"] for field in schema["fields"]]
    for name in value:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            raise UsageError(
                f"{path or _EVENT} has {name}, which is no field of {schema['name']}",
                hint=f"did you mean {near[0]}?" if near else f"its fields are {', '.join(names)}",
            )


def _logical(logical: str, schema: Mapping[str, Any], value: Any, path: str) -> Any:
    try:
        if logical.startswith("timestamp-"):
            micros = check_of(Scalar("timestamp"))(value, path)
            return micros // 1000 if logical == _MILLIS else micros
        if logical == "date":
            return check_of(Scalar("date"))(value, path)
        if logical == "decimal":
            whole = _whole(Number(str(value)), schema.get("scale", 0), path)
            size = schema.get("size", whole.bit_length() // 8 + 1)
            return whole.to_bytes(size, signed=True)
    except Rejected as rejected:
        raise UsageError(rejected.detail) from None
    return value


def _whole(value: Number, scale: int, path: str) -> int:
    """Returns a decimal as a number of its last digits. No arithmetic of decimals may round it."""
    sign, digits, exponent = value.as_tuple()
    number, behind = int("".join(map(str, digits))), int(exponent) + scale
    unit = int(10 ** abs(behind))
    whole, rest = divmod(number, unit) if behind < 0 else (number * unit, 0)
    if rest:
        raise UsageError(f"{path} has more than {scale} digits behind the point")
    return -whole if sign else whole
