"""The archiver: one process for all archived topics of a project, without a JVM, that copies the log into archives exactly once.

    python -m kappa.engine.archive.archiver --project DIR --root ROOT --bootstrap HOST:PORT

Each commit holds one range `[start, end)` of one partition and says so itself (kappa/tables/archive.py), and the next begins where the
last committed one ended: so one that is killed goes on from there, whatever it had written. Where a range ends is told by the
reader's position, never by its rows: holes count. Where the event is declared otherwise than before it is another archive: it is made of
what the topic has, and of what the topic has lost and an archive before has kept raw. Exit code 0: no topic is archived; 130: asked to stop (SIGTERM).
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.errors import Broken, ExitCode, KappaError, UsageError
from kappa.base.lock import Lock
from kappa.base.process import set_by_sigterm
from kappa.base.settings import load_settings
from kappa.code.project import load_pipelines
from kappa.declare.topic import Archive, Topic
from kappa.engine.archive.earlier import Earlier
from kappa.engine.decode.decode import decoded_batches
from kappa.engine.decode.fate import Counts, counts_in, decoded_columns
from kappa.engine.read.archived import archive_fingerprint
from kappa.engine.read.source import Kafka, Source
from kappa.log.client import Log
from kappa.state.store import Store
from kappa.tables.archive import FOLDER, ArchiveMark, folder, why_stopped
from kappa.tables.delta import Block, Guard, ensure_archive, open_archive
from kappa.values.arrow import arrow_schema
from kappa.values.tally import Tally

LOCK = f"{FOLDER}/lock"
# A file is so large when it is left alone: a few million events, of which a slice takes a part by row groups.
_BLOCK_BYTES = 32 * 1024 * 1024
# So many small files at a partition's end, each less than such a part of a large one, are joined by the next commit: fewer would be
# written again and again.
_FEW = 8
_SMALL = 4
# A row group: large enough that what repeats is said once, and small enough that a slice does not read much beside itself.
_GROUP_ROWS = 250_000
_GROUP_BYTES = 64 * 1024 * 1024
# So many offsets are no trickle, and are not waited for.
_MANY = 200_000
_LONG_LOG = 50
_NAP_SECONDS = 0.5
# They only rise, and timestamps nearly so: what is kept is by how much.
_RISING = ("_offset", "_log_time")

# The raw records of a partition's range, in order.
Read = Callable[[int, int, int], Iterable[pa.RecordBatch]]


class ArchiveWriter:
    """Appends to the archive of one topic. Only who holds the archives' lock may have one."""

    def __init__(
        self,
        store: Store,
        topic: Topic,
        topic_id: str,
        *,
        block_bytes: int = _BLOCK_BYTES,
        group_rows: int = _GROUP_ROWS,
    ) -> None:
        """Opens the archive, or makes it. Raises Damaged where what is there is none."""
        name = archive_fingerprint(topic)
        self._topic = topic
        self._columns = decoded_columns(topic)
        self._block_bytes = block_bytes
        self._group_rows = group_rows
        self._archive = ensure_archive(
            str(store.path(folder(topic.name, name))),
            self._columns,
            ArchiveMark(topic.name, topic_id, name),
        )
        self._archive.tidy(long_log=_LONG_LOG)

    def mark(self) -> ArchiveMark:
        """What is archived."""
        return self._archive.mark()

    def append(self, partition: int, start: int, end: int, read: Read) -> int:
        """Archives a partition from `start`, which is where its archive ends, to `end`, or as far as one file goes; gives where that is."""
        mark, keeps_raw = self.mark(), self._topic.archive is Archive.RAW
        there = mark.end.get(partition, start)
        if there != start:
            raise Broken(
                f"the archive of {self._topic.name} partition {partition} ends at {there}, and was to be gone on with at {start}"
            )
        clock = {partition: mark.log_time[partition]} if partition in mark.log_time else {}
        small = self._small(partition)
        batches = decoded_batches(
            read(partition, start, end), self._topic, clock, raw=[(start, end)] if keeps_raw else ()
        )
        block, reached, seen = self._written(
            partition, start, end, batches, small if len(small) >= _FEW else ()
        )
        tally = (
            Tally()
            if seen is None
            else Tally(seen.decoded, seen.duplicate, seen.rejected, seen.tombstone, late=seen.late)
        )
        after = mark.then(
            partition, start, reached, tally, None if seen is None else seen.log_time, raw=keeps_raw
        )
        self._archive.append(
            block,
            small if block is not None and len(small) >= _FEW else (),
            after,
            Guard(f"kappa archive {partition}", reached),
        )
        self._archive.tidy(long_log=_LONG_LOG)
        return reached

    def _small(self, partition: int) -> tuple[Block, ...]:
        """The small blocks that a partition ends with."""
        own = [block for block in self._archive.blocks() if block.partition == partition]
        large = max(
            (
                place
                for place, block in enumerate(own)
                if block.bytes >= self._block_bytes // _SMALL
            ),
            default=-1,
        )
        return tuple(own[large + 1 :])

    def _written(
        self,
        partition: int,
        start: int,
        end: int,
        batches: Iterator[pa.RecordBatch],
        taken_along: Sequence[Block],
    ) -> tuple[Block | None, int, Counts | None]:
        first_batch = next(batches, None)
        if first_batch is None:
            return None, end, None
        first = taken_along[0].first if taken_along else start
        path = Path(self._archive.path) / f"{partition}-{first:020d}-{secrets.token_hex(4)}.parquet"
        schema = arrow_schema(self._columns)
        seen: Counts | None = None
        reached, last = end, start
        # What is not written yet: small files that are taken along, and what is new, in groups that are large.
        waiting: list[pa.RecordBatch] = []
        try:
            with path.open("wb") as file:
                with _file(file, schema) as into:
                    for rows in _rows_of(taken_along, schema):
                        waiting.append(rows)
                        if self._is_full(waiting):
                            _write(into, waiting)
                    batch: pa.RecordBatch | None = first_batch
                    while batch is not None:
                        waiting.append(batch)
                        found = counts_in(batch)[partition]
                        seen = found if seen is None else seen.then(found)
                        last = int(batch.column("_offset")[-1].as_py())
                        if self._is_full(waiting):
                            _write(into, waiting)
                            if file.tell() >= self._block_bytes:
                                reached = last + 1
                                break
                        batch = next(batches, None)
                    _write(into, waiting)
                file.flush()
                # A commit that outlives the machine's death tells of a file that does so too.
                os.fsync(file.fileno())
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise KappaError(
                    f"records could not be archived in {path}: {error.strerror or error}",
                    hint="see whether the disk is full or the folder may be written",
                ) from error
            raise
        with pq.ParquetFile(path) as written:
            count = written.metadata.num_rows
        least = (
            taken_along[0].least if taken_along else int(first_batch.column("_offset")[0].as_py())
        )
        return (
            Block(str(path), partition, first, count, path.stat().st_size, least, last),
            reached,
            seen,
        )

    def _is_full(self, rows: Sequence[pa.RecordBatch]) -> bool:
        count, size = sum(each.num_rows for each in rows), sum(each.nbytes for each in rows)
        return bool(count >= self._group_rows or size >= _GROUP_BYTES)


