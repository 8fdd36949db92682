"""A format of records, as a topic declares it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from kappa.declare.values.columns import Column
from kappa.declare.values.schema_place import SchemaPlace
from kappa.declare.values.value import Check


class EventReader(Protocol):
    """The reader of events of one format and one declaration."""

    def fields(self, value: bytes) -> dict[str, Any]:
        """Reads the fields of one event by name; one that it lacks is missing.

        Raises Rejected if the bytes are no event.
        """

    def check(self, column: Column) -> Check:
        """Returns the check that makes the row's value of a column's field."""


class RecordFormat(Protocol):
    """A format of records: a value, equal to another one that reads all records alike."""

    def lines(self) -> Iterator[str]:
        """Yields what is declared, as comparable lines; no line for plain JSON.

        They are part of the version, of the archive's fingerprint and of the birth certificate.
        """

    def event(self) -> tuple[Column, ...] | SchemaPlace | None:
        """Returns the event that the topic does not declare, as columns or by a JSON Schema.

        Returns None if it must. Raises DeclarationError if they can be none.
        """

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if events of this format cannot have these columns.

        `by_schema`: a JSON Schema declares them.
        """

    def reader(self, columns: Sequence[Column]) -> EventReader:
        """Returns a reader of events with these columns."""

    def encode(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Returns the bytes of an event. Raises UsageError if it cannot be written."""
