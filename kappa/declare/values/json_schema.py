"""An event declared by a JSON Schema, read as a `SchemaPlace` with all its demands. Pure.

The draft is 2020-12. A keyword is enforced, or refused with its place in the schema; only the
draft's annotations are ignored. References are followed here. `schema_keywords.py` reads one
keyword, and `schema_rules.py` checks events. Source: https://json-schema.org/draft/2020-12.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.values.columns import Array, Struct, refuse_repeated
from kappa.declare.values.schema_keywords import (
    ANNOTATIONS,
    COLUMN_TYPE,
    LIMITS,
    PARTS,
    column_of,
    limit_of,
    refused,
    types_of,
)
from kappa.declare.values.schema_place import Field, SchemaPlace

_DRAFTS = re.compile(
    r"https?://json-schema\.org/(?:draft/2020-12|draft/2019-09|draft-07|draft-06)/schema#?"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def read_schema(schema: Mapping[str, Any]) -> SchemaPlace:
    """Reads the event that a schema declares.

    Raises DeclarationError that names the keyword and its path in the schema.
    """
    try:
        # What is no JSON has no meaning here, and a schema is never changed after it was read.
        document = json.loads(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise DeclarationError(
            f"the schema is no JSON: {error}", hint="give it as json.loads would"
        ) from None
    dialect = document.get("$schema")
    if dialect is not None and not (isinstance(dialect, str) and _DRAFTS.fullmatch(dialect)):
        raise DeclarationError(
            f"the schema says $schema {dialect!r}, which is no draft that is known here",
            hint="use https://json-schema.org/draft/2020-12/schema",
        )
    place = _SchemaReader(document).place(document, "", ())
    if place.json_type != "object" or place.nullable:
        raise refused("type", "", "an event is exactly one object", hint='say "type": "object"')
    return place


class _SchemaReader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def place(self, schema: Any, path: str, following: tuple[str, ...]) -> SchemaPlace:
        """Reads one place; `following` are the references that led to it."""
        schema, following = self._followed(schema, path, following)
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
                raise refused(
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
        # Null is allowed beside listed values only if it is one of them.
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
                element = self.place(schema["items"], f"{path}/items", following)
                return replace(place, column=Array(element.column), element=element)
            case "object":
                return self._object(place, schema, path, following)
            case _:
                return place

    def _object(
        self, place: SchemaPlace, schema: Mapping[str, Any], path: str, following: tuple[str, ...]
    ) -> SchemaPlace:
        properties, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(properties, dict) or not properties:
            raise DeclarationError(
                f"the schema says no properties at {path or '/'}",
                hint="an object becomes columns, so its properties are named",
            )
        if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
            raise refused("required", path, "which is no list of names")
        missing = [name for name in required if name not in properties]
        if missing:
            raise refused("required", path, f"which names {missing[0]}, no property")
        others = schema.get("additionalProperties", True)
        if others not in (True, False, {}):
            raise refused("additionalProperties", path, "which is not enforced here")
        fields = tuple(
            self._field(
                name, each, f"{path}/properties/{name}", following, required=name in required
            )
            for name, each in properties.items()
        )
        made = replace(place, fields=fields, closed=others is False)
        refuse_repeated(made.columns, f"properties at {path or '/'}")
        return replace(made, column=Struct(made.columns))

    def _field(
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
                f"the schema has {name!r} at {at}, which is no name of a column",
                hint=hint,
            )
        followed, following = self._followed(schema, path, following)
        place = self.place(
            {keyword: value for keyword, value in followed.items() if keyword != "default"},
            path,
            following,
        )
        default = followed.get("default")
        if default is None and "default" in followed and not place.nullable:
            raise refused("default", path, "null, which the type does not allow")
        # A missing field is null anyway.
        return Field(
            name,
            place,
            required and "default" not in followed,
            None if default is None else json.dumps(default, ensure_ascii=False, sort_keys=True),
        )

    def _followed(
        self, schema: Any, path: str, following: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Returns the schema with its references replaced by their targets."""
        if not isinstance(schema, dict):
            raise DeclarationError(
                f"the schema has {json.dumps(schema)[:40]} at {path or '/'}, which says no type",
                hint='say one: {"type": "string"}',
            )
        while "$ref" in schema:
            ref = schema["$ref"]
            if ref in following:
                raise refused("$ref", path, f"{ref}, which refers to itself: columns have an end")
            target = self._target(ref, path)
            beside = {keyword: value for keyword, value in schema.items() if keyword != "$ref"}
            twice = [
                keyword for keyword in beside if keyword in target and keyword not in ANNOTATIONS
            ]
            if twice:
                raise refused(twice[0], path, f"beside a $ref to what says {twice[0]} too")
            schema, following = {**target, **beside}, (*following, ref)
        return schema, following

    def _target(self, ref: Any, path: str) -> Mapping[str, Any]:
        found: Any = self._document
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise refused(
                "$ref",
                path,
                f"{ref!r}, which is not within the schema",
                hint='put it into the schema: "$ref": "#/$defs/name"',
            )
        for part in ref.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise refused("$ref", path, f"{ref}, which is not there")
            found = found[name]
        if not isinstance(found, dict):
            raise refused("$ref", path, f"{ref}, which says no type")
        return found

    def _or_null(
        self, schema: Mapping[str, Any], path: str, following: tuple[str, ...]
    ) -> tuple[Mapping[str, Any], tuple[str, ...], bool]:
        """Returns the schema without a choice between something and null, and whether it had one.

        It is the only choice that makes a column.
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
            raise refused(
                chosen[0],
                path,
                "which makes no column",
                hint='only {"anyOf": [SCHEMA, {"type": "null"}]}: the one or null',
            )
        inner, following = self._followed(
            others[0], f"{path}/{chosen[0]}/{choices.index(others[0])}", following
        )
        beside = [
            keyword
            for keyword in schema
            if keyword not in ANNOTATIONS and keyword != chosen[0] and not keyword.startswith("x-")
        ]
        if beside:
            raise refused(
                beside[0], path, f"beside {chosen[0]}", hint=f"say it inside of {chosen[0]}"
            )
        return inner, following, True
