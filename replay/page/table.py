"""Computes the data of a table's page, and of `kappa tables TABLE`.

The page shows columns, folds and readers. The command also shows the table's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from kappa.base.sql import quoted
from kappa.base.units import count_of, size
from kappa.declare.board import Board, boards_in
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.state import State
from kappa.replay.status.column_graph import UNKNOWN_YET, ColumnOrigin, column_origins
from kappa.serving.query.pin.moments import Past
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.table_sql import schema_of, type_text
from kappa.serving.query.render import Listing
from kappa.serving.query.tables import ServedTable, StoredFiles, served_table
from kappa.state.build import Birth
from kappa.state.build_status import ViewCost, read_view_costs
from kappa.state.journal.events import Check
from kappa.state.lease import Lease, sorted_leases
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column that readers see, with its DuckDB type and its role.

    The role is "key", a fold, "latest of ..." in a table of latest values, or "". `origin`
    describes the columns and fields from which the values are computed.
    """

    name: str
    kind: str
    role: str
    origin: ColumnOrigin = field(default_factory=ColumnOrigin)


@dataclass(frozen=True, slots=True)
class ReaderProcess:
    """A process that currently pins the table's build, with the number of its leases."""

    by: str
    pid: int
    leases: int


@dataclass(frozen=True, slots=True)
class TableView:
    """All values that the page of a table shows.

    `sql` is the declared query of a view, maintained or not, without its common indentation.
    `views` are the views of the same pipeline that read the table. If the table is a view,
    `made_of` are the tables and views that its query reads. `whole` is the quoted name of the table
    with its schema.
    """

    table: ServedTable
    columns: tuple[ShownColumn, ...]
    keys: tuple[str, ...]
    checks: tuple[str, ...]
    sql: str | None
    views: tuple[str, ...]
    readers: tuple[ReaderProcess, ...]
    whole: str
    cost: ViewCost | None
    made_of: tuple[str, ...] = ()

    @property
    def why_no_origins(self) -> str:
        """Returns the reason why the origins of the columns are unknown.

        Returns "" if the reason is not the same for all columns.
        """
        reasons = {each.origin.why_not for each in self.columns}
        return reasons.pop() if len(reasons) == 1 else ""

    @property
    def has_origins_later(self) -> bool:
        """Returns True if the origins of the columns are unknown only until the next deploy."""
        return self.why_no_origins == UNKNOWN_YET


def table_view(
    table: ServedTable,
    birth: Birth,
    leases: Iterable[Lease],
    names_in: Callable[[str], frozenset[str]],
    *,
    whole: str,
    costs: Mapping[str, ViewCost],
    origins: Mapping[str, ColumnOrigin],
) -> TableView:
    """Returns all values that the page of a table shows.

    `names_in` returns the tables that a query names. `whole` is the quoted name of the table with
    its schema. `costs` maps the build's maintained views to their costs, and `origins` maps the
    table's columns to their origins.
    """
    born = next((each for each in birth.tables if each.name == table.name), None)
    folds: Mapping[str, tuple[str, str | None]] = {} if born is None else born.fold
    keys = () if born is None else born.keys
    maintained = {each.name: each.view for each in birth.tables if each.view is not None}
    queries = {**birth.views, **maintained}

    def role(column: str) -> str:
        if column in keys:
            return "key"
        if column in folds:
            kind, of = folds[column]
            return f"{kind}({of or ''})"
        return f"latest of {born.latest}" if born is not None and born.latest else ""

    return TableView(
        table,
        tuple(
            ShownColumn(name, type_text(kind), role(name), origins.get(name, ColumnOrigin()))
            for name, kind in table.columns
        ),
        keys,
        () if born is None else born.checks,
        None if table.name not in queries else cleandoc(queries[table.name]),
        tuple(
            view
            for view, sql in queries.items()
            if view != table.name and table.name in names_in(sql)
        ),
        _reader_processes(leases, birth.folded_by),
        whole,
        costs.get(table.name),
        _made_of(table.name, birth, queries, names_in),
    )


def _made_of(
    name: str,
    birth: Birth,
    queries: Mapping[str, str],
    names_in: Callable[[str], frozenset[str]],
) -> tuple[str, ...]:
    if name not in queries:
        return ()
    read, there = names_in(queries[name]), dict.fromkeys(each.name for each in birth.tables)
    return tuple(each for each in (there | dict.fromkeys(queries)) if each in read and each != name)


