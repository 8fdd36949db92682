"""Events in Avro's binary encoding, with or without the id of a registry's schema before them.

fastavro decodes records with a copy of the schema that has no logical types. Then this module
converts each decoded value to the value in the row, by the rules of values/value.py. So decimals
are exact, and times are in microseconds. Source:
https://avro.apache.org/docs/1.12.0/specification/.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal as Number
from io import BytesIO
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, UsageError, did_you_mean
from kappa.base.source import Source
from kappa.declare.formats.avro_schema import (
    AvroSchema,
    differing_times,
    parse_avro,
    plain_text,
    read_record,
    why_unreadable,
)
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    RegisteredSchema,
    Subject,
    frame_message,
    read_pin,
    remember_writer,
    split_frame,
    writer_schema,
)
from kappa.declare.formats.schema_fields import (
    Landing,
    check_declared,
    columns_of,
    finite_check,
    refused_landing,
    refused_part,
)
from kappa.declare.options import describe_value, error_prefix, option_text
from kappa.declare.project_files import read_schema_file
from kappa.declare.values.columns import Array, Column, Decimal, Scalar, Struct, Type
from kappa.declare.values.reason import Reason, Rejected, show_value
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS, Check, check_of

_SCALARS = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "enum": "string",
}
_MICROS = {"timestamp-millis": 1000, "timestamp-micros": 1}
_DAY_MICROS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = FIRST_MICROS // _DAY_MICROS, LAST_MICROS // _DAY_MICROS
_MOST_DIGITS = 38
# Python makes no text of an endless number.
_MOST_BITS = 1_024
_KEY, _VALUE = "key", "value"


KIND = "AVRO"
_HINT = 'give the path of a schema in the project, or a subject: Avro(Subject("orders-value"))'
_MILLIS = "timestamp-millis"
_EVENT = "the event"


@dataclass(frozen=True, slots=True, init=False)
class Avro:
    """The format of records that each contain one value in Avro's binary encoding.

    `schema` is a `Subject`, or the path of a file relative to the project's folder. Records are
    read with this schema, which is part of the version. If the topic declares no event, the
    schema's fields are its columns.

    If `framed`, each record begins with the id of the writer's schema, as serializers of a schema
    registry write it. Records that were written with an older or newer schema are then converted to
    `schema`, by Avro's rules. Records that are not framed must be written with `schema` itself. The
    default is True for a subject, and False for a file.

    Example:
        Topic("orders", format=Avro("schemas/order.avsc"))
    """

    schema: str | Subject
    framed: bool
    text: str
    references: tuple[str, ...]
    pin: PinnedSchema | None
    source: Source = field(compare=False)

    def __init__(self, schema: str | Path | Subject, *, framed: bool | None = None) -> None:
        source = Source.of_caller()
        if not isinstance(schema, str | Path | Subject) or not isinstance(framed, bool | None):
            raise DeclarationError(
                f"{source}: format avro is given {describe_value(schema)}, "
                f"framed={option_text(framed)}",
                hint=_HINT,
            )
        pin: PinnedSchema | None = None
        with error_prefix(f"{source}: format avro"):
            if isinstance(schema, Subject):
                pin = read_pin(schema)
                found = pin.schema
            else:
                text = json.dumps(read_schema_file(Path(schema), source.file), ensure_ascii=False)
                found = RegisteredSchema(KIND, text)
            known = _of_kind(found)
            landings_of(known)
            wrong = why_unreadable(known)
        if wrong is not None:
            raise DeclarationError(
                f"{source}: format avro: no record can be read by the schema: {wrong}"
            )
        set_field = object.__setattr__
        set_field(self, "schema", schema if isinstance(schema, Subject) else str(schema))
        set_field(self, "framed", pin is not None if framed is None else framed)
        set_field(self, "text", plain_text(found.text or ""))
        set_field(self, "references", tuple(map(plain_text, found.references)))
        set_field(self, "pin", pin)
        set_field(self, "source", source)

    def declared_lines(self) -> Iterator[str]:
        """Yields the lines of text with which a version describes the format.

        They are the name of the format, and the schemas without documentation.
        """
        yield f"format avro{', framed by a registry' if self.framed else ''}"
        yield from (f"schema {each}" for each in (*self.references, self.text))

    def declared_event(self) -> tuple[Column, ...]:
        """Returns the fields of the schema as columns.

        Raises DeclarationError if a field cannot become a column.
        """
        return columns_of(landings_of(self._parsed_schema()))

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if columns do not match the fields of the schema."""
        check_declared(columns, landings_of(self._parsed_schema()), "Avro", by_schema=by_schema)

    def event_reader(self, columns: Sequence[Column]) -> AvroReader:
        """Returns a reader of records in this format."""
        del columns
        return AvroReader(self)

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Encodes JSON fields as an Avro record, with the declared schema.

        Raises UsageError if the schema cannot represent the fields. Also raises UsageError if the
        record must begin with the id of a registry's schema, but the schema comes from a file and
        has no id.
        """
        del columns
        if self.framed and self.pin is None:
            raise UsageError(
                "an event of a schema in a file has no id to be framed with",
                hint='declare the subject: Avro(Subject("orders-value")); or give the bytes',
            )
        return written_record(
            self._parsed_schema(), None if self.pin is None else self.pin.id, fields
        )

    def _parsed_schema(self) -> AvroSchema:
        return parse_avro(self.text, self.references)


def written_record(schema: AvroSchema, number: int | None, fields: Mapping[str, Any]) -> bytes:
    """Encodes JSON fields as an Avro record.

    If `number` is given, the record begins with this number as the id of a registry's schema.
    Raises UsageError if the schema cannot represent the fields.
    """
    from fastavro import schemaless_writer  # noqa: PLC0415  # see avro_schema.py

    into = BytesIO()
    try:
        schemaless_writer(
            into,
            schema.bare,
            avro_value(schema.whole, schema.named, fields, ""),
            strict_allow_default=True,
        )
    except (ValueError, TypeError, OverflowError, KeyError, AttributeError) as error:
        raise UsageError(f"the event cannot be written as Avro: {error}") from None
    return into.getvalue() if number is None else frame_message(number, into.getvalue())


def landings_of(schema: AvroSchema) -> dict[str, Landing]:
    """Returns the landing of each field of an event, by the field's name.

    A landing is the column for a field, together with the function that converts the field's
    decoded value to the value in the row. `schema` is the schema of the event.
    """
    return field_landings(schema.whole, schema.named)


def _of_kind(found: RegisteredSchema) -> AvroSchema:
    if found.kind != KIND or found.text is None:
        raise DeclarationError(f"the schema is of type {found.kind}, not Avro")
    return parse_avro(found.text, found.references)


class AvroReader:
    """A reader of Avro records. It decodes each record with the schema of the record's writer."""

    def __init__(self, form: Avro) -> None:
        self._schema = parse_avro(form.text, form.references)
        self._landings = landings_of(self._schema)
        self._framed = form.framed
        # The schemas of writers, by id; or why the schema reads no record.
        self._writers: dict[int, Any] = {}
        if form.pin is not None:
            self._writers[form.pin.id] = self._schema.bare

    def fields(self, value: bytes) -> dict[str, Any]:
        """Decodes the fields of a record, and converts them to the declared schema.

        Raises Rejected if the bytes are not exactly one record, or if the writer's schema cannot be
        used.
        """
        writer = self._schema.bare
        if self._framed:
            schema_id, value = split_frame(value)
            writer = self.writer_schema(schema_id)
            if isinstance(writer, Rejected):
                raise Rejected(writer.reason, writer.detail)
        return read_record(value, writer, self._schema.bare)

    def column_check(self, column: Column) -> Check:
        """Returns the function that converts a field's decoded value to the value in the row."""
        return self._landings[column.name].land

    @property
    def declared_schema(self) -> Any:
        """Returns the declared schema, without logical types."""
        return self._schema.bare

    @property
    def whole_schema(self) -> Any:
        """Returns the declared schema, with logical types."""
        return self._schema.whole

    def writer_schema(self, schema_id: int) -> Any:
        """Returns the registry's schema with this id, without logical types.

        If no record can be read with that schema, returns a Rejected that contains the reason.
        """
        known = self._writers.get(schema_id)
        if known is not None:
            return known
        writer: Any
        try:
            found = writer_schema(schema_id)
            writer = self._open_writer(schema_id, found.text or "", found.references)
        except Rejected as rejected:
            writer = rejected
        remember_writer(self._writers, schema_id, writer)
        return writer

    def _open_writer(self, schema_id: int, text: str, references: tuple[str, ...]) -> Any:
        try:
            writer = parse_avro(text, references)
        except DeclarationError as error:
            raise Rejected(
                Reason.SCHEMA_MISMATCH, f"schema {schema_id} cannot be used: {error.message}"
            ) from None
        wrong = why_unreadable(writer) or differing_times(writer, self._schema)
        if wrong is not None:
            raise Rejected(Reason.SCHEMA_MISMATCH, f"schema {schema_id} cannot be read: {wrong}")
        return writer.bare


