"""Events as Protobuf messages, with or without the id of a registry's schema before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.formats.protobuf_schema import (
    KIND,
    indexes_of,
    message_at,
    message_named,
    message_types,
    why_unwritten,
)
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    RegisteredSchema,
    Subject,
    frame_message,
    read_pin,
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
from kappa.declare.project_files import read_text_file
from kappa.declare.values.columns import (
    Array,
    Column,
    Decimal,
    Scalar,
    Struct,
    Type,
    refuse_repeated,
)
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS, Check, check_of

_DECIMAL = Decimal(20, 0)
_BYTES, _ENUM, _MESSAGE = 12, 14, 11
_SCALARS: dict[int, Type] = {
    1: Scalar("double"),
    2: Scalar("float"),
    **dict.fromkeys((3, 16, 18, 7, 13), Scalar("bigint")),
    **dict.fromkeys((4, 6), _DECIMAL),
    **dict.fromkeys((5, 15, 17), Scalar("int")),
    8: Scalar("boolean"),
    9: Scalar("string"),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String")
}
_KEY, _VALUE = "key", "value"


# Messages are nested no deeper than Protobuf's compilers allow.
_MOST_INDEXES = 32
# Producers choose the bytes of frames, so only so many frames are remembered.
_MOST_KNOWN = 1_000
_HINT = (
    "give the path of a .proto file in the project, or a subject: "
    'Protobuf(Subject("orders-value"), message="shop.Order")'
)


@dataclass(frozen=True, slots=True, init=False)
class Protobuf:
    """The format of records that each contain one Protobuf message.

    `schema` is a `Subject`, or the path of a .proto file relative to the project's folder. The
    schema is part of the version. `message` is the full name of the message, and may be omitted if
    the schema contains only one message. If the topic declares no event, the message's fields are
    its columns.

    If `framed`, each record begins with the id of the writer's schema and the position of the
    message in that schema, as serializers of a schema registry write them. The default is True for
    a subject, and False for a file. Records that contain a message of another type are rejected.
    Fields that are not in the schema are ignored.

    Example:
        Topic("orders", format=Protobuf("schemas/order.proto", message="shop.Order"))
    """

    schema: str | Subject
    message: str
    framed: bool
    text: str
    references: tuple[str, ...]
    pin: PinnedSchema | None
    source: Source = field(compare=False)

    def __init__(
        self,
        schema: str | Path | Subject,
        *,
        message: str | None = None,
        framed: bool | None = None,
    ) -> None:
        source = Source.of_caller()
        if (
            not isinstance(schema, str | Path | Subject)
            or not isinstance(message, str | None)
            or not isinstance(framed, bool | None)
        ):
            raise DeclarationError(
                f"{source}: format protobuf is given {describe_value(schema)}, "
                f"message={option_text(message)}, framed={option_text(framed)}",
                hint=_HINT,
            )
        pin: PinnedSchema | None = None
        with error_prefix(f"{source}: format protobuf"):
            if isinstance(schema, Subject):
                pin = read_pin(schema)
                found = pin.schema
            else:
                found = RegisteredSchema(KIND, read_text_file(Path(schema), source.file))
            known = message_named(types_of(found), message)
            message_landings(known)
        set_field = object.__setattr__
        set_field(self, "schema", schema if isinstance(schema, Subject) else str(schema))
        set_field(self, "message", known.full_name)
        set_field(self, "framed", pin is not None if framed is None else framed)
        set_field(self, "text", found.text or "")
        set_field(self, "references", tuple(found.references))
        set_field(self, "pin", pin)
        set_field(self, "source", source)

    def declared_lines(self) -> Iterator[str]:
        """Yields the lines of text with which a version describes the format.

        They are the name of the format, and lines that describe the declared message.
        """
        yield f"format protobuf {self.message}{', framed by a registry' if self.framed else ''}"
        yield from _described_lines(self.described_message(), set())

    def declared_event(self) -> tuple[Column, ...]:
        """Returns the fields of the message as columns.

        Raises DeclarationError if a field cannot become a column.
        """
        return columns_of(self._field_landings())

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if columns do not match the fields of the message."""
        check_declared(columns, self._field_landings(), "Protobuf", by_schema=by_schema)

    def event_reader(self, columns: Sequence[Column]) -> ProtobufReader:
        """Returns a reader of messages for these columns."""
        return ProtobufReader(self, columns)

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Encodes fields as a message, by Protobuf's standard mapping from JSON.

        Raises UsageError if the message cannot represent the fields. Also raises UsageError if the
        record must begin with the id of a registry's schema, but the schema comes from a file and
        has no id.
        """
        from google.protobuf import json_format, message_factory  # noqa: PLC0415  # see message_types

        del columns
        message = self.described_message()
        if self.framed and self.pin is None:
            raise UsageError(
                "an event of a schema in a file has no id to be framed with",
                hint='declare the subject: Protobuf(Subject("orders-value")); or give the bytes',
            )
        try:
            made = json_format.ParseDict(fields, message_factory.GetMessageClass(message)())
            value: bytes = made.SerializeToString(deterministic=True)
        except (json_format.ParseError, ValueError, TypeError) as error:
            why = why_unwritten(error)
            raise UsageError(f"the event cannot be written as Protobuf: {why}") from None
        if self.pin is None:
            return value
        return frame_message(self.pin.id, _written_indexes(indexes_of(message)) + value)

    def described_message(self) -> Any:
        """Returns the descriptor of the declared message, as Google's library represents it."""
        return message_named(message_types(self.text, self.references), self.message)

    def _field_landings(self) -> dict[str, Landing]:
        return {
            name: found for name, (found, _) in message_landings(self.described_message()).items()
        }


