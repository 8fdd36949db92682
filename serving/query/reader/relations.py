"""Relations: the tables and views of pipelines in a reader.

The schema of a pipeline contains its tables, its views and its `rejects`. The main schema contains
all tables and views under their public names, and one `rejects` for all pipelines. Hidden columns
(with a leading underscore) and deleted rows are left out. A table or view that cannot be created is
broken: the reader stores its name and the reason, and the other tables and views are not affected.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kappa.base.duck import CatalogError
from kappa.base.errors import Damaged, KappaError
from kappa.base.sql import lowered, quoted, text
from kappa.declare.options import REJECTS
from kappa.serving.access.roles import TableGrant
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.errors import BrokenRelation, RetiredRelation, TooMuch
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.reader.views import make_views
from kappa.state.build import Birth, recent_names, table_path
from kappa.state.file_sums import ensure_whole
from kappa.state.files.address import ask_side_by_side
from kappa.state.frontier import Frontier
from kappa.state.journal.journal import JournalView
from kappa.state.journal.projections import Retirements, retired_after
from kappa.state.log_clock import log_clock
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.versions import FileLists
from kappa.tables.views.served_rows_sql import failing_sql, read_sql

# Lists the files of a table's version by its path; raises Damaged if they are not those that its
# frontier vouches for, by the sum.
Lists = Callable[[str, int, str | None], tuple[str, ...]]
# Lists columns of a table: (name, Spark's simple type).
ColumnsOf = Callable[[TableBirth], tuple[tuple[str, str], ...]]
# The files of a version never change: a reader that asks again reads a table's log once a version.
_LISTS = FileLists(tables=8_192)
files_at = functools.lru_cache(maxsize=256)(_LISTS.at)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of a table at one version, and the DuckDB query that reads the served rows."""

    sql: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relations:
    """The tables and views of a pipeline, as relations of DuckDB.

    The tables are at the versions of a frontier, and the views are as declared. `hidden` contains
    the tables and views that no query may name, because only views of the pipeline may read them.
    """

    pipeline: str
    tables: Mapping[str, TableFiles]
    views: Mapping[str, str]
    hidden: frozenset[str] = frozenset()

    @property
    def schema(self) -> str:
        """Returns the name of the schema that contains the pipeline's tables and views."""
        return schema_of(self.pipeline)

    @property
    def public_names(self) -> tuple[str, ...]:
        """Lists the tables and views that also have a name in the main schema.

        `rejects` is left out, because the main schema has one `rejects` for all pipelines.
        """
        return tuple(name for name in self.named if name != REJECTS)

    @property
    def named(self) -> tuple[str, ...]:
        """Lists the tables and views that a query may name in the pipeline's schema."""
        return tuple(name for name in (*self.tables, *self.views) if name not in self.hidden)


def empty_relations(
    pipeline: str, tables: Iterable[TableBirth], views: Mapping[str, str]
) -> Relations:
    """Returns the tables and views of a declared pipeline. The tables have no rows."""
    empty = {each.name: TableFiles(read_sql(each, (), clock=None), ()) for each in tables}
    return Relations(pipeline, empty, views)


@functools.lru_cache(maxsize=256)
def file_sizes_at(path: str, version: int, vouched: str | None) -> Mapping[str, int]:
    """Returns the size in bytes of each data file of a table's version, by path or URL.

    The sizes come from the table's Delta log. `path` is the path of the table, and `vouched` is the
    checksum of the list of files, as the frontier stores it.
    """
    found = _LISTS.list_at(path, version, vouched)
    return {f"{path}/{name}": size for name, (size, _) in sorted(found.files.items())}


def relations_of(
    snapshot: Snapshot,
    store: Store,
    *,
    listed: Lists | None = None,
) -> tuple[Relations, ...]:
    """Lists the tables and views of a snapshot's pipelines.

    `listed` returns the files of a table's version. The default is `files_at`, which caches the
    lists of files.
    """
    return tuple(
        Relations(
            pipeline,
            tables_of(
                snapshot.births[build], snapshot.frontiers[build], store, listed=listed or files_at
            ),
            snapshot.births[build].views,
        )
        for pipeline, build in sorted(snapshot.serving.items())
    )


