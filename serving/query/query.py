"""Queries: the only door to duckdb. SQL over exactly the files of a pinned snapshot; no JVM, nothing to write to.

Each pipeline is a schema with its tables, views and `rejects`; the main schema has all tables and views under their
public names, and one `rejects` for all pipelines. Hidden columns (leading underscore) and deleted rows are left out. All
times are UTC. Read next: catalog.py for what is pinned, kappa/tables/delta.py for the files.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import duckdb

from kappa.base.errors import DeclarationError, KappaError, UsageError
from kappa.declare.table import REJECTS
from kappa.state.build import Birth, TableBirth, recent_names, table_path
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.delta import FileLists
from kappa.tables.merge import contribution_columns, merged_sql
from kappa.values.columns import HEADERS, Array, Scalar, Struct, Type, parse_type, quoted
from serving.pin.at_log import Past, log_time
from serving.pin.catalog import Snapshot, pin, pin_at
from serving.query.spill import make_spill_folder

if TYPE_CHECKING:
    from kappa.base.settings import VerifySettings

_Found = TypeVar("_Found")

# What a version consists of never changes, so a reader that asks again and again reads a table's log once per version.
_files = functools.lru_cache(maxsize=256)(FileLists().at)

# Making a DuckDB costs some 20 ms, emptying one 2, its views 6: a reader that asks again and again gets the one before, as it
# was left where it is to show the same. The one that was used last is the last.
_idle: list[tuple[duckdb.DuckDBPyConnection, tuple[Relations, ...] | None]] = []
_idle_changes = threading.Lock()
_MOST_IDLE = 16
_MADE = """
select 'schema', schema_name from duckdb_schemas() where not internal and database_name = 'memory'
union all select 'view', view_name from duckdb_views() where not internal and schema_name = 'main'
"""

# A lease is lost only where a reader stood still for longer than it lasts; thrice in a row is no accident.
_ATTEMPTS = 3
# Schemas that DuckDB has already; a pipeline of such a name gets one with an underscore behind it.
_RESERVED = frozenset({"main", "information_schema", "pg_catalog"})
_SPELLINGS = {
    "string": "varchar",
    "binary": "blob",
    HEADERS: 'struct("key" varchar, "value" blob)[]',
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
# A message that quotes a text cuts it anywhere: in a character, too, and then Python cannot make it an error of DuckDB's.
DUCKDB_ERRORS = (duckdb.Error, UnicodeDecodeError)
# What is not the query's fault; everything else that DuckDB says about a query is.
_NOT_THE_USERS = (
    duckdb.IOException,
    duckdb.InternalException,
    duckdb.FatalException,
    duckdb.OutOfMemoryException,
    duckdb.ConnectionException,
)
_ONE_SELECT = "give one query that reads, such as: select * from page_hits limit 10"
# So often who is at a query that is late is told.
_AGAIN_SECONDS = 0.1


class TooMuch(UsageError):
    """A query wants more than it may have: memory, or time."""

    status = 422


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader may take. `memory` and `size` as in settings (`1g`); what does not fit in memory is spilled below `folder`.

    `seconds`: of its whole life; None: as long as it takes.
    """

    memory: str
    threads: int
    folder: Path
    size: str
    seconds: float | None = None

    @classmethod
    def of(cls, settings: VerifySettings, store: Store, *, seconds: float | None = None) -> Self:
        """The limits that the settings of a project set."""
        return cls(
            settings.memory,
            settings.threads,
            store.path(settings.temp),
            settings.temp_size,
            seconds,
        )


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files that a version of a table consists of, and DuckDB's query for its served rows in them."""

    sql: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relations:
    """What a pipeline brings into a reader: its tables at their versions, and its views as they were declared."""

    pipeline: str
    tables: Mapping[str, TableFiles]
    views: Mapping[str, str]

    @property
    def schema(self) -> str:
        """The schema of all of them."""
        return schema_of(self.pipeline)

    @property
    def public(self) -> tuple[str, ...]:
        """Those that have a name in the main schema too; there the rejects of all pipelines are one."""
        return (*(name for name in self.tables if name != REJECTS), *self.views)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a query gave: column names (no two alike), DuckDB's types of them, and the rows as Python values."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's rows, and the snapshot that they are true of: every table of a build at one frontier, `shown_at` since when, up to which `log_time`."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    generation: int
    serving: Mapping[str, str]
    offsets: Mapping[str, Offsets]
    versions: Mapping[str, Mapping[str, int]]
    shown_at: Mapping[str, str]
    log_time: Mapping[str, datetime | None]


