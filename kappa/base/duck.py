"""Opens all connections to DuckDB, and exports DuckDB's types and errors.

Every connection is to a database in memory, uses UTC and draws no progress bar. Only the demo's
oracle opens its own connection, because it is an independent computation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Any

import duckdb

Connection = duckdb.DuckDBPyConnection
CatalogError = duckdb.CatalogException
DuckError = duckdb.Error
OutOfMemory = duckdb.OutOfMemoryException
SELECT = duckdb.StatementType.SELECT

# A message that quotes a text may cut the text within a character; then Python raises
# UnicodeDecodeError in place of DuckDB's error.
DUCKDB_ERRORS = (duckdb.Error, UnicodeDecodeError)
# Errors of the machine. All other errors are the fault of the query.
MACHINE_ERRORS = (
    duckdb.IOException,
    duckdb.InternalException,
    duckdb.FatalException,
    duckdb.OutOfMemoryException,
    duckdb.ConnectionException,
)

# Errors that a file may cause; their messages name the file.
DATA_ERRORS = (duckdb.IOException, duckdb.InvalidInputException, duckdb.SerializationException)

# A column named `at`, without quotes and without its table.
_AT = re.compile(r'(?<!["\w.])at(?!["\w])')
_CATALOG = re.compile(r'"(pg_|duckdb_|sqlite_|information_schema|pragma_)')

# Names of operators are no words.
_FUNCTIONS = """
select distinct function_name from duckdb_functions()
where function_type in ('scalar', 'aggregate', 'macro')
    and regexp_full_match(function_name, '[a-z][a-z0-9_]*')
order by all
"""
_KEYWORDS = """
select keyword_name from duckdb_keywords()
where keyword_category in ('reserved', 'type_function')
    or keyword_name in ('by', 'filter', 'over', 'partition', 'recursive', 'rows', 'values')
order by all
"""

# Operators of a plan that return their first row after they have taken all rows.
_GATHERING = {
    *("ORDER_BY", "TOP_N", "UNGROUPED_AGGREGATE"),
    *("HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY", "PARTITIONED_AGGREGATE"),
}

Setting = str | bool | int | float | list[str]

_MOST_SPILLED = "max_temp_directory_size"
# A late query is interrupted so often.
_AGAIN_SECONDS = 0.1
# The connections that show their progress; the lock keeps a reader of the progress from a
# connection that is being closed.
_moving: list[Connection] = []
_asking = Lock()


def told_by(error: Exception) -> tuple[str, list[str]]:
    """Returns the message of a DuckDB error, including the error's kind, and a list of hints.

    The hints are DuckDB's suggestions for a wrong name, without suggestions from DuckDB's own
    catalog. If a query uses `at` as a name without quotes, the only hint is to write the name in
    quotes or with its table.
    """
    whole = (
        error.object.decode(errors="replace")
        if isinstance(error, UnicodeDecodeError)
        else str(error)
    )
    told, _, place = whole.partition("\n\nLINE ")
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    message = lines[0] if lines else type(error).__name__
    hints = [_named_hint(line) for line in lines[1:] if not _CATALOG.search(line)]
    if "syntax error" in message and _AT.search(place):
        hints = ['at is a word of SQL: write "at", or t.at with its table']
    return message, hints


def _named_hint(line: str) -> str:
    """Rewords a line of hints in a DuckDB error, so that all hints have the same form.

    The form is `did you mean "hits"?`, for tables and for columns.
    """
    names = line.removeprefix("Candidate bindings: ")
    if names != line:
        return f"did you mean {names.replace(', ', ' or ')}?"
    return line[0].lower() + line[1:]


def without_kind(message: str) -> str:
    """Returns a DuckDB message without the error's kind, such as `Binder Error: `."""
    return message.partition(" Error: ")[2] or message


def open_connection(config: Mapping[str, Setting] | None = None) -> Connection:
    """Opens a DuckDB database in memory, and returns a connection to it.

    The connection shows times in UTC. `config` contains settings of DuckDB.
    """
    options = dict(config or {})
    # At the opening DuckDB takes this limit and does not keep to it.
    most_spilled = options.pop(_MOST_SPILLED, None)
    connection = duckdb.connect(":memory:", config=options)
    if most_spilled is not None:
        connection.execute(f"set {_MOST_SPILLED} = '{most_spilled}'")
    # Cursors have the global settings.
    connection.execute("set global TimeZone = 'UTC'")
    # In a program given by `python -c`, DuckDB would draw its progress on stdout.
    connection.execute("set enable_progress_bar = false")
    # DuckDB has two plans for an as-of join. One takes a compared null for the greatest value; the
    # other, which DuckDB uses for few rows, takes a null for no value. Rows may not depend on the
    # plan, so the second plan is never used.
    connection.execute("set global asof_loop_join_threshold = 0")
    return connection


