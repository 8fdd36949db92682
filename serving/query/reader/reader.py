"""A reader: a DuckDB in memory that answers queries over prepared relations.

A reader may be used by one thread at a time. A reader needs no JVM, and writes no files except the
answers that `save_parquet` saves and temporary files for spilling.

Creating a DuckDB takes about 20 ms, removing all of its relations 2 ms, and creating its views 6
ms. So a reader without limits reuses the DuckDB connection of an earlier reader. If the connection
already has the same relations, it is reused unchanged.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kappa.base.duck import (
    DATA_ERRORS,
    DUCKDB_ERRORS,
    SELECT,
    CatalogError,
    Connection,
    DuckError,
    streamed_sql,
)
from kappa.base.errors import KappaError, UsageError
from kappa.base.sql import text
from kappa.declare.values.exact_sql import DuckType
from kappa.serving.query.reader.errors import (
    BrokenRelation,
    RetiredRelation,
    TooMuch,
    damage_in_message,
    explain_error,
)
from kappa.serving.query.reader.sql_rules import ONE_QUERY
from kappa.serving.query.reader.table_sql import distinct_names, schema_of
from kappa.state.store import Store
from kappa.tables.parquet import literal
from kappa.tables.views.exact_rows import ExactQuery, arrow_query, python_query
from kappa.tables.views.query_binding import declared_sql
from kappa.tables.views.syntax_tree import tables_in

if TYPE_CHECKING:
    import pyarrow as pa

    from kappa.base.sections import VerifySettings


import os
from typing import NamedTuple

from kappa.base.sql import quoted
from kappa.base.temporary_folders import make_spill_folder
from kappa.state.files.duckdb_access import NO_ACCESS, Access, open_over_files, renew_access

_Found = TypeVar("_Found")
# The content that a connection was made to show: the relations of each pipeline.
Shown = tuple[object, ...]

_SEVERAL = ("this is more than one statement", "pivot looks for its columns by another statement")
_PIVOT = "name them: pivot ... on kind in ('a', 'b')"
# How often a late query is interrupted: an interrupt before the query's start is lost.
_AGAIN_SECONDS = 0.1
_ROWS_AT_ONCE = 1024
_ARROW_ROWS_AT_ONCE = 32_768
# The most connections to keep for later readers.
_MOST_IDLE = 16
# The most readers of a connection: DuckDB remembers each file of a bucket.
_MOST_USES = 1_000
# Lists the schemas and views that a reader has made.
_MADE = """
select 'schema', schema_name from duckdb_schemas()
where not internal and database_name = 'memory'
union all
select 'view', view_name from duckdb_views() where not internal and schema_name = 'main'
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a reader.

    `memory` and `size` are texts as in settings (`1g`), and `threads` is the number of DuckDB's
    threads. When memory is short, DuckDB spills at most `size` into files below `folder`. `seconds`
    limits the time from opening to closing the reader; None means no limit.
    """

    memory: str
    threads: int
    folder: Path
    size: str
    seconds: float | None = None

    @classmethod
    def of(cls, settings: VerifySettings, store: Store, *, seconds: float | None = None) -> Self:
        """Returns the limits from the settings of a project."""
        return cls(
            settings.memory,
            settings.threads,
            store.local.path(settings.temp),
            settings.temp_size,
            seconds,
        )

    def setting_commands(self, folder: Path) -> Iterator[str]:
        """Yields the DuckDB commands that set these limits.

        `folder` is the folder into which DuckDB spills.
        """
        yield f"set memory_limit = {text(self.memory)}"
        yield f"set temp_directory = {text(str(folder))}"
        yield f"set max_temp_directory_size = {text(self.size)}"
        # Rows without an order take far less memory; a query that needs an order says so.
        yield "set preserve_insertion_order = false"
        if self.threads:
            yield f"set threads = {self.threads}"


@dataclass(frozen=True, slots=True)
class Rows:
    """The result of a query.

    The column names are distinct, the types are DuckDB's, and the rows contain Python values.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class KeptRows:
    """The rows of a query, stored in the DuckDB that ran the query.

    The rows can be converted to Python values or to Arrow. `types` are DuckDB's types of the
    columns, and `count` is the number of rows. The DuckDB is closed when all rows that were stored
    in it in this way have been released.
    """

    def __init__(
        self,
        connection: Connection,
        columns: tuple[str, ...],
        types: tuple[str, ...],
        kept: str | tuple[tuple[Any, ...], ...],
        explain: Callable[[DuckError | UnicodeDecodeError], KappaError],
    ) -> None:
        """Wraps the temporary table `kept`, whose columns are named `_0`, `_1` and so on.

        If the rows of the query cannot be stored in a table, `kept` contains the rows as Python
        values instead.
        """
        self.columns, self.types = columns, types
        self._connection = connection
        self._kept = kept
        self._explain = explain
        if isinstance(kept, str):
            ((count,),) = self._fetched(f"select count(*) from {quoted(kept)}")
            self.count = int(count)
        else:
            self.count = len(kept)

    def python_rows(self, *, limit: int | None = None) -> tuple[tuple[Any, ...], ...]:
        """Returns all rows, or the first `limit` rows, as Python values.

        The values are the same as those of `Reader.rows`.
        """
        if not isinstance(self._kept, str):
            return self._kept[:limit]
        sql = self._named_sql(self._kept)
        sql = sql if limit is None else f"{sql} limit {limit}"
        query = python_query(self._connection, sql, times=True, names=distinct_names)
        return tuple(map(query.row, self._fetched(query.sql)))

    def arrow_table(self) -> Any:
        """Returns the rows as an Arrow table.

        Raises UsageError if a value has no Arrow type.
        """
        if not isinstance(self._kept, str):
            raise UsageError(
                "the answer has a struct without names, which Arrow cannot hold",
                hint="name the fields in the query: {'a': 1} in place of row(1)",
            )
        sql = self._named_sql(self._kept)
        query = arrow_query(self._connection, sql, parquet=False, names=distinct_names)
        try:
            return self._connection.execute(query.sql).to_arrow_table()
        except DUCKDB_ERRORS as error:
            raise self._explain(error) from error

    def _named_sql(self, table: str) -> str:
        names = (f"_{place} as {quoted(name)}" for place, name in enumerate(self.columns))
        return f"select {', '.join(names)} from {quoted(table)}"

    def _fetched(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql).fetchall()
        except DUCKDB_ERRORS as error:
            raise self._explain(error) from error


