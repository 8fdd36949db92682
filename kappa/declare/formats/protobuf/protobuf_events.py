"""Events as Protobuf's messages, with or without the framing of a schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.described import described, shown
from kappa.declare.formats.landing import Landing, check_declared, columns_of
from kappa.declare.formats.pinned import PinnedSchema, Subject, read_pin
from kappa.declare.formats.protobuf.message_columns import message_landings
from kappa.declare.formats.protobuf.proto_schema import (
    KIND,
    indexes_of,
    message_at,
    message_named,
    message_types,
    why_unwritten,
)
from kappa.declare.formats.schema_source import RegisteredSchema, framed, unframed, written_by
from kappa.declare.named_files import read_text_file
from kappa.declare.values.columns import Column
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import Check

# Messages are in messages, no deeper than compilers of Protobuf allow.
_MOST_INDEXES = 32
# A frame is what a producer makes of it.
_MOST_KNOWN = 1_000
_HINT = (
    "give the path of a .proto file in the project, or a subject: "
    'Protobuf(Subject("orders-value"), message="shop.Order")'
)


@dataclass(frozen=True, slots=True, init=False)
class Protobuf:
    """The format of one Protobuf message a value.

    `schema` is a `Subject`, or the path of a .proto file from the project's folder. It is part of
    the version. `message` is the full name of the message; it may be left out if the schema has one
    alone. The topic's columns are its fields, if the topic declares no event.

    `framed` records begin with the id of the schema they were written with, and with the place of
    their message in it, as serializers of a schema registry write them: so they are if the schema
    is a subject. Another message than the declared one is rejected. Fields that are unknown here
    are ignored.

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
                f"{source}: format protobuf is given {described(schema)}, "
                f"message={shown(message)}, framed={shown(framed)}",
                hint=_HINT,
            )
        pin: PinnedSchema | None = None
        try:
            if isinstance(schema, Subject):
                pin = read_pin(schema)
                found = pin.schema
            else:
                found = RegisteredSchema(KIND, read_text_file(Path(schema), source.file))
            known = message_named(types_of(found), message)
            message_landings(known)
        except DeclarationError as error:
            raise DeclarationError(
                f"{source}: format protobuf: {error.message}", hint=error.hint
            ) from None
        set_field = object.__setattr__
        set_field(self, "schema", schema if isinstance(schema, Subject) else str(schema))
        set_field(self, "message", known.full_name)
        set_field(self, "framed", pin is not None if framed is None else framed)
        set_field(self, "text", found.text or "")
        set_field(self, "references", tuple(found.references))
        set_field(self, "pin", pin)
        set_field(self, "source", source)

    def lines(self) -> Iterator[str]:
        """Yields its name and what its message is, without the schema's prose."""
        yield f"format protobuf {self.message}{', framed by a registry' if self.framed else ''}"
        yield from _described(self.described(), set())

    def event(self) -> tuple[Column, ...]:
        """Returns the message's fields as columns. Raises DeclarationError if one can be none."""
        return columns_of(self._landings())

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Refuses columns that are not what the message's fields are."""
        check_declared(columns, self._landings(), "Protobuf", by_schema=by_schema)

    def reader(self, columns: Sequence[Column]) -> ProtobufReader:
        """Returns a reader of messages."""
        return ProtobufReader(self, columns)

    def encode(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Returns the message of fields, as Protobuf's own mapping of JSON has them."""
        from google.protobuf import json_format, message_factory  # noqa: PLC0415  # see proto_schema.py

        del columns
        message = self.described()
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
        return framed(self.pin.id, _written_indexes(indexes_of(message)) + value)

    def described(self) -> Any:
        """Returns the description of the declared message."""
        return message_named(message_types(self.text, self.references), self.message)

    def _landings(self) -> dict[str, Landing]:
        return {name: found for name, (found, _) in message_landings(self.described()).items()}


def types_of(found: RegisteredSchema) -> Any:
    """Returns the description of a schema's file. Raises DeclarationError if it is none."""
    if found.kind != KIND:
        raise DeclarationError(f"the schema is of type {found.kind}, not Protobuf")
    return message_types(found.text or "", found.references)


class ProtobufReader:
    """The reader of messages, each of the declared type, whatever schema it was written with."""

    def __init__(self, form: Protobuf, columns: Sequence[Column]) -> None:
        from google.protobuf import message_factory  # noqa: PLC0415  # see proto_schema.py
        from google.protobuf.message import DecodeError  # noqa: PLC0415

        message = form.described()
        wanted = {name for column in columns for name in (column.name, *column.was)}
        known = message_landings(message)
        self._damage = DecodeError
        self._message = message_factory.GetMessageClass(message)
        self._name = form.message
        self._framed = form.framed
        self._landings = known
        self._taken = [(name, take) for name, (_, take) in known.items() if name in wanted]
        # By id and place, why a message is not the declared one; None: it is.
        self._others: dict[tuple[int, tuple[int, ...]], Rejected | None] = {}
        if form.pin is not None:
            self._others[form.pin.id, indexes_of(message)] = None

    def fields(self, value: bytes) -> dict[str, Any]:
        """Reads the fields of one message. Raises Rejected if the bytes are none."""
        if self._framed:
            schema_id, value = unframed(value)
            indexes, value = _indexes(value)
            other = self._other(schema_id, indexes)
            if other is not None:
                raise Rejected(other.reason, other.detail)
        try:
            message = self._message.FromString(value)
            return {name: take(message) for name, take in self._taken}
        except UnicodeDecodeError:
            raise Rejected(Reason.NOT_UTF8, "a text of the value is not UTF-8") from None
        except self._damage as error:
            raise Rejected(
                Reason.MALFORMED_PROTOBUF, f"the value is no {self._name}: {error}"
            ) from None

    def check(self, column: Column) -> Check:
        """Returns the check that makes the row's value of a field."""
        return self._landings[column.name][0].land

    @property
    def message(self) -> Any:
        """Returns the description of the declared message."""
        return self._message.DESCRIPTOR

    def frame(self, value: bytes) -> bytes | None:
        """Returns the bytes before the message of a value; None if it is not the declared one."""
        if not self._framed:
            return b""
        try:
            schema_id, message = unframed(value)
            indexes, message = _indexes(message)
        except Rejected:
            return None
        known = self._other(schema_id, indexes) is None
        return value[: len(value) - len(message)] if known else None

    def _other(self, schema_id: int, indexes: tuple[int, ...]) -> Rejected | None:
        asked = schema_id, indexes
        if asked in self._others:
            return self._others[asked]
        other = self._why_other(schema_id, indexes)
        if len(self._others) < _MOST_KNOWN:
            self._others[asked] = other
        return other

    def _why_other(self, schema_id: int, indexes: tuple[int, ...]) -> Rejected | None:
        try:
            found = written_by(schema_id)
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


def _described(message: Any, seen: set[str]) -> Iterator[str]:
    """Yields what a message is, then those that it has, each once."""
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
            yield from _described(each.message_type, seen)


def _indexes(value: bytes) -> tuple[tuple[int, ...], bytes]:
    """Splits what follows a schema's id into the indexes of the message, and the message."""
    count, place = _zigzag(value, 0)
    if count == 0:
        return (0,), value[place:]
    if not 0 < count <= _MOST_INDEXES:
        raise Rejected(Reason.MALFORMED_PROTOBUF, f"the frame names a message by {count} indexes")
    indexes = []
    for _ in range(count):
        index, place = _zigzag(value, place)
        indexes.append(index)
    return tuple(indexes), value[place:]


def _zigzag(value: bytes, place: int) -> tuple[int, int]:
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
