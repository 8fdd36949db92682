"""Readers of whole batches of plain records, whatever the format."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from kappa.declare.values.arrow import Places

_TRIES = 2_000


class PlainReader(ABC):
    """A reader of the plain records of a topic, for a single thread."""

    # The records tried so far, and those of them that were plain.
    _tried = 0
    _read = 0

    @property
    def pays(self) -> bool:
        """Returns False if plain records are too rare to be worth a try."""
        return self._tried < _TRIES or 2 * self._read > self._tried

    @abstractmethod
    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Reads the plain records of a batch (bytes, or null).

        Returns parts: places in ascending order, and the rows of the records there.
        """

    def _count_records(self, tried: int, read: int) -> None:
        self._tried += tried
        self._read += read
