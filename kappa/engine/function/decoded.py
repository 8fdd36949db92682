"""The decoded records of one slice, for what is made of them: contributions, latest rows, rejects and the count of all.

A small slice is decoded in the job itself and is Arrow; a large one in Spark's workers, kept in files while the slice is
folded. Both answer the same questions with the same rows, each in its own form. Each topic is decoded once. Once the redriven
records are settled (engine/function/redriven.py), those of them that are duplicates are left out of all answers. Read next: engine/read/decode.py.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.errors import KappaError
from kappa.declare.topic import Topic
from kappa.engine.fold.fold import latest_table, spark_ddl, spark_quote
from kappa.engine.function.contribution import latest_frame
from kappa.engine.function.trouble import raised_at_spark
from kappa.engine.read.archived import Ranges, Taken
from kappa.engine.read.decode import (
    Clock,
    Fate,
    Memories,
    Remembering,
    Seen,
    decode_table,
    decode_to_files,
    decoded_columns,
    decoded_file,
    of_topic,
    seen_in,
)
from kappa.engine.read.rows import Rows
from kappa.engine.read.source import RawRange
from kappa.records.redrive import Attempt, Position, Settled
from kappa.state.build import TableBirth
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.values.arrow import arrow_schema
from kappa.values.reason import Reason

# A reject's row: where each column of the rejects table comes from; a build that was born earlier has fewer of them.
_REJECT = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "_raw_key",
    "value": "_raw_value",
    "headers": "_raw_headers",
    "reason": "_reason",
    "detail": "_detail",
    "_redrives": "_redrives",
}
_NAMES = ("_partition", "_offset", "_fate", "_redrives")
_PLACE = (("_partition", "int"), ("_offset", "bigint"))


SeenOf = Mapping[str, Mapping[int, Seen]]
# Takes what an archive has of the beginnings of a topic's ranges into a folder (engine/read/archived.py).
Archived = Callable[[Topic, Ranges, Clock, Path], Mapping[int, Taken]]
# Names and Spark's types.
Columns = Sequence[tuple[str, str]]
# Of records that were decoded and are rejects all the same: (topic, partition, offset) -> what is said of it.
Details = Mapping[tuple[str, int, int], str]


class DecodedHere:
    """A small slice, decoded in this process."""

    def __init__(
        self,
        raw: pa.Table,
        topics: Iterable[Topic],
        clocks: Mapping[str, Clock],
        memories: Mapping[str, Memories],
    ) -> None:
        """`raw` holds the records of all these topics; the memories of those that declare an identity are taken along."""
        self._tables = {
            topic.name: decode_table(
                of_topic(raw, topic.name),
                topic,
                clocks.get(topic.name, {}),
                memories.get(topic.name, {}),
            )
            for topic in topics
        }
        self._seen: SeenOf = {name: seen_in(table) for name, table in self._tables.items()}
        self._folded: Mapping[Position, int] = {}

    def seen(self) -> SeenOf:
        """What was seen, per topic and partition; a partition without records is not named."""
        return self._seen

    def attempts(self) -> tuple[Attempt, ...]:
        """The redriven records."""
        return tuple(
            each
            for name in _with_attempts(self._seen)
            for each in _attempts(
                name, self._tables[name].select(_NAMES).filter(pc.field("_redrives").is_valid())
            )
        )

    def rejected(self, places: Collection[Position]) -> dict[Position, int | None]:
        """Which of these places hold a reject of this slice, and the offset that it names itself."""
        return {
            place: of
            for name in _topics_of(places)
            if name in self._tables
            for place, of in _rejected_at(name, self._tables[name].select(_NAMES), places)
        }

    def settle(self, found: Settled) -> None:
        """Takes note of which redriven records are folded, and leaves out those that are duplicates."""
        self._folded = found.folded
        self._seen = _with_duplicates(self._seen, found.duplicates)
        for name in _topics_of(found.duplicates):
            self._tables[name] = _without(self._tables[name], name, found.duplicates)

    def accepted(self, topic: Topic, columns: Columns) -> pa.Table:
        """The valid records of a topic, these columns of them."""
        table = self._tables.get(topic.name)
        return (
            arrow_schema(columns).empty_table()
            if table is None
            else _with_fate(table, Fate.DECODED).select([name for name, _ in columns])
        )

    def chunks(self, topic: Topic, columns: Columns, at_most: int) -> Iterator[pa.Table]:
        """The same, here, in parts of at most so many rows."""
        rows = self.accepted(topic, columns)
        for start in range(0, rows.num_rows, at_most):
            yield rows.slice(start, at_most)

    def reject(self, raw: pa.Table, details: Details) -> None:
        """Makes rejects of records that were valid: the function fails on them. `raw` holds them as they lie in the log. It comes before `settle`."""
        refusals = _refusals(raw, details)
        self._tables |= {
            name: _rejected(self._tables[name], refused) for name, refused in refusals.items()
        }
        self._seen = _with_rejects(self._seen, refusals)

    def latest(self, topic: Topic, table: TableBirth) -> Rows:
        """The newest record per key of a topic."""
        decoded = self._tables.get(topic.name)
        return None if decoded is None else latest_table(decoded, table)

    def rejects(self, table: TableBirth) -> Rows:
        """The records that are not valid, as rows of the rejects table; with them a hidden row for each redriven one that is folded."""
        sources = {name: _REJECT[name] for name, _ in table.columns if name in _REJECT}
        rejected = [
            _with_fate(decoded, Fate.REJECTED)
            .select(list(sources.values()))
            .rename_columns(list(sources))
            for decoded in self._tables.values()
        ]
        return _with_hidden(
            pa.concat_tables(rejected, promote_options="default") if rejected else None,
            _hidden(table, self._folded),
            table,
        )

    def close(self) -> None:
        """Lets go of what was kept."""
        self._tables = {}


class DecodedAtSpark:
    """A large slice in files that Spark reads while it is folded: decoded by its workers, or an archive's own."""

    def __init__(
        self,
        spark: SparkSession,
        topics: Iterable[Topic],
        piece: Slice,
        raw: Callable[[Slice, str], Sequence[RawRange]],
        clocks: Mapping[str, Clock],
        remembering: Mapping[str, Remembering],
        folder: Path,
        archived: Archived,
        left_out: Mapping[str, frozenset[str]],
    ) -> None:
        """`raw` gives the ranges of one topic in a slice, by its name; `folder` is made for the files; `archived` gives what need not be decoded.

        `left_out` names, per topic, columns of its events that the function does not use: a frame that is asked for them fails, and in `chunks` they are null.
        """
        self._spark = spark
        self._folder = folder
        self._frames: dict[str, DataFrame] = {}
        self._files: dict[str, Path] = {}
        # Of topics whose files hold more than the slice.
        self._within: dict[str, Ranges] = {}
        self._seen: SeenOf = {}
        self._folded: Mapping[Position, int] = {}
        self._duplicates: frozenset[Position] = frozenset()
        self._left_out = left_out
        seen_of: dict[str, Mapping[int, Seen]] = {}
        # A crash has left some.
        self.close()
        for number, topic in enumerate(topics):
            path = folder / str(number)
            path.mkdir(parents=True)
            clock = clocks.get(topic.name, {})
            ranges = {
                partition: (start, end)
                for partition, end in piece.end.next.get(topic.name, {}).items()
                if end > (start := piece.start.at(topic.name, partition))
            }
            taken = archived(topic, ranges, clock, path)
            if taken:
                self._within[topic.name] = ranges
            seen = {partition: one.seen for partition, one in taken.items() if one.seen is not None}
            # The log is read from exactly where the archive ends, in its log time too.
            rest = replace(
                piece,
                start=piece.start.highest(
                    Offsets({topic.name: {partition: one.end for partition, one in taken.items()}})
                ),
            )
            clock = {**clock, **{partition: one.log_time for partition, one in seen.items()}}
            files = sum(1 for _ in path.glob("*.parquet"))
            unused = left_out.get(topic.name, frozenset())
            more = decode_to_files(
                spark,
                raw(rest, topic.name),
                topic,
                clock,
                remembering.get(topic.name, Remembering()),
                path,
                first=files,
                left_out=unused,
            )
            seen_of[topic.name] = {
                **seen,
                **{
                    partition: seen[partition].then(one) if partition in seen else one
                    for partition, one in more.items()
                },
            }
            self._files[topic.name] = path
            self._frames[topic.name] = self._frame(topic.name, decoded_columns(topic))
        self._seen = seen_of

    def seen(self) -> SeenOf:
        """As DecodedHere."""
        return self._seen

    def attempts(self) -> tuple[Attempt, ...]:
        """As DecodedHere."""
        return tuple(
            each
            for name in _with_attempts(self._seen)
            for each in _attempts(name, self._read(name, pc.field("_redrives").is_valid()))
        )

    def rejected(self, places: Collection[Position]) -> dict[Position, int | None]:
        """As DecodedHere."""
        found = (
            (name, self._read(name, pc.field("_offset").isin([place.offset for place in places])))
            for name in _topics_of(places)
            if name in self._files
        )
        return {place: of for name, rows in found for place, of in _rejected_at(name, rows, places)}

    def settle(self, found: Settled) -> None:
        """As DecodedHere."""
        self._folded, self._duplicates = found.folded, found.duplicates
        self._seen = _with_duplicates(self._seen, found.duplicates)
        for name in _topics_of(found.duplicates):
            rows = [
                {"_partition": place.partition, "_offset": place.offset}
                for place in found.duplicates
                if place.topic == name
            ]
            left_out = self._spark.createDataFrame(
                pa.Table.from_pylist(rows, schema=arrow_schema(_PLACE))
            )
            self._frames[name] = self._frames[name].join(
                F.broadcast(left_out), [column for column, _ in _PLACE], "left_anti"
            )

    def _read(self, topic: str, where: ds.Expression) -> pa.Table:
        within = self._within.get(topic)
        return ds.dataset(self._files[topic], format="parquet").to_table(
            columns=list(_NAMES), filter=where if within is None else where & _rows_within(within)
        )

    def accepted(self, topic: Topic, columns: Columns) -> DataFrame:
        """As DecodedHere."""
        frame = self._frames.get(topic.name)
        if frame is None:
            return self._spark.createDataFrame(arrow_schema(columns).empty_table())
        return frame.where(f"_fate = {int(Fate.DECODED)}").select(
            *(spark_quote(name) for name, _ in columns)
        )

    def chunks(self, topic: Topic, columns: Columns, at_most: int) -> Iterator[pa.Table]:
        """As DecodedHere."""
        within = self._within.get(topic.name)
        for path in self._parts(topic.name):
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(
                    at_most,
                    columns=list(
                        dict.fromkeys(
                            ("_fate", "_partition", "_offset", *(name for name, _ in columns))
                        )
                    ),
                ):
                    found = _with_fate(
                        _whole(pa.Table.from_batches([batch]), columns), Fate.DECODED
                    )
                    found = found if within is None else found.filter(_rows_within(within))
                    rows = _without(found, topic.name, self._duplicates).select(
                        [name for name, _ in columns]
                    )
                    if rows.num_rows:
                        yield rows

    def reject(self, raw: pa.Table, details: Details) -> None:
        """As DecodedHere."""
        refusals = _refusals(raw, details)
        for topic, refused in refusals.items():
            for path in self._parts(topic):
                _rewrite(path, refused)
            # Spark remembers how long files are.
            self._frames[topic] = self._frame(
                topic,
                [
                    (field.name, field.dataType.simpleString())
                    for field in self._frames[topic].schema.fields
                ],
            )
        self._seen = _with_rejects(self._seen, refusals)

    def _parts(self, topic: str) -> list[Path]:
        """The files of a topic in the order of the tasks that wrote them, which is that of its partitions."""
        return (
            sorted(self._files[topic].glob("*.parquet"), key=lambda path: int(path.stem))
            if topic in self._files
            else []
        )

    def _frame(self, topic: str, columns: Columns) -> DataFrame:
        left_out = self._left_out.get(topic, frozenset())
        frame = self._spark.read.schema(
            spark_ddl([column for column in columns if column[0] not in left_out])
        ).parquet(str(self._files[topic]))
        if left_out:
            frame = frame.select(
                *(
                    _refused(topic, *column)
                    if column[0] in left_out
                    else F.col(spark_quote(column[0]))
                    for column in columns
                )
            )
        return frame.where(_sql_within(self._within[topic])) if topic in self._within else frame

    def latest(self, topic: Topic, table: TableBirth) -> Rows:
        """As DecodedHere."""
        frame = self._frames.get(topic.name)
        return None if frame is None else latest_frame(frame, table)

    def rejects(self, table: TableBirth) -> Rows:
        """As DecodedHere."""
        hidden = _hidden(table, self._folded)
        rows: DataFrame | None = None
        for name, frame in self._frames.items():
            if any(seen.rejected for seen in self._seen[name].values()):
                columns = (
                    F.col(_REJECT[column]) if column in _REJECT else F.lit(None).cast(kind)
                    for column, kind in table.columns
                )
                rejected = frame.where(f"_fate = {int(Fate.REJECTED)}").select(
                    *(
                        source.alias(column)
                        for (column, _), source in zip(table.columns, columns, strict=True)
                    )
                )
                rows = rejected if rows is None else rows.unionAll(rejected)
        if rows is None or hidden.num_rows == 0:
            return hidden if rows is None and hidden.num_rows else rows
        return rows.unionAll(self._spark.createDataFrame(hidden))

    def close(self) -> None:
        """As DecodedHere."""
        shutil.rmtree(self._folder, ignore_errors=True)


