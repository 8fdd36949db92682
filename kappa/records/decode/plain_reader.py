"""The base class of the readers that decode whole batches of plain records, for any format."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from kappa.declare.values.arrow import Places

_TRIES = 2_000


class PlainReader(ABC):
    """A reader of a topic's plain records. Only one thread may use it."""

    # The records tried so far, and those of them that were plain.
    _tried = 0
    _read = 0

    @property
    def pays(self) -> bool:
        """Returns False if so few records are plain that the reader is not worth its cost.

        This is the case if the reader has tried at least 2,000 records and at most half of them
        were plain.
        """
        return self._tried < _TRIES or 2 * self._read > self._tried

    @abstractmethod
    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Decodes the plain records of a batch, from their keys and values (bytes or null).

        Returns parts. A part is a pair: the indexes of its records in the batch, in ascending
        order, and their rows. Records that are not plain are in no part.
        """

    def _count_records(self, tried: int, read: int) -> None:
        self._tried += tried
        self._read += read
