"""Describes maintained views as tables of a build: the relations that they read, and columns.

DuckDB derives the relations and the columns, with tables that contain no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kappa.base.duck import DUCKDB_ERRORS, Connection, open_connection, told_by, without_kind
from kappa.base.errors import DeclarationError, joined_error
from kappa.base.sql import lowered, quoted
from kappa.declare.options import DELETED
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.columns import Array, Scalar, Struct, Type, parse_type
from kappa.declare.view import View
from kappa.state.table import NUMBER, SINCE, TableBirth
from kappa.tables.shape import table_births
from kappa.tables.views.incremental_view import by_change
from kappa.tables.views.query_binding import why_not_bound
from kappa.tables.views.repeatable_query import inexact
from kappa.tables.views.served_rows_sql import read_sql
from kappa.tables.views.syntax_tree import tables_in, tree_of
from kappa.tables.views.ties import tied

_NO_CIRCLE = "a view reads tables, and views that do not read it"


def build_tables(
    pipeline: Pipeline, outputs: Mapping[str, Mapping[str, Type]]
) -> tuple[TableBirth, ...]:
    """Describes all tables of a new build of a pipeline, including maintained views.

    `outputs` contains, for each table whose rows the pipeline's function returns, the names and
    types of the returned columns. The table of rejects is last. Raises DeclarationError as
    `table_births` and `view_births` do.
    """
    return with_views(pipeline, table_births(pipeline, outputs))


def with_views(pipeline: Pipeline, tables: tuple[TableBirth, ...]) -> tuple[TableBirth, ...]:
    """Adds a pipeline's maintained views to its tables. The table of rejects remains last."""
    *others, rejects = tables
    return (*others, *view_births(pipeline.views, tables), rejects)


def view_births(views: Sequence[View], tables: Iterable[TableBirth]) -> tuple[TableBirth, ...]:
    """Describes maintained views as tables, each view after the tables and views that it reads.

    Raises DeclarationError, with the view's line, in these cases: DuckDB cannot read the view's
    query, the query returns rows from empty tables, the keys are not columns of the query, a table
    cannot store the columns, or the rows depend on the order in which DuckDB reads other rows.
    """
    if not any(view.is_maintained for view in views):
        return ()
    tables = tuple(tables)
    with open_connection() as duck:
        for table in tables:
            make_empty(duck, table)
        return births_in(duck, views, tables)


def births_in(
    duck: Connection, views: Sequence[View], tables: Sequence[TableBirth]
) -> tuple[TableBirth, ...]:
    """Describes maintained views as tables, each view after the tables and views that it reads.

    `duck` is a connection in which `tables` exist, without rows. Raises the errors of
    `view_births`.
    """
    births = list[TableBirth]()
    # Of each view that is not stored: its query, after the queries of the views that it reads.
    inlined: dict[str, str] = {}
    pending, refused = list(views), dict[str, Exception]()
    while pending:
        refused = {}
        for view in pending:
            try:
                columns = _view_columns(duck, view)
            except DUCKDB_ERRORS as error:
                refused[view.name] = error
                continue
            if not view.is_maintained:
                duck.execute(f"create view {quoted(view.name)} as {view.sql}")
                inlined[view.name] = view.sql
                continue
            stored = {table.name: table for table in (*tables, *births)}
            births.append(_view_birth(duck, view, columns, inlined, stored))
            make_empty(duck, births[-1])
        if len(refused) == len(pending):
            joined = joined_error(_refused_views(duck, pending, refused))
            assert joined is not None, "each pending view is refused"
            raise joined
        pending = [view for view in pending if view.name in refused]
    return tuple(births)


def make_empty(duck: Connection, table: TableBirth) -> None:
    """Creates an empty table in DuckDB, with the columns of `table` that readers see."""
    # A table, not a view: DuckDB would name the relations that a view reads in place of the view.
    duck.execute(f"create table {quoted(table.name)} as {read_sql(table, (), clock=None)}")


def can_be_key(kind: Type) -> bool:
    """Returns True if a view may have columns of this type among its keys."""
    return not isinstance(kind, Array | Struct) and kind not in {Scalar("double"), Scalar("float")}


def _view_columns(duck: Connection, view: View) -> list[tuple[str, Any]]:
    found = duck.sql(f"select * from (\n{view.sql}\n)")
    # A subquery renames the second of two columns of the same name.
    names = [name for name, *_ in duck.execute(view.sql).description or ()]
    return list(zip(names, found.types, strict=True))


