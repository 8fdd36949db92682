"""Queries: SQL over exactly the files of a pinned snapshot.

For a comparison, this module also opens a reader of two builds. The tables of the first build are
in schema `before`, and the tables of the second build in schema `after`. The reader contains
exactly the builds' served rows, at the versions of two pinned frontiers. It also contains the
hidden columns with the error ranges of approximate values, but no views. If a key of a compacted
topic was written again after the compared offsets, the comparison leaves the key out. Such keys are
stored next to the tables.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

from kappa.base.errors import KappaError, UsageError
from kappa.base.program import hand_out
from kappa.base.sql import text
from kappa.serving.query.pin.catalog import pin_at, pin_served
from kappa.serving.query.pin.moments import Past
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.query_files import (
    ensure_files_whole,
    tables_read,
)
from kappa.serving.query.reader.reader import Limits, Reader, Rows, open_reader
from kappa.serving.query.reader.relations import (
    data_files,
    put_relations,
    put_tables,
    relations_of,
    retired_relations,
)
from kappa.serving.query.render import csv_line, object_line
from kappa.serving.query.statements import SqlStatement
from kappa.state.build import Birth
from kappa.state.file_sums import are_checked
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

_Found = TypeVar("_Found")

# A lease is lost only if a reader pauses for longer than the lease lasts: not thrice by chance.
_ATTEMPTS = 3
_HINT = "give --out a file that ends with {}"
# The mark of a connection that shows relations without their public names.
_SCHEMAS_ALONE = "schemas alone"
# The schemas of the two builds of a pair.
BEFORE = "before"
AFTER = "after"


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a query, and the snapshot from which the rows were read."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    snapshot: Snapshot

    @property
    def generation(self) -> int:
        """Returns the generation of the snapshot."""
        return self.snapshot.generation

    @property
    def offsets(self) -> Mapping[str, Offsets]:
        """Returns the offsets of the frontier of each build, by build.

        All tables of a build are at the same frontier.
        """
        return {build: each.offsets for build, each in self.snapshot.frontiers.items()}

    @property
    def versions(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the Delta version of each table, by build and then by table."""
        return {build: each.versions for build, each in self.snapshot.frontiers.items()}


def answer_query(
    store: Store, sql: str, *, when: Past | None = None, lease_seconds: float = 60.0
) -> Answer:
    """Answers a query from the rows that are served now, or were served at `when`.

    Raises UsageError if the query has a mistake; DuckDB's suggestions are the hint. Raises Conflict
    if the snapshot's files were not kept until the end of the query in several attempts. Also
    raises the errors of `pin_at`.
    """
    return read_snapshot(
        store, lambda reader: reader.rows(sql), when=when, lease_seconds=lease_seconds
    )


