"""Whether a quick way of reading pays, which is decided after some records."""

from __future__ import annotations

from dataclasses import dataclass

_TRIES = 2_000


@dataclass(slots=True)
class Tried:
    """The records that a quick way was tried for, and those among them that it could read."""

    records: int = 0
    read: int = 0

    def add(self, records: int, read: int) -> None:
        """Counts some more."""
        self.records += records
        self.read += read

    @property
    def pays(self) -> bool:
        """Returns False if so few records are plain that trying costs more than it saves."""
        return self.records < _TRIES or 2 * self.read > self.records