def types_of(found: RegisteredSchema) -> Any:
    """Returns the Protobuf file descriptor of a schema in the registry.

    Raises DeclarationError if the schema is not a Protobuf schema.
    """
    if found.kind != KIND:
        raise DeclarationError(f"the schema is of type {found.kind}, not Protobuf")
    return message_types(found.text or "", found.references)


class ProtobufReader:
    """A reader of messages of the declared type.

    The writer of a message may have used another schema for that type.
    """

    def __init__(self, form: Protobuf, columns: Sequence[Column]) -> None:
        from google.protobuf import message_factory  # noqa: PLC0415  # see message_types
        from google.protobuf.message import DecodeError  # noqa: PLC0415

        message = form.described_message()
        wanted = {name for column in columns for name in (column.name, *column.was)}
        known = message_landings(message)
        self._damage = DecodeError
        self._message = message_factory.GetMessageClass(message)
        self._name = form.message
        self._framed = form.framed
        self._landings = known
        self._taken = [(name, take) for name, (_, take) in known.items() if name in wanted]
        # By id and place, why a message is not the declared message; None: the message is.
        self._others: dict[tuple[int, tuple[int, ...]], Rejected | None] = {}
        if form.pin is not None:
            self._others[form.pin.id, indexes_of(message)] = None

    def fields(self, value: bytes) -> dict[str, Any]:
        """Decodes the fields of a message.

        Raises Rejected if the bytes are not a message, or are a message of another type.
        """
        if self._framed:
            schema_id, value = split_frame(value)
            indexes, value = _split_indexes(value)
            other = self._known_other(schema_id, indexes)
            if other is not None:
                raise Rejected(other.reason, other.detail)
        try:
            message = self._message.FromString(value)
            return {name: take(message) for name, take in self._taken}
        except UnicodeDecodeError:
            raise Rejected(Reason.NOT_UTF8, "a text of the value is not UTF-8") from None
        except self._damage as error:
            raise Rejected(
                Reason.MALFORMED_PROTOBUF, f"the value is not a {self._name}: {error}"
            ) from None

    def column_check(self, column: Column) -> Check:
        """Returns the function that converts a field's decoded value to the value in the row."""
        return self._landings[column.name][0].land

    @property
    def message_descriptor(self) -> Any:
        """Returns the descriptor of the declared message, as Google's library represents it."""
        return self._message.DESCRIPTOR

    def frame_bytes(self, value: bytes) -> bytes | None:
        """Returns the bytes before the message in a value: the id of a schema, and message indexes.

        The result is empty if records of the format have no such bytes. Returns None if these bytes
        are not valid, or if the value contains a message of another type.
        """
        if not self._framed:
            return b""
        try:
            schema_id, message = split_frame(value)
            indexes, message = _split_indexes(message)
        except Rejected:
            return None
        known = self._known_other(schema_id, indexes) is None
        return value[: len(value) - len(message)] if known else None

    def _known_other(self, schema_id: int, indexes: tuple[int, ...]) -> Rejected | None:
        asked = schema_id, indexes
        if asked in self._others:
            return self._others[asked]
        other = self._why_other(schema_id, indexes)
        if len(self._others) < _MOST_KNOWN:
            self._others[asked] = other
        return other

    def _why_other(self, schema_id: int, indexes: tuple[int, ...]) -> Rejected | None:
        try:
            found = writer_schema(schema_id)
            name = message_at(types_of(found), indexes)
        except Rejected as rejected:
            return rejected
        except DeclarationError as error:
            return Rejected(
                Reason.SCHEMA_MISMATCH, f"schema {schema_id} cannot be used: {error.message}"
            )
        if name == self._name:
            return None
        return Rejected(
            Reason.SCHEMA_MISMATCH,
            f"the value is of {name or 'no message'} in schema {schema_id}, not {self._name}",
        )


