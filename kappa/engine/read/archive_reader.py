"""The records of a slice, read from the archives of the slice's topics.

An archive's files are linked into the slice's folder, and are used there instead of files that
Spark workers would decode from the log. So if the archiver deletes a file, the link remains until
the slice is folded, and no lease is needed. An archive is a decoded copy of the log, so its files
contain the same rows as the decoded log. This is true only if the build and the archive have the
same log time at the slice's start. The log time may differ if the build's first slice began at
another offset; then the build reads the log instead. engine/archive/archiver.py writes the files.
If all records of a file are valid, which is usual, the counts of the file's records are computed
from the file's statistics.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.base.disk import delete_file
from kappa.base.errors import KappaError
from kappa.base.log_lines import Level, write_log_line
from kappa.code.fingerprint import SEMANTICS
from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.records.decode.decoder import Clock
from kappa.records.decode.outcome import Counts, Fate, counts_in, decoded_columns
from kappa.state.files.address import arrow_source, share_file
from kappa.state.offsets import Offsets
from kappa.state.slices import BoundsOf
from kappa.state.store import Store
from kappa.tables.archive import ArchiveMark, LogEnds, folder, why_cut
from kappa.tables.stored_archive import Block, StoredArchive, open_archive

_DIGITS = 10
# Raised when the same columns get another meaning.
_FORMAT = 1
# The archiver commits seconds apart, so a second look nearly always finds the files.
_LOOKS = 5

# The errors of a file or a log that is gone, broken, or of a full disk.
_TROUBLE = (OSError, pa.ArrowException, KappaError)

_Answer = TypeVar("_Answer")
# Per partition, offsets `[start, end)`.
Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """The part of a partition's range that an archive contains: the offsets up to `end`.

    `seen` contains the counts of the records in this part, or None if there are no records.
    `is_whole` means that the files contain no record outside the range.
    """

    end: int
    seen: Counts | None
    is_whole: bool


def archive_fingerprint(topic: Topic) -> str:
    """Returns a fingerprint of everything that decides how a topic is decoded.

    There is a separate archive for each fingerprint.
    """
    late = [topic.event_time, topic.lateness_ms] if topic.lateness_ms is not None else []
    schema = [] if topic.schema is None else [*topic.schema.place_lines()]
    decided = [
        _FORMAT,
        SEMANTICS,
        topic.key,
        [str(column) for column in topic.columns],
        schema,
        late,
        decoded_columns(topic),
        # Only if declared, so that archives of older declarations keep their place.
        *topic.format.declared_lines(),
        *(f"key {line}" for line in topic.key_lines()),
    ]
    return hashlib.sha256(json.dumps(decided).encode("utf-8", "surrogatepass")).hexdigest()[
        :_DIGITS
    ]


class Archives:
    """The archives of a build's topics, in the form in which the build decodes the topics.

    An archive is used only if its topic has the same id as the build's topic.
    """

    def __init__(
        self,
        store: Store,
        topics: Iterable[Topic],
        topic_ids: Mapping[str, str],
        log: LogEnds | None = None,
    ) -> None:
        """Selects the archives of the retained topics that declare no identity.

        `topic_ids` contains the topics' ids at the build's birth. If `log` is given, an archive is
        not used when it contains last records that its topic has lost.
        """
        self._store = store
        self._log = log
        # An archive may be read whether or not the topic still declares an archive.
        archived = (
            topic for topic in topics if topic.kind is TopicKind.RETAINED and not topic.identity
        )
        self._paths = {
            topic.name: store.address(folder(topic.name, archive_fingerprint(topic)))
            for topic in archived
        }
        self._topic_ids = topic_ids
        # Per topic, the error that was reported last.
        self._reported: dict[str, str] = {}

    def marks(self) -> tuple[ArchiveMark, ...]:
        """Returns the marks of the archives that can be read.

        A mark describes the current content of an archive.
        """
        return tuple(
            found
            for topic in self._paths
            if (found := self._looked(topic, partial(self._mark, topic))) is not None
        )

    def end(self) -> Offsets:
        """Returns the offset at which the archive of each partition ends."""
        return Offsets({mark.topic: dict(mark.end) for mark in self.marks()})

    def bounds(self) -> BoundsOf:
        """Returns the first offset of each archive file, per topic and partition."""
        found: dict[str, dict[int, list[int]]] = {}
        for topic in self._paths:
            opened = self._looked(topic, partial(self._open, topic))
            for block in () if opened is None else opened[0].blocks():
                found.setdefault(topic, {}).setdefault(block.partition, []).append(block.first)
        return found

    def take(
        self, topic: Topic, ranges: Ranges, clock: Clock, into: Path
    ) -> dict[int, ArchivedRange]:
        """Links the archive's files that contain `ranges` into the folder `into`.

        The names of the links are numbers from 0. `ranges` and `clock` contain, by partition, the
        wanted offsets and the log time at the start of these offsets. The archive may contain only
        the first part of a range, and the files may also contain records outside the ranges.
        Returns, by partition, the part of each range that the archive contains. A partition is left
        out if the archive does not contain the start of its range, or if the archive's log time at
        this start differs from `clock`.
        """
        path = self._paths.get(topic.name)
        if path is None or not ranges:
            return {}
        taken = self._looked(topic.name, partial(self._take, topic.name, ranges, clock, into))
        if taken is None:
            _unlink(into)
        return taken or {}

    def _take(
        self, topic: str, ranges: Ranges, clock: Clock, into: Path
    ) -> dict[int, ArchivedRange]:
        found = self._open(topic)
        if found is None:
            return {}
        archive, mark = found
        cut = None if self._log is None else why_cut(self._log, mark)
        if cut is not None:
            raise KappaError(cut)
        _unlink(into)
        taken: dict[int, ArchivedRange] = {}
        copies: dict[str, str] = {}
        blocks = archive.blocks()
        number = 0
        archive.ensure_listed(self._store)
        if self._store.is_on_disk:
            archive.ensure_whole(self._store, _needed(blocks, ranges))
        for partition, (start, end) in sorted(ranges.items()):
            reached = min(end, mark.end.get(partition, start))
            own = [block for block in blocks if block.partition == partition]
            if not mark.start.get(partition, reached) <= start < reached or log_time_before(
                start, own
            ) != clock.get(partition):
                continue
            seen: Counts | None = None
            is_whole = True
            for block in own:
                if block.least < reached and block.greatest >= start:
                    is_whole &= start <= block.least and block.greatest < reached
                    share_file(block.path, copy := str(into / f"{number}.parquet"))
                    copies[block.path] = copy
                    number += 1
                    more = counts_of(block, start, reached)
                    seen = more if seen is None or more is None else seen.then(more)
            taken[partition] = ArchivedRange(reached, seen, is_whole)
        if not self._store.is_on_disk:
            fetched = [block for block in blocks if block.path in copies]
            archive.ensure_whole(self._store, fetched, copies.__getitem__)
        return taken

    def _open(self, topic: str) -> tuple[StoredArchive, ArchiveMark] | None:
        archive = open_archive(self._paths[topic])
        mark = None if archive is None else archive.mark()
        return (
            None
            if archive is None or mark is None or mark.topic_id != self._topic_ids.get(topic)
            else (archive, mark)
        )

    def _mark(self, topic: str) -> ArchiveMark | None:
        found = self._open(topic)
        return None if found is None else found[1]

    def _looked(self, topic: str, look: Callable[[], _Answer]) -> _Answer | None:
        """Returns the result of the function `look`, which reads the archive of a topic.

        Calls `look` again after an error, since the archiver may have deleted a file meanwhile.
        Returns None if the archive cannot be read. An archive is only a copy, so the caller then
        reads the topic instead.
        """
        for _ in range(_LOOKS - 1):
            try:
                return look()
            except _TROUBLE:
                continue
        try:
            return look()
        except _TROUBLE as error:
            if self._reported.get(topic) != str(error):
                self._reported[topic] = str(error)
                write_log_line(
                    f"the archive of topic {topic} cannot be read, and the topic is read in its"
                    f" place: {error}",
                    Level.WARN,
                )
            return None


def _needed(blocks: Sequence[Block], ranges: Ranges) -> Iterator[Block]:
    """Yields the archive files that are needed to read the given ranges of partitions.

    These are the files that contain records of a range, and the file before each range, which
    contains the log time at the start of the range.
    """
    for partition, (start, end) in ranges.items():
        own = [block for block in blocks if block.partition == partition and block.least < end]
        before = [block for block in own if block.least < start]
        yield from before[-1:]
        yield from (block for block in own if block.greatest >= start)


def _unlink(folder: Path) -> None:
    for left in folder.glob("*.parquet"):
        delete_file(left)


# The columns whose statistics an archive's files have; older files lack the last three.
STATISTICS = ("_partition", "_offset", "_fate", "_redrives", "_log_time")
_COLUMNS = ["_partition", "_offset", "_fate", "_reason", "_redrives", "_log_time"]


def counts_of(block: Block, start: int, end: int) -> Counts | None:
    """Returns the counts of an archive file's records in `[start, end)`, or None if it has none."""
    seen = _by_statistics(block) if start <= block.least and block.greatest < end else None
    return seen or counts_in(rows_of(block, _COLUMNS, start, end)).get(block.partition)


