"""One table as `kappa tables TABLE` describes it: columns, files, writer and readers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from kappa.base.sql import quoted
from kappa.base.units import count_of, size
from kappa.declare.board import Board, boards_in
from kappa.replay.page.table import TableView, table_view
from kappa.serving.query.pin.moments import Past
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.render import Listing
from kappa.serving.query.tables import ServedTable, StoredFiles, served_table
from kappa.state.build import Birth
from kappa.state.build_status import read_view_costs
from kappa.state.lease import sorted_leases
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class DescribedTable:
    """A served table or view, with its files, the birth of its build, and the boards that name it.

    The readers that pin the build are the present readers, even for a table of the past. `files` is
    None if rows and files were not counted.
    """

    view: TableView
    files: StoredFiles | None
    birth: Birth
    boards: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """Returns the topics, tables or file that the rows come from, each with its kind."""
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
        """Returns the alerts on the table's rows."""
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
    """Describes a served table or view at `now` (seconds since 1970).

    Raises UsageError if no pipeline serves a table of that name.
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
            ),
            files,
            birth,
            boards_naming(project, table.name, names_in),
        )


def boards_naming(
    project: Path, table: str, names_in: Callable[[str], frozenset[str]]
) -> tuple[str, ...]:
    """Lists the project's boards whose queries name a table; `names_in` returns those names."""
    return tuple(
        name
        for name, board in boards_in(project).items()
        if isinstance(board, Board) and any(table in names_in(chart.sql) for chart in board.charts)
    )


def described_listing(found: DescribedTable) -> Listing:
    """Makes a row of each column."""
    rows = ((each.name, each.kind, each.role or "a value") for each in found.view.columns)
    return Listing(("column", "type", "is"), tuple(rows))


def described_text(found: DescribedTable) -> str:
    """Returns all facts but the columns for people, a fact a line."""
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
    """Returns all facts for machines."""
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
            {"name": each.name, "type": each.kind, "is": each.role or None} for each in view.columns
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
