"""An answer as a file: Parquet, CSV or JSON lines, by the file's extension."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from kappa.base.errors import UsageError
from kappa.base.program import hand_out
from kappa.base.sql import text
from kappa.serving.query.pin.at_log import Past
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import ask
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.render import csv_line, object_line
from kappa.state.store import Store

_HINT = "give --out a file that ends with {}"


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    """The number of a file's rows, and the snapshot that they are true of."""

    rows: int
    snapshot: Snapshot


def save_answer(
    store: Store, sql: str, file: Path, *, when: Past | None = None, lease_seconds: float = 60.0
) -> SavedAnswer:
    """Writes a query's answer to a file whole, in place of any before; in batches, not at once.

    The extension decides the form. Raises UsageError if it is unknown, if the file cannot be
    written, or as `answer` does.
    """
    write = _WRITERS.get(file.suffix.lower())
    if write is None:
        raise UsageError(
            f"{file} has no extension that names a form", hint=_HINT.format(", ".join(_WRITERS))
        )
    written = file.with_name(f"{file.name}.{os.getpid()}.new")

    def save(reader: Reader, snapshot: Snapshot) -> SavedAnswer:
        return SavedAnswer(write(reader, sql, written), snapshot)

    try:
        saved = ask(store, save, when=when, lease_seconds=lease_seconds)
        hand_out(written)
        written.replace(file)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written: {error.strerror}", hint="give --out a file you may write"
        ) from error
    finally:
        written.unlink(missing_ok=True)
    return saved


def _write_parquet(reader: Reader, sql: str, file: Path) -> int:
    # DuckDB would report a folder that cannot be written as a failure of its own.
    file.touch()
    reader.save_parquet(sql, file)
    counted = reader.rows(f"select num_rows from parquet_file_metadata({text(str(file))})")
    return int(counted.rows[0][0])


def _write_csv(reader: Reader, sql: str, file: Path) -> int:
    def lines(columns: tuple[str, ...]) -> Iterator[str]:
        yield csv_line(columns)
        for row in reader.each_row(sql):
            yield csv_line(row)

    return _write_lines(file, lines(reader.described(sql)[0])) - 1


def _write_json_lines(reader: Reader, sql: str, file: Path) -> int:
    columns, _ = reader.described(sql)
    return _write_lines(file, (object_line(columns, row) for row in reader.each_row(sql)))


def _write_lines(file: Path, lines: Iterator[str]) -> int:
    count = 0
    opened: TextIO
    with file.open("w", encoding="utf-8", errors="backslashreplace", newline="") as opened:
        for line in lines:
            opened.write(line)
            count += 1
    return count


_WRITERS: dict[str, Callable[[Reader, str, Path], int]] = {
    ".parquet": _write_parquet,
    ".csv": _write_csv,
    ".jsonl": _write_json_lines,
}
