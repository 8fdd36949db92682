"""Events as JSON objects: the default format of topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    Subject,
    frame_message,
    read_pin,
    split_frame,
)
from kappa.declare.options import describe_value, error_prefix, option_text
from kappa.declare.values.columns import Column
from kappa.declare.values.json_schema import SchemaPlace, read_schema
from kappa.declare.values.json_text import JsonFormat
from kappa.declare.values.value import Check, check_of, holds_decimal

_KIND = "JSON"
_NO_ID = 0


@dataclass(frozen=True, slots=True, init=False)
class Json:
    """The format of records that each contain one JSON object, in UTF-8.

    `schema` is a `Subject` with a JSON Schema. That schema is then the topic's event: it declares
    the columns, and all conditions for values.

    If `framed`, each record begins with the id of the writer's schema, as serializers of a schema
    registry write it. The default is True if `schema` is given, otherwise False. The id is not
    used: JSON can be read without the writer's schema, and the declared event decides which records
    are valid.

    Example:
        Topic("orders", event="id string not null, amount double", format=Json(framed=True))
    """

    schema: Subject | None
    framed: bool
    pin: PinnedSchema | None
    source: Source = field(compare=False)

    def __init__(self, schema: Subject | None = None, *, framed: bool | None = None) -> None:
        source = Source.of_caller()
        if not isinstance(schema, Subject | None) or not isinstance(framed, bool | None):
            raise DeclarationError(
                f"{source}: format json is given {describe_value(schema)}, "
                f"framed={option_text(framed)}",
                hint='give it nothing, or a subject: Json(Subject("orders-value")); the schema of '
                'a file is the topic\'s event: event=Path("schemas/order.json")',
            )
        set_field = object.__setattr__
        set_field(self, "schema", schema)
        set_field(self, "framed", schema is not None if framed is None else framed)
        set_field(self, "source", source)
        with error_prefix(f"{source}: format json"):
            set_field(self, "pin", None if schema is None else read_pin(schema))
            self.declared_event()

    def declared_lines(self) -> Iterator[str]:
        """Yields the lines of text with which a version describes the format.

        If records begin with a schema's id, there is one line. For plain JSON there is no line, so
        that a topic's version is the same as before Kappa had formats. The schema of a subject is
        the topic's event, and so is already part of the version.
        """
        if self.framed:
            yield "format json, framed by a registry"

    def declared_event(self) -> SchemaPlace | None:
        """Returns the event that the subject's schema declares, or None without a subject.

        Without a subject, the topic itself declares the event. Raises DeclarationError if the
        schema is not a JSON Schema of an event.
        """
        if self.pin is None:
            return None
        if self.pin.schema.kind != _KIND:
            raise DeclarationError(f"the schema is of type {self.pin.schema.kind}, not JSON Schema")
        try:
            document = json.loads(self.pin.schema.text or "")
        except ValueError as error:
            raise DeclarationError(f"the schema is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise DeclarationError("the schema is not a JSON object, and declares no event")
        return read_schema(document)

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Does nothing, because JSON can represent events with any columns."""

    def event_reader(self, columns: Sequence[Column]) -> JsonReader:
        """Returns a reader of JSON objects.

        If a column is a decimal, the reader decodes numbers with all digits.
        """
        fields = JsonFormat(exact=any(holds_decimal(column.type) for column in columns)).fields
        return JsonReader((lambda value: fields(split_frame(value)[1])) if self.framed else fields)

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Encodes an event as JSON text in UTF-8.

        If records of this format begin with a schema's id, the result begins with the id of the
        pinned schema, or with the id 0 if no schema is pinned.
        """
        del columns
        text = json.dumps(fields, ensure_ascii=False).encode()
        if not self.framed:
            return text
        return frame_message(_NO_ID if self.pin is None else self.pin.id, text)


@dataclass(frozen=True, slots=True)
class JsonReader:
    """A reader of JSON objects. `fields` decodes the fields of one record."""

    fields: Callable[[bytes], dict[str, Any]]

    def column_check(self, column: Column) -> Check:
        """Returns the function that checks a column's values and converts them from JSON."""
        return check_of(column.type)
