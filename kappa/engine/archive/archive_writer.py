"""The writer of a topic's archive, which appends decoded ranges and joins small files.

A commit contains a range `[start, end)` of a partition, and records the range in the commit's
metadata (the mark). The range ends at the offset that the reader has reached, not after the last
record in the range. So offsets without a record also belong to the range.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.errors import Broken, KappaError
from kappa.declare.topic import Topic
from kappa.declare.topic_options import Archive
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.tally import Tally
from kappa.engine.read.archive_reader import STATISTICS, archive_fingerprint
from kappa.records.decode.decode import decoded_batches
from kappa.records.decode.outcome import Counts, counts_in, decoded_columns
from kappa.state.file_sums import note_put_file
from kappa.state.files.address import arrow_source, delete_folder, place_file
from kappa.state.store import Store
from kappa.state.witness import NO_EPOCH, Witness, digest_of
from kappa.tables.archive import ArchiveMark, folder
from kappa.tables.delta import Guard
from kappa.tables.stored_archive import Block, ensure_archive

# A file of this size is left alone: it has a few million events, and a slice reads some of its row
# groups.
_BLOCK_BYTES = 32 * 1024 * 1024
# The next commit joins this many small files at a partition's end, each smaller than that part of a
# large file. Fewer files would be rewritten again and again.
_FEW = 8
_SMALL = 4
# A row group: large enough that repeated values are written once, and small enough that a slice
# reads little beside itself.
_GROUP_ROWS = 250_000
_GROUP_BYTES = 64 * 1024 * 1024
_LONG_LOG = 50
# The values of these columns only rise, and timestamps nearly do: the differences are written.
_RISING = ("_offset", "_log_time")

# The raw records of a partition's range, in order.
Read = Callable[[int, int, int], Iterable[pa.RecordBatch]]
# Maps partition, end of the read range, and last record to that record as the log has it.
Confirmed = Callable[[int, int, Witness], Witness]


def _as_read(_partition: int, _reached: int, read: Witness) -> Witness:
    return read


class _Noted:
    """A callable that yields batches of raw records unchanged, and stores the last record."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                self._last = batch.slice(batch.num_rows - 1)
            yield batch

    def last(self) -> Witness:
        """Returns a witness of the last record that was read, without the leader's epoch."""
        offset, at, key, value = (
            self._last.column(name)[0] for name in ("offset", "timestamp", "key", "value")
        )
        return Witness(
            offset.as_py(),
            NO_EPOCH,
            digest_of(at.value // 1000, key.as_py(), value.as_py()),
        )


class ArchiveWriter:
    """The writer of a topic's archive.

    Only the process that holds the lock of the archives may use the writer.
    """

    def __init__(
        self,
        store: Store,
        topic: Topic,
        topic_id: str,
        *,
        block_bytes: int = _BLOCK_BYTES,
        group_rows: int = _GROUP_ROWS,
    ) -> None:
        """Opens the archive of the topic, or creates the archive if it does not exist.

        Raises Damaged if the archive's folder contains something other than this archive.
        """
        name = archive_fingerprint(topic)
        self._store = store
        self._topic = topic
        self._columns = decoded_columns(topic)
        self._block_bytes = block_bytes
        self._group_rows = group_rows
        self._archive = ensure_archive(
            store,
            store.address(folder(topic.name, name)),
            self._columns,
            ArchiveMark(topic.name, topic_id, name),
        )
        # Files are written on this host. If the root is on the disk, files are written at their
        # final place.
        self._folder = store.local.path(folder(topic.name, name))
        if str(self._folder) != self._archive.path:
            # A killed process may have left a file.
            delete_folder(str(self._folder))
            self._folder.mkdir(parents=True)
        self._archive.tidy(store, long_log=_LONG_LOG)

    def mark(self) -> ArchiveMark:
        """Returns the archive's current mark, which contains the archived ranges."""
        return self._archive.mark()

    def append(
        self, partition: int, start: int, end: int, read: Read, confirmed: Confirmed = _as_read
    ) -> int:
        """Archives the records of a partition from `start` to at most `end`, in one file.

        `start` is the end of the partition's archive. Returns the offset up to which the records
        are archived. This offset is less than `end` if the file reaches its maximum size earlier.
        Before the commit, calls `confirmed` with the witness of the last record that was read, and
        stores the witness that `confirmed` returns in the commit's mark. Raises Broken if the
        archive does not end at `start`.
        """
        mark, keeps_raw = self.mark(), self._topic.archive is Archive.RAW
        reached_before = mark.end.get(partition, start)
        if reached_before != start:
            raise Broken(
                f"the archive of {self._topic.name} partition {partition} ends at "
                f"{reached_before}, and was to go on at {start}"
            )
        clock = {partition: mark.log_time[partition]} if partition in mark.log_time else {}
        small = self._small(partition)
        noted = _Noted()
        batches = decoded_batches(
            noted(read(partition, start, end)),
            self._topic,
            clock,
            raw=[(start, end)] if keeps_raw else (),
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
            partition,
            start,
            reached,
            tally,
            None if seen is None else seen.log_time,
            raw=keeps_raw,
            witness=confirmed(partition, reached, noted.last()) if seen is not None else None,
        )
        self._archive.append(
            self._store,
            block,
            small if block is not None and len(small) >= _FEW else (),
            after,
            Guard(f"kappa archive {partition}", reached),
        )
        self._archive.tidy(self._store, long_log=_LONG_LOG)
        return reached

    def _small(self, partition: int) -> tuple[Block, ...]:
        """Returns a partition's small files that come after the partition's last large file."""
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
        # An error in a joined file would pass for right in the next file.
        self._archive.ensure_whole(self._store, taken_along)
        first = taken_along[0].first if taken_along else start
        name = f"{partition}-{first:020d}-{secrets.token_hex(4)}.parquet"
        path, address = self._folder / name, f"{self._archive.path}/{name}"
        schema = arrow_schema(self._columns)
        seen: Counts | None = None
        reached, last = end, start
        # Not written yet: small files that are joined, and new records, in groups that are large.
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
                # If a commit outlives a crash of the machine, so must its file.
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
        size = path.stat().st_size
        note_put_file(address, path)
        place_file(path, address)
        least = (
            taken_along[0].least if taken_along else int(first_batch.column("_offset")[0].as_py())
        )
        return (
            Block(address, partition, first, count, size, least, last),
            reached,
            seen,
        )

    def _is_full(self, rows: Sequence[pa.RecordBatch]) -> bool:
        count, size = sum(each.num_rows for each in rows), sum(each.nbytes for each in rows)
        return bool(count >= self._group_rows or size >= _GROUP_BYTES)


def _rows_of(blocks: Iterable[Block], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        # A row group is read whole, by few requests.
        with pq.ParquetFile(arrow_source(block.path), pre_buffer=True) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group).cast(schema).to_batches()


def _write(into: pq.ParquetWriter, waiting: list[pa.RecordBatch]) -> None:
    """Writes all batches in `waiting` as one row group, and empties the list."""
    if waiting:
        into.write_table(pa.Table.from_batches(waiting))
        waiting.clear()


def _file(into: object, schema: pa.Schema) -> pq.ParquetWriter:
    """Opens a writer for a Parquet file of decoded records.

    The encodings keep the file small, and the statistics let readers search by offset.
    """
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
        write_statistics=list(STATISTICS),
    )
