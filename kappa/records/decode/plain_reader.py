"""Readers of whole batches of plain records: their protocol, and whether a reader pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kappa.declare.values.arrow import Places


class PlainReader(Protocol):
    """A reader of the plain records of a topic."""

    @property
    def pays(self) -> bool: ...  # noqa: D102  # as in PlainEvents

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]: ...  # noqa: D102  # as in PlainEvents


_TRIES = 2_000


@dataclass(slots=True)
class Tried:
    """The number of records tried by a quick way, and the number that the way read."""

    records: int = 0
    read: int = 0

    def add(self, records: int, read: int) -> None:
        """Adds to the counts."""
        self.records += records
        self.read += read

    @property
    def pays(self) -> bool:
        """Returns False if plain records are too rare to be worth a try."""
        return self.records < _TRIES or 2 * self.read > self.records
