"""Valid records that become rejects, as Arrow tables.

The tables contain only the columns that change when a record becomes a reject. A slice may have
millions of such records, so no code here handles the records one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc

from kappa.base.errors import Broken
from kappa.declare.values.reason import Reason
from kappa.engine.read.source import LogSource
from kappa.records.decode.outcome import Fate
from kappa.records.decode.raw_records import RAW_SCHEMA
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

# Places of records, and the reason why each record is a reject.
REFUSED_COLUMNS = (
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("detail", "string"),
)
_RAW = ("key", "value", "headers")
# Raw records are read again in ranges of at most so many offsets, which leave out longer gaps.
_AT_ONCE, _GAP = 10_000, 1_000
# (topic, partition) -> `_offset`, and the columns of a reject.
Refused = Mapping[tuple[str, int], pa.Table]


def refused_of(places: pa.Table, reason: Reason, raw: pa.Table) -> Refused:
    """Returns the changed columns of records that become rejects, by topic and partition.

    `places` has the columns REFUSED_COLUMNS and contains each place once. `raw` contains the
    records as they are in the log. If `raw` lacks a record, the record's reject has no key, value
    and headers.
    """
    refused: dict[tuple[str, int], pa.Table] = {}
    for part in places.group_by(["topic", "partition"]).aggregate([]).to_pylist():
        own, records = (_of_part(rows, part["topic"], part["partition"]) for rows in (places, raw))
        at = pc.index_in(own["offset"], value_set=records["offset"])
        count = own.num_rows
        columns = {
            "_offset": own["offset"],
            "_fate": pa.repeat(int(Fate.REJECTED), count),
            "_reason": pa.repeat(str(reason), count),
            "_detail": own["detail"],
            **{f"_raw_{name}": records[name].take(at) for name in _RAW},
        }
        refused[part["topic"], part["partition"]] = pa.table(columns)
    return refused


def raw_records(places: pa.Table, source: LogSource) -> pa.Table:
    """Reads the records at these places from the log again.

    The places must be in the order of the log. A record that came from an archive and that the log
    no longer has is left out.
    """
    raw = [RAW_SCHEMA.empty_table()]
    for piece in _ranges(places):
        with suppress(Broken):
            found = source.read_records(piece)
            raw.append(found.filter(pc.is_in(found["offset"], value_set=places["offset"])))
    return pa.concat_tables(raw)


def rejected_rows(decoded: pa.Table, topic: str, refused: Refused) -> pa.Table:
    """Returns the topic's decoded records, with the records in `refused` changed into rejects."""
    for (name, partition), rows in refused.items():
        if name != topic:
            continue
        offsets = pc.if_else(
            pc.equal(decoded.column("_partition"), partition), decoded.column("_offset"), None
        )
        at = pc.index_in(offsets, value_set=rows["_offset"], skip_nulls=True)
        if at.null_count == len(at):
            continue
        for column in rows.column_names[1:]:
            place = decoded.schema.get_field_index(column)
            field = decoded.schema.field(place)
            found = pc.if_else(
                at.is_valid(), rows[column].take(at).cast(field.type), decoded.column(place)
            )
            decoded = decoded.set_column(place, field, found)
    return decoded


def _of_part(rows: pa.Table, topic: str, partition: int) -> pa.Table:
    return rows.filter((pc.field("topic") == topic) & (pc.field("partition") == partition))


def _ranges(places: pa.Table) -> Iterator[Slice]:
    """Yields small slices that together contain all records at `places`.

    The places must be in the order of the log.
    """
    first: tuple[str, int, int] | None = None
    last = 0
    for topic, partition, offset in zip(
        *(places.column(name).to_pylist() for name in ("topic", "partition", "offset")), strict=True
    ):
        if first is not None and (
            first[:2] != (topic, partition) or offset - last > _GAP or offset - first[2] >= _AT_ONCE
        ):
            yield _slice(*first, last)
            first = None
        first, last = first or (topic, partition, offset), offset
    if first is not None:
        yield _slice(*first, last)


def _slice(topic: str, partition: int, first: int, last: int) -> Slice:
    start, end = (Offsets({topic: {partition: each}}) for each in (first, last + 1))
    return Slice(0, 0, start, end)
