"""The protocol of readers of whole batches of plain records, whatever the format."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from kappa.declare.values.arrow import Places


class PlainReader(Protocol):
    """A reader of the plain records of a topic."""

    @property
    def pays(self) -> bool: ...  # noqa: D102  # as in PlainEvents

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]: ...  # noqa: D102  # as in PlainEvents
