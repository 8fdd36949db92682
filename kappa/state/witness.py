"""The witness of a partition: its last record that was read, to know the log again.

A log that loses its end (an unclean leader election) uses offsets again for other records. The
leader's epoch and a digest of a record show the loss: a frontier, a table's mark and an archive's
mark carry both for each partition. An epoch alone would not do, since a cluster that is restored
from a backup counts epochs again. A digest alone would not do either, since compaction may have
taken the record. Source of the epochs: https://cwiki.apache.org/confluence/display/KAFKA/KIP-320.
Pure.
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
    """The last record before an offset: the record's offset, leader's epoch, and digest."""

    offset: int
    epoch: int
    digest: str

    def is_record(self, other: Witness) -> bool:
        """Returns True if both are of the same record; an unknown epoch is not compared."""
        return (self.offset, self.digest) == (other.offset, other.digest) and (
            self.epoch == other.epoch or NO_EPOCH in {self.epoch, other.epoch}
        )


# Topic -> partition -> the witness; a partition of which no record was read has none.
Witnesses = Mapping[str, Mapping[int, Witness]]


class LostEnd(Struct, frozen=True):
    """A partition whose offsets before `end` were read, and are not the same any more.

    The offsets before `first` are the same; None means that only the last record is known to
    differ.
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
    """A log that has lost its end: some records that were read are gone, or changed."""

    def __init__(self, message: str, *, hint: str, topics: Iterable[str]) -> None:
        super().__init__(message, hint=hint)
        self.topics = tuple(sorted(set(topics)))


def digest_of(timestamp_ms: int, key: bytes | None, value: bytes | None) -> str:
    """Returns a digest of a record; null and empty differ."""
    found = hashlib.sha256(str(timestamp_ms).encode())
    for part in (key, value):
        found.update(b"-" if part is None else f"+{len(part)}:".encode() + part)
    return found.hexdigest()[:_DIGITS]


def is_other_record(witness: Witness, found: Iterable[Witness]) -> bool:
    """Returns True if the log has other records than the witness from the witness's offset on.

    The records end where the reader was then. Fewer records are not a sign: compaction and
    retention remove records. A record after the witness is a sign, since the witness was the last.
    """
    return any(not witness.is_record(each) for each in found)


def leader_changed(before: Witnesses, now: Witnesses) -> bool:
    """Returns True if a partition's records are of another leader's epoch than before."""
    return any(
        before[topic][partition].epoch != found.epoch
        for topic, parts in now.items()
        for partition, found in parts.items()
        if partition in before.get(topic, {})
    )


def witnesses_after_slice(
    before: Witnesses, found: Witnesses, start: Offsets, end: Offsets
) -> Witnesses:
    """Returns the witnesses after a slice: from the slice where found, else from before.

    A partition of the slice in which no record was found keeps the old witness.
    """
    after = {topic: dict(parts) for topic, parts in before.items()}
    for topic, partition, last in end.items():
        one = found.get(topic, {}).get(partition)
        if one is not None and last > start.at(topic, partition):
            after.setdefault(topic, {})[partition] = one
    return after


def offsets_before_cut(end: Offsets, lost: Iterable[LostEnd]) -> Offsets | None:
    """Returns the offsets before which a cut log is unchanged, or None if they are not known."""
    first: dict[str, dict[int, int]] = {topic: dict(parts) for topic, parts in end.next.items()}
    for each in lost:
        if each.first is None:
            return None
        first[each.topic][each.partition] = min(each.first, each.end)
    return Offsets(first)
