"""Creates events in their topic's format from JSON, from texts or from the values of a row.

Each created event is checked with the reader that decodes slices. So no job will reject a created
event because of the topic's declaration.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal as Number
from typing import Any

import msgspec

from kappa.base.errors import DeclarationError, UsageError, did_you_mean
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.registry_schemas import frame_message
from kappa.declare.formats.text_events import Text
from kappa.declare.formats.topic_formats import changes_of, is_framed, pin_of
from kappa.declare.topic import Topic
from kappa.declare.values.columns import Array, Column, Decimal, Scalar, Struct, Type
from kappa.declare.values.csv_text import text_reader
from kappa.declare.values.json_text import JsonFormat, exact_value
from kappa.declare.values.reason import Rejected
from kappa.declare.values.value import holds_decimal
from kappa.kafka.producer import ProducedRecord
from kappa.records.lines.envelope import EXAMPLE
from kappa.records.record import RecordReader

# A decimal is written as a number of JSON and keeps its digits.
_JSON = msgspec.json.Encoder(decimal_format="number")


class EventWriter:
    """A writer that creates a topic's events, each with the Kafka key that the topic requires.

    The message of an error continues a sentence that begins with a place like `line 7`.
    """

    def __init__(self, topic: Topic) -> None:
        """Prepares the writer.

        Raises UsageError if the writer cannot create events in the topic's format.
        """
        form = topic.format
        if isinstance(form, Text):
            raise UsageError(
                f"events of topic {topic.name} are lines of text: Kappa makes no line of fields",
                hint="give the lines themselves, with --from lines",
            )
        if changes_of(form) is not None:
            raise UsageError(
                f"topic {topic.name} has a database's changes, and a change alone has no key",
                hint=f"give each its key with --envelope: {EXAMPLE}",
            )
        if is_framed(form) and pin_of(form) is None:
            raise UsageError(
                f"topic {topic.name} has framed records, and no schema whose id they begin with",
                hint='declare the subject: Subject("orders-value")',
            )
        self._topic = topic
        self._reader = RecordReader(topic)
        self._columns, self._is_whole = _all_columns(topic)
        self._types: dict[str, Type] = {
            name: column.type for column in self._columns for name in (column.name, *column.was)
        }
        self._fields = JsonFormat(exact=any(map(holds_decimal, self._types.values()))).fields

    def of_json(self, line: bytes) -> ProducedRecord:
        """Creates an event from a line that is a JSON object.

        If the topic's format is JSON, the bytes of the object stay unchanged. Raises UsageError if
        the result is not a valid event.
        """
        form = self._topic.format
        if isinstance(form, Json):
            return self._read(_framed_as(form, line))
        try:
            fields = self._fields(line)
        except Rejected as rejected:
            raise UsageError(f"is not an event: {rejected.detail}") from None
        self.ensure_known(fields)
        return self._made({name: self._exact(name, value) for name, value in fields.items()})

    def of_texts(self, names: Iterable[str]) -> Callable[[Iterable[str | None]], ProducedRecord]:
        """Returns a function that creates an event from a row of texts, in the order of `names`.

        A text that is None means null. Raises UsageError if a name is not a field of the topic.
        """
        named = tuple(names)
        self.ensure_known(named)
        readers = [_of_text(self._types.get(name, Scalar("string"))) for name in named]

        def made(texts: Iterable[str | None]) -> ProducedRecord:
            try:
                return self._made(
                    {
                        name: None if text is None else read(text, name)
                        for name, read, text in zip(named, readers, texts, strict=True)
                    }
                )
            except Rejected as rejected:
                raise UsageError(f"is not an event: {rejected.detail}") from None

        return made

    def of_row(self, row: Mapping[str, Any]) -> ProducedRecord:
        """Creates an event from the values of a row, in the Python types that Arrow returns.

        Raises UsageError if the result is not a valid event.
        """
        return self._made({name: _of_value(value, name) for name, value in row.items()})

    def ensure_known(self, names: Iterable[str]) -> None:
        """Raises UsageError if a name is not a field of the topic.

        Without this check, the value of such a field would be lost without notice.
        """
        if not self._is_whole:
            return
        for name in names:
            if name not in self._types:
                raise UsageError(
                    f"has {name}, which is not a field of topic {self._topic.name}",
                    hint=did_you_mean(name, self._types)
                    or f"its fields are {', '.join(self._types)}",
                )

    def _exact(self, name: str, value: Any) -> Any:
        return _by_type(self._types.get(name), value)

    def _made(self, fields: Mapping[str, Any]) -> ProducedRecord:
        form = self._topic.format
        if isinstance(form, Json):
            return self._read(_framed_as(form, _JSON.encode(fields)))
        try:
            return self._read(form.encode_event(fields, self._topic.columns))
        except UsageError as error:
            raise UsageError(_continued_sentence(error.message), hint=error.hint) from None

    def _read(self, value: bytes) -> ProducedRecord:
        try:
            _, key = self._reader.read_unkeyed(value)
        except Rejected as rejected:
            raise UsageError(
                f"is not an event of topic {self._topic.name}: {rejected.detail}"
                f" ({rejected.reason})"
            ) from None
        return ProducedRecord(value, key)


def _all_columns(topic: Topic) -> tuple[tuple[Column, ...], bool]:
    """Returns the columns for all known fields of an event, and a boolean.

    The boolean is True if an event can have no other fields.
    """
    try:
        found = topic.format.declared_event()
    except DeclarationError:
        # The schema has fields that no column can be, which the declared event leaves out.
        return topic.columns, False
    of_schema = found if isinstance(found, tuple) else ()
    declared = {column.name for column in topic.columns}
    return (*topic.columns, *(each for each in of_schema if each.name not in declared)), True


def _framed_as(form: Json, text: bytes) -> bytes:
    return frame_message(form.pin.id, text) if form.framed and form.pin is not None else text


def _continued_sentence(message: str) -> str:
    """Returns the message of a format's error in a form that can follow a place like `line 7`."""
    return f"cannot be written: {message}"


