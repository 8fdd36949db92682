"""The identities that a build remembers at the beginning of a slice, for each partition.

The remembered identities do not depend on the process that folds the slice, or on the time at which
the slice is folded. As long as each slice follows the last slice in this process, decoding updates
the remembered identities. In all other cases they are found again: after the start of a job, after
an interrupted slice, and after a slice that Spark's tasks have folded. Then the log up to the slice
is read and decoded again.

The remembered identities are stored in files, each for one partition and offset
(decode/identity_file.py). Reading the log begins at the newest stored file, or at the start of the
build's first slice if there is no file. A file is stored whenever the horizon has passed since the
last stored file, by log time or by wall time. So about one horizon of the log is read again. In a
partition without new records nothing is read again, since retention may have emptied the partition.

It would be wrong to begin one horizon before the slice without any identities. The records that are
accepted there depend on identities that were accepted before, and these depend on still earlier
identities.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from kappa.declare.topic import Topic
from kappa.records.decode.decode import decode_table, of_topic
from kappa.records.decode.decoder import Memories
from kappa.records.decode.identity_file import (
    drop_memories,
    memory_offsets,
    newest_memory,
    put_memory,
)
from kappa.records.decode.outcome import counts_in
from kappa.records.identity import Memory
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice, cut_slices

# So many offsets are read back at once: their records are in memory together.
_AT_ONCE = 50_000
# How often a memory that is due is looked for while no slice arrives.
_LOOK_SECONDS = 1.0


class Readable(Protocol):
    """A source of raw records, with the one method that is needed to read the log again."""

    def read_records(self, piece: Slice) -> pa.Table: ...  # noqa: D102  # as in LogSource


class Identities:
    """The identities that a build remembers, per topic and partition.

    Only topics that declare an identity have remembered identities.
    """

    def __init__(
        self,
        folder: str,
        topics: Iterable[Topic],
        origin: Offsets,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Selects the topics that declare an identity.

        `folder` is a path or URL where the remembered identities are stored. `origin` is the start
        of the build's first slice. `clock` returns monotonic seconds.
        """
        self._topics = {topic.name: topic for topic in topics if topic.identity}
        self._folder = folder
        self._origin = origin
        # Offsets of the memories. None while a slice carries the memories along, and after Spark
        # folded a slice.
        self._at: Offsets | None = None
        self._memories: dict[str, Memories] = {}
        self._log_time: dict[str, dict[int, int]] = {}
        # Per partition, the newest memory put here: its offset, its log time, and the clock then.
        self._newest: dict[tuple[str, int], _Put] = {}
        self._clock = clock
        self._look_at = clock() + _LOOK_SECONDS
        self._put = True

    def take(self, start: Offsets, source: Readable) -> Mapping[str, Memories]:
        """Returns the identities that the build remembers at `start`, per topic.

        They are for a slice that begins at `start` and is decoded in this process. Decoding updates
        the returned objects. Afterwards, the caller must call `folded` with the slice's mark.
        """
        self._go_to(start, source)
        self._at = None
        return self._memories

    def folders(self, start: Offsets, source: Readable) -> Mapping[str, str]:
        """Returns, for each topic, the folder with the stored identities.

        The folders are for a slice that begins at `start` and that Spark's tasks decode. If the
        identities that the build remembers at these offsets are not stored yet, they are first
        found and stored.
        """
        folders = {name: self._folder_of(name) for name in self._topics}
        for name, partition, offset in start.only(set(self._topics)).items():
            if offset > self._origin.at(name, partition) and offset not in memory_offsets(
                folders[name], partition
            ):
                self._go_to(start, source)
                # All memories, also memories that were put and are deleted: for tasks, a missing
                # memory is empty.
                self._put_all(start, lambda _name, _partition, _offset: True)
                break
        self._at, self._put = None, True
        return folders

    def folded(self, mark: Mark) -> None:
        """Records that decoding has updated the identities to the end of the slice of `mark`.

        The slice is not committed yet. For each partition in which the horizon has passed since the
        last stored file, the identities are stored.
        """
        if not self._topics:
            return
        self._at = mark.end.only(set(self._topics))
        for name in self._topics:
            self._log_time[name] = dict(mark.log_time.get(name, {}))
        self._put_all(self._at, self._is_due)

    def rest(self, *, ends: bool = False) -> None:
        """Stores the identities of partitions in which the horizon has passed without a slice.

        If `ends` is True because the job ends, stores all identities that the next job would
        otherwise have to find again by reading the log.
        """
        if self._topics and self._at is not None and (ends or self._clock() >= self._look_at):
            self._look_at = self._clock() + _LOOK_SECONDS
            self._put_all(self._at, self._has_moved if ends else self._is_due)

    def committed(self, end: Offsets) -> None:
        """Deletes the stored identities that no slice needs any more.

        All tables are folded up to `end`.
        """
        if not self._put:
            return
        for name, partition, offset in end.only(set(self._topics)).items():
            folder = self._folder_of(name)
            newest = max(
                (each for each in memory_offsets(folder, partition) if each <= offset), default=0
            )
            drop_memories(folder, partition, below=newest)
        self._put = False

    def _folder_of(self, topic: str) -> str:
        return f"{self._folder}/{topic}"

    def _go_to(self, start: Offsets, source: Readable) -> None:
        start = start.only(set(self._topics))
        if self._at is not None and self._at.equals(start):
            return
        # Until the log is read back the memory is of no offset.
        self._at = None
        self._memories = {name: {} for name in self._topics}
        self._log_time = {name: {} for name in self._topics}
        begin: dict[str, dict[int, int]] = {}
        for name, partition, offset in start.items():
            found = newest_memory(
                self._folder_of(name), partition, offset, self._topics[name].identity_horizon_ms
            )
            if found is None:
                first = min(self._origin.at(name, partition), offset)
            else:
                first, memory, log_time = found
                self._memories[name][partition] = memory
                if log_time is not None:
                    self._log_time[name][partition] = log_time
                self._newest[name, partition] = _Put(first, log_time, self._clock())
            begin.setdefault(name, {})[partition] = first
        for piece in cut_slices(0, Offsets(begin), start, at_most=_AT_ONCE):
            raw = source.read_records(piece)
            for name, topic in self._topics.items():
                decoded = decode_table(
                    of_topic(raw, name), topic, self._log_time[name], self._memories[name]
                )
                self._log_time[name] |= {
                    partition: seen.log_time for partition, seen in counts_in(decoded).items()
                }
        self._at = start
        # No later job reads the same log back again.
        self._put_all(start, self._has_moved)

    def _has_moved(self, name: str, partition: int, offset: int) -> bool:
        last = self._newest.get((name, partition))
        return last is None or offset > last.offset

    def _is_due(self, name: str, partition: int, offset: int) -> bool:
        if not self._has_moved(name, partition, offset):
            return False
        last, horizon_ms = (
            self._newest.get((name, partition)),
            self._topics[name].identity_horizon_ms,
        )
        log_time = self._log_time[name].get(partition)
        if last is None or last.log_time is None or log_time is None:
            return True
        return (
            log_time - last.log_time >= horizon_ms
            or (self._clock() - last.clock) * 1000 >= horizon_ms
        )

    def _put_all(self, at: Offsets, due: Callable[[str, int, int], bool]) -> None:
        for name, partition, offset in at.only(set(self._topics)).items():
            if offset > self._origin.at(name, partition) and due(name, partition, offset):
                # A memory that has accepted nothing is a memory too.
                memory = self._memories[name].get(partition) or Memory(
                    self._topics[name].identity_horizon_ms
                )
                log_time = self._log_time[name].get(partition)
                put_memory(self._folder_of(name), partition, offset, memory, log_time)
                self._newest[name, partition] = _Put(offset, log_time, self._clock())
                self._put = True


@dataclass(frozen=True, slots=True)
class _Put:
    offset: int
    log_time: int | None
    clock: float