def _view_birth(
    duck: Connection,
    view: View,
    columns: list[tuple[str, Any]],
    inlined: Mapping[str, str],
    stored: Mapping[str, TableBirth],
) -> TableBirth:
    where = f"{view.source}: view {view.name}"
    names = [name for name, _ in columns]
    # Delta takes names that differ in case alone for the same name.
    lowered = [name.lower() for name in names]
    for name in names:
        is_twice = lowered.count(name.lower()) > 1
        if name.startswith("_") or is_twice:
            raise DeclarationError(
                f"{where} has a column {name}"
                + (" twice" if is_twice else ", and that is the platform's own name"),
                hint="name it in the query: ... as NAME",
            )
    kinds = {name: spark_type(kind, f"{where}: its column {name}") for name, kind in columns}
    for what, wanted in (("keys", view.keys), ("by", view.by)):
        for key in wanted:
            if key not in kinds:
                raise DeclarationError(
                    f"{where} has {key} among its {what}, and its query has no such column",
                    hint=f"it has {', '.join(names)}",
                )
            kind = parse_type(kinds[key])
            if not can_be_key(kind):
                raise DeclarationError(
                    f"{where} has {key} of type {kind} among its {what}, which has no exact"
                    " equality",
                    hint="key by text, whole numbers, decimals, dates or times",
                )
    if duck.execute(view.sql).fetchone() is not None:
        raise DeclarationError(
            f"{where} has rows where its tables have none, and a new build stores none then",
            hint="group its rows by something; or leave keys out: then it is computed when it"
            " is read",
        )
    used, named_ones = _reached_relations(duck, view.sql, inlined)
    # In the order of their making, so that each comes after the views that it reads.
    named = [f"{quoted(name)} as (\n{inlined[name]}\n)" for name in inlined if name in used]
    sql = f"with {', '.join(named)}\nselect * from (\n{view.sql}\n)" if named else view.sql
    tree = tree_of(duck, sql)
    if (found := inexact(duck, tree) or tied(tree, stored)) is not None:
        what, instead = found
        raise DeclarationError(
            f"{where} has {what}: its rows would not follow from its tables", hint=instead
        )
    reads = tuple(sorted(named_ones & stored.keys()))
    if (
        why := why_not_bound(duck, sql, {name: f"from {quoted(name)}" for name in reads})
    ) is not None:
        raise DeclarationError(
            f"{where} cannot be kept: {why}",
            hint="give each relation a name of its own in the query, and name tables without a"
            " schema",
        )
    read = {name: stored[name] for name in reads}
    change = by_change(duck, tree, view.keys, read) if view.keys else None
    state = () if change is None else change.state
    beside = [(each.name, spark_type(each.type, f"{where}: its sum")) for each in state]
    numbered = () if view.keys else ((NUMBER, "bigint"),)
    return TableBirth(
        view.name,
        (*kinds.items(), *beside, *numbered, (DELETED, "boolean"), (SINCE, "bigint")),
        keys=view.keys,
        checks=view.checks,
        thresholds=view.thresholds,
        view=sql,
        by=view.by,
        reads=reads,
    )


def _reached_relations(
    duck: Connection, sql: str, inlined: Mapping[str, str]
) -> tuple[set[str], set[str]]:
    """Returns the unstored views that a query reads, and the names of all relations that it reads.

    Both sets also contain what the query reads through unstored views, at any depth. `inlined`
    contains the queries of the unstored views.
    """
    used, names, texts = set[str](), set[str](), [sql]
    while texts:
        found = _names_in(duck, texts.pop())
        names |= found
        new = found & inlined.keys() - used
        used |= new
        texts += (inlined[name] for name in new)
    return used, names


def _refused_views(
    duck: Connection, pending: Sequence[View], refused: Mapping[str, Exception]
) -> Iterator[DeclarationError]:
    """Yields an error for each view that can never become a table.

    Such a view reads itself, or DuckDB cannot read its query although the query names no pending
    view. If there is no such view, the pending views read each other, and a single error names all
    of them. `refused` contains DuckDB's error for each pending view.
    """
    names = {view.name for view in pending}
    found = False
    for view in pending:
        named = _names_in(duck, view.sql)
        if view.name in named:
            found = True
            yield DeclarationError(f"{view.source}: view {view.name} reads itself", hint=_NO_CIRCLE)
        elif not names & named:
            found = True
            message, hints = told_by(refused[view.name])
            yield DeclarationError(
                f"{view.source}: view {view.name} cannot be read: {without_kind(message)}",
                hint="; ".join(hints),
            )
    if not found:
        yield DeclarationError(
            f"{pending[0].source}: views {' and '.join(sorted(names))} read each other",
            hint=_NO_CIRCLE,
        )


def _names_in(duck: Connection, sql: str) -> set[str]:
    return {lowered(name) for _, name in tables_in(tree_of(duck, sql))}


# In the spelling of DuckDB's own names of types.
_NAMES = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    # The type of a sum of whole numbers.
    "hugeint": "decimal(38,0)",
    "utinyint": "smallint",
    "usmallint": "int",
    "uinteger": "bigint",
    "ubigint": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "varchar": "string",
    "blob": "binary",
    "date": "date",
    "timestamp with time zone": "timestamp",
}
# The hint for a type that no table's file can have a column of.
_CAST = "cast it in the query, as in count(*)::bigint or at::timestamptz"


def spark_type(duck: Any, where: str) -> str:
    """Returns the name of the Spark type that corresponds to a DuckDB type.

    Raises DeclarationError, with a message that begins with `where`, if a table cannot have a
    column of that type.
    """
    kind = str(duck.id)
    match kind:
        case "decimal":
            parts = dict(duck.children)
            return f"decimal({parts['precision']},{parts['scale']})"
        case "list":
            return f"array<{spark_type(dict(duck.children)['child'], where)}>"
        case "struct":
            fields = (f"{name}:{spark_type(each, where)}" for name, each in duck.children)
            return f"struct<{','.join(fields)}>"
    if kind not in _NAMES:
        raise DeclarationError(
            f"{where} is of DuckDB's type {duck}, which no table can keep", hint=_CAST
        )
    return _NAMES[kind]
