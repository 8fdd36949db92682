"""Observes the archives of topics: their states, and a check against the topics.

kappa/tables/archive.py defines the mark of an archive, which says which offsets the archive covers.
kappa/engine/archive compares an archive with its topic.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from kappa.base.errors import UsageError, near_or_all
from kappa.base.settings import Settings
from kappa.base.temporary_folders import ARCHIVE, make_folder
from kappa.declare.topic import Topic
from kappa.declare.topic_options import Archive
from kappa.declare.values.tally import Tally
from kappa.engine.archive.archive_check import PartitionCheck, check_archive
from kappa.engine.archive.archiver import LOCK
from kappa.engine.read.archive_reader import archive_fingerprint
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.kafka.broker.broker import partition_bytes
from kappa.kafka.client_options import client_options
from kappa.replay.status.run_records import running_at
from kappa.serving.query.render import Listing
from kappa.state.lock import is_held
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.archive import (
    ArchiveMark,
    archived_topics,
    archives_of,
    folder,
    lost_by_topic,
    why_cut,
    why_stopped,
)
from kappa.tables.stored_archive import StoredArchive, open_archive

if TYPE_CHECKING:
    from kappa.kafka.client import Log


class ArchiveState(StrEnum):
    """The state of an archive."""

    FOLLOWING = "following"
    # Nobody archives now: kappa is not up, or the archiver has died.
    WAITING = "waiting"
    STOPPED = "stopped"
    # The project no longer has the declaration, or no longer archives the topic.
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The state of an archive, and a comparison with its topic.

    `behind` is the number of offsets that are not archived yet. `behind` and `topic_bytes` are None
    if unknown. `mark` says which offsets the archive covers, and is None if the archive does not
    exist yet. `bytes` is the size on the disk or in the bucket.
    """

    topic: str
    fingerprint: str
    state: ArchiveState
    mark: ArchiveMark | None
    files: int
    bytes: int
    behind: int | None
    topic_bytes: int | None
    note: str


@dataclass(frozen=True, slots=True)
class CheckedPartition:
    """The result of the check of one partition of an archive."""

    topic: str
    fingerprint: str
    found: PartitionCheck


def archive_status(
    settings: Settings, store: Store, topics: Mapping[str, Topic], log: Log | None
) -> tuple[ArchiveStatus, ...]:
    """Returns the status of each archive, and of each declared archive that was not created yet.

    `log` is None if there is no broker. Then `behind` and `topic_bytes` in the results are None.
    """
    there = {
        (mark.topic, mark.fingerprint): (archive, mark) for archive, mark in _stored_archives(store)
    }
    declared = {
        (topic.name, archive_fingerprint(topic))
        for topic in topics.values()
        if topic.archive is not Archive.NONE
    }
    facts = {} if log is None else log.topics()
    names = [name for name in {name for name, _ in (*there, *declared)} if name in facts]
    beginning, end = (
        (Offsets(), Offsets())
        if log is None or not names
        else (log.beginning(names), log.end(names))
    )
    sizes = partition_bytes(store.local.folder, names) if settings.runs_broker else {}
    follows = is_held(store.local.path(LOCK))
    is_up = running_at(store) is not None
    found = []
    for topic, fingerprint in sorted({*there, *declared}):
        archive, mark = there.get((topic, fingerprint), (None, None))
        blocks = () if archive is None else archive.blocks()
        why = (
            None
            if mark is None or log is None
            else why_stopped(
                mark, facts[topic].id if topic in facts else None, beginning.next.get(topic, {})
            )
            or why_cut(log, mark)
        )
        state = _archive_state(declared=(topic, fingerprint) in declared, follows=follows, why=why)
        held = Offsets({topic: dict(mark.end)}) if mark is not None else beginning.only({topic})
        behind = (
            end.only({topic}).highest_with(held).distance(held)
            if topic in facts and state is not ArchiveState.KEPT and why is None
            else None
        )
        size = sum(sizes[topic].values()) if topic in sizes else None
        found.append(
            ArchiveStatus(
                topic,
                fingerprint,
                state,
                mark,
                len(blocks),
                sum(block.bytes for block in blocks),
                behind,
                size,
                _archive_note(state, why, is_up=is_up),
            )
        )
    return tuple(found)


def archive_listing(found: Iterable[ArchiveStatus]) -> Listing:
    """Returns a listing with a row per archive."""
    columns = (
        *("topic", "archive", "state", "partitions", "records", "rejected", "behind"),
        *("bytes", "topic_bytes", "files", "from", "to", "note"),
    )
    return Listing(
        columns,
        tuple(_archive_row(each) for each in found),
        wide=frozenset({"files"}),
        is_report=True,
        empty="no archives: a topic has one with archive=True",
    )