# (partition, offset) -> the columns in which a reject differs from a record that was decoded.
_Refusals = Mapping[tuple[int, int], Mapping[str, Any]]


def _refusals(raw: pa.Table, details: Details) -> Mapping[str, _Refusals]:
    refused: dict[str, dict[tuple[int, int], Mapping[str, Any]]] = {}
    for record in raw.to_pylist():
        topic, partition, offset = record["topic"], record["partition"], record["offset"]
        why = {
            "_fate": int(Fate.REJECTED),
            "_reason": str(Reason.FUNCTION_FAILED),
            "_detail": details[topic, partition, offset],
        }
        refused.setdefault(topic, {})[partition, offset] = {
            **why,
            **{f"_raw_{name}": record[name] for name in ("key", "value", "headers")},
        }
    return refused


def _with_rejects(seen: SeenOf, refusals: Mapping[str, _Refusals]) -> SeenOf:
    moved = Counter(
        (topic, partition) for topic, refused in refusals.items() for partition, _ in refused
    )
    return _recounted(
        seen,
        lambda one, part: replace(
            one, decoded=one.decoded - moved[part], rejected=one.rejected + moved[part]
        ),
    )


def _with_duplicates(seen: SeenOf, duplicates: Iterable[Position]) -> SeenOf:
    moved = Counter((place.topic, place.partition) for place in duplicates)
    return _recounted(
        seen,
        lambda one, part: replace(
            one, decoded=one.decoded - moved[part], duplicate=one.duplicate + moved[part]
        ),
    )


