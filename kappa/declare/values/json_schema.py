"""Converts the JSON Schema of an event to a `SchemaPlace`, which contains all conditions. Pure.

The supported draft of JSON Schema is 2020-12. A keyword is either enforced, or refused with an
error that shows the keyword's place in the schema; only keywords that the draft calls annotations
are ignored. References within the schema are followed. `schema_rules.py` checks events against the
conditions. Source: https://json-schema.org/draft/2020-12.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.values.columns import (
    INTEGERS,
    Array,
    Column,
    Decimal,
    Scalar,
    Struct,
    Type,
    parse_type,
    refuse_repeated,
)

# Annotations decide nothing about which events are valid; an author's own keywords begin with x-.
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
# A type's formats, and their columns. uuid is a text of one form.
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
_DRAFTS = re.compile(
    r"https?://json-schema\.org/(?:draft/2020-12|draft/2019-09|draft-07|draft-06)/schema#?"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Field:
    """A property of an object in a JSON Schema.

    `default` is the value for an event that does not contain the field, as JSON text.
    """

    name: str
    place: SchemaPlace
    required: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaPlace:
    """A place in an event, and the schema's conditions for the value at that place.

    The place and the conditions are part of the version. `limits` contains keywords with their
    values as JSON text. If `closed`, an object may have no fields other than `fields`. `element` is
    the place of an array's elements.
    """

    json_type: str
    column: Type
    nullable: bool = False
    limits: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    closed: bool = False
    element: SchemaPlace | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Returns the columns for the fields of the object at this place of an event."""
        return tuple(
            Column(
                field.name,
                field.place.column,
                field.place.nullable or not (field.required or field.default is not None),
                field.default,
            )
            for field in self.fields
        )

    def place_lines(self, path: str = "event") -> Iterator[str]:
        """Yields a line of text for this place of an event and for each place within it.

        If two schemas have the same meaning, they have the same lines.
        """
        demands = [
            f"{path} {self.json_type}{' or null' if self.nullable else ''} as {self.column}",
            *(f"{keyword} {value}" for keyword, value in self.limits),
        ]
        yield ", ".join([*demands, "no other fields"] if self.closed else demands)
        for field in self.fields:
            of_field = field.place.place_lines(f"{path}.{field.name}")
            required = ", required" if field.required else ""
            default = "" if field.default is None else f", default {field.default}"
            yield f"{next(of_field)}{required}{default}"
            yield from of_field
        if self.element is not None:
            yield from self.element.place_lines(f"{path}[]")


def types_of(schema: Mapping[str, Any], path: str) -> tuple[str, bool]:
    """Returns the type that a schema declares apart from null, and True if it also allows null.

    `path` is the place of the schema, for errors. Raises DeclarationError if the schema does not
    declare exactly one type apart from null.
    """
    declared = schema.get("type")
    if declared is None:
        raise DeclarationError(
            f"the schema says no type at {path or '/'}",
            hint=f"say one of {', '.join(LIMITS)}, or null beside it",
        )
    names = declared if isinstance(declared, list) else [declared]
    plain = [name for name in names if name != "null"]
    if len(plain) != 1 or plain[0] not in LIMITS:
        raise keyword_error(
            "type",
            path,
            f"{json.dumps(declared)}, which cannot become a column",
            hint=f"say one of {', '.join(LIMITS)}, or null beside it",
        )
    return plain[0], "null" in names


def limit_of(keyword: str, value: Any, path: str) -> tuple[str, str]:
    """Returns a keyword of a schema, and the keyword's value as JSON text.

    Raises DeclarationError if the value is not valid for the keyword.
    """
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
        meant = isinstance(value, str) and _is_expression(value)
    else:
        meant = is_number
    if not meant:
        raise keyword_error(
            keyword, path, f"{json.dumps(value)[:60]}, which is not understood here"
        )
    return keyword, json.dumps(value, ensure_ascii=False)


