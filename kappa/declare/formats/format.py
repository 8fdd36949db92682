"""The protocol of record formats that a topic declares, and of records that are changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from kappa.declare.values.columns import Column
from kappa.declare.values.json_schema import SchemaPlace
from kappa.declare.values.value import Check


class EventReader(Protocol):
    """The reader of the events of one format and one declaration."""

    def fields(self, value: bytes) -> dict[str, Any]:
        """Decodes the fields of an event by name. An absent field is missing from the result.

        Raises Rejected if the bytes are not an event.
        """

    def column_check(self, column: Column) -> Check:
        """Returns the function that makes a row's value from the field of a column."""


class RecordFormat(Protocol):
    """A format of records. It is a value: equal formats read all records alike."""

    def declared_lines(self) -> Iterator[str]:
        """Yields the declared options as lines for comparison; nothing for plain JSON.

        The lines are part of the version, of the archive's fingerprint and of the birth
        certificate.
        """

    def declared_event(self) -> tuple[Column, ...] | SchemaPlace | None:
        """Returns the event that the format's schema declares, as columns or as a JSON Schema.

        Returns None if the topic itself must declare the event. Raises DeclarationError if the
        schema cannot become columns.
        """

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if events of this format cannot have these columns.

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
    """A change at a source: its effect, the columns of the row, and the facts of the change.

    For a deleted row, `fields` contains the values that the source still knew. For a truncated
    table, it contains no columns of a row.
    """

    effect: RowEffect
    fields: dict[str, Any]


@runtime_checkable
class SourceChangeReader(EventReader, Protocol):
    """The reader of a format whose records are changes of rows."""

    def read_change(self, key: bytes | None, value: bytes) -> SourceChange:
        """Decodes a change. Raises Rejected if the bytes are not a change."""

    def key_value(self, key: bytes, column: Column) -> Any:
        """Returns the value of the row's key column, read from the Kafka key.

        Raises Rejected if the key does not contain it.
        """