def field_landings(schema: Any, named: Mapping[str, Any]) -> dict[str, Landing]:
    """Returns the column and the conversion function for each field of an event, by field name.

    The two form a `Landing`. `schema` is a schema that fastavro has parsed, and `named` contains
    its named types. Raises DeclarationError if the schema is not a record, or has no fields. If a
    field cannot become a column, its landing raises an error when the landing is used.
    """
    if not isinstance(schema, dict) or schema.get("type") not in {"record", "error"}:
        raise DeclarationError(
            f"the schema is {_schema_name(schema)}, and an event is one record",
            hint='its type is "record", and its fields are the columns',
        )
    if not schema["fields"]:
        raise DeclarationError("the schema has no fields, and they are the columns")
    reader = _SchemaLander(named)
    found = {}
    for part in schema["fields"]:
        name = part["name"]
        try:
            found[name] = reader.part_landing(part["type"], name, (schema["name"],))
        except DeclarationError as error:
            found[name] = refused_landing(error)
    return found


class _SchemaLander:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def part_landing(self, schema: Any, path: str, within: tuple[str, ...]) -> Landing:
        """Returns the column type and the conversion function for a part of a schema.

        `path` is the part's place in the event, for errors. `within` contains the names of the
        records that enclose the part. Raises DeclarationError if the part cannot become a column.
        """
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                raise refused_part(path, f"a union of {', '.join(map(_schema_name, schema))}")
            inner = self.part_landing(others[0], path, within)
            return Landing(inner.type, nullable=len(others) < len(schema), land=inner.land)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        whole = schema if isinstance(schema, dict) else {"type": schema}
        kind = whole["type"]
        if not isinstance(kind, str):
            return self.part_landing(kind, path, within)
        logical = whole.get("logicalType")
        if logical is not None:
            found = _logical_landing(logical, whole, path)
            if found is not None:
                return found
        if kind in _SCALARS:
            return _plain_landing(Scalar(_SCALARS[kind]))
        match kind:
            case "array":
                element = self.part_landing(whole["items"], f"an element of {path}", within)
                return Landing(Array(element.type), nullable=False, land=_array_check(element.land))
            case "map":
                value = self.part_landing(whole["values"], f"a value of {path}", within)
                entry = Struct(
                    (
                        Column(_KEY, Scalar("string"), nullable=False),
                        Column(_VALUE, value.type, value.nullable),
                    )
                )
                return Landing(Array(entry), nullable=False, land=_map_check(value.land))
            case "record":
                return self._record_landing(whole, path, within)
            case _:
                raise refused_part(path, _schema_name(whole))

    def _record_landing(
        self, schema: Mapping[str, Any], path: str, within: tuple[str, ...]
    ) -> Landing:
        if schema["name"] in within:
            raise refused_part(
                path, f"{schema['name']}, which contains itself: columns have an end"
            )
        parts = {
            field["name"]: self.part_landing(
                field["type"], f"{path}.{field['name']}", (*within, schema["name"])
            )
            for field in schema["fields"]
        }
        if not parts:
            raise refused_part(path, "a record without fields")
        kind = Struct(tuple(Column(name, part.type, part.nullable) for name, part in parts.items()))
        return Landing(kind, nullable=False, land=_record_values(parts))


