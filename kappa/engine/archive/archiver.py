"""The archiver: a process without a JVM that copies each record of archived topics exactly once.

    python -m kappa.engine.archive.archiver --project DIR --root ROOT --bootstrap HOST:PORT

Each commit contains a range `[start, end)` of a partition, and records the range in the commit's
metadata. The next commit begins at the end of the last committed range. So if an archiver was
killed, the next archiver continues at this end; a file that was written without a commit does not
matter. If the declaration of an event changes, a new archive is made from the records that the
topic still contains. Records that the topic has lost are added from an older archive, if this
archive contains raw records. The exit code is 0 if no topic is archived, and 130 if the process was
asked to stop (SIGTERM).
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import pyarrow as pa

from kappa.base.errors import Broken, Damaged, ExitCode, KappaError, UsageError
from kappa.base.log_lines import Level, write_log_line
from kappa.base.process import set_by_sigterm
from kappa.base.program import run_program
from kappa.base.settings import load_settings
from kappa.code.project import load_pipelines
from kappa.declare.project_files import named_files_changed
from kappa.declare.topic import Topic
from kappa.declare.topic_options import Archive
from kappa.engine.archive.archive_writer import ArchiveWriter
from kappa.engine.read.archive_reader import archive_fingerprint, rows_of
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.kafka.client import Log
from kappa.kafka.client_options import client_options
from kappa.kafka.stored_schemas import open_registry
from kappa.records.decode.raw_records import RAW_SCHEMA
from kappa.state.offsets import Offsets
from kappa.state.root import lock_of
from kappa.state.store import Store, open_store
from kappa.state.witness import Witness, leader_changed
from kappa.tables.archive import FOLDER, ArchiveMark, archives_of, folder, why_cut, why_stopped
from kappa.tables.stored_archive import Block, open_archive

LOCK = f"{FOLDER}/lock"
# This many offsets are archived at once; fewer wait for more.
_MANY = 200_000
_NAP_SECONDS = 0.5
# A column's name in raw records -> its name in an archive.
_RAW = {
    **{name: f"_{name}" for name in ("topic", "partition", "offset", "timestamp")},
    **{name: f"_raw_{name}" for name in ("key", "value", "headers")},
}
_HINT = (
    "move the folder of the newer archive away if that is lost for good: it is made again "
    "from what the topic has"
)
# This many records are decoded at once.
_AT_ONCE = 50_000


class Archiver:
    """A loop that archives topics until the process is asked to stop."""

    def __init__(
        self,
        store: Store,
        log: Log,
        source: LogSource,
        topics: Sequence[Topic],
        *,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None],
    ) -> None:
        """Creates the loop for `topics`.

        A partition is due if many records wait, or if `every_seconds` seconds have passed since the
        partition's last commit. If a topic cannot be archived, `say` is called with a message that
        contains the reason.
        """
        self._store = store
        self._log = log
        self._source = source
        self._topics = topics
        self._every_seconds = every_seconds
        self._clock = clock
        self._say = say
        self._writers: dict[str, ArchiveWriter] = {}
        self._last: dict[tuple[str, int], float] = {}
        self._hindered: dict[str, str] = {}
        # Per topic, the archived offsets at the last check of its end, and the error that the check
        # found.
        self._known: dict[str, tuple[Offsets, str | None]] = {}

    def run(self, stop: threading.Event, *, ends: Callable[[], bool] = lambda: False) -> None:
        """Archives the topics again and again, until `stop` is set or `ends` returns True.

        Raises KappaError if the broker or the disk fails.
        """
        while not (stop.is_set() or ends()):
            went_on = [self.step(topic, stop) for topic in self._topics]
            if not any(went_on):
                stop.wait(_NAP_SECONDS)

    def step(self, topic: Topic, stop: threading.Event) -> bool:
        """Archives the due partitions of a topic, with one commit per partition.

        Returns True if a partition may have further records to archive without a pause.
        """
        facts = self._log.facts(topic.name)
        try:
            writer = self._writer(topic, None if facts is None else facts.id)
            if writer is None:
                return False
            mark, beginning = (
                writer.mark(),
                {} if facts is None else self._log.beginning([topic.name]).next.get(topic.name, {}),
            )
            lacks = any(first > mark.end.get(part, 0) for part, first in beginning.items())
            earlier = Earlier.of(self._store, mark) if lacks else Earlier({})
            end = Offsets() if facts is None else self._log.end([topic.name])
            hindered = why_stopped(
                mark,
                None if facts is None else facts.id,
                {
                    part: earlier.beginning(part, first, mark.end.get(part))
                    for part, first in beginning.items()
                },
            ) or self._known_again(mark, end)
            if hindered is not None:
                self._hinder(topic.name, hindered)
                return False
            went_on = False
            confirmed = partial(self._confirmed, mark)
            for _, partition, last in end.items():
                first = beginning.get(partition, 0)
                start = mark.end.get(partition, earlier.beginning(partition, first, None))
                if not stop.is_set() and self._is_due(topic.name, partition, last - start):
                    if start < first:
                        # Later records are read from the topic.
                        went_on |= (
                            writer.append(
                                partition,
                                start,
                                min(last, earlier.end(partition, start)),
                                earlier.read,
                                confirmed,
                            )
                            <= last
                        )
                    else:
                        went_on |= (
                            writer.append(
                                partition,
                                start,
                                last,
                                partial(self._source.batches, topic.name),
                                confirmed,
                            )
                            < last
                        )
                    self._last[topic.name, partition] = self._clock()
        except (Broken, UsageError) as error:
            # Other topics go on. This topic goes on when the cause is mended, or when the topic
            # exists again.
            self._writers.pop(topic.name, None)
            self._hinder(topic.name, str(error))
            return False
        else:
            self._hindered.pop(topic.name, None)
            return went_on

    def _writer(self, topic: Topic, topic_id: str | None) -> ArchiveWriter | None:
        if topic.name not in self._writers:
            if (
                topic_id is None
                and open_archive(
                    self._store.address(folder(topic.name, archive_fingerprint(topic)))
                )
                is None
            ):
                return None
            self._writers[topic.name] = ArchiveWriter(self._store, topic, topic_id or "")
        return self._writers[topic.name]

    def _known_again(self, mark: ArchiveMark, end: Offsets) -> str | None:
        """Returns a description of the loss if the topic has lost archived records, otherwise None.

        `end` is the topic's current end. The broker is asked once after each commit. As long as no
        loss is known and the topic's end is before the archive's end, the broker is asked at each
        call.
        """
        archived = Offsets({mark.topic: dict(mark.end)})
        seen, why = self._known.get(mark.topic, (None, None))
        if seen != archived or (why is None and not end.covers(archived)):
            why = why_cut(self._log, mark)
            self._known[mark.topic] = archived, why
        return why

    def _confirmed(self, mark: ArchiveMark, partition: int, reached: int, read: Witness) -> Witness:
        """Returns the witness of the log's last record before `reached`, with the leader's epoch.

        `read` is the witness of the record that the archiver has read there. Raises Broken if the
        log's record is not this record. If another leader has written the log's record, also checks
        whether the log still contains the end of the records in the archive, and raises Broken if
        it does not.
        """
        place = mark.topic, partition
        found = self._log.last_before(Offsets({mark.topic: {partition: reached}})).get(place, read)
        if not read.is_record(found):
            raise Broken(
                f"topic {mark.topic} has changed before offset {reached} of partition {partition} "
                "while it was archived",
                hint="it is read again",
            )
        if leader_changed({mark.topic: mark.witnesses}, {mark.topic: {partition: found}}):
            why = why_cut(self._log, mark)
            if why is not None:
                raise Broken(why)
        return found

    def _is_due(self, topic: str, partition: int, waiting: int) -> bool:
        last = self._last.get((topic, partition))
        return waiting > 0 and (
            waiting >= _MANY or last is None or self._clock() - last >= self._every_seconds
        )

    def _hinder(self, topic: str, why: str) -> None:
        if self._hindered.get(topic) != why:
            self._hindered[topic] = why
            self._say(f"topic {topic} is not archived any further: {why}")


def archived_topics(project: Path) -> tuple[Topic, ...]:
    """Returns the topics of a project that declare an archive, sorted by name.

    Raises DeclarationError if the project's files cannot be loaded.
    """
    topics = {
        topic.name: topic
        for pipeline in load_pipelines(project).values()
        for topic in pipeline.topics
    }
    return tuple(topic for _, topic in sorted(topics.items()) if topic.archive is not Archive.NONE)


def main(arguments: list[str] | None = None) -> int:
    """Runs the program, and returns its exit code."""
    stop = set_by_sigterm()

    def work(given: argparse.Namespace) -> ExitCode:
        settings = load_settings(given.project, root=given.root)
        topics = archived_topics(settings.project)
        if not topics:
            return ExitCode.OK
        store = open_store(settings)
        open_registry(settings, store)
        kafka = KafkaAccess(given.bootstrap, client_options(settings))
        log = Log(kafka.bootstrap_servers, kafka.options)
        with (
            lock_of(store, LOCK, what="the archive"),
            closing(LogSource(kafka, log)) as source,
        ):
            while True:
                Archiver(
                    store,
                    log,
                    source,
                    topics,
                    every_seconds=settings.archive.every_seconds,
                    say=lambda text: write_log_line(text, Level.WARN),
                ).run(stop, ends=named_files_changed)
                if stop.is_set():
                    return ExitCode.INTERRUPTED
                # A schema was pinned, or topics have joined a pattern.
                try:
                    topics = archived_topics(settings.project)
                except KappaError as error:
                    # The earlier declarations stay in use; a mended file is noticed.
                    write_log_line(f"kept as they were declared: {error.message}", Level.WARN)

    return run_program("kappa.engine.archive.archiver", work, arguments, bootstrap=str)


@dataclass(frozen=True, slots=True)
class RawStretch:
    """A range `[start, end)` of a partition for which an archive contains all raw records.

    `blocks` describes the archive's files of this partition. `check` raises Damaged if a file
    differs from the file that the archiver wrote.
    """

    start: int
    end: int
    blocks: Sequence[Block]
    check: Callable[[Iterable[Block]], None]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The ranges of raw records in a topic's other archives, by partition.

    Each archive belongs to one way of decoding the records. The other archives belong to earlier or
    different declarations of the topic's event.
    """

    kept: Mapping[int, Sequence[RawStretch]]

    @classmethod
    def of(cls, store: Store, mark: ArchiveMark) -> Self:
        """Finds the ranges of raw records in the topic's archives, except the archive of `mark`.

        Archives that belong to another id of the topic are left out.
        """
        kept: dict[int, list[RawStretch]] = {}
        for fingerprint in archives_of(store, mark.topic):
            archive = (
                None
                if fingerprint == mark.fingerprint
                else open_archive(store.address(folder(mark.topic, fingerprint)))
            )
            other = None if archive is None else archive.mark()
            if archive is not None and other is not None and other.topic_id == mark.topic_id:
                archive.ensure_listed(store)
                blocks = archive.blocks() if other.raw else ()
                for partition, ranges in other.raw.items():
                    own = [block for block in blocks if block.partition == partition]
                    kept.setdefault(partition, []).extend(
                        RawStretch(start, end, own, partial(archive.ensure_whole, store))
                        for start, end in ranges
                    )
        return cls(kept)

    def beginning(self, partition: int, first: int, done: int | None) -> int:
        """Returns the first offset from which on the archives and the topic contain all records.

        `first` is the first offset in the topic. `done` is the end of the records that are already
        archived, or None; only records from `done` on are needed.
        """
        reaching = [each for each in self.kept.get(partition, ()) if each.end >= first]
        if done is None:
            return min([first, *(each.start for each in reaching)])
        return min(first, done) if any(each.start <= done for each in reaching) else first

    def end(self, partition: int, start: int) -> int:
        """Returns the end of the raw records that one archive contains from `start` on.

        If several archives contain the raw record at `start`, the highest end is returned. Returns
        `start` if no archive contains this record.
        """
        return max(
            [start, *(each.end for each in self.kept.get(partition, ()) if each.start <= start)]
        )

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yields the raw records in `[start, end)`, all from one archive.

        Raises Damaged if a file of the archive cannot be read.
        """
        found = next(
            each for each in self.kept[partition] if each.start <= start and each.end >= end
        )
        for block in found.blocks:
            if block.least < end and block.greatest >= start:
                found.check([block])
                try:
                    rows = rows_of(block, list(_RAW.values()), start, end).select(
                        list(_RAW.values())
                    )
                except (OSError, pa.ArrowException) as error:
                    raise Damaged(
                        f"{block.path} cannot be read, and what the topic has lost was to be "
                        f"decoded again from it: {error}",
                        hint=_HINT,
                    ) from error
                yield from (
                    rows.rename_columns(list(_RAW))
                    .cast(RAW_SCHEMA)
                    .to_batches(max_chunksize=_AT_ONCE)
                )


if __name__ == "__main__":
    sys.exit(main())
