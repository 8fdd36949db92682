"""Maintained views as the tables of a build: what their queries read, and which columns they have.

DuckDB says so, of tables without rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kappa.base.duck import DUCKDB_ERRORS, Connection, open_connection
from kappa.base.errors import DeclarationError
from kappa.base.sql import quoted
from kappa.declare.options import DELETED
from kappa.declare.pipeline import Pipeline
from kappa.declare.view import View
from kappa.state.table import NUMBER, SINCE, TableBirth
from kappa.tables.shape import table_births
from kappa.values.columns import Array, Scalar, Struct, Type, parse_type
from kappa.views.served import read_sql
from kappa.views.types import spark_type


def build_tables(
    pipeline: Pipeline, outputs: Mapping[str, Mapping[str, Type]]
) -> tuple[TableBirth, ...]:
    """Lists the tables of a build of this pipeline, its maintained views among them.

    The rejects are last. Raises DeclarationError as `table_births` and `view_births` do.
    """
    *tables, rejects = table_births(pipeline, outputs)
    return (*tables, *view_births(pipeline.views, (*tables, rejects)), rejects)


def view_births(views: Sequence[View], tables: Iterable[TableBirth]) -> tuple[TableBirth, ...]:
    """Returns the maintained views as tables, each after those it reads.

    Raises DeclarationError, with the view's line, if its query cannot be read, its keys are no
    columns of it, or a table cannot have its columns.
    """
    if not any(view.is_maintained for view in views):
        return ()
    births: list[TableBirth] = []
    # Of each view that is not stored: its query, after those of the views that it reads.
    inlined: dict[str, str] = {}
    with open_connection() as duck:
        for table in tables:
            _make(duck, table.name, read_sql(table, ()))
        pending, refused = list(views), dict[str, Exception]()
        while pending:
            refused = {}
            for view in pending:
                try:
                    columns = _columns(duck, view)
                except DUCKDB_ERRORS as error:
                    refused[view.name] = error
                    continue
                if not view.is_maintained:
                    _make(duck, view.name, view.sql)
                    inlined[view.name] = view.sql
                    continue
                births.append(_birth(duck, view, columns, inlined))
                _make(duck, view.name, read_sql(births[-1], ()))
            if len(refused) == len(pending):
                raise _refused(duck, pending, refused)
            pending = [view for view in pending if view.name in refused]
    return tuple(births)


def _make(duck: Connection, name: str, sql: str) -> None:
    duck.execute(f"create view {quoted(name)} as {sql}")


def _columns(duck: Connection, view: View) -> list[tuple[str, Any]]:
    found = duck.sql(f"select * from (\n{view.sql}\n)")
    return list(zip(found.columns, found.types, strict=True))


def _birth(
    duck: Connection, view: View, columns: list[tuple[str, Any]], inlined: Mapping[str, str]
) -> TableBirth:
    where = f"{view.source}: view {view.name}"
    names = [name for name, _ in columns]
    for name in names:
        if name.startswith("_") or names.count(name) > 1:
            raise DeclarationError(
                f"{where} has a column {name}"
                + (" twice" if names.count(name) > 1 else ", and that is the platform's own name"),
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
            if isinstance(kind, Array | Struct) or kind in {Scalar("double"), Scalar("float")}:
                raise DeclarationError(
                    f"{where} has {key} of type {kind} among its {what}, which has no exact"
                    " equality",
                    hint="key by text, whole numbers, decimals, dates or times",
                )
    read = duck.get_table_names(view.sql)
    used, frontier = dict[str, str](), set(read)
    while frontier:
        above = {name: inlined[name] for name in frontier if name in inlined}
        used = {**above, **used}
        frontier = {each for sql in above.values() for each in duck.get_table_names(sql)} - {*used}
        read |= frontier
    # In the order in which they were made, so that each comes after those it reads.
    named = [f"{quoted(name)} as (\n{inlined[name]}\n)" for name in inlined if name in used]
    sql = f"with {', '.join(named)}\nselect * from (\n{view.sql}\n)" if named else view.sql
    numbered = () if view.keys else ((NUMBER, "bigint"),)
    return TableBirth(
        view.name,
        (*kinds.items(), *numbered, (DELETED, "boolean"), (SINCE, "bigint")),
        keys=view.keys,
        checks=view.checks,
        thresholds=view.thresholds,
        view=sql,
        by=view.by,
        reads=tuple(sorted(read - {*used})),
    )


def _refused(
    duck: Connection, pending: Sequence[View], refused: Mapping[str, Exception]
) -> DeclarationError:
    """Returns the error of the first view that can never be made."""
    names = {view.name for view in pending}
    for view in pending:
        others = sorted(names & set(_names_in(duck, view.sql)))
        if not others:
            return DeclarationError(
                f"{view.source}: view {view.name} cannot be read: {refused[view.name]}"
            )
    first = pending[0]
    return DeclarationError(
        f"{first.source}: views {' and '.join(sorted(names))} read each other",
        hint="a view reads tables, and views that do not read it",
    )


def _names_in(duck: Connection, sql: str) -> set[str]:
    try:
        return set(duck.get_table_names(sql))
    except DUCKDB_ERRORS:
        return set()
