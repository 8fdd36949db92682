"""The program of a worker: a process that answers untrusted queries over one snapshot.

The worker opens the snapshot, confines itself, and answers one query after the other. Four barriers
keep a query within the tables of its snapshot, and each barrier would be enough alone:

- The query's parser tree is checked (serving/query/reader/sql_rules.py).
- DuckDB may open only the snapshot's files, and the query cannot change that setting.
- The kernel allows access only to the same files (confine.py).
- The process has nothing to reveal: no environment, no open file except the socket to the server,
  and an empty working folder.

No state passes from one query to the next. A query cannot write, and each query has a separate
connection, so settings, random seeds and temporary objects are lost when the query ends. The worker
exits after the first error. After a query that has used much memory or time, the worker reports
that it should not be used again. The worker writes the complete answer, so the server only passes
bytes on.
"""

from __future__ import annotations

# A hint's nearest name needs this module, and a confined process cannot load any more.
import difflib  # noqa: F401
import functools
import json
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kappa.base.duck import (
    DUCKDB_ERRORS,
    CatalogError,
    Connection,
    OutOfMemory,
    Setting,
    new_cursor,
    open_connection,
    streamed_sql,
)
from kappa.base.errors import Damaged, KappaError, UsageError
from kappa.base.sql import text
from kappa.declare.options import REJECTS
from kappa.serving.access.roles import Forbidden
from kappa.serving.query.postgres.catalogue import catalogue_names, put_catalogue
from kappa.serving.query.reader.errors import (
    BrokenRelation,
    RetiredRelation,
    damage_in_message,
)
from kappa.serving.query.reader.query_files import Named, tables_read
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.reader.relations import (
    Relations,
    TableFiles,
    data_files,
    may_be_union,
    put_relations,
    union_names,
)
from kappa.serving.query.reader.sql_rules import (
    UnknownTable,
    ensure_allowed,
    nested_too_deeply_error,
)
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.sandbox import confine
from kappa.serving.query.sandbox.answer_writers import ARROW_ERRORS, PieceFile, write_answer
from kappa.serving.query.sandbox.frames import (
    ACCEPTED,
    ENDED,
    NAMED,
    REFUSED,
    put_frame,
    take_frame,
)
from kappa.tables.parquet import literal

_CONFIGURED: dict[str, Setting] = {
    "threads": 1,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    # Otherwise an unknown table's name could refer to a variable of this file.
    "python_enable_replacements": False,
    "python_scan_all_frames": False,
}
# Values whose Python types are imported at the first use, which needs files: it is done before
# the process confines itself.
_WARM = (
    "select now(), now()::timestamp, 1.5::decimal(9, 2), uuid(), interval 1 day, "
    "date '2013-01-01', time '05:00', [1], {'a': 1}, 'x'::blob, '1'::hugeint, map {'a': 1}"
)
_THREADS = 2
# DuckDB exceeds its own limit somewhat, and this program needs memory, too.
_DUCKDBS_SHARE = 0.75
_PATTERN = re.compile(r"[*?\[]")
_REQUEST_BYTES = 1 << 28
_LONGEST_SENTENCE = 2000


def serve_snapshot(way_back: int, parent: int) -> None:
    """Opens a snapshot, and answers queries until the server closes the socket.

    `way_back` is the file descriptor of the socket to the server, and `parent` is the pid of the
    fork server. The process must exit after this function.
    """
    confine.tie_to_parent(parent)
    confine.close_all_but(way_back)
    os.environ.clear()
    connection = open_connection(_CONFIGURED)
    connection.execute(_WARM).fetchall()
    connection.execute(_WARM).to_arrow_table()
    opening = _take_frame(way_back, _REQUEST_BYTES)
    if opening is None:
        return
    put_frame(way_back, ACCEPTED)
    worker: _Worker | None = None
    refusal: Mapping[str, str] | None = None
    try:
        worker = _Worker(connection, json.loads(opening), way_back)
    except (KappaError, MemoryError) as error:
        refusal = _told(error)
    while (asked := _take_frame(way_back, _REQUEST_BYTES)) is not None:
        try:
            ended = None if worker is None else worker.answer_query(json.loads(asked))
        except (KappaError, MemoryError) as error:
            refusal = _told(error)
        if refusal is not None:
            put_frame(way_back, REFUSED, json.dumps(refusal).encode())
            return
        put_frame(way_back, ENDED, json.dumps(ended).encode())


def _take_frame(way_back: int, most: int) -> bytes | None:
    frame = take_frame(lambda count: os.read(way_back, count), most=most)
    return None if frame is None else frame[1]