def _logical_landing(logical: str, schema: Mapping[str, Any], path: str) -> Landing | None:
    """Returns the column type and the conversion function for a logical type of Avro.

    Returns None if this module does not know the logical type, which is then ignored. Raises
    DeclarationError if the logical type cannot become a column.
    """
    kind = schema["type"]
    match logical:
        case "timestamp-millis" | "timestamp-micros" if kind == "long":
            return _plain_landing(Scalar("timestamp"), _time_check(_MICROS[logical]))
        case "date" if kind == "int":
            return _plain_landing(Scalar("date"), _day_value)
        case "decimal" if kind in {"bytes", "fixed"}:
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > _MOST_DIGITS:
                raise refused_part(path, f"a decimal of {precision} digits, and {_MOST_DIGITS} fit")
            decimal = Decimal(precision, scale)
            return _plain_landing(decimal, _decimal_check(decimal))
        case _ if logical.startswith(("timestamp-", "local-timestamp-", "time-", "duration")):
            raise refused_part(path, logical)
        case _:
            return None


def _plain_landing(kind: Type, land: Check | None = None) -> Landing:
    return Landing(kind, nullable=False, land=land or _LANDS.get(str(kind)) or check_of(kind))


def _text_value(found: Any, name: str) -> Any:
    del name
    return found


