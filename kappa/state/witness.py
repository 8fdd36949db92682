"""Witnesses: the last record that was read from each partition, to detect that a log has changed.

A partition that loses its last records (by an unclean leader election) uses the lost offsets again
for other records. The epoch of the partition's leader and a digest of the record show this change.
So a frontier, and the mark in each commit of a table or an archive, contain the epoch and the
digest for each partition. An epoch alone would not be sufficient, since a cluster that is restored
from a backup may count the same epochs again. A digest alone would not be sufficient either, since
compaction may have removed the record. Source of the epochs:
https://cwiki.apache.org/confluence/display/KAFKA/KIP-320. This module does no I/O.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from msgspec import Struct

from kappa.base.errors import Broken
from kappa.state.offsets import Offsets

# The epoch of a record whose broker tells none.
NO_EPOCH = -1
_DIGITS = 16


class Witness(Struct, frozen=True):
    """The last record that was read from a partition: its offset, leader epoch and digest."""

    offset: int
    epoch: int
    digest: str

    def is_record(self, other: Witness) -> bool:
        """Returns True if this witness and `other` are witnesses of the same record.

        If the leader epoch of one of them is not known, the epochs are not compared.
        """
        return (self.offset, self.digest) == (other.offset, other.digest) and (
            self.epoch == other.epoch or NO_EPOCH in {self.epoch, other.epoch}
        )


# Topic -> partition -> the witness; a partition of which no record was read has none.
Witnesses = Mapping[str, Mapping[int, Witness]]


class LostEnd(Struct, frozen=True):
    """A partition whose last records have changed or disappeared after Kappa read them.

    `end` is the offset up to which Kappa had read. The records before the offset `first` are
    unchanged. If `first` is None, Kappa only knows that the last record before `end` differs.
    """

    topic: str
    partition: int
    first: int | None
    end: int

    def __str__(self) -> str:
        part = f"{self.topic} partition {self.partition}"
        if self.first is None:
            return f"{part} has another record before offset {self.end}"
        lost = (
            f"offset {self.first}"
            if self.first >= self.end - 1
            else f"offsets {self.first} to {self.end - 1}"
        )
        return f"{part} was cut at offset {self.first} and has lost {lost}"


class LogCutError(Broken):
    """The error for topics whose last records were lost or changed after Kappa read them."""

    def __init__(self, message: str, *, hint: str, topics: Iterable[str]) -> None:
        super().__init__(message, hint=hint)
        self.topics = tuple(sorted(set(topics)))


def digest_of(timestamp_ms: int, key: bytes | None, value: bytes | None) -> str:
    """Returns a digest of a record, as 16 hexadecimal digits.

    A record with a null key or value has another digest than a record with an empty key or value.
    """
    found = hashlib.sha256(str(timestamp_ms).encode())
    for part in (key, value):
        found.update(b"-" if part is None else f"+{len(part)}:".encode() + part)
    return found.hexdigest()[:_DIGITS]


def is_other_record(witness: Witness, found: Iterable[Witness]) -> bool:
    """Returns True if a partition's records have changed, from the offset of `witness` on.

    `witness` is the last record that was read from the partition. `found` contains witnesses of the
    present records, from that offset up to the offset that the reader had reached. A missing record
    proves nothing, since compaction and retention remove records. A record after the witness proves
    a change, because there was no such record when the partition was read.
    """
    return any(not witness.is_record(each) for each in found)


def leader_changed(before: Witnesses, now: Witnesses) -> bool:
    """Returns True if a partition's witness in `now` has another leader epoch than in `before`."""
    return any(
        before[topic][partition].epoch != found.epoch
        for topic, parts in now.items()
        for partition, found in parts.items()
        if partition in before.get(topic, {})
    )


def witnesses_after_slice(
    before: Witnesses, found: Witnesses, start: Offsets, end: Offsets
) -> Witnesses:
    """Returns the witnesses after a slice from `start` to `end`.

    `before` contains the witnesses before the slice, and `found` those of the records in the slice.
    If the slice contains offsets of a partition and `found` has a witness for it, the result
    contains this witness. For any other partition, the result contains the witness from `before`.
    """
    after = {topic: dict(parts) for topic, parts in before.items()}
    for topic, partition, last in end.items():
        one = found.get(topic, {}).get(partition)
        if one is not None and last > start.at(topic, partition):
            after.setdefault(topic, {})[partition] = one
    return after


def offsets_before_cut(end: Offsets, lost: Iterable[LostEnd]) -> Offsets | None:
    """Lowers `end` to the offsets before which all records are unchanged.

    `lost` contains the partitions whose last records have changed or disappeared. Returns None if
    it is not known for one of these partitions where the change begins.
    """
    first: dict[str, dict[int, int]] = {topic: dict(parts) for topic, parts in end.next.items()}
    for each in lost:
        if each.first is None:
            return None
        first[each.topic][each.partition] = min(each.first, each.end)
    return Offsets(first)