def _recounted(seen: SeenOf, change: Callable[[Seen, tuple[str, int]], Seen]) -> SeenOf:
    return {
        topic: {partition: change(one, (topic, partition)) for partition, one in parts.items()}
        for topic, parts in seen.items()
    }


def _rejected(decoded: pa.Table, refused: _Refusals) -> pa.Table:
    records = zip(
        decoded.column("_partition").to_pylist(), decoded.column("_offset").to_pylist(), strict=True
    )
    places = {place: refused[record] for place, record in enumerate(records) if record in refused}
    if not places:
        return decoded
    for name in next(iter(places.values())):
        values = decoded.column(name).to_pylist()
        for place, columns in places.items():
            values[place] = columns[name]
        at = decoded.schema.get_field_index(name)
        decoded = decoded.set_column(
            at, decoded.schema.field(at), pa.array(values, decoded.schema.field(at).type)
        )
    return decoded


def _rewrite(path: Path, refused: _Refusals) -> None:
    written = path.with_suffix(".new")
    with pq.ParquetFile(path) as file, decoded_file(written, file.schema_arrow) as into:
        for batch in file.iter_batches():
            into.write_table(
                _rejected(pa.Table.from_batches([batch], schema=file.schema_arrow), refused)
            )
    written.replace(path)


