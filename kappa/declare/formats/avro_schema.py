"""Parses Avro schemas, refuses unsafe schemas, and decodes records with fastavro.

This module does not depend on topics.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from io import BytesIO
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.values.reason import Reason, Rejected

# These keys change nothing about a record.
_PROSE = {"doc"}
# The name of the only field, for a schema that is not a record.
BARE_FIELD = "value"
# So many parsed schemas are kept: each written event needs the schema again.
_MOST_SCHEMAS = 64
# A record without bytes may have all parts of its schema.
_MOST_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed Avro schema, in its original form and in a form for decoding.

    `whole` is the original schema, and `named` contains its named types. `bare` is a copy without
    logical types, with which records are decoded.
    """

    whole: Any
    named: Mapping[str, Any]
    bare: Any


@lru_cache(_MOST_SCHEMAS)
def parse_avro(text: str, references: tuple[str, ...] = ()) -> AvroSchema:
    """Parses a schema and the schemas that it refers to.

    Raises DeclarationError if the text is not a valid schema.
    """
    # The import costs more than reading a project that has no topic in Avro.
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema  # noqa: PLC0415

    try:
        named: dict[str, Any] = {}
        bare_named: dict[str, Any] = {}
        for each in references:
            parse_schema(json.loads(each), named_schemas=named)
            parse_schema(_bare_schema(json.loads(each)), named_schemas=bare_named)
        whole = _as_record(json.loads(text), named)
        found = AvroSchema(
            parse_schema(whole, named_schemas=named),
            named,
            parse_schema(_bare_schema(whole), named_schemas=bare_named),
        )
    except UnknownType as error:
        raise DeclarationError(f"the schema has no type {error}, which it names") from None
    except (SchemaParseException, ValueError, TypeError, KeyError, RecursionError) as error:
        raise DeclarationError(f"the schema is not Avro: {error}") from None
    return found


def _as_record(schema: Any, named: Mapping[str, Any]) -> Any:
    """Returns the schema of a record unchanged, and wraps any other schema in a record's schema.

    The wrapping record has a single field. The encoded bytes are the same in both cases.
    """
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind in ("record", "error") or (isinstance(kind, str) and kind in named):
        return schema
    return {
        "type": "record",
        "name": "kappa.Bare",
        "fields": [{"name": BARE_FIELD, "type": schema}],
    }


def read_record(value: bytes, writer: Any, reader: Any = None) -> dict[str, Any]:
    """Decodes a record with the schema `writer`, and converts it to the schema `reader`.

    If `reader` is None, the record is not converted. Both schemas must have no logical types.
    Raises Rejected if the bytes are not exactly one record, or do not fit the schema `reader`.
    """
    read, unresolved, damage = _fastavro_reader()
    left = BytesIO(value)
    try:
        event = read(left, writer, reader)
    except UnicodeDecodeError:
        raise Rejected(Reason.NOT_UTF8, "a text of the value is not UTF-8") from None
    except unresolved as error:
        raise Rejected(
            Reason.SCHEMA_MISMATCH, f"the value does not fit the declared schema: {error}"
        ) from None
    except damage as error:
        raise Rejected(
            Reason.MALFORMED_AVRO,
            f"the value is not a record of its schema: {_damage_of(error)}",
        ) from None
    if left.tell() != len(value):
        raise Rejected(Reason.MALFORMED_AVRO, f"{len(value) - left.tell()} bytes follow the record")
    assert isinstance(event, dict), "the schema is a record"
    return event


def _damage_of(error: Exception) -> str:
    """Describes the damage of a value in words, from the error that fastavro raised.

    The description becomes part of a reject's detail.
    """
    match error:
        case EOFError() if str(error).startswith("Expected -"):
            return "a length in it is negative"
        case EOFError():
            return "the record ends early"
        case IndexError() if str(error).startswith("string index"):
            # A number of variable length, of which the last byte is missing.
            return "the record ends early"
        case IndexError():
            return "a union or an enum in it has no such branch"
        case OverflowError() | MemoryError():
            return "a number in it is too large"
        case _:
            return "its bytes are damaged"


@cache
def _fastavro_reader() -> tuple[Any, type[Exception], tuple[type[Exception], ...]]:
    """Returns fastavro's function that decodes records, and the errors that it can raise.

    The second value is the error for schemas that do not match, and the third value contains the
    errors for damaged values. fastavro is imported on the first call.
    """
    from fastavro import schemaless_reader  # noqa: PLC0415  # see `parsed`
    from fastavro.read import SchemaResolutionError  # noqa: PLC0415
    from fastavro.schema import SchemaParseException  # noqa: PLC0415

    damage = (
        *(EOFError, IndexError, KeyError, ValueError, TypeError, OverflowError, MemoryError),
        *(struct.error, SchemaParseException),
    )
    return schemaless_reader, SchemaResolutionError, damage


