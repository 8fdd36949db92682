"""The catalogue of served tables and views, now or at a moment of the past.

The catalogue also contains the paths of tables, for other tools. A version of a Delta table does
not change, so path and version (in Spark: format `delta`, option `versionAsOf`) identify the files
that `kappa query` reads. A tool that reads these files must apply the condition `where` and select
the listed columns. Contributions that wait in the `recent` tables of a large table are not yet in
the files of the large table (kappa/engine/write/recent_rows.py). See docs/howto/read-the-files.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from kappa.base.errors import KappaError, UsageError, near_or_all
from kappa.base.sql import quoted
from kappa.serving.query.pin.moments import Past
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import ask_part, ask_snapshot, open_snapshot
from kappa.serving.query.reader.errors import BrokenRelation
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.reader.table_sql import schema_of, type_text
from kappa.serving.query.render import Listing
from kappa.state.build import Birth, recent_names, table_path
from kappa.state.frontier import Frontier
from kappa.state.journal.journal import JournalView
from kappa.state.journal.projections import Pause, Pauses, paused_after
from kappa.state.log_clock import log_clock
from kappa.state.store import Store
from kappa.tables.versions import list_of
from kappa.tables.views.served_rows_sql import served_condition


@dataclass(frozen=True, slots=True)
class ServedTable:
    """A served table or view, with the name and DuckDB's type of each column.

    `kind` is table, maintained view or view. A view that is not maintained is computed when it is
    read, so it has no version and no path. `where` is the condition for the served rows in the
    files of the table, or None if all rows are served. `recent` contains the version and the path
    of each small table of recent rows. `broken` is the reason why the table or view cannot be read,
    or ""; if it cannot be read, its rows are None and it has no columns. `pause` is the pause of
    the pipeline, if the pipeline is paused now. `keys` are the key columns. `bytes` is the size of
    the data files, or None if the size is unknown.
    """

    name: str
    kind: str
    pipeline: str
    build: str
    rows: int | None
    columns: tuple[tuple[str, str], ...]
    version: int | None = None
    path: str | None = None
    where: str | None = None
    recent: tuple[tuple[int, str], ...] = ()
    broken: str = ""
    pause: Pause | None = None
    keys: tuple[str, ...] = ()
    bytes: int | None = None


# The rows of a relation, its columns, and why it cannot be read.
Contents = tuple[int | None, tuple[tuple[str, str], ...], str]
# Returns the contents of a relation, by pipeline and name.
ContentsOf = Callable[[str, str], Contents]


@dataclass(frozen=True, slots=True)
class StoredFiles:
    """The number and the total bytes of a table's data files at one version.

    A view that is not maintained has no data files.
    """

    count: int
    bytes: int


def served_tables(
    store: Store, *, when: Past | None = None, lease_seconds: float = 60.0
) -> tuple[ServedTable, ...]:
    """Lists the tables and views that are served now, or were served at `when`.

    The list is ordered by pipeline, and within a pipeline by the order of declaration, with the
    views last. If a table or view cannot be created or read, its entry contains the reason.
    """
    found = ask_snapshot(
        store,
        lambda reader, snapshot: tuple(_described_tables(reader, snapshot, store)),
        when=when,
        lease_seconds=lease_seconds,
    )
    pauses: Pauses = JournalView(store).folded(paused_after, {}) if when is None else {}
    return tuple(replace(each, pause=pauses.get(each.pipeline)) for each in found)


class KnownTables:
    """A cache of served tables and views, for a process that lists them repeatedly.

    The rows of a build change only when its frontier moves, so only the pipelines whose frontiers
    have moved are read again.
    """

    def __init__(self) -> None:
        """Creates an empty cache for the tables and views of one root."""
        self._known: dict[str, tuple[int, tuple[ServedTable, ...]]] = {}
        self._broken: dict[str, tuple[int, tuple[BrokenRelation, ...]]] = {}

    def served_tables(
        self, store: Store, *, lease_seconds: float = 60.0
    ) -> tuple[ServedTable, ...]:
        """Lists the tables and views that are served now, as the function `served_tables` does."""

        def listed(reader: Reader, snapshot: Snapshot) -> dict[str, list[ServedTable]]:
            found: dict[str, list[ServedTable]] = {build: [] for build in snapshot.serving.values()}
            for table in _described_tables(
                *(reader, snapshot, store),
                contents=_counted_contents(reader, snapshot),
            ):
                found[table.build].append(table)
            return found

        serving, moved = ask_part(
            store, lambda all_: _moved_part(all_, self._known), listed, lease_seconds=lease_seconds
        )
        pauses: Pauses = JournalView(store).folded(paused_after, {})
        known = {build: each for build, (_, each) in self._known.items()}
        known |= {build: tuple(tables) for build, tables in moved.items()}
        self._known = {
            build: (serving.frontiers[build].number, known[build])
            for build in serving.serving.values()
            # A relation that cannot be read now may be readable soon.
            if not any(table.broken for table in known[build])
        }
        return tuple(
            replace(table, pause=pauses.get(table.pipeline))
            for _, build in sorted(serving.serving.items())
            for table in known[build]
        )

    def broken_relations(self, store: Store) -> tuple[BrokenRelation, ...]:
        """Lists the served tables and views that cannot be created.

        The result equals that of the function `broken_relations`.
        """
        serving, moved = ask_part(
            store,
            lambda all_: _moved_part(all_, self._broken),
            lambda reader, snapshot: (reader.broken, snapshot),
        )
        broken, part = moved
        known = {build: each for build, (_, each) in self._broken.items()}
        for pipeline, build in part.serving.items():
            known[build] = tuple(each for each in broken if each.pipeline == pipeline)
        self._broken = {
            build: (serving.frontiers[build].number, known[build])
            for build in serving.serving.values()
            if not known[build]
        }
        return tuple(each for build in serving.serving.values() for each in known[build])


def _moved_part(snapshot: Snapshot, known: Mapping[str, tuple[int, object]]) -> Snapshot:
    """Narrows a snapshot to the pipelines whose frontiers have moved.

    `known` maps a build to the number of a frontier, and to the facts that were found at that
    frontier. A pipeline is left out if `known` contains the facts for its present frontier.
    """
    moved = {
        pipeline: build
        for pipeline, build in snapshot.serving.items()
        if build not in known or known[build][0] != snapshot.frontiers[build].number
    }
    return Snapshot(
        snapshot.generation,
        moved,
        {build: snapshot.frontiers[build] for build in moved.values()},
        {build: snapshot.births[build] for build in moved.values()},
    )


def _counted_contents(reader: Reader, snapshot: Snapshot) -> ContentsOf:
    """Returns a function that returns the columns and the number of rows of a table or view.

    All tables and views of a pipeline are counted by one query, because separate queries would take
    longer. If a table or view of a pipeline cannot be read, those of this pipeline are queried one
    by one.
    """
    columns: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for schema, table, column, kind in reader.rows(
        "select schema_name, table_name, column_name, data_type from duckdb_columns() "
        "where not internal and database_name = 'memory' order by column_index"
    ).rows:
        columns.setdefault((schema, table), []).append((column, kind))
    broken = {(each.pipeline, each.name) for each in reader.broken}
    found: dict[tuple[str, str], Contents] = {}
    for pipeline, build in snapshot.serving.items():
        birth = snapshot.births[build]
        names = [
            name
            for name in (*(table.name for table in birth.tables), *birth.views)
            if (pipeline, name) not in broken
        ]
        schema = schema_of(pipeline)
        counts = (
            f"select {place}, count(*) from {quoted(schema)}.{quoted(name)}"
            for place, name in enumerate(names)
        )
        with suppress(KappaError):
            for place, count in reader.rows(" union all ".join(counts)).rows if names else ():
                name = names[place]
                found[pipeline, name] = int(count), tuple(columns[schema, name]), ""
    return lambda pipeline, name: (
        found[pipeline, name] if (pipeline, name) in found else _contents_of(reader, pipeline, name)
    )


def served_table(
    store: Store, name: str, *, when: Past | None = None, lease_seconds: float = 60.0
) -> tuple[ServedTable, StoredFiles, Birth]:
    """Returns one served table or view, its data files, and its build's birth certificate.

    `name` may be `PIPELINE.TABLE`. Raises UsageError if no pipeline serves a table or view of that
    name, or if several pipelines do.
    """

    def describe(reader: Reader, snapshot: Snapshot) -> tuple[ServedTable, StoredFiles, Birth]:
        pipeline, table = _relation_named(snapshot, name)
        build = snapshot.serving[pipeline]
        (found,) = _described_tables(
            *(reader, snapshot, store), only=(pipeline, table), with_sizes=False
        )
        files = _stored_files(store, snapshot.frontiers[build], build, table)
        return found, files, snapshot.births[build]

    return ask_snapshot(store, describe, when=when, lease_seconds=lease_seconds)


def _stored_files(store: Store, frontier: Frontier, build: str, table: str) -> StoredFiles:
    versions = frontier.versions
    sizes = [
        size
        for each in (table, *recent_names(table))
        if each in versions
        for size, _ in list_of(
            table_path(store, build, each), versions[each], frontier.file_lists.get(each)
        ).files.values()
    ]
    return StoredFiles(len(sizes), sum(sizes))


def _relation_named(snapshot: Snapshot, name: str) -> tuple[str, str]:
    """Returns the pipeline and the name of the served table or view with the given name.

    `name` may be `PIPELINE.TABLE`. Raises UsageError if there is no such table or view, or if there
    are several.
    """
    there = [
        (pipeline, each)
        for pipeline, build in sorted(snapshot.serving.items())
        for each in (
            *(table.name for table in snapshot.births[build].tables),
            *snapshot.births[build].views,
        )
    ]
    found = [each for each in there if name in {each[1], ".".join(each)}]
    if not found:
        raise UsageError(
            f"no pipeline serves a table {name}",
            hint=near_or_all(
                name,
                dict.fromkeys(each for _, each in there),
                none="nothing is served yet: kappa deploy",
            ),
        )
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} pipelines serve a table {name}",
            hint=f"name one: {', '.join('.'.join(each) for each in found)}",
        )
    return found[0]


def broken_relations(store: Store) -> tuple[BrokenRelation, ...]:
    """Lists the served tables and views that cannot be created."""
    return ask_snapshot(store, lambda reader, _: reader.broken, lease_seconds=60.0)


def tables_of_snapshot(snapshot: Snapshot, store: Store) -> tuple[ServedTable, ...]:
    """Lists the tables and views of a pinned snapshot, without reading or counting rows.

    The order is that of `served_tables`. If a table or view cannot be created, its entry contains
    the reason.
    """
    with open_snapshot(snapshot, store) as reader:
        # Files are compared with their sums before rows are read, and no row is read here.
        reader.before = lambda _sql: None
        return tuple(
            _described_tables(
                *(reader, snapshot, store),
                contents=lambda pipeline, name: _contents_of(reader, pipeline, name, counts=False),
                with_sizes=False,
            )
        )


def _described_tables(
    reader: Reader,
    snapshot: Snapshot,
    store: Store,
    *,
    only: tuple[str, str] | None = None,
    contents: ContentsOf | None = None,
    with_sizes: bool = True,
) -> Iterator[ServedTable]:
    contents = contents or (lambda pipeline, name: _contents_of(reader, pipeline, name))
    for pipeline, build in sorted(snapshot.serving.items()):
        birth, frontier = snapshot.births[build], snapshot.frontiers[build]
        versions, clock = frontier.versions, log_clock(birth, frontier.log_time)
        for table in birth.tables:
            if only not in {None, (pipeline, table.name)}:
                continue
            recent = tuple(
                (versions[name], table_path(store, build, name))
                for name in recent_names(table.name)
                if name in versions
            )
            rows, columns, broken = contents(pipeline, table.name)
            bytes_ = None
            if with_sizes and not broken:
                # Rows were counted, so the lists of files are known.
                with suppress(KappaError):
                    bytes_ = _stored_files(store, frontier, build, table.name).bytes
            yield ServedTable(
                table.name,
                "table" if table.view is None else "maintained view",
                pipeline,
                build,
                rows,
                columns,
                versions[table.name],
                table_path(store, build, table.name),
                served_condition(table, clock),
                recent,
                broken,
                keys=table.keys,
                bytes=bytes_,
            )
        for view in birth.views:
            if only not in {None, (pipeline, view)}:
                continue
            rows, columns, broken = contents(pipeline, view)
            yield ServedTable(view, "view", pipeline, build, rows, columns, broken=broken)


def _contents_of(reader: Reader, pipeline: str, name: str, *, counts: bool = True) -> Contents:
    """Returns the number of rows of a table or view, its columns, and why it cannot be read.

    If it can be read, the reason is an empty text. The number of rows is None if the table or view
    cannot be read, or if `counts` is False. A column is a pair of name and DuckDB's type.
    """
    for each in reader.broken:
        if (each.pipeline, each.name) == (pipeline, name):
            return None, (), each.why
    whole = f"{quoted(schema_of(pipeline))}.{quoted(name)}"
    try:
        described = reader.describe_columns(f"from {whole}")
        count = int(reader.rows(f"select count(*) from {whole}").rows[0][0]) if counts else None
    except KappaError as error:
        # If the lease was lost meanwhile, `ask` throws this away and asks again.
        return None, (), error.message
    return count, tuple(zip(*described, strict=True)), ""


def tables_listing(found: Iterable[ServedTable], *, columns_as_text: bool = False) -> Listing:
    """Creates a listing with a row for each table and view.

    Only JSON and CSV contain the versions, the paths, the conditions, and the reasons why tables
    cannot be read. The printed table has the column `paused_since` only if a pipeline is paused.
    """
    found = tuple(found)
    rows = (
        (
            table.name,
            table.kind,
            table.pipeline,
            table.build,
            table.rows,
            _columns_text(table)
            if columns_as_text
            else [{"name": name, "type": kind} for name, kind in table.columns],
            table.version,
            table.path,
            table.where,
            [{"version": version, "path": path} for version, path in table.recent],
            table.broken or None,
            None if table.pause is None else table.pause.at,
        )
        for table in found
    )
    machines = ("version", "path", "where", "recent", "broken")
    paused_since = "paused_since"
    return Listing(
        ("table", "kind", "pipeline", "build", "rows", "columns", *machines, paused_since),
        tuple(rows),
        wide=frozenset(machines).union(
            () if any(table.pause for table in found) else (paused_since,)
        ),
        is_report=True,
        least=("build",),
        times=frozenset({paused_since}),
        empty="no table is served yet: kappa deploy",
    )


def _columns_text(table: ServedTable) -> str:
    if table.broken:
        return f"BROKEN: {table.broken}"
    return ", ".join(f"{name} {type_text(kind)}" for name, kind in table.columns)