def _is_expression(pattern: str) -> bool:
    try:
        compile_pattern(pattern)
    except re.error:
        return False
    return True


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compiles the regular expression of a schema's `pattern` by the rules of ECMA-262.

    Character classes contain only ASCII characters, and `$` matches only at the very end.
    """
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
    """Returns the column type for a place in an event, from the schema of this place.

    For objects and arrays, the result is a placeholder that the caller replaces. Raises
    DeclarationError if the schema's format or its `x-kappa-type` cannot be used with `json_type`.
    """
    chosen, form = schema.get(COLUMN_TYPE), schema.get("format")
    if form is not None and form not in _FORMATS.get(json_type, {}):
        known = ", ".join(_FORMATS.get(json_type, {})) or "none"
        raise keyword_error(
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
        raise keyword_error(COLUMN_TYPE, path, error.message) from None
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
            raise keyword_error(
                COLUMN_TYPE,
                path,
                f"{chosen!r} of type {json_type}{f' and format {form}' if form else ''}",
                hint=hint,
            )


def keyword_error(keyword: str, path: str, why: str, *, hint: str = _SUPPORTED) -> DeclarationError:
    """Returns the error about a keyword of the schema, with the keyword's place in the schema."""
    return DeclarationError(f"the schema says {keyword} at {path or '/'}, {why}", hint=hint)


def read_schema(schema: Mapping[str, Any]) -> SchemaPlace:
    """Parses the JSON Schema of an event.

    Raises DeclarationError, which names the keyword and its path in the schema, if the schema is
    not valid or not supported.
    """
    try:
        # A value that is not JSON has no meaning here, and a schema is never changed after it was
        # read.
        document = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise DeclarationError(
            f"the schema is not JSON: {error}", hint="give it as json.loads would"
        ) from None
    dialect = document.get("$schema")
    if dialect is not None and not (isinstance(dialect, str) and _DRAFTS.fullmatch(dialect)):
        raise DeclarationError(
            f"the schema says $schema {dialect!r}, which is not a draft that Kappa knows",
            hint="use https://json-schema.org/draft/2020-12/schema",
        )
    place = _SchemaReader(document).read_place(document, "", ())
    if place.json_type != "object" or place.nullable:
        raise keyword_error(
            "type", "", "an event is exactly one object", hint='say "type": "object"'
        )
    return place