def verify_archives(
    settings: Settings, store: Store, topics: Mapping[str, Topic], log: Log, only: str | None
) -> Iterator[CheckedPartition]:
    """Yields the results of checking all archives, partition by partition.

    If `only` is given, only the archives of the topic `only` are checked. Raises UsageError if this
    topic has no archive.
    """
    declared = {(topic.name, archive_fingerprint(topic)): topic for topic in topics.values()}
    facts = log.topics()
    found = tuple(_stored_archives(store, only))
    if only is not None and not found:
        raise UsageError(
            f"there is no archive of a topic {only}",
            hint=near_or_all(
                only,
                archived_topics(store),
                none="declare one by archive=True, and see: kappa up",
            ),
        )
    source = LogSource(KafkaAccess(log.bootstrap_servers, client_options(settings)), log)
    try:
        for archive, mark in found:
            # An archive of a lost topic or another declaration is checked by itself alone.
            topic = declared.get((mark.topic, mark.fingerprint))
            same = mark.topic in facts and facts[mark.topic].id == mark.topic_id
            beginning = dict(log.beginning([mark.topic]).next.get(mark.topic, {})) if same else {}
            into = make_folder(store.local.path(settings.verify.temp), ARCHIVE)
            try:
                archive.ensure_listed(store)
                name = mark.topic
                for check in check_archive(
                    archive,
                    topic if same else None,
                    beginning,
                    partial(source.batches, name),
                    into,
                    lost_by_topic(log, mark) if same else (),
                ):
                    yield CheckedPartition(mark.topic, mark.fingerprint, check)
            finally:
                shutil.rmtree(into, ignore_errors=True)
    finally:
        source.close()


def checked_listing(found: Iterable[CheckedPartition]) -> Listing:
    """Returns a listing with a row per checked partition."""
    columns = (
        *("topic", "archive", "partition", "from", "to", "records"),
        *("compared_from", "compared", "found"),
    )
    return Listing(
        columns,
        tuple(_checked_row(each) for each in found),
        is_report=True,
        empty="no archive was compared: none has a file yet",
    )


def _checked_row(checked: CheckedPartition) -> tuple[object, ...]:
    one = checked.found
    return (
        *(checked.topic, checked.fingerprint, one.partition, one.start, one.end, one.records),
        *(one.compared_from, one.compared),
        one.wrong or "as it should be",
    )


def _stored_archives(
    store: Store, only: str | None = None
) -> Iterator[tuple[StoredArchive, ArchiveMark]]:
    for topic in archived_topics(store):
        # Another topic's archive that cannot be opened is no error of this check.
        for fingerprint in archives_of(store, topic) if only in {None, topic} else ():
            archive = open_archive(store.address(folder(topic, fingerprint)))
            if archive is not None:
                yield archive, archive.mark()


def _archive_state(*, declared: bool, follows: bool, why: str | None) -> ArchiveState:
    if not declared:
        return ArchiveState.KEPT
    return (
        ArchiveState.STOPPED
        if why is not None
        else ArchiveState.FOLLOWING
        if follows
        else ArchiveState.WAITING
    )


def _archive_note(state: ArchiveState, why: str | None, *, is_up: bool) -> str:
    match state:
        case ArchiveState.STOPPED:
            return f"{why}; move its folder away, and it is made again from what the topic has"
        case ArchiveState.WAITING:
            return (
                "the archiver starts within seconds; see kappa logs archiver"
                if is_up
                else "kappa is not up: kappa up -d starts the archiver"
            )
        case ArchiveState.KEPT:
            return (
                "of a declaration that is not there any more; kept for what the topic may have lost"
            )
        case ArchiveState.FOLLOWING:
            return ""


def _archive_row(each: ArchiveStatus) -> tuple[object, ...]:
    mark = each.mark
    start, end = ({}, {}) if mark is None else (mark.start, mark.end)
    tally = Tally() if mark is None else sum(mark.tally.values(), Tally())
    records = tally.decoded + tally.rejected + tally.tombstone
    return (
        *(each.topic, each.fingerprint, each.state, len(end), records, tally.rejected),
        *(each.behind, each.bytes, each.topic_bytes, each.files),
        *({str(part): offset for part, offset in sorted(of.items())} for of in (start, end)),
        each.note,
    )