class Archiver:
    """Archives topics, for as long as it is asked to."""

    def __init__(
        self,
        store: Store,
        log: Log,
        source: Source,
        topics: Sequence[Topic],
        *,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None],
    ) -> None:
        """A partition is gone on with when much has come, or `every_seconds` have passed; `say` is told what hinders."""
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

    def run(self, stop: threading.Event) -> None:
        """Goes on until asked to stop. Raises KappaError where the broker or the disk does not answer."""
        while not stop.is_set():
            went_on = [self.step(topic, stop) for topic in self._topics]
            if not any(went_on):
                stop.wait(_NAP_SECONDS)

    def step(self, topic: Topic, stop: threading.Event) -> bool:
        """Appends what is due of one topic, one file a partition; True where more may be due at once."""
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
            hindered = why_stopped(
                mark,
                None if facts is None else facts.id,
                {
                    part: earlier.beginning(part, first, mark.end.get(part))
                    for part, first in beginning.items()
                },
            )
            if hindered is not None:
                self._hinder(topic.name, hindered)
                return False
            went_on = False
            for _, partition, end in self._log.end([topic.name]).items():
                first = beginning.get(partition, 0)
                start = mark.end.get(partition, earlier.beginning(partition, first, None))
                if not stop.is_set() and self._is_due(topic.name, partition, end - start):
                    if start < first:
                        # What comes behind it is read from the topic.
                        went_on |= (
                            writer.append(
                                partition,
                                start,
                                min(end, earlier.end(partition, start)),
                                earlier.read,
                            )
                            <= end
                        )
                    else:
                        went_on |= (
                            writer.append(
                                partition,
                                start,
                                end,
                                lambda part, first, last: self._source.batches(
                                    topic.name, part, first, last
                                ),
                            )
                            < end
                        )
                    self._last[topic.name, partition] = self._clock()
        except (Broken, UsageError) as error:
            # Others go on; this one does when somebody has mended it, or the topic is there again, which went away just now.
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
                    str(self._store.path(folder(topic.name, archive_fingerprint(topic))))
                )
                is None
            ):
                return None
            self._writers[topic.name] = ArchiveWriter(self._store, topic, topic_id or "")
        return self._writers[topic.name]

    def _is_due(self, topic: str, partition: int, waiting: int) -> bool:
        last = self._last.get((topic, partition))
        return waiting > 0 and (
            waiting >= _MANY or last is None or self._clock() - last >= self._every_seconds
        )

    def _hinder(self, topic: str, why: str) -> None:
        if self._hindered.get(topic) != why:
            self._hindered[topic] = why
            self._say(f"topic {topic} is not archived any further: {why}")


