"""DuckDB: the one place that opens a connection, and its names for everybody else.

Every connection is in memory, counts in UTC and draws nothing. The demo's oracle has a door of
its own, because it is an independent computation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

import duckdb

Connection = duckdb.DuckDBPyConnection
CatalogError = duckdb.CatalogException
DuckError = duckdb.Error
OutOfMemory = duckdb.OutOfMemoryException
SELECT = duckdb.StatementType.SELECT

# A message that quotes a text may cut it within a character: Python cannot make that an error of
# DuckDB's.
DUCKDB_ERRORS = (duckdb.Error, UnicodeDecodeError)
# Errors that are not the query's fault. All others are.
MACHINE_ERRORS = (
    duckdb.IOException,
    duckdb.InternalException,
    duckdb.FatalException,
    duckdb.OutOfMemoryException,
    duckdb.ConnectionException,
)

# Errors that a file may cause, which then name it.
DATA_ERRORS = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)

# A column of that name, without quotes and without its table.
_AT = re.compile(r'(?<!["\w.])at(?!["\w])')
_CATALOG = re.compile(r'"(pg_|duckdb_|sqlite_|information_schema|pragma_)')

Setting = str | bool | int | float | list[str]

# Connections whose progress is asked for, and who may ask: not while one of them is closed.
_moving: list[Connection] = []
_asking = Lock()


def told_by(error: Exception) -> tuple[str, list[str]]:
    """Returns DuckDB's sentence, after the kind of its error, and its hints (candidates).

    Names of its own catalog are left out.
    """
    whole = (
        error.object.decode(errors="replace")
        if isinstance(error, UnicodeDecodeError)
        else str(error)
    )
    told, _, place = whole.partition("\n\nLINE ")
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    message = lines[0] if lines else type(error).__name__
    hints = [line[0].lower() + line[1:] for line in lines[1:] if not _CATALOG.search(line)]
    if "syntax error" in message and _AT.search(place):
        hints = ['at is a word of SQL: write "at", or t.at with its table']
    return message, hints


def without_kind(message: str) -> str:
    """Returns a sentence of DuckDB's without the kind of error that it begins with."""
    return message.partition(" Error: ")[2] or message


def open_connection(config: Mapping[str, Setting] | None = None) -> Connection:
    """Opens a DuckDB in memory, in UTC."""
    connection = duckdb.connect(":memory:", config=dict(config or {}))
    connection.execute("set TimeZone = 'UTC'")
    # With a program given by `-c`, DuckDB would draw its progress on stdout.
    connection.execute("set enable_progress_bar = false")
    # A null that an as-of join compares is the greatest value to one of DuckDB's two plans, and no
    # value to the other, which it takes for few rows. Rows may not depend on that.
    connection.execute("set asof_loop_join_threshold = 0")
    return connection


@contextmanager
def showing_progress(connection: Connection) -> Iterator[Connection]:
    """Lets other threads ask how far a connection's query is, within the block."""
    connection.execute("set enable_progress_bar = true")
    connection.execute("set enable_progress_bar_print = false")
    with _asking:
        _moving.append(connection)
    try:
        yield connection
    finally:
        with _asking:
            _moving.remove(connection)


def progress_of_queries() -> tuple[float, ...]:
    """Returns how far the queries that show their progress are, in percent of what they scan."""
    with _asking:
        return tuple(each.query_progress() for each in _moving)
