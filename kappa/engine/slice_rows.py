"""The rows of a slice, in this process or at Spark.

A small slice is decoded in the job and is Arrow (slice_here.py). A large slice is decoded in
Spark's workers and kept in files while it is folded (slice_at_spark.py). Both give the same rows.
The steps of a slice (slice.py) call the methods of `SliceRows` and of `TableRows`, and never ask
where the rows are. Each topic is decoded once. Redriven records that turn out to be duplicates are
left out of all answers (redriven.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kappa.engine.spark.s3a import spark_address

if TYPE_CHECKING:
    from kappa.declare.topic import Topic
    from kappa.engine.fold.ordered import Stepped
    from kappa.engine.function.function_rows import FunctionRows
    from kappa.engine.function.refused import Refused
    from kappa.engine.job.ordered_steps import TableSteps
    from kappa.engine.write.commit import TableWriter
    from kappa.records.decode.fate import Counts
    from kappa.records.redrive import Attempt, Position, Settled
    from kappa.state.mark import Mark
    from kappa.state.table import TableBirth
    from kappa.tables.delta import Guard

CountsOf: TypeAlias = "Mapping[str, Mapping[int, Counts]]"
# Names and Spark's types.
Columns = Sequence[tuple[str, str]]
# The name of rows of this process in a query.
HERE = "_here"


@dataclass(frozen=True, slots=True)
class RejectExample:
    """The first reject of a slice with a topic, a reason, and a field of the event.

    `field` is "" if the reason is about no field. `place` is TOPIC:PARTITION:OFFSET.
    """

    topic: str
    reason: str
    field: str
    detail: str
    place: str
    value: bytes | None


class SliceRows(Protocol):
    """The records of a slice, and the rows that the records become."""

    # Whether running the function costs so little that it runs before any commit.
    is_judged_first: ClassVar[bool]
    # Whether decoding has carried the memories of identities to the end of the slice.
    carries_memories: ClassVar[bool]

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

    def reject_examples(self) -> tuple[RejectExample, ...]:
        """Returns the first reject of each topic, reason and field, as far as rejects are here."""
        return ()

    def settle(self, found: Settled) -> None:
        """Notes the folded redriven records, and drops the duplicates."""
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

    def truncations(self, topic: Topic) -> pa.Table:
        """Returns the places of the truncations of a topic's source.

        The columns are ORDER_AND_FATE.
        """
        ...

    def apply(self, function: FunctionRows, spark: SparkSession) -> Mapping[str, ContributedRows]:
        """Returns the rows that the function makes of the valid records, by table."""
        ...

    def latest(self, topic: Topic, table: TableBirth) -> LatestRows | None:
        """Returns the newest record per key of a topic."""
        ...

    def rejects(self, table: TableBirth, more: pa.Table | None = None) -> ContributedRows | None:
        """Returns the rows of the rejects table.

        The rows are the records that are not valid, a hidden row for each folded redriven record,
        and the rows of `more`.
        """
        ...

    def close(self) -> None:
        """Releases the records."""
        ...


class TableRows(Protocol):
    """The rows that a slice contributes to a table: rows to append, or one row per key."""

    # Whether a thread can commit the rows beside other work of the job. Rows that Spark holds, or
    # may have to merge, are committed alone.
    commits_beside: ClassVar[bool]

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows to a table with the table's mark; returns the writer's name."""
        ...


@dataclass(frozen=True, slots=True)
class ArrowRows(TableRows):
    """The rows in this process."""

    commits_beside = True

    table: pa.Table

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows by delta-rs."""
        return writer.commit_table(self.table, mark, guard)

    def take_steps(self, steps: TableSteps) -> Stepped:
        """Folds the rows by a step in this process."""
        return steps.here(self.table)

    def kept_in(self, _address: str) -> ArrowRows:
        """Returns the same rows, which are computed already."""
        return self

    def to_arrow(self) -> pa.Table:
        """Returns the rows as they are."""
        return self.table

    def as_query(self, spark: SparkSession) -> QueryRows:
        """Returns DuckDB's query for the rows."""
        return QueryRows(f"from {HERE}", spark, self.table)


@dataclass(frozen=True, slots=True)
class FrameRows(TableRows):
    """Rows at Spark."""

    commits_beside = False

    frame: DataFrame

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows by Spark, or by this process if the rows are few."""
        return writer.commit_frame(self.frame, mark, guard)

    def take_steps(self, steps: TableSteps) -> Stepped:
        """Folds the rows by a step in Spark's workers."""
        return steps.at_spark(self.frame)

    def kept_in(self, address: str) -> FrameRows:
        """Computes the rows into files, and returns the rows in the files."""
        path = spark_address(address)
        self.frame.write.mode("overwrite").parquet(path)
        return FrameRows(self.frame.sparkSession.read.schema(self.frame.schema).parquet(path))

    def to_arrow(self) -> pa.Table:
        """Computes the rows, and brings the rows into this process."""
        rows: pa.Table = self.frame.toArrow()
        return rows


@dataclass(frozen=True, slots=True)
class QueryRows(TableRows):
    """Rows that DuckDB's query `sql` finds in this machine's files.

    `spark` is for the rows that DuckDB cannot fold into their table. `here` are rows of this
    process, which the query finds under the name HERE.
    """

    commits_beside = False

    sql: str
    spark: SparkSession
    here: pa.Table | None = None

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows by DuckDB, or by another writer that suits their number."""
        return writer.commit_query(self, mark, guard)

    def as_query(self, _spark: SparkSession) -> QueryRows:
        """Returns the query unchanged."""
        return self

    def changed_to(self, sql: str) -> QueryRows:
        """Returns another query over the same rows of this process."""
        return replace(self, sql=sql)


# Rows of the function, of steps, or of the rejects.
ContributedRows: TypeAlias = ArrowRows | FrameRows
# Newest rows of a topic.
LatestRows: TypeAlias = ArrowRows | QueryRows