def typed_name(table: ServedTable, whole: str) -> str:
    """Returns the name by which a person can refer to a table in SQL.

    This is the plain name if it needs no quotes and is not `rejects`; otherwise it is `whole`.
    """
    plain = table.name.isidentifier() and table.name.islower() and table.name != "rejects"
    return table.name if plain else whole


@dataclass(frozen=True, slots=True)
class TableChecks:
    """The declared checks of a table, and their last results.

    `results` maps a condition to its result in the last verification of the serving build. `number`
    is the number of the rollout with that verification. There are no results if this build was
    never verified.
    """

    conditions: tuple[str, ...]
    results: Mapping[str, Check]
    number: int | None


def table_checks(view: TableView, state: State) -> TableChecks:
    """Returns the checks of a table with their last results. Pure."""
    rollout = next(
        (
            each
            for each in reversed(state.rollouts)
            if each.build == view.table.build and each.verified is not None
        ),
        None,
    )
    if rollout is None or rollout.verified is None:
        return TableChecks(view.checks, {}, None)
    results = {
        each.condition: each for each in rollout.verified.checks if each.table == view.table.name
    }
    return TableChecks(view.checks, results, rollout.number)


def pending_change(state: State, table: ServedTable) -> tuple[Rollout, str] | None:
    """Returns the active rollout that would change a table, and a description of the change. Pure.

    The description is the end of a sentence about the rollout, such as "would add 5 rows". Returns
    None if the pipeline has no active rollout, or if the rollout would not change the table.
    """
    rollout = state.active(table.pipeline)
    if rollout is None or rollout.build == table.build:
        return None
    if rollout.verified is None:
        return rollout, "has not compared the rows of this table yet"
    found = next((each for each in rollout.verified.differences if each.table == table.name), None)
    if found is None or found.equal:
        return None
    if found.rows_after is None:
        return rollout, "would remove this table"
    if found.incomparable:
        return rollout, "would change this table; the rows cannot be compared"
    counts = (("change", found.changed), ("add", found.added), ("remove", found.removed))
    parts = [f"{verb} {count_of(rows, 'row')}" for verb, rows in counts if rows]
    return rollout, f"would {' and '.join(parts) or 'change the columns of this table'}"


def _reader_processes(leases: Iterable[Lease], build: str) -> tuple[ReaderProcess, ...]:
    counted: dict[tuple[str, int], int] = {}
    for lease in leases:
        if build in lease.pins:
            counted[lease.by, lease.pid] = counted.get((lease.by, lease.pid), 0) + 1
    return tuple(ReaderProcess(by, pid, count) for (by, pid), count in sorted(counted.items()))


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """A served table or view, with its files, its build's birth certificate, and its boards.

    `boards` are the boards whose queries name the table. `view.readers` are the processes that pin
    the build at present, even if the description is of a past snapshot. `files` is None if rows and
    files were not counted.
    """

    view: TableView
    files: StoredFiles | None
    birth: Birth
    boards: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Returns the sources of the rows: topics, a file of the project, or the view's query."""
        name = self.view.table.name
        born = next((each for each in self.birth.tables if each.name == name), None)
        if born is not None and born.file is not None:
            return ("a file of the project",)
        if self.view.sql is not None:
            return ("its query",)
        return tuple(f"topic {topic.name}" for topic in self.birth.topics)

    @property
    def sinks(self) -> tuple[str, ...]:
        """Returns the topics to which sinks send the table's rows."""
        return tuple(each.topic for each in self.birth.sinks if each.of == self.view.table.name)

    @property
    def alerts(self) -> tuple[str, ...]:
        """Returns the names of the alerts that are sent when rows of the table change."""
        return tuple(each.name for each in self.birth.alerts if each.of == self.view.table.name)


