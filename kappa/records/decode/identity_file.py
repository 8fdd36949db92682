"""Files with the identities that a partition has accepted up to an offset.

`FOLDER/<partition>/<offset>.parquet` contains the identities that a build remembers after all
records before the offset, and the log time at the offset. A SHA-256 digest follows the Parquet
bytes, except in a file of an earlier Kappa. The identities can be found again in the topic's log,
so the file may be overwritten or lost. Spark's tasks read and write the file for large slices, and
a job for small slices; engine/read/identities.py decides when. FOLDER is a path or URL.
"""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.errors import Damaged, KappaError
from kappa.base.log_lines import Level, write_log_line
from kappa.records.identity import DIGEST_BYTES, Memory
from kappa.state.files.address import delete_file, files_in, read_file, write_file

_LOG_TIME = b"log_time"
# The last bytes of a file without a seal, and the length of a seal.
_PARQUET, _SEAL_BYTES = b"PAR1", 32
_SCHEMA = pa.schema([("identity", pa.binary(DIGEST_BYTES)), ("accepted", pa.int64())])


def put_memory(
    folder: str, partition: int, offset: int, memory: Memory, log_time: int | None
) -> None:
    """Stores the identities that a partition has accepted before `offset`, in a file.

    An existing file for this offset is overwritten. `log_time` is the log time of the last record
    before the offset, or None if there is no such record.
    """
    accepted = {} if log_time is None else memory.within(log_time)
    schema = _SCHEMA.with_metadata({_LOG_TIME: b"" if log_time is None else str(log_time).encode()})
    table = pa.table(
        [pa.array(accepted, _SCHEMA.types[0]), pa.array(accepted.values(), _SCHEMA.types[1])],
        schema=schema,
    )
    written = pa.BufferOutputStream()
    pq.write_table(table, written)
    # The seal shows a torn file, which would be read back from a log that has perhaps lost its
    # beginning.
    content = written.getvalue().to_pybytes()
    write_file(_memory_path(folder, partition, offset), content + hashlib.sha256(content).digest())


def get_memory(
    folder: str, partition: int, offset: int, horizon_ms: int
) -> tuple[Memory, int | None]:
    """Returns the stored identities for this offset, and the log time before the offset.

    The log time is None if there was no record before the offset. Raises Damaged if the file cannot
    be read. Raises KappaError if the file is missing, or is not visible on this machine yet.
    """
    path = _memory_path(folder, partition, offset)
    try:
        # If the file were read as a data set, the folders of its path would become columns.
        content = _unsealed_memory(read_file(path))
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=False)
        kept = (table.schema.metadata or {})[_LOG_TIME]
        log_time = int(kept) if kept else None
        accepted = dict(
            zip(
                table.column("identity").to_pylist(),
                table.column("accepted").to_pylist(),
                strict=True,
            )
        )
    except FileNotFoundError as error:
        raise KappaError(
            f"the memory of identities {path} is missing on this machine",
            hint="each machine has to see at once what another has written below the root; the job "
            "is started again by itself",
        ) from error
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise Damaged(
            f"{path} cannot be read: {error}",
            hint="it is made from the log again where it is not there: delete it",
        ) from error
    return Memory(horizon_ms, accepted), log_time


def _unsealed_memory(content: bytes) -> bytes:
    """Returns the Parquet bytes of a file's `content`, without the digest after them.

    Raises ValueError if the digest does not match the bytes.
    """
    if content.endswith(_PARQUET):
        return content
    parquet, seal = content[:-_SEAL_BYTES], content[-_SEAL_BYTES:]
    if hashlib.sha256(parquet).digest() != seal:
        raise ValueError("it is not as it was written")
    return parquet


def newest_memory(
    folder: str, partition: int, at_most: int, horizon_ms: int
) -> tuple[int, Memory, int | None] | None:
    """Returns the newest stored identities for an offset of at most `at_most`.

    The result is (offset, identities, log time), or None if no such file is stored. A file that
    cannot be read is deleted, and a warning is logged.
    """
    for offset in reversed(memory_offsets(folder, partition)):
        if offset <= at_most:
            try:
                return offset, *get_memory(folder, partition, offset, horizon_ms)
            except Damaged as error:
                write_log_line(f"{error.message}; it is made from the log again", Level.WARN)
                delete_file(_memory_path(folder, partition, offset))
    return None


def memory_offsets(folder: str, partition: int) -> list[int]:
    """Returns the offsets for which a partition's identities are stored, in ascending order."""
    stems = (name.removesuffix(".parquet") for name in files_in(f"{folder}/{partition}"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def drop_memories(folder: str, partition: int, *, below: int) -> None:
    """Deletes a partition's identity files that were stored for an offset less than `below`."""
    for offset in memory_offsets(folder, partition):
        if offset < below:
            delete_file(_memory_path(folder, partition, offset))


def _memory_path(folder: str, partition: int, offset: int) -> str:
    return f"{folder}/{partition}/{offset}.parquet"
