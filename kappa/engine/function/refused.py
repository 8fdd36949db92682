"""Valid records that become rejects: the columns in which they differ then, in Arrow.

A slice may have millions of them, so nothing here takes them one by one.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.values.reason import Reason
from kappa.records.decode.fate import Fate

# Places of records, and why each is a reject.
REFUSED_COLUMNS = (
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("detail", "string"),
)
_RAW = ("key", "value", "headers")
# (topic, partition) -> `_offset`, and the columns of a reject.
Refused = Mapping[tuple[str, int], pa.Table]


def refused_of(places: pa.Table, reason: Reason, raw: pa.Table) -> Refused:
    """Returns the columns of records that become rejects, by topic and partition.

    `places` has REFUSED_COLUMNS, and each place once. `raw` has the records as they are in the log.
    A record that it lacks has no key, value and headers as a reject.
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


def rejected_rows(decoded: pa.Table, topic: str, refused: Refused) -> pa.Table:
    """Replaces the columns of those records of a topic that become rejects."""
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
