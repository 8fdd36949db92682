"""The keywords of JSON Schema that are enforced: their values, and the column's type. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.values.columns import INTEGERS, Decimal, Scalar, Struct, Type, parse_type

# These decide nothing about which events are valid; an author's own keywords begin with x-.
ANNOTATIONS = frozenset(
    {
        "$schema",
        "$id",
        "$comment",
        "$anchor",
        "$defs",
        "definitions",
        "title",
        "description",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
    }
)
COLUMN_TYPE = "x-kappa-type"
_VALUES = frozenset({"enum", "const"})
_RANGE = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
LIMITS: Mapping[str, frozenset[str]] = {
    "string": _VALUES | {"minLength", "maxLength", "pattern"},
    "integer": _VALUES | _RANGE,
    "number": _VALUES | _RANGE,
    "boolean": _VALUES,
    "array": frozenset({"minItems", "maxItems"}),
    "object": frozenset(),
}
PARTS: Mapping[str, frozenset[str]] = {
    "array": frozenset({"items"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_SIZES = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
# A type's formats, and the columns they make. uuid is a text of one form.
_FORMATS: Mapping[str, Mapping[str, str]] = {
    "string": {"date": "date", "date-time": "timestamp", "uuid": "string"},
    "integer": {"int32": "int", "int64": "bigint"},
    "number": {"float": "float", "double": "double"},
}
_PLAIN = {"string": "string", "integer": "bigint", "number": "double", "boolean": "boolean"}
_SUPPORTED = (
    "enforced are type, properties, required, additionalProperties: false, items, default, enum, "
    "const, bounds, lengths, pattern, format (date, date-time, uuid), $ref within the schema"
)


def types_of(schema: Mapping[str, Any], path: str) -> tuple[str, bool]:
    """Returns the one type of a place, and whether null is allowed beside it."""
    declared = schema.get("type")
    if declared is None:
        raise DeclarationError(
            f"the schema says no type at {path or '/'}",
            hint=f"say one of {', '.join(LIMITS)}, or null beside it",
        )
    names = declared if isinstance(declared, list) else [declared]
    plain = [name for name in names if name != "null"]
    if len(plain) != 1 or plain[0] not in LIMITS:
        raise refused(
            "type",
            path,
            f"{json.dumps(declared)}, which makes no column",
            hint=f"say one of {', '.join(LIMITS)}, or null beside it",
        )
    return plain[0], "null" in names


def limit_of(keyword: str, value: Any, path: str) -> tuple[str, str]:
    """Returns a keyword, and its value as JSON text."""
    scalars = value if keyword == "enum" and isinstance(value, list) else [value]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if keyword in _VALUES:
        meant = (
            bool(scalars)
            and not any(isinstance(each, list | dict) for each in scalars)
            and (keyword == "const" or isinstance(value, list))
        )
    elif keyword in _SIZES:
        meant = isinstance(value, int) and is_number and value >= 0
    elif keyword == "pattern":
        meant = isinstance(value, str) and _compiles(value)
    else:
        meant = is_number
    if not meant:
        raise refused(keyword, path, f"{json.dumps(value)[:60]}, which is not understood here")
    return keyword, json.dumps(value, ensure_ascii=False)


def _compiles(pattern: str) -> bool:
    try:
        expression(pattern)
    except re.error:
        return False
    return True


def expression(pattern: str) -> re.Pattern[str]:
    """Compiles a `pattern` by ECMA-262: classes are ASCII's, and `$` is the very end."""
    outside, parts, place = True, [], 0
    while place < len(pattern):
        letter = pattern[place]
        if letter == "\\":
            parts.append(pattern[place : place + 2])
            place += 2
            continue
        outside = letter == "]" or (outside and letter != "[")
        parts.append(r"\Z" if letter == "$" and outside else letter)
        place += 1
    return re.compile("".join(parts), re.ASCII)


def column_of(json_type: str, schema: Mapping[str, Any], path: str) -> Type:
    """Returns the type of the column for a place; an object's and an array's are set later."""
    chosen, form = schema.get(COLUMN_TYPE), schema.get("format")
    if form is not None and form not in _FORMATS.get(json_type, {}):
        known = ", ".join(_FORMATS.get(json_type, {})) or "none"
        raise refused(
            "format",
            path,
            f"{form!r}, which is not enforced here",
            hint=f"formats of type {json_type}: {known}; or say a pattern",
        )
    if chosen is None:
        return (
            Struct(())
            if json_type in {"object", "array"}
            else Scalar(_FORMATS.get(json_type, {}).get(form or "", _PLAIN[json_type]))
        )
    try:
        kind = parse_type(chosen) if isinstance(chosen, str) else None
    except DeclarationError as error:
        raise refused(COLUMN_TYPE, path, error.message) from None
    match json_type, kind:
        case "integer" | "number", Decimal() if form is None:
            return kind
        case "integer", Scalar(name) if form is None and (name in INTEGERS or name == "timestamp"):
            return kind
        case "number", Scalar("float" | "double") if form is None:
            return kind
        case _:
            hint = (
                "of an integer: tinyint, smallint, int, bigint, decimal(p,s), timestamp "
                "(of epoch milliseconds); of a number: float, double, decimal(p,s)"
            )
            raise refused(
                COLUMN_TYPE,
                path,
                f"{chosen!r} of type {json_type}{f' and format {form}' if form else ''}",
                hint=hint,
            )


def refused(keyword: str, path: str, why: str, *, hint: str = _SUPPORTED) -> DeclarationError:
    """Makes the error that names a keyword and its place in the schema."""
    return DeclarationError(f"the schema says {keyword} at {path or '/'}, {why}", hint=hint)
