"""The archive of a topic: a typed copy of the topic's log in columns, and its mark.

A topic has one archive for each way of decoding its records. The name of the archive's folder is a
fingerprint of this way of decoding. Each commit of an archive contains metadata, the mark. Only the
offsets in the mark determine which offsets the archive covers. (kappa/state/mark.py describes the
corresponding mark of a build's tables.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from kappa.base.errors import Damaged
from kappa.declare.values.tally import Tally
from kappa.state.files.address import folders_in
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.witness import LostEnd, Witness, Witnesses

FOLDER = "archive"
HINT = "move its folder away, and the archive is made again from what the topic has"


class LogEnds(Protocol):
    """The part of the Kafka client that detects that a topic has lost its last records.

    kappa/kafka/client.py implements this protocol.
    """

    def lost_ends(self, end: Offsets, witnesses: Witnesses) -> tuple[LostEnd, ...]: ...  # noqa: D102  # as in Log


class ArchiveMark(Struct, frozen=True):
    """The mark of an archive: the covered offsets `[start, end)` per partition, and statistics.

    Each commit of the archive contains a mark. The covered range includes the offsets without a
    record. `topic_id` identifies the topic that was read: a topic that was created again has
    another id. `log_time` is the highest timestamp of the broker since `start`, in milliseconds.
    `tally` counts the offsets since `start` by outcome. For the ranges `[from, to)` in `raw`, the
    archive also stores the undecoded records. `witnesses` contains the last record before each
    partition's end, so that Kappa can check that the topic still has the same log. An archive of an
    older Kappa has no witnesses.
    """

    topic: str
    topic_id: str
    fingerprint: str
    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)
    log_time: Mapping[int, int] = field(default_factory=dict)
    tally: Mapping[int, Tally] = field(default_factory=dict)
    raw: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    witnesses: Mapping[int, Witness] = field(default_factory=dict)
    format: int = 1

    def to_json(self) -> str:
        """Returns the mark as JSON text, in the form in which a commit stores it."""
        return msgspec.json.encode(self).decode()

    def then(
        self,
        partition: int,
        start: int,
        end: int,
        seen: Tally,
        log_time: int | None,
        *,
        raw: bool = False,
        witness: Witness | None = None,
    ) -> ArchiveMark:
        """Returns the mark after the range `[start, end)` of a partition was added to the archive.

        `seen` counts the records of the range by outcome. The offsets without a record are counted
        as absent. `log_time` is the partition's new log time, or None if it does not change. `raw`
        is True if the archive also stores the undecoded records of the range. `witness` is the last
        record of the range, or None if the range contains no record.
        """
        absent = end - start - seen.decoded - seen.rejected - seen.tombstone - seen.duplicate
        tally = self.tally.get(partition, Tally()) + replace(seen, absent=absent)
        return replace(
            self,
            start={**self.start, partition: self.start.get(partition, start)},
            end={**self.end, partition: end},
            log_time=self.log_time if log_time is None else {**self.log_time, partition: log_time},
            tally={**self.tally, partition: tally},
            raw={**self.raw, partition: _with_range(self.raw.get(partition, ()), start, end)}
            if raw
            else self.raw,
            witnesses=self.witnesses if witness is None else {**self.witnesses, partition: witness},
        )


def _with_range(
    ranges: tuple[tuple[int, int], ...], start: int, end: int
) -> tuple[tuple[int, int], ...]:
    return (
        (*ranges[:-1], (ranges[-1][0], end))
        if ranges and ranges[-1][1] == start
        else (*ranges, (start, end))
    )


_MARKS = msgspec.json.Decoder(ArchiveMark)


def folder(topic: str, fingerprint: str) -> str:
    """Returns the name of an archive's folder, relative to the root."""
    return f"{FOLDER}/{topic}/{fingerprint}"


def archived_topics(store: Store) -> list[str]:
    """Lists the topics that have a folder with archives."""
    return folders_in(store.address(FOLDER))


def archives_of(store: Store, topic: str) -> list[str]:
    """Lists the fingerprints by which a topic's archives are identified.

    The list includes archives that are not finished.
    """
    return folders_in(store.address(f"{FOLDER}/{topic}"))


def parse_archive_mark(text: Any, *, where: str) -> ArchiveMark:
    """Parses the mark in a commit of an archive. Raises Damaged if the text is not a mark.

    `where` names the commit in the error.
    """
    try:
        return _MARKS.decode(text)
    except (TypeError, ValueError) as error:
        raise Damaged(
            f"{where} carries no mark of an archive: {str(text)[:200]}", hint=HINT
        ) from error


def one_log(beginning: Offsets, archives: Iterable[ArchiveMark]) -> Offsets:
    """Returns each partition's first offset that is still in the topic or in one of its archives.

    `beginning` contains the first offsets that are in the topics themselves, and `archives`
    contains the marks of archives. An archive is used for a partition only if the archive reaches
    the topic's first record, so that no offset is missing between the archive and the topic. Pure.
    """
    parts = {topic: dict(offsets) for topic, offsets in beginning.next.items()}
    for mark in archives:
        for partition, first in mark.start.items():
            there = parts.get(mark.topic, {}).get(partition)
            if there is not None and first < there <= mark.end[partition]:
                parts[mark.topic][partition] = first
    return Offsets(parts)


def lost_by_topic(log: LogEnds, mark: ArchiveMark) -> tuple[LostEnd, ...]:
    """Returns the partitions whose last records the topic has lost, although they are archived.

    `mark` is the newest mark of the archive.
    """
    return log.lost_ends(Offsets({mark.topic: dict(mark.end)}), {mark.topic: mark.witnesses})


def why_cut(log: LogEnds, mark: ArchiveMark) -> str | None:
    """Returns a message if a topic has lost its last records, but the archive contains them.

    The message lists the lost records of each partition. Returns None if no records are lost.
    `mark` is the newest mark of the archive.
    """
    lost = ", ".join(map(str, lost_by_topic(log, mark)))
    return f"the log has lost its end, which the archive has: {lost}" if lost else None


def why_stopped(
    mark: ArchiveMark, topic_id: str | None, beginning: Mapping[int, int]
) -> str | None:
    """Returns the reason why no further records of a topic can be added to its archive, or None.

    `mark` is the newest mark of the archive. `topic_id` is the topic's present id, or None if the
    topic does not exist. `beginning` contains the present first offset of each partition. Pure.
    """
    if topic_id is None:
        return f"topic {mark.topic} is gone; its archive stays as it is"
    if topic_id != mark.topic_id:
        return (
            f"topic {mark.topic} was created again: its id is {topic_id}, "
            f"and the archive is of {mark.topic_id}"
        )
    lost = [
        f"partition {part} lost offsets {end} to {beginning[part] - 1}"
        for part, end in sorted(mark.end.items())
        if beginning.get(part, end) > end
    ]
    return (
        f"topic {mark.topic} has lost records before they were archived: {', '.join(lost)}"
        if lost
        else None
    )