def _rows_within(ranges: Ranges) -> ds.Expression:
    part, offset = pc.field("_partition"), pc.field("_offset")
    return reduce(
        or_,
        (
            (part == partition) & (offset >= start) & (offset < end)
            for partition, (start, end) in ranges.items()
        ),
    )


def _sql_within(ranges: Ranges) -> str:
    return " or ".join(
        f"(_partition = {partition} and _offset >= {start} and _offset < {end})"
        for partition, (start, end) in ranges.items()
    )


def _refused(topic: str, name: str, kind: str) -> Column:
    """A column that is in no file: no null may be taken for its value."""
    error = KappaError(
        f"column {name} of topic {topic} is used in this slice, and was not in one before",
        hint="the function may give one plan only; a job begins again with all columns",
    )
    return F.raise_error(F.lit(raised_at_spark(error))).cast(kind).alias(name)


def _whole(table: pa.Table, columns: Columns) -> pa.Table:
    """With the columns that were left out of its file."""
    for field in arrow_schema(columns):
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table


def _with_fate(table: pa.Table, fate: Fate) -> pa.Table:
    return table.filter(pc.equal(table.column("_fate"), int(fate)))


def _without(rows: pa.Table, topic: str, places: Collection[Position]) -> pa.Table:
    if not places:
        return rows
    records = zip(
        rows.column("_partition").to_pylist(), rows.column("_offset").to_pylist(), strict=True
    )
    return rows.filter(
        pa.array([Position(topic, *record) not in places for record in records], pa.bool_())
    )


