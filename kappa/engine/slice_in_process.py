"""The rows of a small slice, in Arrow tables in this process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.reason import Reason
from kappa.engine.fold.latest import latest_table
from kappa.engine.function.decoded_rows import (
    NO_TRUNCATIONS,
    ORDER_AND_FATE,
    PLACE_AND_FATE,
    REJECT_COLUMNS,
    attempts_in,
    hidden_rows,
    rejects_at,
    topics_of,
    topics_with_attempts,
    with_duplicates_counted,
    with_fate,
    with_rejects_counted,
    without_places,
)
from kappa.engine.function.refused_records import Refused, rejected_rows
from kappa.engine.slice_rows import ArrowRows, Columns, CountsOf, RejectExample, SliceRows
from kappa.records.decode.decode import ByteBudget, decode_ranges, decode_table, of_topic
from kappa.records.decode.decoder import Clock, Memories
from kappa.records.decode.outcome import VALID, Fate, counts_in
from kappa.records.redrive import Attempt, Position, Settled
from kappa.state.slices import Slice
from kappa.state.table import TableBirth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.function.function_rows import FunctionRows
    from kappa.engine.read.source import LogSource

# A reader of a range begins with a connection of its own, which costs as much as so many records
# that become Python objects.
_FEW = 10_000
# The most bytes of raw records of a slice that is decoded in memory. The bound is for the records
# of a topic that are far larger than usual.
_MOST_BYTES = 512 << 20
# Rejects of a slice that are looked at for examples, and the columns that show a reject.
_MOST_EXAMPLES = 200
_EXAMPLE_COLUMNS = ["_partition", "_offset", "_fate", "_reason", "_detail", "_raw_value"]
_OF_FIELDS = {Reason.WRONG_TYPE, Reason.OUT_OF_RANGE, Reason.BAD_FORMAT, Reason.MISSING}


def decode_here(
    piece: Slice,
    topics: Iterable[Topic],
    source: LogSource,
    clocks: Mapping[str, Clock],
    memories: Mapping[str, Memories],
    *,
    cores: int,
    sample: Callable[[str, pa.Table], None] | None = None,
) -> SliceHere:
    """Reads and decodes the records of a slice in this process.

    A topic with at most 10,000 offsets in the slice is decoded in this thread, and `sample` is
    called with the topic's name and raw records. The partitions of all other topics are read and
    decoded by `cores` threads. `memories` contains the identities that the build remembers at the
    slice's start; decoding updates them to the slice's end. Raises TooManyBytesError if the records
    are too large for this process.
    """
    tables: dict[str, pa.Table] = {}
    few, many = _parted(piece, topics)
    if few:
        names = {topic.name for topic in few}
        # A reader that is given all topics goes on where the slice before ended.
        raw = source.read_records(
            replace(piece, start=piece.start.only(names), end=piece.end.only(names))
            if many
            else piece
        )
        for topic in few:
            own = of_topic(raw, topic.name)
            if sample is not None:
                sample(topic.name, own)
            tables[topic.name] = decode_table(
                own,
                topic,
                clocks.get(topic.name, {}),
                memories.get(topic.name, {}),
            )
    budget = ByteBudget(_MOST_BYTES)
    with ThreadPoolExecutor(cores, thread_name_prefix="decoding") as threads:
        for topic in many:
            tables[topic.name] = decode_ranges(
                source.ranges(piece, topic.name),
                topic,
                clocks.get(topic.name, {}),
                memories.get(topic.name, {}),
                threads,
                budget,
            )
    return SliceHere(tables)


def _parted(piece: Slice, topics: Iterable[Topic]) -> tuple[list[Topic], list[Topic]]:
    """Returns a pair: the topics with few offsets in the slice, and those with many offsets."""
    few, many = list[Topic](), list[Topic]()
    for topic in topics:
        offsets = piece.end.only({topic.name}).distance(piece.start)
        if offsets:
            (few if offsets <= _FEW else many).append(topic)
    return few, many


class SliceHere(SliceRows):
    """A small slice, decoded in this process."""

    is_judged_first = carries_memories = True

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        """Stores the decoded records of each topic."""
        self._tables = dict(tables)
        self._seen: CountsOf = {name: counts_in(table) for name, table in self._tables.items()}
        self._folded: Mapping[Position, int] = {}

    def counts(self) -> CountsOf:
        """Returns the counts of the decoded records, per topic and partition."""
        return self._seen

    def attempts(self) -> tuple[Attempt, ...]:
        """Returns the redriven records of the slice."""
        return tuple(
            each
            for name in topics_with_attempts(self._seen)
            for each in attempts_in(
                name,
                self._tables[name].select(PLACE_AND_FATE).filter(pc.field("_redrives").is_valid()),
            )
        )

    def rejected(self, places: Collection[Position]) -> dict[Position, int | None]:
        """Returns the places in `places` that are rejects of this slice.

        Each such place is mapped to the offset of the record that the reject redrives, or to None
        if the reject is not a redriven record.
        """
        return {
            place: of
            for name in topics_of(places)
            if name in self._tables
            for place, of in rejects_at(name, self._tables[name].select(PLACE_AND_FATE), places)
        }

    def reject_examples(self) -> tuple[RejectExample, ...]:
        """Returns the first reject for each combination of topic, reason and field.

        Only the first 200 rejects of each topic are searched.
        """
        found: dict[tuple[str, str, str], RejectExample] = {}
        for topic, counts in self._seen.items():
            if not any(each.rejected for each in counts.values()):
                continue
            rejects = with_fate(self._tables[topic].select(_EXAMPLE_COLUMNS), Fate.REJECTED)
            for row in rejects.slice(0, _MOST_EXAMPLES).to_pylist():
                # The detail of a value that does not fit begins with the field.
                of_field = row["_reason"] in _OF_FIELDS
                name = (row["_detail"] or "").partition(" ")[0] if of_field else ""
                place = f"{topic}:{row['_partition']}:{row['_offset']}"
                found.setdefault(
                    (topic, row["_reason"], name),
                    RejectExample(
                        *(topic, row["_reason"], name, row["_detail"] or row["_reason"], place),
                        row["_raw_value"],
                    ),
                )
        return tuple(found.values())

    def settle(self, found: Settled) -> None:
        """Stores which redriven records are folded, and removes those that are duplicates.

        `found` contains the decisions. The duplicates are removed from the decoded tables.
        """
        self._folded = found.folded
        self._seen = with_duplicates_counted(self._seen, found.duplicates)
        for name in topics_of(found.duplicates):
            self._tables[name] = without_places(self._tables[name], name, found.duplicates)

    def _accepted(self, topic: Topic, columns: Columns) -> pa.Table:
        table = self._tables.get(topic.name)
        return (
            arrow_schema(columns).empty_table()
            if table is None
            else with_fate(table, *VALID).select([name for name, _ in columns])
        )

    def chunks(self, topic: Topic, columns: Columns, at_most: int) -> Iterator[pa.Table]:
        """Yields a topic's valid records in tables of at most `at_most` rows.

        The yielded tables share the memory of one Arrow table, so no rows are copied for them.
        """
        rows = self._accepted(topic, columns)
        for start in range(0, rows.num_rows, at_most):
            yield rows.slice(start, at_most)

    def reject(self, refused: Refused) -> None:
        """Turns the records in `refused` into rejects, by changing columns of the Arrow tables."""
        self._tables |= {
            name: rejected_rows(self._tables[name], name, refused) for name, _ in refused
        }
        self._seen = with_rejects_counted(self._seen, refused)

    def apply(self, function: FunctionRows, spark: SparkSession) -> dict[str, ArrowRows]:
        """Runs the plan for small slices, and returns the function's rows by table name."""
        rows = {topic.name: self._accepted(topic, columns) for topic, columns in function.inputs()}
        return {name: ArrowRows(own) for name, own in function.plan(spark).run(rows).items()}

    def latest(self, topic: Topic, table: TableBirth) -> ArrowRows | None:
        """Returns the newest record per key of the topic, computed with Arrow.

        Returns None if the slice has no offsets of the topic.
        """
        decoded = self._tables.get(topic.name)
        return None if decoded is None else ArrowRows(latest_table(decoded, table))

    def truncations(self, topic: Topic) -> pa.Table:
        """Returns the truncations among the decoded records of the topic."""
        if not any(seen.truncations for seen in self._seen.get(topic.name, {}).values()):
            return NO_TRUNCATIONS
        return with_fate(self._tables[topic.name].select(ORDER_AND_FATE), Fate.TRUNCATION)

    def rejects(self, table: TableBirth, more: pa.Table | None = None) -> ArrowRows:
        """Returns the rows of the rejects table as one Arrow table.

        The rows are the rejects of all topics, a hidden row for each redriven record that is
        folded, and the rows of `more`.
        """
        sources = {
            name: REJECT_COLUMNS[name] for name, _ in table.columns if name in REJECT_COLUMNS
        }
        rejected = [
            with_fate(decoded, Fate.REJECTED)
            .select(list(sources.values()))
            .rename_columns(list(sources))
            for decoded in self._tables.values()
        ]
        others = [hidden_rows(table, self._folded), *([] if more is None else [more])]
        found = pa.concat_tables([*rejected, *others], promote_options="default")
        names = [name for name, _ in table.columns]
        return ArrowRows(found.select(names).cast(arrow_schema(table.columns)))

    def close(self) -> None:
        """Releases the Arrow tables of decoded records."""
        self._tables = {}