_LANDS: dict[str, Check] = {
    "double": finite_check("double"),
    "float": finite_check("float"),
    "string": _text_value,
}


def _time_check(micros: int) -> Check:
    def land_time(found: int, name: str) -> int:
        moment = found * micros
        if not FIRST_MICROS <= moment <= LAST_MICROS:
            raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {found}, beyond what timestamp holds")
        return moment

    return land_time


def _day_value(found: int, name: str) -> int:
    if not _FIRST_DAY <= found <= _LAST_DAY:
        raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {found}, beyond what date holds")
    return found


def _decimal_check(kind: Decimal) -> Check:
    check = check_of(kind)

    def land_decimal(found: bytes, name: str) -> Any:
        # By the digits: arithmetic of decimals would round to the context's precision.
        whole = int.from_bytes(found, signed=True)
        if whole.bit_length() > _MOST_BITS:
            raise Rejected(
                Reason.OUT_OF_RANGE, f"{name} has {len(found)} bytes, beyond what {kind} holds"
            )
        digits = tuple(map(int, str(abs(whole))))
        return check(Number((int(whole < 0), digits, -kind.scale)), name)

    return land_decimal


def _array_check(element: Check) -> Check:
    def land_array(found: list[Any], name: str) -> list[Any]:
        return [None if each is None else element(each, f"an element of {name}") for each in found]

    return land_array


def _map_check(value: Check) -> Check:
    def land_map(found: dict[str, Any], name: str) -> list[Any]:
        # Maps have no order, and equal maps must be equal rows.
        return [
            {_KEY: key, _VALUE: None if each is None else value(each, f"{name}.{key}")}
            for key, each in sorted(found.items())
        ]

    return land_map