class _SchemaReader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def read_place(self, schema: Any, path: str, following: tuple[str, ...]) -> SchemaPlace:
        """Parses the schema of a place in an event.

        `path` is the place in the schema, and `following` contains the references that were
        followed to reach this place.
        """
        schema, following = self._follow_references(schema, path, following)
        schema, following, is_optional = self._or_null(schema, path, following)
        json_type, nullable = types_of(schema, path)
        known = (
            ANNOTATIONS
            | LIMITS[json_type]
            | PARTS.get(json_type, frozenset())
            | {"type", "format", COLUMN_TYPE}
        )
        for keyword in schema:
            if keyword not in known and not (
                keyword.startswith("x-") and not keyword.startswith("x-kappa-")
            ):
                of_other_type = any(
                    keyword in limits for limits in (*LIMITS.values(), *PARTS.values())
                )
                raise keyword_error(
                    keyword,
                    path,
                    f"that says nothing of type {json_type}"
                    if of_other_type
                    else "which is not enforced here",
                )
        limits = dict(
            limit_of(keyword, schema[keyword], path)
            for keyword in sorted(schema)
            if keyword in LIMITS[json_type]
        )
        # Null is allowed beside listed values only if the list has null.
        nullable = nullable and None in schema.get("enum", [None]) and schema.get("const") is None
        column = column_of(json_type, schema, path)
        if schema.get("format") == "uuid":
            limits["format"] = '"uuid"'
        place = SchemaPlace(
            json_type, column, nullable or is_optional, tuple(sorted(limits.items()))
        )
        match json_type:
            case "array":
                if "items" not in schema:
                    raise DeclarationError(
                        f"the schema says no items at {path or '/'}",
                        hint='say what the array holds: "items": {"type": "string"}',
                    )
                element = self.read_place(schema["items"], f"{path}/items", following)
                return replace(place, column=Array(element.column), element=element)
            case "object":
                return self._read_object(place, schema, path, following)
            case _:
                return place

    def _read_object(
        self, place: SchemaPlace, schema: Mapping[str, Any], path: str, following: tuple[str, ...]
    ) -> SchemaPlace:
        properties, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(properties, dict) or not properties:
            raise DeclarationError(
                f"the schema says no properties at {path or '/'}",
                hint="an object becomes columns, so its properties are named",
            )
        if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
            raise keyword_error("required", path, "which is not a list of names")
        missing = [name for name in required if name not in properties]
        if missing:
            raise keyword_error("required", path, f"which names {missing[0]}, no property")
        others = schema.get("additionalProperties", True)
        if others not in (True, False, {}):
            raise keyword_error("additionalProperties", path, "which is not enforced here")
        fields = tuple(
            self._read_field(
                name, each, f"{path}/properties/{name}", following, required=name in required
            )
            for name, each in properties.items()
        )
        made = replace(place, fields=fields, closed=others is False)
        refuse_repeated(made.columns, f"properties at {path or '/'}")
        return replace(made, column=Struct(made.columns))

    def _read_field(
        self, name: str, schema: Any, path: str, following: tuple[str, ...], *, required: bool
    ) -> Field:
        if not _NAME.fullmatch(name):
            hint = (
                "an underscore marks the platform's own columns"
                if name.startswith("_")
                else "use letters, digits and underscores; "
                "was={new name: old name} reads what is sent under another"
            )
            at = f"{path.rpartition('/properties/')[0]}/properties"
            raise DeclarationError(
                f"the schema has {name!r} at {at}, which is not a valid column name",
                hint=hint,
            )
        followed, following = self._follow_references(schema, path, following)
        place = self.read_place(
            {keyword: value for keyword, value in followed.items() if keyword != "default"},
            path,
            following,
        )
        default = followed.get("default")
        if default is None and "default" in followed and not place.nullable:
            raise keyword_error("default", path, "null, which the type does not allow")
        # A missing field is null anyway.
        return Field(
            name,
            place,
            required and "default" not in followed,
            None if default is None else json.dumps(default, ensure_ascii=False, sort_keys=True),
        )

    def _follow_references(
        self, schema: Any, path: str, following: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Returns the schema to which the references of a schema lead, and the followed references.

        The second value also contains the references in `following`, which were followed before.
        Raises DeclarationError if a target is missing, or if a reference leads back to itself.
        """
        if not isinstance(schema, dict):
            raise DeclarationError(
                f"the schema has {json.dumps(schema)[:40]} at {path or '/'}, which says no type",
                hint='say one: {"type": "string"}',
            )
        while "$ref" in schema:
            ref = schema["$ref"]
            if ref in following:
                raise keyword_error(
                    "$ref", path, f"{ref}, which refers to itself: columns have an end"
                )
            target = self._reference_target(ref, path)
            beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
            twice = [
                keyword for keyword in beside if keyword in target and keyword not in ANNOTATIONS
            ]
            if twice:
                raise keyword_error(twice[0], path, f"beside a $ref to what says {twice[0]} too")
            schema, following = {**target, **beside}, (*following, ref)
        return schema, following

    def _reference_target(self, ref: Any, path: str) -> Mapping[str, Any]:
        found: Any = self._document
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise keyword_error(
                "$ref",
                path,
                f"{ref!r}, which is not within the schema",
                hint='put it into the schema: "$ref": "#/$defs/name"',
            )
        for part in ref.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise keyword_error("$ref", path, f"{ref}, which is not there")
            found = found[name]
        if not isinstance(found, dict):
            raise keyword_error("$ref", path, f"{ref}, which says no type")
        return found

    def _or_null(
        self, schema: Mapping[str, Any], path: str, following: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...], bool]:
        """Resolves a choice (`anyOf` or `oneOf`) between one schema and null.

        Returns the chosen schema, all references that were followed so far, and True if there was
        such a choice. Raises DeclarationError for any other choice, since it cannot become a
        column.
        """
        chosen = [keyword for keyword in ("anyOf", "oneOf") if keyword in schema]
        if not chosen:
            return schema, following, False
        choices = schema[chosen[0]]
        others = (
            [
                each
                for each in choices
                if not (
                    isinstance(each, dict)
                    and each.keys() - ANNOTATIONS == {"type"}
                    and each["type"] == "null"
                )
            ]
            if isinstance(choices, list)
            else []
        )
        if len(chosen) > 1 or len(others) != 1 or len(choices) != len(others) + 1:
            raise keyword_error(
                chosen[0],
                path,
                "which cannot become a column",
                hint='only {"anyOf": [SCHEMA, {"type": "null"}]}: the one or null',
            )
        inner, following = self._follow_references(
            others[0], f"{path}/{chosen[0]}/{choices.index(others[0])}", following
        )
        beside = [
            keyword
            for keyword in schema
            if keyword not in ANNOTATIONS and keyword != chosen[0] and not keyword.startswith("x-")
        ]
        if beside:
            raise keyword_error(
                beside[0], path, f"beside {chosen[0]}", hint=f"say it inside of {chosen[0]}"
            )
        return inner, following, True
