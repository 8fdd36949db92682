"""The fates of records, the columns of decoded records, and the counts per partition.

A fate is the result of decoding a record, for example decoded, rejected or duplicate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.pipeline import ORIGIN_COLUMNS
from kappa.declare.topic import Topic
from kappa.declare.values.columns import HEADERS
from kappa.declare.values.reason import Reason


class Fate(IntEnum):
    """The result of decoding a record and checking it for lateness and duplicates."""

    DECODED = 0
    TOMBSTONE = 1
    REJECTED = 2
    DUPLICATE = 3
    # Changes at a source (formats/debezium_events.py): the function gets their rows like decoded
    # rows. For a latest table a deletion deletes its key, and a truncation all keys.
    DELETION = 4
    TRUNCATION = 5


# The fates of records that the function gets.
VALID = frozenset({Fate.DECODED, Fate.DELETION, Fate.TRUNCATION})


# The columns that only the platform reads. Only rejects keep the raw record; `_redrives` is the
# offset that a redriven record names.
HIDDEN_COLUMNS = (
    ("_log_time", "bigint"),
    ("_fate", "tinyint"),
    ("_reason", "string"),
    ("_detail", "string"),
    ("_raw_key", "binary"),
    ("_raw_value", "binary"),
    ("_raw_headers", HEADERS),
    ("_redrives", "bigint"),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a partition's records in a slice, by fate, and the partition's last log time.

    `late` is the number of rejects that are too late. `redriven` is the number of records with a
    header that names a record to replace, whatever their fate;
    kappa/engine/function/redriven_records.py decides later which of these records are duplicates.
    `truncations` is the number of decoded records that truncate a table.
    """

    decoded: int
    tombstone: int
    rejected: int
    duplicate: int
    late: int
    log_time: int
    redriven: int = 0
    truncations: int = 0

    def then(self, more: Counts) -> Counts:
        """Returns the sum of these counts and of the counts `more` of later records."""
        return Counts(
            self.decoded + more.decoded,
            self.tombstone + more.tombstone,
            self.rejected + more.rejected,
            self.duplicate + more.duplicate,
            self.late + more.late,
            # A task that begins in mid-partition does not know the log time before its range.
            max(self.log_time, more.log_time),
            self.redriven + more.redriven,
            self.truncations + more.truncations,
        )


def decoded_columns(topic: Topic) -> tuple[tuple[str, str], ...]:
    """Returns the columns of decoded records, as pairs (name, type).

    These are the columns of the event, of the place in the log, and of the fate.
    """
    return (
        *((column.name, str(column.type)) for column in topic.columns),
        *ORIGIN_COLUMNS,
        *HIDDEN_COLUMNS,
    )


def counts_in(decoded: pa.Table | pa.RecordBatch) -> dict[int, Counts]:
    """Counts decoded records per partition and fate.

    Within a partition, the records must be in the order of offsets.
    """
    fates = _rows_per_value(decoded, "_partition", "_fate")
    late = _rows_per_value(
        decoded.filter(pc.equal(decoded.column("_reason"), str(Reason.LATE))), "_partition"
    )
    redriven = _rows_per_value(decoded.filter(decoded.column("_redrives").is_valid()), "_partition")
    # Within a partition the log time only rises, so the last is the greatest.
    clock = (
        pa.table([decoded.column("_partition"), decoded.column("_log_time")], names=["p", "t"])
        .group_by("p")
        .aggregate([("t", "max")])
    )
    return {
        p: Counts(
            sum(fates[p, fate] for fate in VALID),
            fates[p, Fate.TOMBSTONE],
            fates[p, Fate.REJECTED],
            fates[p, Fate.DUPLICATE],
            late[p,],
            log_time,
            redriven[p,],
            fates[p, Fate.TRUNCATION],
        )
        for p, log_time in zip(clock["p"].to_pylist(), clock["t_max"].to_pylist(), strict=True)
    }


def joined(before: Mapping[int, Counts], more: Mapping[int, Counts]) -> dict[int, Counts]:
    """Returns the combined counts of earlier records and of later records, per partition."""
    return {
        **before,
        **{p: before[p].then(one) if p in before else one for p, one in more.items()},
    }


def _rows_per_value(decoded: pa.Table | pa.RecordBatch, *by: str) -> Counter[tuple[int, ...]]:
    """Returns the number of rows for each combination of values in the columns `by`."""
    if len(decoded) == 0:
        return Counter()
    found = (
        pa.table([decoded.column(name) for name in by], names=list(by))
        .group_by(list(by))
        .aggregate([([], "count_all")])
    )
    return Counter(
        dict(
            zip(
                zip(*(found[name].to_pylist() for name in by), strict=True),
                found["count_all"].to_pylist(),
                strict=True,
            )
        )
    )