def _told(error: KappaError | MemoryError) -> Mapping[str, str]:
    if isinstance(error, MemoryError):
        return {"kind": "too_much", "message": "", "hint": ""}
    return {
        "kind": _error_kind(error),
        "message": _shortened_text(error.message),
        "hint": _shortened_text(error.hint),
    }


def _error_kind(error: KappaError) -> str:
    if isinstance(error.__cause__, OutOfMemory):
        return "too_much"
    match error:
        case Forbidden():
            return "forbidden"
        case UsageError():
            return "usage"
        case Damaged():
            return "damaged"
        case _:
            return "failed"


def _shortened_text(told: str) -> str:
    """Removes the middle of an error message if the message is long.

    A message may repeat a long name from the query.
    """
    half = _LONGEST_SENTENCE // 2
    return told if len(told) <= _LONGEST_SENTENCE else f"{told[:half]} ... {told[-half:]}"


class _Worker:
    """Answers queries over the tables and views of a snapshot, in a confined process."""

    def __init__(self, connection: Connection, opening: Mapping[str, Any], way_back: int) -> None:
        """Confines the process, and creates the tables and views of the snapshot in DuckDB.

        `opening` is the request that opens the snapshot, and `way_back` is the socket to the
        server. If the root is in a bucket, the tables and views are created later, when the files
        have been fetched for a query.
        """
        self._connection = connection
        self._opening = opening
        self._way_back = way_back
        self._found = [
            Relations(
                each["pipeline"],
                {
                    name: TableFiles(table["sql"], tuple(table["paths"]))
                    for name, table in each["tables"].items()
                },
                each["views"],
                frozenset(each["hidden"]),
            )
            for each in opening["relations"]
        ]
        self._left = tuple(RetiredRelation(**each) for each in opening["left"])
        self._broken: tuple[BrokenRelation, ...] = ()
        self._has_relations = False
        self._unions = frozenset[str]()
        # The fork server's error output is a file of the server's, which a query must not write to.
        os.dup2(1, 2)
        paths = [
            path for each in self._found for table in each.tables.values() for path in table.paths
        ]
        memory, self._seconds = opening["memory"], opening["cpu_seconds"]
        # A worker that has used the time of a query takes no more: see _is_fit.
        confine.limit_process(memory=memory, cpu_seconds=2 * self._seconds)
        # Files that are fetched later are below a folder of this worker's alone.
        is_here = opening["folder"] is None
        confine.confine_process(paths if is_here else [opening["folder"]], _listed_folders(paths))
        self._most_peak = _peak_memory() + memory // 2
        reader = self._reader(connection)
        for name, value in (
            ("threads", str(_THREADS)),
            ("memory_limit", text(f"{int(memory * _DUCKDBS_SHARE)}B")),
            # The snapshot's files never change. The pages of the files are in the kernel's memory.
            ("parquet_metadata_cache", "true"),
            ("enable_external_file_cache", "false"),
        ):
            reader.run_command(f"set {name} = {value}")
        # For a path with a star, DuckDB checks both the pattern and the file that it finds. If a
        # file is gone, DuckDB looks for a folder, and then names the file.
        spelled = sorted({*paths, *map(literal, paths)})
        for setting, suffix in (("allowed_paths", ""), ("allowed_directories", "/")):
            listed = ", ".join(text(f"{each}{suffix}") for each in spelled)
            reader.run_command(f"set {setting} = [{listed}]")
        reader.run_command("set enable_external_access = false")
        if is_here:
            self._make_relations()

    def answer_query(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answers a query, and returns facts about the answer for the server.

        The facts include the columns, the number of rows, and whether the worker may answer another
        query.
        """
        begun = time.monotonic()
        confine.limit_next_query(self._seconds)
        connection = new_cursor(self._connection)
        try:
            ended = self._answer(connection, request)
        finally:
            connection.close()
        return {**ended, "is_fit": self._is_fit(), "seconds": time.monotonic() - begun}

    def _answer(self, connection: Connection, request: Mapping[str, Any]) -> Mapping[str, Any]:
        reader, sql = self._reader(connection), request["sql"]
        with_catalogue = bool(request["wire"]["catalogue"])
        query, trees = self._ensure_query_allowed(reader, sql, with_catalogue=with_catalogue)
        # Relations over tables that are not fetched are broken below, and not named.
        named = tables_read(trees, sql, self._found) if request["waits"] or request["names"] else []
        if request["waits"]:
            # The server checks or fetches the files of these tables, or ends this process.
            put_frame(self._way_back, NAMED, json.dumps(named).encode())
            if _take_frame(self._way_back, 0) is None:
                sys.exit()
        if not self._has_relations:
            if with_catalogue:
                self._leave_rows_out(tables_read(trees, sql, self._found))
            self._make_relations()
            reader = self._reader(connection)
            if self._broken:
                self._ensure_query_allowed(reader, sql, with_catalogue=with_catalogue)
        try:
            if with_catalogue:
                put_catalogue(connection, query, self._found)
            if may_be_union(sql, self._unions) and not request["wire"]["describes"]:
                rows = request["rows"]
                query = streamed_sql(connection, query, None if rows is None else rows + 1)
            ended = write_answer(
                connection,
                query,
                {**request, "head": self._opening["head"]},
                PieceFile(self._way_back, request["bytes"]),
            )
        except DUCKDB_ERRORS as error:
            if isinstance(error, CatalogError):
                reader.ensure_names_served(sql)
            raise reader.explain_error(error) from error
        except ARROW_ERRORS as error:
            # Arrow passes DuckDB's message on, as an error of Arrow's.
            if (damage := damage_in_message(str(error), reader.files())) is not None:
                raise damage from error
            raise UsageError(
                f"the result cannot be written as {request['form']}: {error}",
                hint="cast the column to another type in the query, or ask for JSON",
            ) from error
        return {**ended, "named": named} if request["names"] else ended

    def _reader(self, connection: Connection) -> Reader:
        reader = Reader(connection, served=bool(self._found))
        reader.broken = self._broken
        reader.left = lambda: self._left
        reader.files = lambda: data_files(self._found)
        return reader

    def _make_relations(self) -> None:
        reader = self._reader(self._connection)
        self._broken = put_relations(reader, self._found)
        self._unions = union_names(self._found)
        # Names are looked up by a setting, until here.
        reader.run_command("set lock_configuration = true")
        self._has_relations = True

    def _leave_rows_out(self, named: Iterable[Named]) -> None:
        """Replaces each table that is not in `named` with an empty table of the same columns.

        The files of these tables are not on this host. Only `pg_catalog` describes them, and needs
        only their columns.
        """
        empty, named = self._opening["empty"], set(named)
        self._found = [
            replace(
                each,
                tables={
                    name: table
                    if (each.pipeline, name) in named
                    else TableFiles(empty[each.pipeline][name], ())
                    for name, table in each.tables.items()
                },
            )
            for each in self._found
        ]

    def _is_fit(self) -> bool:
        """Returns True if this worker may answer another query.

        Enough memory and time must be left, so that another query can use as much as the first
        query could.
        """
        return (
            self._has_relations
            and self._opening["folder"] is None
            and _peak_memory() <= self._most_peak
            and time.process_time() <= self._seconds
        )

    def _ensure_query_allowed(
        self, reader: Reader, sql: str, *, with_catalogue: bool
    ) -> tuple[str, Callable[[str], Any]]:
        """Returns the text of the single statement in `sql`, and a function that parses SQL.

        The function returns DuckDB's parser tree of a text. Raises UsageError if the statement is
        not allowed, and Forbidden if it names a table that the client may not read. DuckDB parses
        `sql` twice, into statements and into a tree, and both results must be a single query.
        """
        query = reader.only_select(sql)
        trees = functools.cache(reader.parser_tree)
        try:
            tree = trees(sql)
        except RecursionError:
            raise nested_too_deeply_error() from None
        catalogue = {("main", name) for each in self._found for name in each.public_names} | {
            (schema_of(each.pipeline), name) for each in self._found for name in each.named
        }
        # A broken relation is left out: its name might be that of a relation of DuckDB's own.
        catalogue -= {
            (schema, each.name)
            for each in reader.broken
            for schema in ("main", schema_of(each.pipeline))
        }
        if any(REJECTS in each.named for each in self._found):
            catalogue.add(("main", REJECTS))
        if with_catalogue:
            catalogue |= catalogue_names()
        try:
            ensure_allowed(tree, catalogue)
        except UsageError as error:
            reader.ensure_names_served(sql)
            if isinstance(error, UnknownTable) and (narrow := self._opening["reader"]):
                # Whether there is such a table is not told.
                names = sorted({name for each in self._found for name in each.named})
                raise Forbidden(
                    f"{narrow} may not read {error.name}",
                    hint=f"of the tables that are served it may read {', '.join(names) or 'none'}",
                ) from error
            raise
        return query, trees


def _peak_memory() -> int:
    """Returns the largest amount of memory that this process has used, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _listed_folders(paths: Sequence[str]) -> frozenset[str]:
    """Returns the folders that DuckDB must list to find the files at the given paths.

    If the name of a folder contains a star, DuckDB treats the name as a pattern.
    """
    patterns = (Path(path).parts for path in paths)
    firsts = (
        (parts, next((place for place, part in enumerate(parts) if _PATTERN.search(part)), None))
        for parts in patterns
    )
    return frozenset(str(Path(*parts[:first])) for parts, first in firsts if first is not None)