def log_time_before(offset: int, blocks: Sequence[Block]) -> int | None:
    """Returns a partition's log time at an offset.

    `blocks` contains the archive files of the partition, in order. Returns None if no file has an
    earlier record.
    """
    before = [block for block in blocks if block.least < offset]
    if not before:
        return None
    last = before[-1]
    seen = _by_statistics(last) if last.greatest < offset else None
    if seen is not None:
        return seen.log_time
    rows = rows_of(last, ["_log_time"], last.least, offset)
    log_time: int = pc.max(rows["_log_time"]).as_py()
    return log_time


def _by_statistics(block: Block) -> Counts | None:
    """Returns the counts of an archive file, computed from the statistics of the file.

    Returns None if the statistics do not show that all records are valid.
    """
    found = pq.read_metadata(arrow_source(block.path))
    columns = {found.schema.column(place).path: place for place in range(found.num_columns)}
    decoded, redriven, log_time = 0, 0, 0
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        fate, redrives, times = (
            group.column(columns[name]).statistics for name in ("_fate", "_redrives", "_log_time")
        )
        if not (
            _has_bounds(fate)
            and _has_bounds(times)
            and fate.min == fate.max == Fate.DECODED
            and redrives is not None
            and redrives.has_null_count
        ):
            return None
        decoded += group.num_rows
        redriven += group.num_rows - redrives.null_count
        log_time = times.max
    # Within a partition the log time only rises.
    return Counts(decoded, 0, 0, 0, 0, log_time, redriven)


def _has_bounds(statistics: Any) -> bool:
    return statistics is not None and statistics.has_min_max


def rows_of(block: Block, columns: list[str], start: int, end: int) -> pq.Table:
    """Reads the rows of an archive file with offsets in `[start, end)`.

    Row groups that contain no such row are not read.
    """
    return pq.read_table(
        arrow_source(block.path),
        columns=columns,
        filters=(pc.field("_offset") >= start) & (pc.field("_offset") < end),
        partitioning=None,
    )
