"""The rows of a slice, in this process or in Spark.

A small slice is decoded in the job, into Arrow tables (slice_in_process.py). A large slice is
decoded on Spark workers, into files that exist while the slice is folded (slice_in_spark.py). The
classes for both kinds of slices return the same rows.

The steps of a slice (slice.py) call the methods of `SliceRows` and `TableRows`, so the steps need
not know whether the rows are in this process or in Spark. Each topic is decoded once. After
`settle`, no method returns redriven records that are duplicates (redriven_records.py).
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
    from kappa.engine.fold.ordered_fold import Stepped
    from kappa.engine.function.function_rows import FunctionRows
    from kappa.engine.function.refused_records import Refused
    from kappa.engine.job.ordered_steps import TableSteps
    from kappa.engine.write.commit import TableWriter
    from kappa.records.decode.outcome import Counts
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
    """The first reject of a slice for one topic, one reason and one field of the event.

    `field` is "" if the reason does not concern a field. `place` has the form
    TOPIC:PARTITION:OFFSET.
    """

    topic: str
    reason: str
    field: str
    detail: str
    place: str
    value: bytes | None


class SliceRows(Protocol):
    """The records of a slice, and the rows that are computed from the records."""

    # Whether running the function costs so little that it runs before any commit.
    is_judged_first: ClassVar[bool]
    # Whether decoding has carried the memories of identities to the end of the slice.
    carries_memories: ClassVar[bool]

    def counts(self) -> CountsOf:
        """Returns the counts of the decoded records, per topic and partition.

        Partitions without records are absent.
        """
        ...

    def attempts(self) -> tuple[Attempt, ...]:
        """Returns the redriven records of the slice."""
        ...

    def rejected(self, places: Collection[Position]) -> dict[Position, int | None]:
        """Returns the places in `places` that are rejects of this slice.

        Each such place is mapped to the offset of the record that the reject redrives, or to None
        if the reject is not a redriven record.
        """
        ...

    def reject_examples(self) -> tuple[RejectExample, ...]:
        """Returns the first reject for each combination of topic, reason and field.

        Returns no rejects if the decoded records are not in this process.
        """
        return ()

    def settle(self, found: Settled) -> None:
        """Stores which redriven records are folded, and removes those that are duplicates.

        `found` contains the decisions.
        """
        ...

    def chunks(self, topic: Topic, columns: Columns, at_most: int) -> Iterator[pa.Table]:
        """Yields a topic's valid records as Arrow tables of at most `at_most` rows.

        Each table contains the given columns.
        """
        ...

    def reject(self, refused: Refused) -> None:
        """Turns the valid records in `refused` into rejects.

        Must be called before `settle`.
        """
        ...

    def truncations(self, topic: Topic) -> pa.Table:
        """Returns a row for each truncation in the topic, with the columns ORDER_AND_FATE.

        Only a topic that contains a source's changes can contain truncations.
        """
        ...

    def apply(self, function: FunctionRows, spark: SparkSession) -> Mapping[str, ContributedRows]:
        """Runs the function on the valid records, and returns the function's rows by table name."""
        ...

    def latest(self, topic: Topic, table: TableBirth) -> LatestRows | None:
        """Returns the newest record per key among the slice's records of a topic.

        Returns None if the slice has no offsets of the topic.
        """
        ...

    def rejects(self, table: TableBirth, more: pa.Table | None = None) -> ContributedRows | None:
        """Returns the rows of the rejects table.

        The rows are the records that are not valid, a hidden row for each redriven record that is
        folded, and the rows of `more`.
        """
        ...

    def close(self) -> None:
        """Releases the memory, or deletes the files, that contain the records."""
        ...


class TableRows(Protocol):
    """The rows that a slice contributes to a table: rows to append, or one row per key."""

    # Whether a thread can commit the rows beside other work of the job. Rows that Spark holds, or
    # may have to merge, are committed alone.
    commits_beside: ClassVar[bool]

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows to a table, together with the slice's mark.

        `guard` is the Delta transaction that prevents a second commit of the same slice. Returns
        the name of the writer that made the commit, as `TableWriter.commit` does.
        """
        ...


@dataclass(frozen=True, slots=True)
class ArrowRows(TableRows):
    """Rows in an Arrow table in this process."""

    commits_beside = True

    table: pa.Table

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows, usually with delta-rs, and returns the name of the writer."""
        return writer.commit_table(self.table, mark, guard)

    def take_steps(self, steps: TableSteps) -> Stepped:
        """Folds the rows by an ordered step, in this process."""
        return steps.here(self.table)

    def kept_in(self, _address: str) -> ArrowRows:
        """Returns this object. The rows are already computed, so no files are written."""
        return self

    def to_arrow(self) -> pa.Table:
        """Returns the rows as an Arrow table."""
        return self.table

    def as_query(self, spark: SparkSession) -> QueryRows:
        """Returns a DuckDB query that reads the rows."""
        return QueryRows(f"from {HERE}", spark, self.table)


@dataclass(frozen=True, slots=True)
class FrameRows(TableRows):
    """Rows in a Spark frame."""

    commits_beside = False

    frame: DataFrame

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows with Spark, or in this process if the rows are few or small.

        Returns the name of the writer that made the commit.
        """
        return writer.commit_frame(self.frame, mark, guard)

    def take_steps(self, steps: TableSteps) -> Stepped:
        """Folds the rows by an ordered step, on Spark workers."""
        return steps.at_spark(self.frame)

    def kept_in(self, address: str) -> FrameRows:
        """Writes the rows to files at `address`, and returns a frame that reads the files."""
        path = spark_address(address)
        self.frame.write.mode("overwrite").parquet(path)
        return FrameRows(self.frame.sparkSession.read.schema(self.frame.schema).parquet(path))

    def to_arrow(self) -> pa.Table:
        """Computes the rows and returns them as an Arrow table in this process."""
        rows: pa.Table = self.frame.toArrow()
        return rows


@dataclass(frozen=True, slots=True)
class QueryRows(TableRows):
    """Rows that are the result of the DuckDB query `sql`, which reads files of this machine.

    The query may also read the table `here`, whose rows are in this process, under the name HERE.
    If DuckDB cannot fold the query's rows into the stored table, the session `spark` folds the
    rows.
    """

    commits_beside = False

    sql: str
    spark: SparkSession
    here: pa.Table | None = None

    def commit_to(self, writer: TableWriter, mark: Mark, guard: Guard) -> str:
        """Commits the rows with DuckDB, delta-rs or Spark, depending on their number and size.

        Returns the name of the writer that made the commit.
        """
        return writer.commit_query(self, mark, guard)

    def as_query(self, _spark: SparkSession) -> QueryRows:
        """Returns this object, which is already a query."""
        return self

    def changed_to(self, sql: str) -> QueryRows:
        """Returns a copy with the query `sql`, which may also read the rows in `here`."""
        return replace(self, sql=sql)


# Rows of the function, of steps, or of the rejects.
ContributedRows: TypeAlias = ArrowRows | FrameRows
# Newest rows of a topic.
LatestRows: TypeAlias = ArrowRows | QueryRows