def _with_attempts(seen: SeenOf) -> Iterable[str]:
    """The topics with redriven records: nearly always none."""
    return (name for name, parts in seen.items() if any(one.redriven for one in parts.values()))


def _attempts(topic: str, rows: pa.Table) -> Iterable[Attempt]:
    return (
        Attempt(
            Position(topic, row["_partition"], row["_offset"]),
            row["_redrives"],
            row["_fate"] == Fate.DECODED,
        )
        for row in rows.to_pylist()
    )


def _topics_of(places: Iterable[Position]) -> set[str]:
    return {place.topic for place in places}


def _rejected_at(
    topic: str, rows: pa.Table, places: Collection[Position]
) -> Iterable[tuple[Position, int | None]]:
    for row in rows.filter(pc.field("_fate") == int(Fate.REJECTED)).to_pylist():
        place = Position(topic, row["_partition"], row["_offset"])
        if place in places:
            yield place, row["_redrives"]


def _hidden(table: TableBirth, folded: Mapping[Position, int]) -> pa.Table:
    """What the rejects table remembers of redriven records that are folded."""
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "offset": at.offset,
            "_redrives": of,
            "_deleted": True,
        }
        for at, of in folded.items()
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(table.columns))


def _with_hidden(rejected: pa.Table | None, hidden: pa.Table, table: TableBirth) -> pa.Table:
    found = pa.concat_tables(
        [hidden] if rejected is None else [rejected, hidden], promote_options="default"
    )
    return found.select([name for name, _ in table.columns]).cast(arrow_schema(table.columns))
