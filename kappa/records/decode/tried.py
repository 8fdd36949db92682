"""The decision whether a quick way of reading is worth its cost, made after some records."""

from __future__ import annotations

from dataclasses import dataclass

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