class Reader:
    """A DuckDB with views over the files of a snapshot, or over the files of two builds."""

    def __init__(
        self,
        connection: Connection,
        *,
        served: bool,
        folder: Path | None = None,
        seconds: float | None = None,
        leave: Callable[[Connection, Shown | None], None] | None = None,
    ) -> None:
        """Wraps a DuckDB connection. Callers use `open_reader` instead.

        `served` is True if some pipeline is served. `folder` is the reader's own folder for
        spilling. After `seconds`, the running query is interrupted and no further query is started.
        When the reader is closed, `leave` is called with the connection, if another reader can use
        the connection.
        """
        # The relations that the connection shows; None once a command has changed them.
        self.shows: Shown | None = None
        # The relations that could not be made.
        self.broken: tuple[BrokenRelation, ...] = ()
        # Returns the retired relations: only a query that fails asks for them.
        self.left: Callable[[], tuple[RetiredRelation, ...]] = tuple
        # Returns the data files of the relations, each with its pipeline: likewise.
        self.files: Callable[[], Mapping[str, str]] = dict
        # Is called with each query before the query runs, and may refuse the query.
        self.before: Callable[[str], None] = lambda _sql: None
        self.renew: Callable[[], None] = lambda: None  # before each statement: credentials end
        self._connection = connection
        self._served = served
        self._folder = folder
        self._seconds = seconds
        self._leave = leave
        self._failed = False
        # The number of answers that are kept in the connection, which is theirs then.
        self._kept = 0
        self._late = False
        self._closed = threading.Event()
        self._clock = (
            None if seconds is None else threading.Timer(seconds, self._interrupt_until_closed)
        )
        if self._clock is not None:
            self._clock.daemon = True
            self._clock.start()

    def rows(self, sql: str) -> Rows:
        """Returns the rows of a query.

        Raises UsageError if the text is not a single query that only reads, if the query has a
        mistake, or if it names the table or view of a retired pipeline. Raises the stored error if
        the query names a table or view that could not be created.
        """
        query = self._examine_query(sql, self._for_python)
        # A relation is computed whole, other than what is executed: see `whole_sql`.
        found = self._run_on_connection(lambda: self._connection.query(query.sql).fetchall())
        return Rows(query.columns, query.types, tuple(map(query.row, found)))

    def keep_rows(self, sql: str) -> KeptRows:
        """Runs a query, and stores its rows, which can be read even after the reader is closed.

        Raises the errors of `rows`.
        """
        exact = self._examine_query(sql, self._for_python)
        query, table = self.only_select(sql), f"_kept_{self._kept}"
        names = ", ".join(f"_{place}" for place in range(len(exact.columns)))
        self.shows = None
        try:
            self._run_on_connection(
                lambda: self._connection.execute(
                    f"create temp table {table} as select * from (\n{query}\n) as _answer({names})"
                )
            )
        except UsageError as error:
            if "unnamed struct" not in error.message:
                raise
            rows = self.rows(sql)
            return KeptRows(
                self._connection, rows.columns, rows.types, rows.rows, self.explain_error
            )
        self._kept += 1
        return KeptRows(self._connection, exact.columns, exact.types, table, self.explain_error)

    def describe_columns(self, sql: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the column names of a query, made distinct, and DuckDB's types of the columns."""
        found = self._examine_query(sql, self._connection.query)
        return distinct_names(found.columns), tuple(map(str, found.types))

    def column_types(self, sql: str) -> tuple[DuckType, ...]:
        """Returns DuckDB's types of a query's columns, with the types of fields and elements."""
        self.renew()
        return tuple(self._run_on_connection(lambda: self._connection.query(sql).types))

    def each_row(self, sql: str) -> Iterator[tuple[Any, ...]]:
        """Yields the rows of a query while DuckDB computes them. Raises the errors of `rows`."""
        query = self._examine_query(sql, self._for_python)
        result = self._run_on_connection(lambda: self._begin_query(query.sql))
        # A result that is read in part stays open: no other reader may get the connection.
        failed, self._failed = self._failed, True
        while batch := self._run_on_connection(lambda: result.fetchmany(_ROWS_AT_ONCE)):
            yield from map(query.row, batch)
        self._failed = failed

    def arrow_batches(self, sql: str) -> pa.RecordBatchReader:
        """Returns the rows of a query as Arrow batches, which DuckDB computes while they are read.

        The batches cannot be read after the reader is closed. Raises the errors of `rows`.
        """
        query = self._examine_query(
            sql,
            lambda each: arrow_query(self._connection, each, parquet=False, names=distinct_names),
        )
        # The result may be read in part: no other reader gets the connection.
        self._failed = True
        return self._run_on_connection(
            lambda: self._begin_query(query.sql).to_arrow_reader(_ARROW_ROWS_AT_ONCE)
        )

    def save_parquet(self, sql: str, file: Path) -> None:
        """Writes the rows of a query to a Parquet file. Raises the errors of `rows`."""
        query = self._examine_query(
            sql,
            lambda each: arrow_query(self._connection, each, parquet=True, names=distinct_names),
        )
        self.run_command(
            f"copy (\n{query.sql}\n) to {text(str(file))} (format parquet, compression zstd)"
        )

    def _begin_query(self, sql: str) -> Connection:
        return self._connection.execute(streamed_sql(self._connection, sql))

    def _for_python(self, query: str) -> ExactQuery:
        return python_query(self._connection, query, times=True, names=distinct_names)

    def _examine_query(self, sql: str, look: Callable[[str], _Found]) -> _Found:
        """Checks that `sql` is a single query, and returns the result of `look` for this query.

        The function `look` runs or describes the query. Raises UsageError if the text is not a
        single query. If the query names a table or view that could not be created, or whose
        pipeline was retired, raises the error of this table or view.
        """
        query = self.only_select(sql)
        self.before(query)
        self.renew()
        try:
            return self._run_on_connection(lambda: look(query))
        except UsageError as error:
            if isinstance(error.__cause__, CatalogError):
                self.ensure_names_served(sql)
            raise

    def run_command(self, sql: str, values: Sequence[object] = ()) -> None:
        """Runs an SQL command that creates a relation or changes a setting.

        `values` are the values of the question marks in the command.
        """
        self.shows = None
        self.renew()
        self._run_on_connection(lambda: self._connection.execute(sql, list(values)))

    def only_select(self, sql: str) -> str:
        """Returns the text of the single query in `sql`.

        Raises UsageError if `sql` has no statement, several statements, or a statement that is not
        a query.
        """
        _ensure_text(sql)
        statements = self._run_on_connection(lambda: self._connection.extract_statements(sql))
        if len(statements) != 1 or statements[0].type != SELECT:
            what = (
                "the query is empty"
                if not statements
                else _SEVERAL[statements[0].type != SELECT and "pivot" in sql.lower()]
                if len(statements) > 1
                else "this is a statement of the kind "
                f"{str(statements[0].type).rpartition('.')[2].lower()}"
            )
            hint = _PIVOT if what == _SEVERAL[True] else ONE_QUERY
            raise UsageError(f"{what}: a snapshot can only be read, by one query", hint=hint)
        return str(statements[0].query).strip().rstrip(";")

    def declared_sql(self, sql: str) -> str:
        """Returns the single query in a declared text, rewritten so that no name is ambiguous.

        The module kappa/tables/views/query_binding.py explains how names are rewritten.
        """
        query = self.only_select(sql)
        return self._run_on_connection(lambda: declared_sql(self._connection, query))

    def parser_tree(self, sql: str) -> Any:
        """Returns DuckDB's parser tree of a query, as `json_serialize_sql` returns it.

        The tables and views that the query names need not exist.
        """
        _ensure_text(sql)
        # A parameter would make DuckDB import pandas.
        question = f"select json_serialize_sql({text(sql)})"
        ((tree,),) = self._run_on_connection(lambda: self._connection.execute(question).fetchall())
        return json.loads(tree)

    def tables_named(self, sql: str) -> frozenset[tuple[str, str]]:
        """Returns the tables that a query names, as pairs of schema and table name.

        The tables need not exist.
        """
        return frozenset(tables_in(self.parser_tree(sql)))

    def ensure_names_served(self, sql: str) -> None:
        """Raises KappaError if a query names a table or view that cannot be read.

        The table or view could not be created, or its pipeline was retired. The error's message
        contains the reason.
        """
        refused: tuple[BrokenRelation | RetiredRelation, ...] = (*self.broken, *self.left())
        if not refused:
            return
        named = {(schema.lower(), name.lower()) for schema, name in self.tables_named(sql)}
        for each in refused:
            if named & {
                ("", each.name),
                ("main", each.name),
                (schema_of(each.pipeline), each.name),
            }:
                raise each.refusal()

    def interrupt(self) -> None:
        """Interrupts the running query, from another thread. Does nothing if no query runs."""
        self._connection.interrupt()

    def close(self) -> None:
        """Releases the memory and the spill folder of the reader.

        If the reader has no limits and no query has failed, the next reader can use the connection.
        If the connection stores rows of `keep_rows`, it stays open until these rows have been
        released.
        """
        self._closed.set()
        if self._clock is not None:
            self._clock.cancel()
            # A clock that has just begun to break off still needs the connection.
            self._clock.join()
        if self._kept:
            return
        if self._leave is not None and self._folder is None and not self._failed:
            self._leave(self._connection, self.shows)
            return
        self._connection.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """Returns the reader."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the reader."""
        self.close()

    def _run_on_connection(self, question: Callable[[], _Found]) -> _Found:
        failed, self._failed = self._failed, True
        try:
            self._ensure_in_time()
            found = question()
        except DUCKDB_ERRORS as error:
            self._ensure_in_time()
            raise self.explain_error(error) from error
        except RuntimeError as error:
            # DuckDB reports a Ctrl-C so; the threads of DuckDB run until interrupted.
            if str(error) != "Query interrupted":
                raise
            self._connection.interrupt()
            raise KeyboardInterrupt from error
        # After any other error, a value without a Python type or a Ctrl-C, a result stays open.
        self._failed = failed
        return found

    def explain_error(self, error: DuckError | UnicodeDecodeError) -> KappaError:
        """Translates an error of DuckDB into an error of Kappa.

        Returns the error Damaged if the cause is a data file that DuckDB could not read.
        """
        if isinstance(error, DATA_ERRORS):
            damage = damage_in_message(str(error), self.files())
        elif type(error) is DuckError:
            # Errors within a file's pages have no type, and name no file.
            damage = damage_in_message(str(error), self.files(), self._is_readable)
        else:
            damage = None
        return damage or explain_error(error, served=self._served)

    def _is_readable(self, path: str) -> bool:
        sql = f"select bit_xor(hash(each)) from read_parquet([{text(literal(path))}]) as each"
        try:
            self._connection.execute(sql).fetchall()
        except DUCKDB_ERRORS:
            return False
        return True

    def _interrupt_until_closed(self) -> None:
        self._late = True
        while not self._closed.is_set():
            self._connection.interrupt()
            self._closed.wait(_AGAIN_SECONDS)

    def _ensure_in_time(self) -> None:
        if self._late:
            raise TooMuch(
                f"it took longer than {self._seconds:g} s, and was stopped",
                hint="ask for less, or let it take longer",
            )


def _ensure_text(sql: str) -> None:
    """Raises UsageError if DuckDB could not read the text, or could read only a part of it."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the query is not text in UTF-8", hint=ONE_QUERY) from error
    if "\0" in sql:
        raise UsageError("the query has a NUL character", hint="leave it out")


class _IdleConnection(NamedTuple):
    """A DuckDB connection that no reader uses.

    `shows` are the relations that the connection has. `uses` is the number of readers that have
    used the connection, and `access` contains its credentials for buckets.
    """

    connection: Connection
    shows: Shown | None
    uses: int
    access: Access


# The connection that was used last is the last.
_idle: list[_IdleConnection] = []
_idle_changes = threading.Lock()


def open_reader(limits: Limits | None, *, served: bool, showing: Sequence[object] = ()) -> Reader:
    """Opens a reader.

    If `limits` is None, the connection of an earlier reader is reused, if possible a connection
    that already has the relations in `showing`. The reader then has exactly these relations, or no
    relations; its attribute `shows` says which. `served` is True if some pipeline is served.
    """
    folder = None if limits is None else make_spill_folder(limits.folder)
    found = _take_idle_connection(tuple(showing)) if limits is None else None
    connection, shows, uses, access = found or _IdleConnection(
        open_over_files(), None, 0, NO_ACCESS
    )

    def renew_credentials() -> None:
        nonlocal access
        access = renew_access(connection, access, remembers=True)

    reader = Reader(
        connection,
        served=served,
        folder=folder,
        seconds=None if limits is None else limits.seconds,
        leave=lambda connection, shows: _keep_connection(
            _IdleConnection(connection, shows, uses + 1, access)
        ),
    )
    reader.shows, reader.renew = shows, renew_credentials
    try:
        if limits is not None and folder is not None:
            for setting in limits.setting_commands(folder):
                reader.run_command(setting)
    except BaseException:
        reader.close()
        raise
    return reader


def _forget_idle_connections() -> None:
    """Empties the list of idle connections in a forked process, but closes none of them.

    The forked process does not have the threads of these connections.
    """
    global _idle, _idle_changes  # a forked process has new ones
    _of_the_parent.append(_idle)
    _idle, _idle_changes = [], threading.Lock()


# To be closed by nobody.
_of_the_parent: list[list[_IdleConnection]] = []
os.register_at_fork(after_in_child=_forget_idle_connections)


def _take_idle_connection(showing: Shown) -> _IdleConnection | None:
    """Removes a connection from the idle connections, and returns the connection.

    The connection has the relations in `showing`, or no relations. Returns None if there is no idle
    connection.
    """
    with _idle_changes:
        if not _idle:
            return None
        place = next((place for place, each in enumerate(_idle) if each.shows == showing), 0)
        found = _idle.pop(place)
    if found.shows == showing:
        return found
    try:
        made = found.connection.execute(_MADE).fetchall()
        found.connection.execute(
            "; ".join(f"drop {kind} {quoted(name)} cascade" for kind, name in made) or "select 1"
        )
    except DuckError:
        found.connection.close()
        return None
    return found._replace(shows=())


def _keep_connection(left: _IdleConnection) -> None:
    """Keeps a connection for the next reader, or closes the connection.

    The connection is closed if enough idle connections are kept, or if too many readers have used
    it.
    """
    with _idle_changes:
        if len(_idle) < _MOST_IDLE and left.uses < _MOST_USES:
            _idle.append(left)
            return
    left.connection.close()
