"""Reads a slice's records from the archive of their topic: its files, as they are, in place of scratch files that are decoded.

They are linked into the slice's folder: what the archive lets go of meanwhile stays there until the slice is folded, and nobody
needs a lease. They give the rows that decoding the log would give (that is what an archive is), where the log time with which
the slice begins is the archive's own: a build that has another origin reads the log. Read next: engine/function/decoded.py, which
reads the rest of a slice from the log; engine/archive/archiver.py, which writes what is read here.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.base.errors import KappaError
from kappa.code.semantics import SEMANTICS
from kappa.declare.topic import Topic
from kappa.declare.topic_kind import TopicKind
from kappa.engine.decode.decoder import Clock
from kappa.engine.decode.fate import Counts, counts_in, decoded_columns
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.archive import ArchiveMark, folder
from kappa.tables.delta import Block, StoredArchive, link_file, open_archive

_DIGITS = 10
# Raised when the same columns are written to mean something else.
_FORMAT = 1
# The archiver commits seconds apart, so a second look nearly always finds the files that it names.
_LOOKS = 5
_TOLD = ["_partition", "_offset", "_fate", "_reason", "_redrives", "_log_time"]

# How a file or a log says that it is gone, broken, or that the disk is full.
_TROUBLE = (OSError, pa.ArrowException, KappaError)

_Answer = TypeVar("_Answer")
# Per partition, offsets `[start, end)`.
Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Taken:
    """What an archive gave of a partition's range: all of it up to `end`, and what was seen there; None where no record was."""

    end: int
    seen: Counts | None


def archive_fingerprint(topic: Topic) -> str:
    """What decides how a record of a topic is decoded, and in which columns: archives of different ones are different archives."""
    late = [topic.event_time, topic.lateness_ms] if topic.lateness_ms is not None else []
    schema = [] if topic.schema is None else [*topic.schema.lines()]
    decided = [
        _FORMAT,
        SEMANTICS,
        topic.key,
        [str(column) for column in topic.columns],
        schema,
        late,
        decoded_columns(topic),
    ]
    return hashlib.sha256(json.dumps(decided).encode("utf-8", "surrogatepass")).hexdigest()[
        :_DIGITS
    ]


class Archives:
    """The archives of a build's topics, as far as they are of the very topics that it was born with, decoded as it does."""

    def __init__(self, store: Store, topics: Iterable[Topic], topic_ids: Mapping[str, str]) -> None:
        # Whether it is declared now is no matter: what is archived may be read.
        archived = (
            topic for topic in topics if topic.kind is TopicKind.RETAINED and not topic.identity
        )
        self._paths = {
            topic.name: str(store.path(folder(topic.name, archive_fingerprint(topic))))
            for topic in archived
        }
        self._topic_ids = topic_ids
        # Per topic, what was said of it.
        self._told: dict[str, str] = {}

    def marks(self) -> tuple[ArchiveMark, ...]:
        """What each of them holds now."""
        return tuple(
            found
            for topic in self._paths
            if (found := self._looked(topic, partial(self._mark, topic))) is not None
        )

    def end(self) -> Offsets:
        """Up to where each partition is archived."""
        return Offsets({mark.topic: dict(mark.end) for mark in self.marks()})

    def take(self, topic: Topic, ranges: Ranges, clock: Clock, into: Path) -> dict[int, Taken]:
        """Links the files that hold the beginnings of these ranges into a folder, named by numbers from 0.

        They may hold records beside the ranges. A partition of which there is nothing, or whose log time differs, is left out.
        """
        path = self._paths.get(topic.name)
        if path is None or not ranges:
            return {}
        taken = self._looked(topic.name, partial(self._take, topic.name, ranges, clock, into))
        if taken is None:
            _unlink(into)
        return taken or {}

    def _take(self, topic: str, ranges: Ranges, clock: Clock, into: Path) -> dict[int, Taken]:
        found = self._open(topic)
        if found is None:
            return {}
        archive, mark = found
        _unlink(into)
        taken: dict[int, Taken] = {}
        blocks = archive.blocks()
        number = 0
        for partition, (start, end) in sorted(ranges.items()):
            reached = min(end, mark.end.get(partition, start))
            own = [block for block in blocks if block.partition == partition]
            if not mark.start.get(partition, reached) <= start < reached or log_time_before(
                start, own
            ) != clock.get(partition):
                continue
            seen: Counts | None = None
            for block in own:
                if block.least < reached and block.greatest >= start:
                    link_file(Path(block.path), into / f"{number}.parquet")
                    number += 1
                    more = counts_in(rows_of(block, _TOLD, start, reached)).get(partition)
                    seen = more if seen is None or more is None else seen.then(more)
            taken[partition] = Taken(reached, seen)
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
        """What a look at an archive gives, looked for again where the archiver has let go of a file meanwhile.

        None where it cannot be read: it is a copy, and what needs no copy goes on without; whether anything is lost, the topic tells.
        """
        for _ in range(_LOOKS - 1):
            try:
                return look()
            except _TROUBLE:
                continue
        try:
            return look()
        except _TROUBLE as error:
            if self._told.get(topic) != str(error):
                self._told[topic] = str(error)
                print(
                    f"the archive of topic {topic} cannot be read, and the topic is read in its place: {error}",
                    file=sys.stderr,
                    flush=True,
                )
            return None


def _unlink(folder: Path) -> None:
    for left in folder.glob("*.parquet"):
        left.unlink()


def log_time_before(offset: int, blocks: Sequence[Block]) -> int | None:
    """The log time of a partition at an offset, by its blocks in their order; None where no record stands before it."""
    before = [block for block in blocks if block.least < offset]
    return (
        pc.max(rows_of(before[-1], ["_log_time"], before[-1].least, offset)["_log_time"]).as_py()
        if before
        else None
    )


def rows_of(block: Block, columns: list[str], start: int, end: int) -> pq.Table:
    """A block's rows of `[start, end)`; row groups that have none of them are not read."""
    return pq.read_table(
        block.path,
        columns=columns,
        filters=(pc.field("_offset") >= start) & (pc.field("_offset") < end),
        partitioning=None,
    )
