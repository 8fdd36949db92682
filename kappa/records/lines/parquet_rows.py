"""The rows of a Parquet file as values of Python, in small batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.errors import UsageError

_ROWS = 10_000
_EXPORTED = frozenset({"partition", "offset", "timestamp_ms", "key", "value", "headers"})


def row_count(path: Path) -> int:
    """Counts the rows of a Parquet file. Raises UsageError for any other file."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def rows_of(path: Path, check: Callable[[Sequence[str]], object]) -> Iterator[dict[str, Any]]:
    """Yields the rows of a Parquet file in order, once `check` has seen the columns' names.

    Raises UsageError if the file is not a Parquet file, or is damaged. By then, the rows before the
    damage have been yielded.
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
            for batch in file.iter_batches(batch_size=_ROWS):
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
