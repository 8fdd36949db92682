"""A table or view as values: columns, folds, and readers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from inspect import cleandoc

from kappa.serving.query.reader.table_sql import type_text
from kappa.serving.query.tables import ServedTable
from kappa.state.build import Birth
from kappa.state.build_status import ViewCost
from kappa.state.lease import Lease


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column that readers see: DuckDB's type, and the role: key, fold, latest value, or none."""

    name: str
    kind: str
    role: str


@dataclass(frozen=True, slots=True)
class ReaderProcess:
    """A process that has the table's build pinned now, with the number of leases."""

    by: str
    pid: int
    leases: int


@dataclass(frozen=True, slots=True)
class TableView:
    """All values that the page of a table shows.

    `sql` makes a view, maintained or not, as declared except for the indentation; `views` are the
    views of the same pipeline that read the table.
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


def table_view(
    table: ServedTable,
    birth: Birth,
    leases: Iterable[Lease],
    names_in: Callable[[str], frozenset[str]],
    *,
    whole: str,
    costs: Mapping[str, ViewCost],
) -> TableView:
    """Makes the view of a table.

    `names_in` returns the tables that a query names; `whole` is the quoted name of the table with
    the schema. `costs` are the costs of the build's maintained views.
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
        tuple(ShownColumn(name, type_text(kind), role(name)) for name, kind in table.columns),
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
    )


def first_query(table: ServedTable, whole: str) -> str:
    """Returns the first text of the box for SQL: all columns, by the public name if any."""
    plain = table.name.isidentifier() and table.name.islower() and table.name != "rejects"
    return f"select *\nfrom {table.name if plain else whole}\nlimit 100"


def _reader_processes(leases: Iterable[Lease], build: str) -> tuple[ReaderProcess, ...]:
    counted: dict[tuple[str, int], int] = {}
    for lease in leases:
        if build in lease.pins:
            counted[lease.by, lease.pid] = counted.get((lease.by, lease.pid), 0) + 1
    return tuple(ReaderProcess(by, pid, count) for (by, pid), count in sorted(counted.items()))
