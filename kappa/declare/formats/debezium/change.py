"""A change of a row at its source, and the reader of records that are changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from kappa.declare.formats.format import EventReader
from kappa.declare.values.columns import Column


class RowEffect(Enum):
    """The effect of a change: a row is written or deleted, or all rows of the table are gone."""

    WRITES = "writes"
    DELETES = "deletes"
    TRUNCATES = "truncates"


@dataclass(frozen=True, slots=True)
class SourceChange:
    """One change: its effect, the row's columns, and what it tells of itself.

    Of a deleted row `fields` has what the source still knew; of a truncated table no column.
    """

    effect: RowEffect
    fields: dict[str, Any]


@runtime_checkable
class SourceChangeReader(EventReader, Protocol):
    """The reader of a format whose records are changes."""

    def change(self, key: bytes | None, value: bytes) -> SourceChange:
        """Reads one change. Raises Rejected if the bytes are none."""

    def key_value(self, key: bytes, column: Column) -> Any:
        """Returns the row's value of the column that the Kafka key is. Raises Rejected."""