def _described_lines(message: Any, seen: set[str]) -> Iterator[str]:
    """Yields lines that describe a message, and the messages and enums that it contains.

    Each message and each enum is described once; `seen` contains the names of those that are
    already described.
    """
    seen.add(message.full_name)
    for each in message.fields:
        of = each.message_type or each.enum_type
        options = [
            *(["repeated"] if each.is_repeated else []),
            *(["nullable"] if each.has_presence else []),
            *([f"default {each.default_value!r}"] if each.has_default_value else []),
        ]
        yield (
            f"{message.full_name}.{each.name} {each.number} of type {each.type} "
            f"{'' if of is None else of.full_name} {' '.join(options)}".rstrip()
        )
        if each.enum_type is not None and each.enum_type.full_name not in seen:
            seen.add(each.enum_type.full_name)
            yield from (
                f"{each.enum_type.full_name} {value.number} is {value.name}"
                for value in each.enum_type.values
            )
        if each.message_type is not None and each.message_type.full_name not in seen:
            yield from _described_lines(each.message_type, seen)


def _split_indexes(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """Splits the bytes after a schema's id into the message's indexes and the encoded message.

    The indexes are the position of the message's type in the schema. Raises Rejected if the bytes
    are not valid.
    """
    count, place = _read_zigzag(value, 0)
    if count == 0:
        return (0,), value[place:]
    if not 0 < count <= _MOST_INDEXES:
        raise Rejected(Reason.MALFORMED_PROTOBUF, f"the frame names a message by {count} indexes")
    indexes = []
    for _ in range(count):
        index, place = _read_zigzag(value, place)
        indexes.append(index)
    return tuple(indexes), value[place:]


def _read_zigzag(value: bytes, place: int) -> tuple[int, int]:
    found = shift = 0
    # An index has five bytes at most.
    for at in range(place, min(place + 5, len(value))):
        found |= (value[at] & 0x7F) << shift
        shift += 7
        if value[at] < 0x80:
            return (found >> 1) ^ -(found & 1), at + 1
    raise Rejected(Reason.MALFORMED_PROTOBUF, "the value ends within the indexes of its message")


def _written_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == (0,):
        return b"\0"
    written = bytearray()
    for number in (len(indexes), *indexes):
        left = number << 1
        while left >= 0x80:
            written.append(left & 0x7F | 0x80)
            left >>= 7
        written.append(left)
    return bytes(written)


def message_landings(message: Any) -> dict[str, tuple[Landing, Callable[[Any], Any]]]:
    """Returns a landing and a function for each field of a message, by the field's name.

    The landing is the column for the field, with the function that converts its values. The
    function beside the landing reads the field's value from a message. If a field cannot become a
    column, its landing raises an error when the landing is used. Raises DeclarationError if the
    message has no fields.
    """
    found = {}
    for part in message.fields:
        try:
            found[part.name] = (
                _field_landing(part, part.name, (message.full_name,)),
                _value_getter(part),
            )
        except DeclarationError as error:
            found[part.name] = (refused_landing(error), _value_getter(part))
    if not found:
        raise DeclarationError("the message has no fields, and they are the columns")
    return found


def _value_getter(field: Any) -> Callable[[Any], Any]:
    """Returns the function that reads a field's value from a message.

    If a message does not contain the field, the function returns the field's default value. But if
    the schema declares no default and Protobuf can tell that the field is absent, the function
    returns None.
    """
    name = field.name
    if not field.has_presence or field.has_default_value:
        return lambda message: getattr(message, name)
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _is_map(field: Any) -> bool:
    return bool(
        field.type == _MESSAGE and field.is_repeated and field.message_type.GetOptions().map_entry
    )


def _field_landing(field: Any, path: str, within: tuple[str, ...]) -> Landing:
    nullable = field.has_presence and not field.has_default_value
    if _is_map(field):
        parts = field.message_type.fields_by_name
        key = _value_landing(parts[_KEY], f"a key of {path}", within)
        value = _value_landing(parts[_VALUE], f"a value of {path}", within)
        entry = Struct(
            (
                Column(_KEY, key.type, nullable=False),
                Column(_VALUE, value.type, nullable=value.nullable),
            )
        )
        return Landing(Array(entry), nullable=False, land=_map_check(key.land, value.land))
    found = _value_landing(field, path, within)
    if field.is_repeated:
        return Landing(Array(found.type), nullable=False, land=_array_check(found.land))
    return Landing(found.type, nullable=nullable, land=found.land)


def _value_landing(field: Any, path: str, within: tuple[str, ...]) -> Landing:
    kind = field.type
    if kind in _SCALARS:
        of = _SCALARS[kind]
        is_real = str(of) in {"double", "float"}
        return Landing(of, nullable=False, land=finite_check(str(of)) if is_real else check_of(of))
    if kind == _ENUM:
        return Landing(Scalar("string"), nullable=False, land=_enum_check(field.enum_type))
    if kind != _MESSAGE:
        raise refused_part(path, "bytes" if kind == _BYTES else "a group")
    message = field.message_type
    name = message.full_name
    if name == TIMESTAMP:
        return Landing(Scalar("timestamp"), nullable=False, land=_timestamp_value)
    if name in WRAPPERS:
        inner = _value_landing(message.fields_by_name[_VALUE], path, within)
        land = inner.land
        return Landing(inner.type, False, lambda found, called: land(found.value, called))  # noqa: FBT003
    if name.startswith("google.protobuf."):
        raise refused_part(path, name)
    if name in within:
        raise refused_part(path, f"{name}, which contains itself: columns have an end")
    return _message_landing(message, path, (*within, name))


def _message_landing(message: Any, path: str, within: tuple[str, ...]) -> Landing:
    parts = [
        (field.name, _field_landing(field, f"{path}.{field.name}", within), _value_getter(field))
        for field in message.fields
    ]
    if not parts:
        raise refused_part(path, "a message without fields")
    kind = Struct(tuple(Column(name, part.type, part.nullable) for name, part, _ in parts))
    refuse_repeated(kind.fields, path)

    def land_message(found: Any, name: str) -> dict[str, Any]:
        return {
            field: None if (value := take(found)) is None else part.land(value, f"{name}.{field}")
            for field, part, take in parts
        }

    return Landing(kind, nullable=False, land=land_message)


def _enum_check(kind: Any) -> Check:
    names: dict[int, str] = {}
    for value in kind.values:
        # Of several names for one number, the first counts.
        names.setdefault(value.number, value.name)

    def land_enum(found: int, name: str) -> str:
        if found not in names:
            raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {found}, which {kind.name} has not")
        return names[found]

    return land_enum


def _timestamp_value(found: Any, name: str) -> int:
    moment = int(found.seconds * 1_000_000 + found.nanos // 1000)
    if not 0 <= found.nanos < 1_000_000_000 or not FIRST_MICROS <= moment <= LAST_MICROS:
        raise Rejected(
            Reason.OUT_OF_RANGE,
            f"{name} is {found.seconds} s and {found.nanos} ns, beyond what timestamp holds",
        )
    return moment


def _array_check(element: Check) -> Check:
    return lambda found, name: [element(each, f"an element of {name}") for each in found]


def _map_check(key: Check, value: Check) -> Check:
    def land_map(found: Any, name: str) -> list[Any]:
        # Maps have no order, and equal maps must be equal rows.
        return [
            {_KEY: key(each, f"a key of {name}"), _VALUE: value(found[each], f"{name}.{each}")}
            for each in sorted(found)
        ]

    return land_map