def _by_type(kind: Type | None, value: Any) -> Any:
    """Returns a JSON value in which exact numbers are converted to floats.

    Numbers of the type decimal stay exact.
    """
    match kind, value:
        case Decimal(), _:
            return value
        case Array(element), list():
            return [_by_type(element, each) for each in value]
        case Array(Struct(fields)), dict():
            # A map, as an object.
            of_values = next((each.type for each in fields if each.name == "value"), None)
            return {name: _by_type(of_values, each) for name, each in value.items()}
        case Struct(fields), dict():
            types = {each.name: each.type for each in fields}
            return {name: _by_type(types.get(name), each) for name, each in value.items()}
        case _, list():
            return [_by_type(None, each) for each in value]
        case _, dict():
            return {name: _by_type(None, each) for name, each in value.items()}
        case _, Number():
            return float(value)
        case _:
            return value


def _of_text(kind: Type) -> Callable[[str, str], Any]:
    """Returns the function that converts a text to a JSON value for a field of type `kind`.

    The function raises Rejected or UsageError if the text is not valid.
    """
    match kind:
        case Scalar("string" | "date" | "timestamp"):
            return lambda text, name: text  # noqa: ARG005  # others name it in their errors
        case Scalar() | Decimal():
            return text_reader(kind)
        case _:
            return _of_json_text


def _of_json_text(text: str, name: str) -> Any:
    try:
        return exact_value(text)
    except json.JSONDecodeError:
        raise UsageError(
            f"has a {name} that is not JSON",
            hint='arrays and objects are JSON in a CSV file: "[1]"',
        ) from None


def _of_value(value: Any, name: str) -> Any:
    """Converts a Python value to a JSON value.

    Raises UsageError if JSON cannot represent the value.
    """
    match value:
        case datetime():
            if value.tzinfo is None:
                raise UsageError(
                    f"has {name} without a zone: {value.isoformat()}",
                    hint="write the column as timestamps in UTC",
                )
            return value.isoformat()
        case date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            raise UsageError(f"has the {name} {value}, which is not a JSON number")
        case None | bool() | int() | float() | str() | Number():
            return value
        case dict():
            return {key: _of_value(each, f"{name}.{key}") for key, each in value.items()}
        case list() if value and all(isinstance(each, tuple) for each in value):
            # A map in Arrow's form.
            return {key: _of_value(each, f"{name}.{key}") for key, each in value}
        case list():
            return [_of_value(each, name) for each in value]
        case _:
            raise UsageError(
                f"has a {name} of the type {type(value).__name__}, which events do not have",
                hint="write the column as another type, or leave it out",
            )
