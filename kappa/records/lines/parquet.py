"""Writes Kafka records to a Parquet file and reads them: one row per record.

A row contains the record's place, time, bytes and headers. The file is written and read in groups
of rows, so that topics of any size need little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.errors import UsageError
from kappa.kafka.producer import ProducedRecord

_BATCH_ROWS = 10_000
_EXPORTED = frozenset({"partition", "offset", "timestamp_ms", "key", "value", "headers"})


def row_count(path: Path) -> int:
    """Returns the number of rows in a Parquet file. Raises UsageError for any other file."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def rows_of(path: Path, check: Callable[[Sequence[str]], object]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a Parquet file in order, after calling `check` with the column names.

    Raises UsageError if the file is not a Parquet file, or is damaged. The rows before the damage
    are yielded first.
    """
    with _open_parquet(path) as file:
        names = file.schema_arrow.names
        if set(names) >= _EXPORTED:
            raise UsageError(
                f"{path} has whole records, not events",
                hint=f"kappa topics import TOPIC {path} produces them",
            )
        check(names)
        try:
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                # Rows have no nanoseconds: some would be lost.
                schema = pa.schema([_in_micros(field) for field in batch.schema])
                yield from batch.cast(schema).to_pylist()
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged_error(path, error) from error


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise _damaged_error(path, error) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}", hint="give a Parquet file"
        ) from error


def _damaged_error(path: Path, error: Exception) -> UsageError:
    return UsageError(
        f"{path} is not a Parquet file, is not whole, or has times of nanoseconds: {error}",
        hint="say what it is, if it is another: --from jsonl, csv or lines",
    )


def _in_micros(field: pa.Field) -> pa.Field:
    if not pa.types.is_timestamp(field.type):
        return field
    return field.with_type(pa.timestamp("us", field.type.tz))


_HEADERS = pa.list_(
    pa.struct([pa.field("name", pa.string(), nullable=False), pa.field("value", pa.binary())])
)
# The columns that are needed to produce a record again; other columns are passed over.
_RECORD = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
    ]
)
_SCHEMA = pa.schema(
    [
        _RECORD.field("partition"),
        pa.field("offset", pa.int64(), nullable=False),
        *(_RECORD.field(name) for name in _RECORD.names[1:]),
    ]
)
_DECODED = (pa.field("event", pa.string()), pa.field("reject", pa.string()))
# A group ends at either.
_ROWS, _BYTES = 20_000, 32_000_000

# A record with its offset, its event as JSON, and the reason why the record is not valid.
PlacedRecord = tuple[ProducedRecord, int, str | None, str | None]


def write_records(file: BinaryIO, records: Iterable[PlacedRecord], *, decoded: bool) -> int:
    """Writes records to a Parquet file, and returns the number of records.

    If `decoded` is True, the file also has the columns `event` and `reject`.
    """
    schema = pa.schema([*_SCHEMA, *_DECODED]) if decoded else _SCHEMA
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for group in _row_groups(records):
            rows = [_parquet_row(*each) for each in group]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            count += len(rows)
    return count


def read_records(path: Path) -> Iterator[ProducedRecord]:
    """Yields the records in a Parquet file, in order.

    Raises UsageError if the file does not contain records, or is damaged. The records before the
    damage are yielded first.
    """
    try:
        yield from _records_in(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror or error}",
            hint="give a file that kappa topics export has written",
        ) from error
    except pa.ArrowInvalid as error:
        raise UsageError(
            f"{path} is not a Parquet file of records, or is not whole: {error}",
            hint="files of JSON lines have other names: .jsonl",
        ) from error


def _records_in(path: Path) -> Iterator[ProducedRecord]:
    with pq.ParquetFile(path) as file:
        missing = [name for name in _RECORD.names if name not in file.schema_arrow.names]
        if missing:
            raise UsageError(
                f"{path} has no column {missing[0]}",
                hint=f"records have the columns {', '.join(_RECORD.names)}",
            )
        for batch in file.iter_batches(batch_size=10_000, columns=_RECORD.names):
            for row in batch.cast(_RECORD).to_pylist():
                headers = row["headers"] or ()
                yield ProducedRecord(
                    row["value"],
                    row["key"],
                    row["timestamp_ms"],
                    tuple((each["name"], each["value"]) for each in headers),
                    row["partition"],
                )


def _parquet_row(
    record: ProducedRecord, offset: int, event: str | None, reject: str | None
) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "offset": offset,
        "timestamp_ms": record.timestamp_ms,
        "key": record.key,
        "value": record.value,
        "headers": [{"name": name, "value": value} for name, value in record.headers],
        "event": event,
        "reject": reject,
    }


def _row_groups(records: Iterable[PlacedRecord]) -> Iterator[list[PlacedRecord]]:
    group: list[PlacedRecord] = []
    taken = 0
    for each in records:
        group.append(each)
        taken += len(each[0].value or b"") + len(each[0].key or b"") + 100
        if len(group) >= _ROWS or taken >= _BYTES:
            yield group
            group, taken = [], 0
    if group:
        yield group