def answer(
    store: Store, sql: str, *, when: Past | None = None, lease_seconds: float = 60.0
) -> Answer:
    """Answers one query from what is served now, or was served at a moment of the past.

    Raises UsageError, with DuckDB's own candidates as a hint, where the query cannot be meant; Conflict where its
    snapshot could not be kept long enough, again and again; and what `pin_at` raises.
    """
    return read(store, lambda reader: reader.rows(sql), when=when, lease_seconds=lease_seconds)


def read(
    store: Store,
    queries: Callable[[Reader], Rows],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> Answer:
    """The rows that `queries` makes of one pinned snapshot, by as many queries as it likes; see `ask`."""
    return ask(
        store,
        lambda reader, snapshot: _true_of(snapshot, queries(reader)),
        when=when,
        lease_seconds=lease_seconds,
    )


def ask(
    store: Store,
    question: Callable[[Reader, Snapshot], _Found],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> _Found:
    """What `question` finds in one pinned snapshot: of what is served now, or was at a moment of the past.

    It is asked again on a newer snapshot, where the first was not kept until the end.
    """
    attempt = 0
    while True:
        attempt += 1
        with (
            pin(store, lease_seconds=lease_seconds)
            if when is None
            else pin_at(store, when, lease_seconds=lease_seconds) as pinned
        ):
            try:
                with connect(pinned.snapshot, store) as reader:
                    found = question(reader, pinned.snapshot)
                pinned.confirm()
            except KappaError:
                # A file that was collected under our hands looks like any error; a lease that holds says it is none.
                if pinned.holds() or attempt == _ATTEMPTS:
                    raise
                continue
            return found


def connect(snapshot: Snapshot, store: Store, *, limits: Limits | None = None) -> Reader:
    """A reader of one snapshot, which is to be kept pinned meanwhile.

    Raises UsageError where a pipeline's view cannot be bound to its tables, naming it.
    """
    relations = relations_of(snapshot, store)
    reader = open_reader(limits, served=bool(snapshot.serving), showing=relations)
    try:
        if reader.shows != relations:
            put_relations(reader, relations)
            reader.shows = relations
    except BaseException:
        reader.close()
        raise
    return reader


def relations_of(snapshot: Snapshot, store: Store) -> tuple[Relations, ...]:
    """What is read in a snapshot, by pipeline."""
    return tuple(
        Relations(
            pipeline,
            tables_of(snapshot.births[build], snapshot.frontiers[build].versions, store),
            snapshot.births[build].views,
        )
        for pipeline, build in sorted(snapshot.serving.items())
    )


def put_relations(reader: Reader, found: Sequence[Relations]) -> None:
    """Makes each pipeline's schema, and the main one. Raises UsageError where a view cannot be bound to its tables, naming it."""
    for each in found:
        _ensure_schema(reader, each)
    _ensure_public_names(reader, found)


def open_reader(
    limits: Limits | None, *, served: bool, showing: tuple[Relations, ...] = ()
) -> Reader:
    """A reader of nothing yet, or where it has no limits of what it is to show: it `shows` them then. `served`: something is there to be read.

    Its queries take no more than the limits.
    """
    folder = None if limits is None else make_spill_folder(limits.folder)
    connection, shows = _one_idle(showing) if limits is None else (None, None)
    reader = Reader(
        connection or duckdb.connect(":memory:"),
        served=served,
        folder=folder,
        seconds=None if limits is None else limits.seconds,
    )
    reader.shows = shows
    try:
        if connection is None:
            reader.command("set TimeZone = 'UTC'")
            # Where Python was given its program by `-c`, DuckDB takes that for a person at work and draws on stdout.
            reader.command("set enable_progress_bar = false")
        if limits is not None and folder is not None:
            reader.command(f"set memory_limit = {text(limits.memory)}")
            reader.command(f"set temp_directory = {text(str(folder))}")
            reader.command(f"set max_temp_directory_size = {text(limits.size)}")
            # Rows in no order take far less memory; what needs an order says so.
            reader.command("set preserve_insertion_order = false")
            if limits.threads:
                reader.command(f"set threads = {limits.threads}")
    except BaseException:
        reader.close()
        raise
    return reader


class Reader:
    """A DuckDB in memory that holds views over files, and what a comparison puts beside them; one thread at a time."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        *,
        served: bool,
        folder: Path | None = None,
        seconds: float | None = None,
    ) -> None:
        """Made by `open_reader`; `folder` is its own, for what it spills. After `seconds` what it is at is broken off, and nothing more is begun."""
        # What it was made to show, and nothing was done to it since; None: that is not known.
        self.shows: tuple[Relations, ...] | None = None
        self._connection = connection
        self._served = served
        self._folder = folder
        self._seconds = seconds
        self._failed = False
        self._late = False
        self._closed = threading.Event()
        self._clock = None if seconds is None else threading.Timer(seconds, self._break_off)
        if self._clock is not None:
            self._clock.daemon = True
            self._clock.start()

    def rows(self, sql: str) -> Rows:
        """The rows of one query. Raises UsageError where it is not one that reads, or cannot be meant."""
        return self._asked(lambda: self._rows(sql))

    def command(self, sql: str, values: Sequence[object] = ()) -> None:
        """Runs what it takes to make the views; `values` are those of its question marks."""
        self.shows = None
        self._asked(lambda: self._connection.execute(sql, list(values)))

    def only_select(self, sql: str) -> str:
        """The text of the one query in `sql`. Raises UsageError where it is none, several, or one that writes."""
        try:
            sql.encode()
        except UnicodeEncodeError as error:
            raise UsageError("the query is not text in UTF-8", hint=_ONE_SELECT) from error
        statements = self._asked(lambda: self._connection.extract_statements(sql))
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            what = (
                "nothing"
                if not statements
                else "more than one statement"
                if len(statements) > 1
                else f"a statement of the kind {str(statements[0].type).rpartition('.')[2].lower()}"
            )
            raise UsageError(
                f"this is {what}: a snapshot can only be read, by one query", hint=_ONE_SELECT
            )
        return str(statements[0].query).strip().rstrip(";")

    def tables_named(self, sql: str) -> frozenset[str]:
        """The tables that a query names, whatever there is; of one that cannot be read, none."""
        ((tree,),) = self._asked(
            lambda: self._connection.execute("select json_serialize_sql(?)", [sql]).fetchall()
        )
        return frozenset(_tables_in(json.loads(tree)))

    def close(self) -> None:
        """Gives memory and files back; a connection without limits is kept for one of the process's next readers."""
        self._closed.set()
        if self._clock is not None:
            self._clock.cancel()
            # One that has just begun to break off needs the connection still.
            self._clock.join()
        if self._folder is None and not self._failed:
            _keep(self._connection, self.shows)
            return
        self._connection.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Closes."""
        self.close()

    def _rows(self, sql: str) -> Rows:
        result = self._connection.execute(self.only_select(sql))
        described = result.description or []
        return Rows(
            told_apart(str(column[0]) for column in described),
            tuple(str(column[1]) for column in described),
            tuple(result.fetchall()),
        )

    def _asked(self, question: Callable[[], _Found]) -> _Found:
        failed, self._failed = self._failed, True
        try:
            self._ensure_in_time()
            found = question()
        except DUCKDB_ERRORS as error:
            self._ensure_in_time()
            raise explained(error, served=self._served) from error
        except RuntimeError as error:
            # How DuckDB tells of a Ctrl-C that came while it was at work; its threads go on until they are told to end.
            if str(error) != "Query interrupted":
                raise
            self._connection.interrupt()
            raise KeyboardInterrupt from error
        # Whatever else was raised, a value that Python has no room for or a Ctrl-C: what is half read stays open.
        self._failed = failed
        return found

    def _break_off(self) -> None:
        self._late = True
        # One that comes before the query has begun is lost.
        while not self._closed.is_set():
            self._connection.interrupt()
            self._closed.wait(_AGAIN_SECONDS)

    def _ensure_in_time(self) -> None:
        if self._late:
            raise TooMuch(
                f"it took longer than {self._seconds:g} s, and was broken off",
                hint="ask for less, or let it take longer",
            )


def _one_idle(
    showing: tuple[Relations, ...],
) -> tuple[duckdb.DuckDBPyConnection | None, tuple[Relations, ...] | None]:
    """A connection that an earlier reader has left, with what it shows: what is asked for, or nothing."""
    with _idle_changes:
        if not _idle:
            return None, None
        place = next((place for place, (_, shows) in enumerate(_idle) if shows == showing), 0)
        connection, shows = _idle.pop(place)
    if shows == showing:
        return connection, shows
    try:
        made = connection.execute(_MADE).fetchall()
        connection.execute(
            "; ".join(f"drop {kind} {quoted(name)} cascade" for kind, name in made) or "select 1"
        )
    except duckdb.Error:
        connection.close()
        return None, None
    return connection, ()


def _keep(connection: duckdb.DuckDBPyConnection, shows: tuple[Relations, ...] | None) -> None:
    """Keeps a connection for the next reader."""
    with _idle_changes:
        if len(_idle) < _MOST_IDLE:
            _idle.append((connection, shows))
            return
    connection.close()


def put_tables(
    reader: Reader,
    schema: str,
    birth: Birth,
    versions: Mapping[str, int],
    store: Store,
    *,
    compared: bool = False,
) -> None:
    """Makes a schema with the served rows of a build's tables at their versions; `compared`: with what is needed to compare them, too."""
    _put_tables(reader, schema, tables_of(birth, versions, store, compared=compared))


def _put_tables(reader: Reader, schema: str, tables: Mapping[str, TableFiles]) -> None:
    reader.command(f"create schema {quoted(schema)}")
    for name, table in tables.items():
        reader.command(f"create view {quoted(schema)}.{quoted(name)} as {table.sql}")


def tables_of(
    birth: Birth,
    versions: Mapping[str, int],
    store: Store,
    *,
    compared: bool = False,
    listed: Callable[[str, int], tuple[str, ...]] = _files,
) -> Mapping[str, TableFiles]:
    """A build's tables at their versions, with what waits beside them folded in; `compared`: see `put_tables`.

    `listed` gives a table's files at a version, in place of what this process remembers of them: for who has made a table anew at its path.
    """
    found: dict[str, TableFiles] = {}
    for table in birth.tables:
        paths = listed(table_path(store, birth.build, table.name), versions[table.name])
        recent = tuple(
            listed(table_path(store, birth.build, name), versions[name])
            for name in recent_names(table.name)
            if name in versions
        )
        found[table.name] = TableFiles(
            read_sql(table, paths, table.compared if compared else None, recent=recent),
            (*paths, *(path for each in recent for path in each)),
        )
    return found


def _ensure_schema(reader: Reader, relations: Relations) -> None:
    """Makes a pipeline's schema: its tables at their versions, then its views, each after those it is made of."""
    _put_tables(reader, relations.schema, relations.tables)
    # The views' own names of tables are looked up here, and DuckDB keeps that for when they are read.
    reader.command(f"set search_path = {text(relations.schema)}")
    for name, error in _made_views(reader, relations.views).items():
        raise UsageError(
            f"view {name} of pipeline {relations.pipeline} cannot be read: {error.message}",
            hint=f"mend the view in the pipeline's file and deploy again; {error.hint}",
        ) from error
    reader.command("reset search_path")


def _made_views(reader: Reader, views: Mapping[str, str]) -> Mapping[str, UsageError]:
    """Makes views, each after those it is made of; gives those that cannot be made, and why."""
    pending, refusals = dict(views), dict[str, UsageError]()
    while pending:
        refusals = {
            name: error for name, sql in pending.items() if (error := _refusal(reader, name, sql))
        }
        if len(refusals) == len(pending):
            break
        pending = {name: pending[name] for name in refusals}
    return refusals


def unreadable(tables: Iterable[TableBirth], views: Mapping[str, str]) -> Mapping[str, UsageError]:
    """What of a pipeline's SQL does not fit its tables, before there is any row in them: the names of views, and conditions of checks as `TABLE: CONDITION`."""
    found: dict[str, UsageError] = {}
    with open_reader(None, served=True) as reader:
        for table in tables:
            reader.command(f"create view {quoted(table.name)} as {read_sql(table, ())}")
        found |= _made_views(reader, views)
        for table in tables:
            for condition in table.checks:
                try:
                    reader.rows(check_sql(table.name, condition))
                except UsageError as error:
                    found[f"{table.name}: {condition}"] = error
    return found


def tables_named(sql: str) -> frozenset[str]:
    """The tables that a query names, whatever there is; of one that cannot be read, none."""
    with open_reader(None, served=True) as reader:
        return reader.tables_named(sql)


def _tables_in(tree: object) -> Iterator[str]:
    match tree:
        case {"type": "BASE_TABLE", "table_name": str(name)}:
            yield name
        case dict():
            for each in tree.values():
                yield from _tables_in(each)
        case list():
            for each in tree:
                yield from _tables_in(each)


def check_sql(table: str, condition: str) -> str:
    """The query for how many rows a table has, and how many of them do not satisfy a condition; null counts as false."""
    # On a line of its own, so that a comment at its end comments out nothing of ours.
    return f'select count(*), count(*) filter (where holds is not true) from (select (\n{condition}\n) as holds from main."{table}")'


def _ensure_public_names(reader: Reader, found: Sequence[Relations]) -> None:
    """Makes the main schema: every table and view under its public name, and the rejects of all pipelines."""
    for each in found:
        for name in each.public:
            reader.command(
                f"create view main.{quoted(name)} as select * from {quoted(each.schema)}.{quoted(name)}"
            )
    if found:
        # By name: builds that were born earlier have fewer columns.
        of_each = (
            f"select {text(each.pipeline)} as pipeline, * from {quoted(each.schema)}.{REJECTS}"
            for each in found
        )
        reader.command(f"create view main.{REJECTS} as {' union all by name '.join(of_each)}")


def read_sql(
    table: TableBirth,
    paths: Iterable[str],
    wanted: Iterable[tuple[str, str]] | None = None,
    *,
    recent: Iterable[Sequence[str]] = (),
) -> str:
    """DuckDB's query for the served rows of a table that lies in these files; `wanted`: these columns instead of the served ones.

    `recent`: the files of tables that hold contributions to it (kappa/engine/write/recent.py), which are folded in.

    Every column is cast to its declared type: Delta's writers spell times in two ways, and the first file would decide.
    """
    columns = table.served if wanted is None else tuple(wanted)
    where = " where _deleted is not true" if table.hides_rows else ""
    waiting = [_read_sql(contribution_columns(table), files, "") for files in recent if files]
    if not waiting:
        return _read_sql(columns, paths, where)
    # What waits in two tables is folded into one: so it would be, had one taken all of it. Sums of doubles may differ in their last
    # digits from those of another order (decision 8).
    return f"select {', '.join(quoted(name) for name, _ in columns)} from ({merged_sql(table, _read_sql(table.columns, paths, ''), waiting)}){where}"


def stored_sql(table: TableBirth, paths: Iterable[str]) -> str:
    """As `read_sql`, but for all that a table holds: the platform's own columns and rows too."""
    return _read_sql(table.columns, paths, "")


def _read_sql(columns: Sequence[tuple[str, str]], paths: Iterable[str], where: str) -> str:
    selected = ", ".join(
        f"cast({quoted(name)} as {_duck_type(kind)}) as {quoted(name)}" for name, kind in columns
    )
    listed = ", ".join(text(literal(path)) for path in paths)
    if not listed:
        nothing = ", ".join(f"null as {quoted(name)}" for name, _ in columns)
        return f"select {selected} from (select {nothing}) where false"
    return f"select {selected} from read_parquet([{listed}], hive_partitioning = false){where}"


def _true_of(snapshot: Snapshot, found: Rows) -> Answer:
    return Answer(
        found.columns,
        found.types,
        found.rows,
        snapshot.generation,
        snapshot.serving,
        {build: frontier.offsets for build, frontier in snapshot.frontiers.items()},
        {build: frontier.versions for build, frontier in snapshot.frontiers.items()},
        {build: frontier.published_at for build, frontier in snapshot.frontiers.items()},
        {build: log_time(frontier) for build, frontier in snapshot.frontiers.items()},
    )


def _refusal(reader: Reader, view: str, sql: str) -> UsageError | None:
    try:
        reader.command(f"create view {quoted(view)} as {reader.only_select(sql)}")
    except TooMuch:
        raise
    except UsageError as error:
        return error
    return None


def schema_of(pipeline: str) -> str:
    """The schema of a pipeline's tables."""
    return f"{pipeline}_" if pipeline in _RESERVED else pipeline


def _duck_type(kind: str) -> str:
    try:
        return _spelled(parse_type(kind))
    except DeclarationError:
        # Bytes and headers are no type of an event, but the rejects have them.
        return _SPELLINGS.get(kind, kind)


def _spelled(kind: Type) -> str:
    match kind:
        case Scalar(name):
            return _SPELLINGS.get(name, name)
        case Array(element):
            return f"{_spelled(element)}[]"
        case Struct(fields):
            return f"struct({', '.join(f'{quoted(field.name)} {_spelled(field.type)}' for field in fields)})"
        case _:
            return str(kind)


def literal(path: str) -> str:
    """A path as DuckDB takes it for nothing but that path."""
    # DuckDB takes a path for a pattern (https://duckdb.org/docs/data/multiple_files/overview#list-parameter); a root may have any name.
    return re.sub(r"([\[*?])", r"[\1]", path)


def text(value: str) -> str:
    """A text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"


def told_apart(names: Iterable[str]) -> tuple[str, ...]:
    """The same names, no two of them alike: what is there already gets a number."""
    return tuple(_numbered(names))


def _numbered(names: Iterable[str]) -> Iterator[str]:
    # `select a.id, b.id`: as DuckDB's own data frames do it, the second is id_1.
    taken: Counter[str] = Counter()
    for name in names:
        told = name
        while told in taken:
            told = f"{name}_{taken[name]}"
            taken[name] += 1
        taken[told] += 1
        yield told


def explained(error: duckdb.Error | UnicodeDecodeError, *, served: bool) -> KappaError:
    """DuckDB's message as one sentence, its candidates as the hint."""
    told = (
        error.object.decode(errors="replace")
        if isinstance(error, UnicodeDecodeError)
        else str(error)
    )
    lines = [line.strip() for line in told.partition("\n\nLINE ")[0].splitlines() if line.strip()]
    message = lines[0] if lines else type(error).__name__
    if isinstance(error, _NOT_THE_USERS):
        return KappaError(
            f"the query could not be run: {message}", hint="kappa status shows whether all is well"
        )
    hints = [
        line[0].lower() + line[1:]
        for line in lines[1:]
        if not re.search(r'"(pg_|duckdb_|sqlite_|information_schema|pragma_)', line)
    ]
    if isinstance(error, duckdb.CatalogException) and not served:
        hints = ["nothing is served yet: kappa deploy"]
    return UsageError(
        f"the query cannot be run: {message.partition(' Error: ')[2] or message}",
        hint="; ".join([*hints, "kappa tables shows tables and columns"]),
    )
