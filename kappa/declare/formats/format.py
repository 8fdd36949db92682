"""The protocols of record formats, of their readers, and of records that are changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from kappa.declare.values.columns import Column
from kappa.declare.values.json_schema import SchemaPlace
from kappa.declare.values.value import Check


class EventReader(Protocol):
    """A reader of events, for one declared format and one declared event."""

    def fields(self, value: bytes) -> dict[str, Any]:
        """Decodes the fields of an event, by name. The result does not contain absent fields.

        Raises Rejected if the bytes are not an event.
        """

    def column_check(self, column: Column) -> Check:
        """Returns the function that converts a decoded field to the value in the row."""


class RecordFormat(Protocol):
    """A format of records. If two formats are equal, they decode all records to the same fields."""

    def declared_lines(self) -> Iterator[str]:
        """Yields the lines of text with which a version describes the format and its options.

        For plain JSON, there are no lines. The archive's fingerprint and the birth certificate also
        contain the lines.
        """

    def declared_event(self) -> tuple[Column, ...] | SchemaPlace | None:
        """Returns the event that the format's schema declares, as columns or as a JSON Schema.

        Returns None if the topic itself must declare the event. Raises DeclarationError if the
        schema cannot become columns.
        """

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if this format cannot represent events with the given columns.

        `by_schema` is True if a JSON Schema declares the columns.
        """

    def event_reader(self, columns: Sequence[Column]) -> EventReader:
        """Returns a reader of events for these columns."""

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Encodes an event. Raises UsageError if the format cannot represent the event."""


class RowEffect(Enum):
    """The effect of a change: a row is written, a row is deleted, or the table is truncated."""

    WRITES = "writes"
    DELETES = "deletes"
    TRUNCATES = "truncates"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A change at a source: its effect, and its fields.

    `fields` contains the values of the row, and of the columns that describe the change, such as
    its time. For a deleted row, only the values that the source still knew are present. For a
    truncated table, there is no row, and `fields` contains only the columns that describe the
    change.
    """

    effect: RowEffect
    fields: dict[str, Any]


@runtime_checkable
class SourceChangeReader(EventReader, Protocol):
    """A reader of events for a format whose records are changes of rows."""

    def read_change(self, key: bytes | None, value: bytes) -> SourceChange:
        """Decodes a change. Raises Rejected if the bytes are not a change."""

    def key_value(self, key: bytes, column: Column) -> Any:
        """Returns the value of the topic's key column, read from the Kafka key.

        Raises Rejected if the key does not contain exactly this value.
        """