def _record_values(parts: Mapping[str, Landing]) -> Check:
    lands: list[tuple[str, Callable[[Any, str], Any]]] = [
        (name, part.land) for name, part in parts.items()
    ]

    def land_record(found: dict[str, Any], name: str) -> dict[str, Any]:
        return {
            part: None if (value := found[part]) is None else land(value, f"{name}.{part}")
            for part, land in lands
        }

    return land_record


def _schema_name(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(
            schema.get("logicalType") or schema.get("name") or _schema_name(schema.get("type"))
        )
    return "a union" if isinstance(schema, list) else show_value(str(schema)).strip('"')


def avro_value(schema: Any, named: Mapping[str, Any], value: Any, path: str) -> Any:
    """Converts a JSON value to the Python value that fastavro encodes.

    fastavro encodes with a schema without logical types, so this function converts logical types
    itself. `path` is the value's place in the event, or "" for the event itself. If a field is
    missing, the function uses the field's default, or null. Raises UsageError if the value does not
    fit the schema.
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
            return _logical_value(logical, schema, value, path)
        case {"type": "record", "fields": fields}:
            if not isinstance(value, Mapping):
                raise UsageError(f"{path or _EVENT} is not a mapping of its fields")
            _ensure_known(value, schema, path)
            return {field["name"]: _field_value(field, named, value, path) for field in fields}
        case {"type": "enum", "symbols": symbols}:
            if value not in symbols:
                raise UsageError(
                    f"{path} is {show_value(value)}, which is not one of {', '.join(symbols)}"
                )
            return value
        case {"type": "array", "items": items}:
            return [avro_value(items, named, each, path) for each in value]
        case {"type": "map", "values": values}:
            # An object, or a list of entries as rows have maps.
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


def _field_value(
    part: Mapping[str, Any], named: Mapping[str, Any], value: Mapping[str, Any], path: str
) -> Any:
    name = part["name"]
    inner = f"{path}.{name}" if path else name
    if name in value:
        return avro_value(part["type"], named, value[name], inner)
    if "default" not in part and not _may_be_null(part["type"]):
        raise UsageError(f"{inner} is missing, and its schema has no default")
    return part.get("default")


def _may_be_null(schema: Any) -> bool:
    match schema:
        case list():
            return any(map(_may_be_null, schema))
        case {"type": inner}:
            return _may_be_null(inner)
        case _:
            return bool(schema == "null")


def _ensure_known(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> None:
    """Raises UsageError if a value has a field that the schema's record lacks.

    Otherwise the field would be lost without notice.
    """
    names = [field["name"] for field in schema["fields"]]
    for name in value:
        if name not in names:
            raise UsageError(
                f"{path or _EVENT} has {name}, which is not a field of {schema['name']}",
                hint=did_you_mean(str(name), names) or f"its fields are {', '.join(names)}",
            )


def _logical_value(logical: str, schema: Mapping[str, Any], value: Any, path: str) -> Any:
    try:
        if logical.startswith("timestamp-"):
            micros = check_of(Scalar("timestamp"))(value, path)
            return micros // 1000 if logical == _MILLIS else micros
        if logical == "date":
            return check_of(Scalar("date"))(value, path)
        if logical == "decimal":
            whole = _whole_units(Number(str(value)), schema.get("scale", 0), path)
            size = schema.get("size", whole.bit_length() // 8 + 1)
            return whole.to_bytes(size, signed=True)
    except Rejected as rejected:
        raise UsageError(rejected.detail) from None
    return value


def _whole_units(value: Number, scale: int, path: str) -> int:
    """Returns a decimal as a whole number in units of 10^-`scale`, without rounding.

    Raises UsageError if the decimal has more than `scale` digits after the decimal point.
    """
    sign, digits, exponent = value.as_tuple()
    number, behind = int("".join(map(str, digits))), int(exponent) + scale
    unit = int(10 ** abs(behind))
    whole, rest = divmod(number, unit) if behind < 0 else (number * unit, 0)
    if rest:
        raise UsageError(f"{path} has more than {scale} digits behind the point")
    return -whole if sign else whole
