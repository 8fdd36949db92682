"""Functions that write the answer of a query, one for each format.

These functions run in the worker, the confined process that answers the query. They stop at the
answer's limit of rows or of bytes, and report whether rows were left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.duck import Connection
from kappa.base.errors import UsageError
from kappa.serving.query.postgres.rows import write_description, write_rows
from kappa.serving.query.reader.table_sql import distinct_names
from kappa.serving.query.render import columns_of, csv_line, object_line
from kappa.serving.query.sandbox.frames import PIECE, put_frame
from kappa.tables.views.exact_rows import ExactQuery, arrow_query, python_query

_ROWS_AT_ONCE = 64
_ARROW_ROWS_AT_ONCE = 2048
_PIECE_BYTES = 1 << 16
_FRAME_BYTES = 1 << 20
# The columns are in the last frame, and before the rows of JSON.
_COLUMNS_BYTES = 1 << 18
# Raised for values that cannot be written as Arrow or Parquet.
ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowNotImplementedError)
Rows: TypeAlias = Iterator[tuple[Any, ...]]
Request: TypeAlias = Mapping[str, Any]
Columns: TypeAlias = Sequence[Mapping[str, str]]


class PieceFile:
    """A file-like object that sends an answer's bytes to the server, up to a limit."""

    closed = False

    def __init__(self, file: int, most: int) -> None:
        """Creates an object that sends bytes through the socket `file` to the server.

        At most `most` bytes are sent.
        """
        self._file = file
        self._left = most
        self._held = bytearray()

    def can_write(self, count: int) -> bool:
        """Returns True if `count` more bytes may be written."""
        return count <= self._left

    def write(self, content: Any) -> int:
        """Writes bytes to a buffer, and sends the buffer when it is large enough."""
        self._left -= len(content)
        self._held += content
        if len(self._held) >= _PIECE_BYTES:
            self.flush()
        return len(content)

    def flush(self) -> None:
        """Sends the buffered bytes."""
        for start in range(0, len(self._held), _FRAME_BYTES):
            put_frame(self._file, PIECE, bytes(self._held[start : start + _FRAME_BYTES]))
        self._held.clear()

    def close(self) -> None:
        """Does nothing. The writers of Arrow and Parquet files call this method at their end."""


def write_answer(
    connection: Connection, sql: str, request: Request, pieces: PieceFile
) -> Mapping[str, Any]:
    """Writes the rows of a query in the format that `request` names.

    Returns a mapping with the columns, the number of rows, and a flag that is True if rows were
    left out. Columns are never left out: raises UsageError if the names and types of the columns
    are too long, or if the format cannot represent a type.
    """
    form = request["form"]
    if form != "postgres":
        return _write_form(connection, sql, request, pieces)
    if request["wire"]["describes"]:
        ended = write_description(connection, sql, pieces)
    else:
        ended = write_rows(connection, sql, request, pieces)
    _ensure_short(ended["columns"])
    pieces.flush()
    return ended


def _ensure_short(columns: Sequence[Mapping[str, Any]]) -> None:
    if len(json.dumps(columns)) > _COLUMNS_BYTES:
        raise UsageError(
            f"the names and types of the answer's columns take more than {_COLUMNS_BYTES >> 10} "
            "KiB",
            hint="select fewer columns, or give them shorter names: select ... as name",
        )


def _write_form(
    connection: Connection, sql: str, request: Request, pieces: PieceFile
) -> Mapping[str, Any]:
    form = request["form"]
    query = (
        arrow_query(connection, sql, parquet=form == "parquet", names=distinct_names)
        if form in _ARROWS
        else python_query(connection, sql, times=False, names=distinct_names)
    )
    columns = columns_of(query.columns, query.types)
    _ensure_short(columns)
    result = connection.execute(query.sql)
    if form in _ARROWS:
        rows, truncated = _write_arrow(result, request, columns, pieces)
    else:
        rows, truncated = _TEXTS[form](_fetch_rows(result, query), request, columns, pieces)
    pieces.flush()
    return {"columns": columns, "rows": rows, "truncated": truncated}


def _fetch_rows(result: Connection, query: ExactQuery) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        yield from map(query.row, rows)


def _write_lines(
    rows: Rows,
    request: Request,
    pieces: PieceFile,
    line: Callable[[int, tuple[Any, ...]], str],
) -> tuple[int, bool]:
    """Writes a line for each row, up to the limits of rows and bytes.

    Returns the number of rows written, and True if rows were left out.
    """
    count = 0
    for row in rows:
        content = line(count, row).encode(errors="replace")
        if count == request["rows"] or not pieces.can_write(len(content)):
            return count, True
        pieces.write(content)
        count += 1
    return count, False


def _write_json(
    rows: Rows, request: Request, columns: Columns, pieces: PieceFile
) -> tuple[int, bool]:
    names = [column["name"] for column in columns]
    opening = json.dumps({**request["head"], "columns": columns}, ensure_ascii=False)
    pieces.write(f'{opening[:-1]}, "rows": ['.encode())
    count, truncated = _write_lines(
        rows,
        request,
        pieces,
        lambda count, row: f"{',' if count else ''}\n{object_line(names, row).rstrip(chr(10))}",
    )
    pieces.write(f'\n], "truncated": {json.dumps(truncated)}}}\n'.encode())
    return count, truncated


def _write_json_lines(
    rows: Rows, request: Request, columns: Columns, pieces: PieceFile
) -> tuple[int, bool]:
    names = [column["name"] for column in columns]
    return _write_lines(rows, request, pieces, lambda _, row: object_line(names, row))


def _write_csv(
    rows: Rows, request: Request, columns: Columns, pieces: PieceFile
) -> tuple[int, bool]:
    pieces.write(csv_line([column["name"] for column in columns]).encode())
    return _write_lines(rows, request, pieces, lambda _, row: csv_line(row))


def _write_arrow(
    result: Connection, request: Request, columns: Columns, pieces: PieceFile
) -> tuple[int, bool]:
    reader = result.to_arrow_reader(_ARROW_ROWS_AT_ONCE)
    schema = pa.schema(
        [
            field.with_name(column["name"])
            for field, column in zip(reader.schema, columns, strict=True)
        ]
    )
    rows, truncated = 0, False
    with (
        pa.ipc.new_stream(pieces, schema)
        if request["form"] == "arrow"
        else pq.ParquetWriter(pieces, schema, compression="zstd") as writer
    ):
        for batch, more in _limited_batches(reader, schema, request["rows"], pieces):
            truncated = more
            if len(batch):
                writer.write_batch(batch)
            rows += len(batch)
            if truncated:
                break
    return rows, truncated


def _limited_batches(
    reader: pa.RecordBatchReader, schema: pa.Schema, most: int, pieces: PieceFile
) -> Iterator[tuple[pa.RecordBatch, bool]]:
    """Yields the batches of rows, up to the limits of rows and bytes.

    Each batch is yielded together with a flag, which is True if the rows after this batch are left
    out. `most` is the largest number of rows.
    """
    left = most
    for batch in reader:
        cut = batch.slice(0, left)
        # The written size is smaller, but is not known before the batch is written.
        if not pieces.can_write(cut.nbytes):
            yield cut.slice(0, 0), True
            return
        yield pa.RecordBatch.from_arrays(cut.columns, schema=schema), len(cut) < len(batch)
        left -= len(cut)


_ARROWS = frozenset({"arrow", "parquet"})
_TEXTS: Mapping[str, Callable[..., tuple[int, bool]]] = {
    "json": _write_json,
    "jsonl": _write_json_lines,
    "csv": _write_csv,
}
