"""The base class of the readers of plain records in whole batches, for any format."""

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
        """Returns False if so few records are plain that the reader is not worth its cost."""
        return self._tried < _TRIES or 2 * self._read > self._tried

    @abstractmethod
    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Reads the plain records of a batch of values (bytes, or null).

        Returns parts. A part has the places of its records in ascending order, and their rows.
        """

    def _count_records(self, tried: int, read: int) -> None:
        self._tried += tried
        self._read += read