def answer_each(
    store: Store,
    queries: Sequence[SqlStatement],
    answer: Callable[[Reader, str, Snapshot], _Found],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> tuple[_Found, ...]:
    """Answers several queries from one snapshot, one after the other.

    The function `answer` answers each query; its arguments are a reader of the snapshot, the query
    and the snapshot. If a query fails, no answers are returned; if there are several queries, the
    error names the failed query. Raises the errors of `answer_query`.
    """

    def answer_all(reader: Reader, snapshot: Snapshot) -> tuple[_Found, ...]:
        answers = []
        for number, query in enumerate(queries, 1):
            try:
                answers.append(answer(reader, query.text, snapshot))
            except KappaError as error:
                if len(queries) > 1:
                    place = f"statement {number} of {len(queries)}, at line {query.line}"
                    error.message = f"{place}: {error.message}"
                raise
        return tuple(answers)

    return ask_snapshot(store, answer_all, when=when, lease_seconds=lease_seconds)


def read_snapshot(
    store: Store,
    queries: Callable[[Reader], Rows],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> Answer:
    """Pins a snapshot, and returns the rows that the function `queries` reads from it.

    `queries` may run any number of queries on its argument, a reader of the snapshot. If the
    snapshot's files were not kept until the end, the function retries as `ask_snapshot` does.
    """

    def answer_from(reader: Reader, snapshot: Snapshot) -> Answer:
        rows = queries(reader)
        return Answer(rows.columns, rows.types, rows.rows, snapshot)

    return ask_snapshot(store, answer_from, when=when, lease_seconds=lease_seconds)


def ask_snapshot(
    store: Store,
    question: Callable[[Reader, Snapshot], _Found],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> _Found:
    """Pins a snapshot, and returns the result of the function `question`.

    The arguments of `question` are a reader of the snapshot, and the snapshot. The snapshot is the
    one that is served now, or the one of the moment `when`. If the snapshot's files were not kept
    until the end, the function retries with another pinned snapshot, up to three attempts. If a
    table or view cannot be created, only queries that name it fail.
    """
    attempt = 0
    while True:
        attempt += 1
        with (
            pin_served(
                store,
                lease_seconds=lease_seconds,
                beside=lambda snapshot: relations_of(snapshot, store),
            )
            if when is None
            else pin_at(store, when, lease_seconds=lease_seconds) as pinned
        ):
            try:
                with open_snapshot(pinned.snapshot, store) as reader:
                    found = question(reader, pinned.snapshot)
                pinned.confirm_kept()
            except KappaError:
                # A file collected during the query looks like any error, unless the lease holds.
                if pinned.is_kept() or attempt == _ATTEMPTS:
                    raise
                continue
            return found


def ask_part(
    store: Store,
    part_of: Callable[[Snapshot], Snapshot],
    question: Callable[[Reader, Snapshot], _Found],
    *,
    lease_seconds: float = 60.0,
) -> tuple[Snapshot, _Found]:
    """Pins the present snapshot, and calls `question` for some of its pipelines.

    `part_of` narrows the snapshot to these pipelines. The arguments of `question` are a reader of
    the narrowed snapshot, and this snapshot. The reader has a schema for each pipeline, but no
    public names. Returns the whole snapshot, and the result of `question`. If the snapshot's files
    were not kept until the end, the function retries as `ask_snapshot` does.
    """
    attempt = 0
    while True:
        attempt += 1
        with pin_served(store, lease_seconds=lease_seconds) as pinned:
            part = part_of(pinned.snapshot)
            try:
                with open_snapshot(part, store, has_public_names=False) as reader:
                    found = question(reader, part)
                pinned.confirm_kept()
            except KappaError:
                if pinned.is_kept() or attempt == _ATTEMPTS:
                    raise
                continue
            return pinned.snapshot, found


def connect_reader(snapshot: Snapshot, store: Store, *, limits: Limits | None = None) -> Reader:
    """Opens a reader of all tables and views of a snapshot.

    The caller must keep the snapshot pinned while the reader is open. If a table or view cannot be
    created, raises the error of the first such table or view. The error names it.
    """
    reader = open_snapshot(snapshot, store, limits=limits)
    for broken in reader.broken:
        reader.close()
        raise broken.refusal()
    return reader


def open_snapshot(
    snapshot: Snapshot,
    store: Store,
    *,
    limits: Limits | None = None,
    has_public_names: bool = True,
) -> Reader:
    """Opens a reader of a snapshot, even if some of its tables or views cannot be created.

    The reader lists these tables and views in its attribute `broken`. The caller must keep the
    snapshot pinned while the reader is open. If `has_public_names` is False, only the schemas of
    the pipelines are created, which takes half of the time.
    """
    relations = relations_of(snapshot, store)
    showing = relations if has_public_names else (_SCHEMAS_ALONE, *relations)
    reader = open_reader(limits, served=bool(snapshot.serving), showing=showing)
    reader.left = lambda: retired_relations(relations, store)
    reader.files = functools.cache(lambda: data_files(relations))

    def ensure_whole_files(sql: str) -> None:
        if not are_checked(store, reader.files()):
            named = tables_read(reader.parser_tree, sql, relations)
            ensure_files_whole(store, snapshot, relations, named)

    reader.before = ensure_whole_files
    try:
        if reader.shows != showing:
            put_relations(reader, relations, has_public_names=has_public_names)
            reader.shows = showing
    except BaseException:
        reader.close()
        raise
    return reader


def connect_pair(
    store: Store,
    before: tuple[Birth, Frontier],
    after: tuple[Birth, Frontier],
    *,
    limits: Limits | None,
    after_store: Store | None = None,
) -> Reader:
    """Opens a reader of the tables of two builds, in the schemas `before` and `after`.

    The caller must keep the given frontiers of both builds pinned while the reader is open.
    `after_store` is the store of the second build, if it is not `store`.
    """
    reader = open_reader(limits, served=True)
    try:
        put_tables(reader, BEFORE, *before, store, columns=_compared)
        put_tables(reader, AFTER, *after, after_store or store, columns=_compared)
    except BaseException:
        reader.close()
        raise
    return reader


def _compared(table: TableBirth) -> tuple[tuple[str, str], ...]:
    return table.compared


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    """The number of rows written to a file, and the snapshot from which the rows were read."""

    rows: int
    snapshot: Snapshot


def save_answer(
    store: Store, sql: str, file: Path, *, when: Past | None = None, lease_seconds: float = 60.0
) -> SavedAnswer:
    """Writes the answer of a query to a file, in batches of rows.

    If the file exists, it is replaced in one step. The extension of the file decides its format.
    Raises UsageError if the extension is unknown or if the file cannot be written. Also raises the
    errors of `answer_query`.
    """
    write = _WRITERS.get(file.suffix.lower())
    if write is None:
        raise UsageError(
            f"{file} has no extension that names a form", hint=_HINT.format(", ".join(_WRITERS))
        )
    written = file.with_name(f"{file.name}.{os.getpid()}.new")

    def save_rows(reader: Reader, snapshot: Snapshot) -> SavedAnswer:
        return SavedAnswer(write(reader, sql, written), snapshot)

    try:
        saved = ask_snapshot(store, save_rows, when=when, lease_seconds=lease_seconds)
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
    # DuckDB would report a folder that cannot be written as an internal failure.
    file.touch()
    reader.save_parquet(sql, file)
    counted = reader.rows(f"select num_rows from parquet_file_metadata({text(str(file))})")
    return int(counted.rows[0][0])


def _write_csv(reader: Reader, sql: str, file: Path) -> int:
    def csv_lines(columns: tuple[str, ...]) -> Iterator[str]:
        yield csv_line(columns)
        for row in reader.each_row(sql):
            yield csv_line(row)

    return _write_lines(file, csv_lines(reader.describe_columns(sql)[0])) - 1


def _write_json_lines(reader: Reader, sql: str, file: Path) -> int:
    columns, _ = reader.describe_columns(sql)
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