def readable_relations(
    found: Sequence[Relations],
    readable: TableGrant,
    tables_named: Callable[[str], Iterable[str]],
) -> tuple[Relations, ...]:
    """Returns those tables and views in `found` that a reader may read. Pure.

    `readable` contains the tables and views that the reader may name. A view that the reader may
    name can read any table of its pipeline. Tables that only such a view may read are hidden from
    the reader. `tables_named` is a function that lists the tables that a query names.
    """
    if readable.is_all:
        return tuple(found)
    narrowed = (_narrowed(each, readable, tables_named) for each in found)
    return tuple(each for each in narrowed if each.named)


def _narrowed(
    relations: Relations, readable: TableGrant, tables_named: Callable[[str], Iterable[str]]
) -> Relations:
    there = {*relations.tables, *relations.views}
    named = {name for name in there if readable.allows(relations.pipeline, name)}
    below, pending = set(named), [name for name in named if name in relations.views]
    while pending:
        reads = {*map(lowered, tables_named(relations.views[pending.pop()]))} & there - below
        below |= reads
        pending += [name for name in reads if name in relations.views]
    return Relations(
        relations.pipeline,
        {name: each for name, each in relations.tables.items() if name in below},
        {name: each for name, each in relations.views.items() if name in below},
        frozenset(below - named),
    )


def retired_relations(found: Sequence[Relations], store: Store) -> tuple[RetiredRelation, ...]:
    """Lists the tables and views of retired pipelines.

    A name that another pipeline serves now is left out. `found` contains the served tables and
    views.
    """
    served = {name for each in found for name in each.public_names}
    retirements: Retirements = JournalView(store).folded(retired_after, {})
    return tuple(
        RetiredRelation(pipeline, name, each.text, each.way_back)
        for pipeline, each in retirements.items()
        for name in each.event.names
        if name not in served
    )


def tables_of(
    birth: Birth,
    frontier: Frontier,
    store: Store,
    *,
    columns: ColumnsOf | None = None,
    listed: Lists = files_at,
) -> Mapping[str, TableFiles]:
    """Returns the tables of a build at a frontier, by name, with recent rows folded in.

    Rows that have expired by the log's clock are left out. `columns` is a function that returns the
    columns of a table to read, including hidden columns; by default, the served columns are read.
    `listed` is a function that returns the files of a table's version; the default, `files_at`,
    caches the lists. A caller that has created a table again at the same path must pass a function
    without this cache.
    """
    versions, clock = frontier.versions, log_clock(birth, frontier.log_time)
    names = [
        name
        for table in birth.tables
        for name in (table.name, *recent_names(table.name))
        if name in versions
    ]
    files = ask_side_by_side(
        store.url,
        lambda name: listed(
            table_path(store, birth.build, name), versions[name], frontier.file_lists.get(name)
        ),
        names,
    )
    paths_of = dict(zip(names, files, strict=True))
    found: dict[str, TableFiles] = {}
    for table in birth.tables:
        wanted = table.served if columns is None else columns(table)
        if table.name in frontier.failing:
            found[table.name] = TableFiles(failing_sql(wanted, frontier.failing[table.name]), ())
            continue
        paths = paths_of[table.name]
        recent = tuple(paths_of[name] for name in recent_names(table.name) if name in paths_of)
        found[table.name] = TableFiles(
            read_sql(table, paths, wanted, clock=clock, recent=recent),
            (*paths, *(path for each in recent for path in each)),
        )
    return found


def union_names(found: Sequence[Relations]) -> frozenset[str]:
    """Returns the names of the tables and views whose rows may be those of a union, in lower case.

    A view is among them if its query contains one of these names. Names are as they stand in SQL.
    """
    names = set[str]()
    for each in found:
        for name, sql in (
            *((name, table.sql) for name, table in each.tables.items()),
            *each.views.items(),
        ):
            if may_be_union(sql, names):
                names.add(name.lower().replace('"', '""'))
    return frozenset(names)


def may_be_union(sql: str, names: Collection[str]) -> bool:
    """Returns False if a query has no union, and names no relation of `names`. Pure."""
    lowered = sql.lower()
    return "union" in lowered or any(name in lowered for name in names)