def new_cursor(connection: Connection) -> Connection:
    """Opens another connection to the database of `connection`, with times in UTC.

    The new connection has its own random seeds, temporary objects and local settings.
    """
    return connection.cursor()


def whole_sql(sql: str) -> str:
    """Returns a query with the same rows, in any order, which DuckDB computes whole at first.

    DuckDB 1.5 can wait for ever for itself if it returns the rows of a union while it computes
    them. If the first part of the union has filled the buffer of the result (1 MB), DuckDB waits
    for the second part before it returns a row. But the second part, for example a join, waits for
    the end of the first part. See https://github.com/duckdb/duckdb/issues/22215; DuckDB 2.0 does
    not wait. Here the buffer is a table in DuckDB's memory, which spills to the disk.
    """
    # On a line of its own, so that a comment at the query's end comments out nothing of ours.
    return f"with _whole as materialized (\n{sql}\n) from _whole"


def streamed_sql(duck: Connection, sql: str, most_rows: int | None = None) -> str:
    """Returns a query with the rows of `sql`, which can be read while DuckDB computes them.

    This is `sql` itself, unless its rows are those of a union, see `whole_sql`. In that case, the
    returned query computes at most `most_rows` rows; None means all. Raises DuckDB's errors.
    """
    ((_, plan),) = duck.execute(f"explain (format json) {sql}").fetchall()
    try:
        if not any(map(_is_over_union, json.loads(plan))):
            return sql
    except RecursionError:
        # A plan so deep may have a union anywhere.
        pass
    return whole_sql(sql if most_rows is None else f"from (\n{sql}\n) limit {most_rows}")


def _is_over_union(plan: Mapping[str, Any]) -> bool:
    """Returns True if a part of a query's plan passes the rows of a union on one by one."""
    name = plan["name"].strip()
    return name == "UNION" or (
        name not in _GATHERING and any(map(_is_over_union, plan["children"]))
    )


def sql_tokens(sql: str) -> tuple[tuple[int, str], ...]:
    """Splits an SQL text into tokens. Returns a pair (position, kind) for each token.

    The position is in UTF-8 bytes. Kinds are `keyword`, `identifier`, `string_const`,
    `numeric_const`, `operator` and `comment`. A quoted text is one token. A quote or a comment that
    is not closed extends to the end of the text.
    """
    return tuple((offset, kind.name) for offset, kind in duckdb.tokenize(sql))


def sql_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the functions and the keywords of DuckDB's SQL, as two tuples.

    The functions are scalar functions, aggregates and macros.
    """
    with open_connection() as duck:
        functions, keywords = (
            tuple(name for (name,) in duck.execute(sql).fetchall())
            for sql in (_FUNCTIONS, _KEYWORDS)
        )
    return functions, keywords


@contextmanager
def showing_progress(connection: Connection) -> Iterator[Connection]:
    """Lets other threads read the progress of the connection's queries within the block.

    These threads call `progress_of_queries`. Yields `connection`.
    """
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
    """Returns the progress, in percent, of the present queries of several connections.

    These are the connections for which a block of `showing_progress` runs.
    """
    with _asking:
        return tuple(each.query_progress() for each in _moving)


class TookTooLong(Exception):
    """The error if a DuckDB query was interrupted because it took too long."""


@contextmanager
def interrupted_after(connection: Connection, seconds: float) -> Iterator[None]:
    """Interrupts the queries of a connection if the block takes longer than `seconds`.

    If `seconds` is infinite, nothing is interrupted. Raises TookTooLong if a query was interrupted.
    """
    if math.isinf(seconds):
        yield
        return
    ended, is_late = Event(), Event()

    def watch() -> None:
        if ended.wait(seconds):
            return
        is_late.set()
        # A query that begins later is interrupted too.
        while not ended.wait(_AGAIN_SECONDS):
            connection.interrupt()

    watcher = Thread(target=watch, name="interrupts a query", daemon=True)
    watcher.start()
    try:
        yield
    except DuckError as error:
        if is_late.is_set():
            raise TookTooLong(str(error)) from error
        raise
    finally:
        ended.set()
        watcher.join()