def plain_text(text: str) -> str:
    """Returns the text of a schema without documentation and white space.

    Schemas with equal texts decode all records to the same values.
    """
    return json.dumps(_without_keys(json.loads(text), _PROSE), ensure_ascii=False)


def why_unreadable(schema: AvroSchema) -> str | None:
    """Returns the reason why no record may be read with a schema, or None if records may be read.

    A schema is refused if it contains itself, is too large or is nested too deep, or if it has an
    array whose elements have no bytes. The length of such an array is not limited by the record's
    size, so reading a damaged record might never end.
    """
    try:
        if _count_parts(schema.whole, schema.named, (), {}) > _MOST_PARTS:
            return f"it has more than {_MOST_PARTS:,} parts"
        return next(_endless_parts(schema.whole, schema.named), None)
    except _WithinItself as error:
        return f"{error} contains itself"
    except RecursionError:
        return "its parts are nested too deep"


def differing_times(writer: AvroSchema, reader: AvroSchema) -> str | None:
    """Describes a field whose logical type differs between two schemas, or returns None.

    Avro's conversion between schemas ignores logical types, so without this check milliseconds
    could be read as microseconds.
    """
    known = dict(_logical_types(reader.whole, reader.named, ""))
    for path, logical in _logical_types(writer.whole, writer.named, ""):
        if path in known and known[path] != logical:
            return f"{path.strip('.')} is {logical}, and {known[path]} is declared"
    return None


def _bare_schema(schema: Any) -> Any:
    return _without_keys(schema, {"logicalType", "precision", "scale"})


def _without_keys(schema: Any, names: set[str]) -> Any:
    match schema:
        case dict():
            return {
                name: value
                if name in {"default", "symbols", "aliases"}
                else _without_keys(value, names)
                for name, value in schema.items()
                if name not in names
            }
        case list():
            return [_without_keys(each, names) for each in schema]
        case _:
            return schema


def _schema_parts(schema: Any, named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the direct parts of a schema, each with the part's name in a path.

    The name is a field's name, "[]" for elements, "{}" for the values of a map, or "" for a part
    without a name.
    """
    match schema:
        case list():
            yield from (("", each) for each in schema)
        case {"type": "record" | "error", "fields": fields}:
            yield from ((field["name"], field["type"]) for field in fields)
        case {"type": "array", "items": items}:
            yield "[]", items
        case {"type": "map", "values": values}:
            yield "{}", values
        case {"type": dict() | list() as inner}:
            yield "", inner
        case str() if schema in named:
            yield "", named[schema]
        case _:
            pass


def _logical_types(
    schema: Any, named: Mapping[str, Any], path: str, within: tuple[int, ...] = ()
) -> Iterator[tuple[str, str]]:
    if isinstance(schema, dict) and "logicalType" in schema:
        scale = f" of scale {schema.get('scale', 0)}" if schema["logicalType"] == "decimal" else ""
        yield path, f"{schema['logicalType']}{scale}"
    if id(schema) in within:
        return
    for name, part in _schema_parts(schema, named):
        yield from _logical_types(
            part, named, f"{path}.{name}" if name else path, (*within, id(schema))
        )


class _WithinItself(Exception):
    """The error for a type of a schema that contains itself. Its message is the type's name."""


def _count_parts(
    schema: Any, named: Mapping[str, Any], within: tuple[str, ...], known: dict[str, int]
) -> int:
    """Counts the parts of a schema. The parts of a named type are counted at each use of the type.

    `within` contains the names of the enclosing types, and `known` contains the number of parts of
    each named type that was already counted. Raises _WithinItself if a type contains itself.
    """
    name = str(schema.get("name")) if isinstance(schema, dict) else str(schema)
    if name not in named:
        return 1 + sum(
            _count_parts(part, named, within, known) for _, part in _schema_parts(schema, named)
        )
    if name in within:
        raise _WithinItself(name)
    if name not in known:
        of = named[name]
        known[name] = 1 + sum(
            _count_parts(part, named, (*within, name), known)
            for _, part in _schema_parts(of, named)
        )
    return known[name]


def _endless_parts(schema: Any, named: Mapping[str, Any]) -> Iterator[str]:
    is_array = isinstance(schema, dict) and schema.get("type") == "array"
    if is_array and _has_no_bytes(schema["items"], named):
        yield "it has an array of elements without bytes"
    for _, part in _schema_parts(schema, named):
        yield from _endless_parts(part, named)


def _has_no_bytes(schema: Any, named: Mapping[str, Any]) -> bool:
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    match schema:
        case "null" | {"type": "null"} | {"type": "fixed", "size": 0}:
            return True
        case {"type": "record", "fields": fields}:
            return all(_has_no_bytes(field["type"], named) for field in fields)
        case {"type": dict() | str() as inner} if inner != schema:
            return isinstance(inner, dict) and _has_no_bytes(inner, named)
        case _:
            return False