def data_files(found: Sequence[Relations]) -> Mapping[str, str]:
    """Returns the data files of the given tables. Maps each file to the name of its pipeline."""
    return {
        path: each.pipeline
        for each in found
        for table in each.tables.values()
        for path in table.paths
    }


def put_relations(
    reader: Reader, found: Sequence[Relations], *, has_public_names: bool = True
) -> tuple[BrokenRelation, ...]:
    """Creates the tables and views in `found`, and returns those that cannot be created.

    First, the schema of each pipeline is created. Then the main schema with the public names is
    created, if `has_public_names` is True.
    """
    broken = tuple(each for relations in found for each in _make_schema(reader, relations))
    if has_public_names:
        _make_public_names(reader, found, {(each.pipeline, each.name) for each in broken})
    reader.broken = broken
    return broken


def put_tables(
    reader: Reader,
    schema: str,
    birth: Birth,
    frontier: Frontier,
    store: Store,
    *,
    columns: ColumnsOf | None = None,
) -> None:
    """Creates a schema with the served rows of a build's tables at a frontier.

    `columns` is a function that returns the columns of a table to read; by default, the served
    columns are read. Raises KappaError if a table cannot be created, and Damaged if a file is not
    as it was written.
    """
    reader.run_command(f"create schema {quoted(schema)}")
    tables, before = tables_of(birth, frontier, store, columns=columns), reader.files()
    made = {**before, **data_files([Relations(birth.pipeline, tables, {})])}
    reader.files = lambda: made
    for name, table in tables.items():
        ensure_whole(store, birth.build, table.paths)
        _make_table(reader, schema, name, table)


def _make_table(reader: Reader, schema: str, name: str, table: TableFiles) -> None:
    reader.run_command(f"create view {quoted(schema)}.{quoted(name)} as {table.sql}")


def _make_schema(reader: Reader, relations: Relations) -> list[BrokenRelation]:
    """Creates a pipeline's schema, and returns the tables and views that cannot be created.

    The tables are created first, and then each view after the views that it reads.
    """
    reader.run_command(f"create schema {quoted(relations.schema)}")
    broken: list[BrokenRelation] = []
    for name, table in relations.tables.items():
        try:
            _make_table(reader, relations.schema, name, table)
        except TooMuch:
            raise
        except KappaError as error:
            damaged = isinstance(error, Damaged)
            broken.append(
                BrokenRelation(
                    relations.pipeline, name, "table", error.message, error.hint, damaged
                )
            )
    # A view's own names of tables are looked up here; DuckDB keeps that for when the view is read.
    reader.run_command(f"set search_path = {text(relations.schema)}")
    below = next((each for each in broken if each.damaged), None)
    for name, refusal in make_views(reader, relations.views).items():
        if below is not None and isinstance(refusal.__cause__, CatalogError):
            # The view may read the damaged table, or another view that does.
            broken.append(replace(below, name=name, kind="view"))
            continue
        hint = f"fix the view in the pipeline's file and deploy again; {refusal.hint}"
        broken.append(BrokenRelation(relations.pipeline, name, "view", refusal.message, hint))
    reader.run_command("reset search_path")
    return broken


def _make_public_names(
    reader: Reader, found: Sequence[Relations], broken: set[tuple[str, str]]
) -> None:
    """Creates the main schema, with all public names and the rejects of all pipelines.

    `broken` contains the tables and views that could not be created in the pipelines' schemas, as
    pairs of pipeline and name. They get no public name.
    """
    for each in found:
        for name in each.public_names:
            if (each.pipeline, name) not in broken:
                reader.run_command(
                    f"create view main.{quoted(name)} as "
                    f"select * from {quoted(each.schema)}.{quoted(name)}"
                )
    # By name: builds that were born earlier have fewer columns.
    rejects = [
        f"select {text(each.pipeline)} as pipeline, * from {quoted(each.schema)}.{REJECTS}"
        for each in found
        if REJECTS in each.named and (each.pipeline, REJECTS) not in broken
    ]
    if rejects:
        reader.run_command(f"create view main.{REJECTS} as {' union all by name '.join(rejects)}")