def _rows_of(blocks: Iterable[Block], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        with pq.ParquetFile(block.path) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).cast(schema).to_batches()


def _write(into: pq.ParquetWriter, waiting: list[pa.RecordBatch]) -> None:
    """Writes what waits as one group, and waits for nothing any more."""
    if waiting:
        into.write_table(pa.Table.from_batches(waiting))
        waiting.clear()


def _file(into: object, schema: pa.Schema) -> pq.ParquetWriter:
    """A file that takes decoded records, and that is kept: small, and searched by offset."""
    rising = [
        field.name for field in schema if field.name in _RISING or pa.types.is_timestamp(field.type)
    ]
    others = [
        field.name
        for field in schema
        if field.name not in rising and not pa.types.is_nested(field.type)
    ]
    return pq.ParquetWriter(
        into,
        schema,
        compression="zstd",
        use_dictionary=others,
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=["_partition", "_offset"],
    )


def archived_topics(project: Path) -> tuple[Topic, ...]:
    """The topics of a project that declare an archive. Raises DeclarationError where its files cannot be read."""
    topics = {
        topic.name: topic
        for pipeline in load_pipelines(project).values()
        for topic in pipeline.topics
    }
    return tuple(topic for _, topic in sorted(topics.items()) if topic.archive is not Archive.NONE)


def main(arguments: list[str] | None = None) -> int:
    """The command: answers by its exit code."""
    parser = argparse.ArgumentParser(prog="python -m kappa.engine.archive.archiver")
    for name in ("project", "root", "bootstrap"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args(arguments)
    stop = set_by_sigterm()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        settings = load_settings(Path(given.project), root=given.root)
        topics = archived_topics(settings.project)
        if not topics:
            return int(ExitCode.OK)
        store = Store(settings.root_url)
        log = Log(given.bootstrap, settings.kafka.options)
        with Lock(store.path(LOCK), what="the archive"):
            source = Source(Kafka(given.bootstrap, settings.kafka.options), log)
            try:
                Archiver(
                    store,
                    log,
                    source,
                    topics,
                    every_seconds=settings.archive.every_seconds,
                    say=say,
                ).run(stop)
            finally:
                source.close()
    except KappaError as error:
        say(f"{error.message}\n{error.hint}".strip())
        return int(error.exit_code)
    return int(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