def describe_table(
    store: Store,
    project: Path,
    name: str,
    *,
    now: float,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> DescribedTable:
    """Describes a served table or view. `now` is in seconds since 1970.

    `when` selects a snapshot of the past; None means the present. Raises UsageError if no pipeline
    serves a table of that name.
    """
    table, files, birth = served_table(store, name, when=when, lease_seconds=lease_seconds)
    with open_reader(None, served=True) as reader:

        def names_in(sql: str) -> frozenset[str]:
            return frozenset(named for _, named in reader.tables_named(sql))

        return DescribedTable(
            table_view(
                table,
                birth,
                sorted_leases(store, now)[0],
                names_in,
                whole=f"{quoted(schema_of(table.pipeline))}.{quoted(table.name)}",
                costs=read_view_costs(store, birth.folded_by),
                origins=column_origins(birth).get(table.name, {}),
            ),
            files,
            birth,
            boards_naming(project, frozenset({table.name}), names_in),
        )


def boards_naming(
    project: Path, tables: frozenset[str], names_in: Callable[[str], frozenset[str]]
) -> tuple[str, ...]:
    """Lists the project's boards whose queries name one of the tables.

    `names_in` returns the tables that a query names.
    """
    return tuple(
        name
        for name, board in boards_in(project).items()
        if isinstance(board, Board) and any(tables & names_in(chart.sql) for chart in board.charts)
    )


def described_listing(found: DescribedTable) -> Listing:
    """Returns a listing with one row per column of the table: name, type, role and origin."""
    rows = (
        (each.name, each.kind, each.role or "a value", each.origin.text)
        for each in found.view.columns
    )
    return Listing(("column", "type", "is", "from"), tuple(rows))


def described_text(found: DescribedTable) -> str:
    """Formats all facts about a table except its columns for display, with one fact per line."""
    view, table = found.view, found.view.table
    version = "" if table.version is None else f", Delta version {table.version}"
    readers = (
        *(f"view {each}" for each in view.views),
        *(f"the sink to topic {each}" for each in found.sinks),
        *(f"alert {each}" for each in found.alerts),
        *(f"board {each}" for each in found.boards),
        *(f"{each.by}, process {each.pid}, now" for each in view.readers),
    )
    lines = [
        f"{table.kind} {table.name} of pipeline {table.pipeline}, build {table.build}{version}",
        *([] if found.files is None else [_size_text(table, found.files)]),
        *([f"one row for each {', '.join(view.keys)}"] if view.keys else []),
        f"written by pipeline {table.pipeline} from {', '.join(found.sources)}",
        *([] if view.cost is None else [f"last {view.cost.text}"]),
        f"read by {'; '.join(readers) or 'no view, sink, alert or board'}",
        *(f"checked before each promote: {each}" for each in view.checks),
        *([f"cannot be read: {table.broken}"] if table.broken else []),
        *([] if view.sql is None else ["the query:", view.sql]),
    ]
    return "".join(f"{line}\n" for line in lines)


def _size_text(table: ServedTable, files: StoredFiles) -> str:
    rows = "rows unknown" if table.rows is None else count_of(table.rows, "row")
    stored = f", {count_of(files.count, 'file')}, {size(files.bytes)}"
    return f"{rows}{stored if table.path is not None else ''}"


def described_document(found: DescribedTable) -> dict[str, Any]:
    """Returns all facts about a table as a JSON document."""
    view, table = found.view, found.view.table
    return {
        "table": table.name,
        "kind": table.kind,
        "pipeline": table.pipeline,
        "build": table.build,
        "version": table.version,
        "path": table.path,
        "where": table.where,
        "recent": [{"version": version, "path": path} for version, path in table.recent],
        "rows": table.rows,
        "files": None if found.files is None else found.files.count,
        "bytes": None if found.files is None else found.files.bytes,
        "keys": list(view.keys),
        "columns": [
            {
                "name": each.name,
                "type": each.kind,
                "is": each.role or None,
                "from": None
                if each.origin.why_not
                else [to_builtins(one) for one in each.origin.sources],
            }
            for each in view.columns
        ],
        "written_from": list(found.sources),
        "read_by": {
            "views": list(view.views),
            "sinks": list(found.sinks),
            "alerts": list(found.alerts),
            "boards": list(found.boards),
            "processes": [
                {"by": each.by, "pid": each.pid, "leases": each.leases} for each in view.readers
            ],
        },
        "checks": list(view.checks),
        "cost": None if view.cost is None else to_builtins(view.cost),
        "query": view.sql,
        "broken": table.broken or None,
    }
