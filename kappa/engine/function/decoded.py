"""Decoded records of one slice, ready to be folded.

A small slice is decoded in the job and is Arrow (decoded_here.py). A large slice is decoded in
Spark's workers and kept in files while it is folded (decoded_at_spark.py). Both give the same rows,
each in its own form. Each topic is decoded once. Redriven records that turn out to be duplicates
are left out of all answers (redriven.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from kappa.declare.topic import Topic
from kappa.engine.function.refused import Refused
from kappa.engine.read.rows import Rows
from kappa.records.decode.fate import Counts
from kappa.records.redrive import Attempt, Position, Settled
from kappa.state.table import TableBirth

CountsOf = Mapping[str, Mapping[int, Counts]]
# Names and Spark's types.
Columns = Sequence[tuple[str, str]]


class Decoded(Protocol):
    """Decoded records of a slice, decoded here or at Spark."""

    def counts(self) -> CountsOf:
        """Returns the counts per topic and partition.

        A partition without records is left out.
        """
        ...

    def attempts(self) -> tuple[Attempt, ...]:
        """Returns the redriven records."""
        ...

    def rejected(self, places: Collection[Position]) -> dict[Position, int | None]:
        """Finds the places that are rejects of this slice.

        Maps each place to the offset that the reject names itself, or None if the reject was not
        redriven.
        """
        ...

    def settle(self, found: Settled) -> None:
        """Notes the folded redriven records, and drops the duplicates."""
        ...

    def accepted(self, topic: Topic, columns: Columns) -> pa.Table | DataFrame:
        """Returns these columns of a topic's valid records."""
        ...

    def chunks(self, topic: Topic, columns: Columns, at_most: int) -> Iterator[pa.Table]:
        """Yields the valid records in this process, in parts.

        A part has at most `at_most` rows.
        """
        ...

    def reject(self, refused: Refused) -> None:
        """Turns valid records into rejects.

        The call comes before `settle`.
        """
        ...

    def latest(self, topic: Topic, table: TableBirth) -> Rows:
        """Returns the newest record per key of a topic."""
        ...

    def truncations(self, topic: Topic) -> pa.Table:
        """Returns the places of the truncations of a topic's source.

        The columns are ORDER_AND_FATE.
        """
        ...

    def rejects(self, table: TableBirth) -> Rows:
        """Returns the rows of the rejects table.

        The rows are the records that are not valid, and a hidden row for each folded redriven
        record.
        """
        ...

    def close(self) -> None:
        """Releases the records."""
        ...
