"""The ledger: the producer's own list of its records, in one Parquet file.

The oracle's computations use only the ledger. The ledger computes a record's offset as its position
among the records sent to its partition. The result is the real offset, because no other producer
writes to the topics, and because this producer is idempotent and chooses the partition itself.
`Ledger.close` compares the offsets with the offsets that the broker has acknowledged, and raises an
error if they differ.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from demo.producer.events import Event
from kappa.base.errors import Broken
from kappa.state.offsets import Offsets

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.string()),
        ("value", pa.binary()),
        ("valid", pa.bool_()),
        # Seconds of CLOCK_MONOTONIC, which all processes of one machine share.
        ("sent_at", pa.float64()),
    ]
)
_ROWS_IN_MEMORY = 50_000


class Ledger:
    """A ledger to which events are being written."""

    def __init__(self, path: Path) -> None:
        """Creates the file of the ledger. The file can be read after `close`."""
        self._writer = pq.ParquetWriter(path, SCHEMA)
        self._rows: list[tuple[Any, ...]] = []
        self._next: Counter[tuple[str, int]] = Counter()

    def add(self, event: Event) -> None:
        """Adds an event, with the current time as its sending time."""
        place = (event.topic, event.partition)
        self._rows.append(
            (*place, self._next[place], event.key, event.value, event.valid, time.monotonic())
        )
        self._next[place] += 1
        if len(self._rows) >= _ROWS_IN_MEMORY:
            self._write()

    @property
    def sent(self) -> int:
        """Returns the number of events in the ledger."""
        return self._next.total()

    @property
    def offsets(self) -> Offsets:
        """Returns the offset after the last event of each partition."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), following in self._next.items():
            found.setdefault(topic, {})[partition] = following
        return Offsets(found)

    def close(self, acknowledged: Offsets) -> None:
        """Closes the ledger. Raises Broken if the acknowledged offsets differ from the ledger's."""
        self._write()
        self._writer.close()
        if acknowledged != self.offsets:
            raise Broken(
                f"the broker acknowledged {acknowledged}, and {self.offsets} was sent",
                hint="somebody else produces to the demo's topics",
            )

    def __enter__(self) -> Self:
        """Returns this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file without checking the offsets."""
        self._writer.close()

    def _write(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else [[] for _ in SCHEMA]
        self._writer.write_table(
            pa.table(
                [pa.array(values, kind.type) for values, kind in zip(columns, SCHEMA, strict=True)],
                schema=SCHEMA,
            )
        )
        self._rows.clear()
