"""What a build remembers of identities, as of the offset at which a slice begins: the same whoever asks, and when (law 6).

While slices follow one another the memory goes along. Where they do not (a job has begun, a slice that was cut short is folded
again, the last one was folded by Spark's tasks) it is made again: from the newest memory that was put for an offset
(engine/remembered.py), or with nothing at the build's origin where none was, reading the log back up to the slice, by the same
decoding. One is put whenever the horizon has passed since the last, so about so much of the log is read back. To read just the
horizon before the slice would not do: what was accepted there depends on what was accepted before, and that on what was before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from kappa.engine.decode import Memories, decode_table, of_topic, seen_in
from kappa.engine.remembered import drop_memories, get_memory, memory_offsets, put_memory
from kappa.mark import Mark
from kappa.offsets import Offsets
from kappa.slices import Slice, cut
from kappa.topic import Topic

# So many offsets are read back at once: their records are in memory together.
_AT_ONCE = 50_000


class Readable(Protocol):
    """Of a source, what is read back by."""

    def here(self, piece: Slice) -> pa.Table: ...  # noqa: D102  # as in Source


class Identities:
    """The memories of one build, per topic that declares an identity, and per partition."""

    def __init__(self, folder: Path, topics: Iterable[Topic], origin: Offsets) -> None:
        """`folder` keeps the memories that are put; `origin` is where the build's first slice begins."""
        self._topics = {topic.name: topic for topic in topics if topic.identity}
        self._folder = folder
        self._origin = origin
        # As of `_at`; None while a slice takes them along, and after Spark has folded one.
        self._at: Offsets | None = None
        self._memories: dict[str, Memories] = {}
        self._log_time: dict[str, dict[int, int]] = {}
        # The log time at the newest memory that was put here for a partition.
        self._put_at: dict[tuple[str, int], int] = {}
        self._put = True

    def take(self, start: Offsets, source: Readable) -> Mapping[str, Memories]:
        """The memories for a slice from `start` that is decoded in this process; decoding takes them along, and `folded` says to where."""
        self._go_to(start, source)
        self._at = None
        return self._memories

    def folders(self, start: Offsets, source: Readable) -> Mapping[str, Path]:
        """Per topic, the folder where Spark's tasks find the memories for a slice from `start`, and put those for its end."""
        folders = {name: self._folder / name for name in self._topics}
        for name, partition, offset in start.only(set(self._topics)).items():
            if offset > self._origin.at(name, partition) and offset not in memory_offsets(folders[name], partition):
                self._go_to(start, source)
                self._put_all(start, lambda _name, _partition: True)
                break
        self._at, self._put = None, True
        return folders

    def folded(self, mark: Mark) -> None:
        """Says that the memories taken are as of the end of this slice, which is decoded and not committed yet; puts those that are due."""
        if not self._topics:
            return
        self._at = mark.end.only(set(self._topics))
        for name in self._topics:
            self._log_time[name] = dict(mark.log_time.get(name, {}))
        self._put_all(self._at, self._is_due)

    def committed(self, end: Offsets) -> None:
        """Drops what nobody asks for any more, once all tables have folded up to `end`."""
        if not self._put:
            return
        for name, partition, offset in end.only(set(self._topics)).items():
            newest = max((each for each in memory_offsets(self._folder / name, partition) if each <= offset), default=0)
            drop_memories(self._folder / name, partition, below=newest)
        self._put = False

    def _go_to(self, start: Offsets, source: Readable) -> None:
        start = start.only(set(self._topics))
        if self._at is not None and self._at.equals(start):
            return
        self._memories = {name: {} for name in self._topics}
        self._log_time = {name: {} for name in self._topics}
        begin: dict[str, dict[int, int]] = {}
        for name, partition, offset in start.items():
            found = [each for each in memory_offsets(self._folder / name, partition) if each <= offset]
            begin.setdefault(name, {})[partition] = found[-1] if found else min(self._origin.at(name, partition), offset)
            if found:
                memory, log_time = get_memory(self._folder / name, partition, found[-1], self._topics[name].identity_horizon_ms)
                self._memories[name][partition] = memory
                self._log_time[name][partition] = self._put_at[name, partition] = log_time
        for piece in cut(0, Offsets(begin), start, at_most=_AT_ONCE):
            raw = source.here(piece)
            for name, topic in self._topics.items():
                decoded = decode_table(of_topic(raw, name), topic, self._log_time[name], self._memories[name])
                self._log_time[name] |= {partition: seen.log_time for partition, seen in seen_in(decoded).items()}
        self._at = start

    def _is_due(self, name: str, partition: int) -> bool:
        last = self._put_at.get((name, partition))
        return last is None or self._log_time[name][partition] - last >= self._topics[name].identity_horizon_ms

    def _put_all(self, at: Offsets, due: Callable[[str, int], bool]) -> None:
        for name, memories in self._memories.items():
            for partition, memory in memories.items():
                if due(name, partition):
                    log_time = self._log_time[name][partition]
                    put_memory(self._folder / name, partition, at.at(name, partition), memory, log_time)
                    self._put_at[name, partition] = log_time
                    self._put = True
