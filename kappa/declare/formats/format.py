"""A format of records, declared by a topic, and changes that records may be. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from kappa.declare.values.columns import Column
from kappa.declare.values.json_schema import SchemaPlace
from kappa.declare.values.value import Check


class EventReader(Protocol):
    """The reader of events of a format and a declaration."""

    def fields(self, value: bytes) -> dict[str, Any]:
        """Reads the fields of an event by name; an absent field is missing from the result.

        Raises Rejected if the bytes are not an event.
        """

    def column_check(self, column: Column) -> Check:
        """Returns the check that makes the row's value of a column's field."""


class RecordFormat(Protocol):
    """A format of records: a value; equal formats read all records alike."""

    def declared_lines(self) -> Iterator[str]:
        """Yields the declared options, as comparable lines; no line for plain JSON.

        The lines are part of the version, of the archive's fingerprint and of the birth
        certificate.
        """

    def declared_event(self) -> tuple[Column, ...] | SchemaPlace | None:
        """Returns the event that the format's schema declares, as columns or by a JSON Schema.

        Returns None if the topic must declare the event. Raises DeclarationError if the schema
        makes no columns.
        """

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if events of this format cannot have these columns.

        `by_schema` says that a JSON Schema declares the columns.
        """

    def event_reader(self, columns: Sequence[Column]) -> EventReader:
        """Returns a reader of events with these columns."""

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Returns the bytes of an event. Raises UsageError if the event cannot be written."""


class RowEffect(Enum):
    """The effect of a change: a row is written or deleted, or all rows of the table are gone."""

    WRITES = "writes"
    DELETES = "deletes"
    TRUNCATES = "truncates"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A change at a source: the effect, and the row's columns with the facts of the change.

    For a deleted row, `fields` has the values that the source still knew; for a truncated table, no
    column of a row.
    """

    effect: RowEffect
    fields: dict[str, Any]


@runtime_checkable
class SourceChangeReader(EventReader, Protocol):
    """The reader of a format whose records are changes."""

    def read_change(self, key: bytes | None, value: bytes) -> SourceChange:
        """Reads a change. Raises Rejected if the bytes are not a change."""

    def key_value(self, key: bytes, column: Column) -> Any:
        """Returns the row's value of the column that the Kafka key is. Raises Rejected."""
