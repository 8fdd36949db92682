"""Events in Avro's binary form, with or without the framing of a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.described import described, shown
from kappa.declare.formats.avro_columns import landings
from kappa.declare.formats.avro_schema import (
    AvroSchema,
    differing_times,
    parsed,
    plain_text,
    read_record,
    why_unreadable,
)
from kappa.declare.formats.avro_values import avro_value
from kappa.declare.formats.landing import Landing, check_declared, columns_of
from kappa.declare.formats.pinned import PinnedSchema, Subject, read_pin
from kappa.declare.formats.schema_source import (
    MOST_WRITERS,
    RegisteredSchema,
    framed,
    unframed,
    written_by,
)
from kappa.declare.named_files import read_schema_file
from kappa.declare.values.columns import Column
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import Check

KIND = "AVRO"
_HINT = 'give the path of a schema in the project, or a subject: Avro(Subject("orders-value"))'


@dataclass(frozen=True, slots=True, init=False)
class Avro:
    """The format of one Avro record a value, in the binary form.

    `schema` is a `Subject`, or the path of a file from the project's folder. It is the schema by
    which records are read, and part of the version. The topic's columns are its fields, if the
    topic declares no event.

    `framed` records begin with the id of the schema they were written with, as serializers of a
    schema registry write them: so they are if the schema is a subject. Records of older and newer
    schemas are then read by Avro's rules. Records that are not framed are written with `schema`
    itself.

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
                f"{source}: format avro is given {described(schema)}, framed={shown(framed)}",
                hint=_HINT,
            )
        pin: PinnedSchema | None = None
        try:
            if isinstance(schema, Subject):
                pin = read_pin(schema)
                found = pin.schema
            else:
                text = json.dumps(read_schema_file(Path(schema), source.file), ensure_ascii=False)
                found = RegisteredSchema(KIND, text)
            known = _of_kind(found)
            landings_of(known)
            wrong = why_unreadable(known)
        except DeclarationError as error:
            raise DeclarationError(
                f"{source}: format avro: {error.message}", hint=error.hint
            ) from None
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

    def lines(self) -> Iterator[str]:
        """Yields its name and its schema, without the schema's prose."""
        yield f"format avro{', framed by a registry' if self.framed else ''}"
        yield from (f"schema {each}" for each in (*self.references, self.text))

    def event(self) -> tuple[Column, ...]:
        """Returns the schema's fields as columns. Raises DeclarationError if one can be none."""
        return columns_of(landings_of(self._parsed()))

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Refuses columns that are not what the schema's fields are."""
        check_declared(columns, landings_of(self._parsed()), "Avro", by_schema=by_schema)

    def reader(self, columns: Sequence[Column]) -> AvroReader:
        """Returns a reader of records."""
        del columns
        return AvroReader(self)

    def encode(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Returns the record of fields, as JSON has them, written with the declared schema."""
        del columns
        if self.framed and self.pin is None:
            raise UsageError(
                "an event of a schema in a file has no id to be framed with",
                hint='declare the subject: Avro(Subject("orders-value")); or give the bytes',
            )
        return written_record(self._parsed(), None if self.pin is None else self.pin.id, fields)

    def _parsed(self) -> AvroSchema:
        return parsed(self.text, self.references)


def written_record(schema: AvroSchema, number: int | None, fields: Mapping[str, Any]) -> bytes:
    """Returns the record of fields, as JSON has them; framed by the id of the schema, if given.

    Raises UsageError if they cannot be written by the schema.
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
    return into.getvalue() if number is None else framed(number, into.getvalue())


def landings_of(schema: AvroSchema) -> dict[str, Landing]:
    """Returns what each field of an event lands as."""
    return landings(schema.whole, schema.named)


def _of_kind(found: RegisteredSchema) -> AvroSchema:
    if found.kind != KIND or found.text is None:
        raise DeclarationError(f"the schema is of type {found.kind}, not Avro")
    return parsed(found.text, found.references)


class AvroReader:
    """The reader of Avro's records, each by the schema that it was written with."""

    def __init__(self, form: Avro) -> None:
        self._schema = parsed(form.text, form.references)
        self._landings = landings_of(self._schema)
        self._framed = form.framed
        # By id, the schema of writers; None: the declared one itself.
        self._writers: dict[int, Any] = {}
        if form.pin is not None:
            self._writers[form.pin.id] = self._schema.bare

    def fields(self, value: bytes) -> dict[str, Any]:
        """Reads the fields of one record. Raises Rejected if the bytes are not exactly one."""
        writer = self._schema.bare
        if self._framed:
            schema_id, value = unframed(value)
            writer = self.writer(schema_id)
            if isinstance(writer, Rejected):
                raise Rejected(writer.reason, writer.detail)
        return read_record(value, writer, self._schema.bare)

    def check(self, column: Column) -> Check:
        """Returns the check that makes the row's value of a field."""
        return self._landings[column.name].land

    @property
    def declared(self) -> Any:
        """Returns the declared schema, without logical types."""
        return self._schema.bare

    @property
    def whole(self) -> Any:
        """Returns the declared schema, with them."""
        return self._schema.whole

    def writer(self, schema_id: int) -> Any:
        """Returns the schema of an id, without logical types, or why it reads no record."""
        known = self._writers.get(schema_id)
        if known is not None:
            return known
        writer: Any
        try:
            found = written_by(schema_id)
            writer = self._opened(schema_id, found.text or "", found.references)
        except Rejected as rejected:
            writer = rejected
            # Any producer can write any id.
            if len(self._writers) >= MOST_WRITERS:
                return writer
        self._writers[schema_id] = writer
        return writer

    def _opened(self, schema_id: int, text: str, references: tuple[str, ...]) -> Any:
        try:
            writer = parsed(text, references)
        except DeclarationError as error:
            raise Rejected(
                Reason.SCHEMA_MISMATCH, f"schema {schema_id} cannot be used: {error.message}"
            ) from None
        wrong = why_unreadable(writer) or differing_times(writer, self._schema)
        if wrong is not None:
            raise Rejected(Reason.SCHEMA_MISMATCH, f"schema {schema_id} cannot be read: {wrong}")
        return writer.bare
