"""The rows that readers would see of a build that is folded in this process.

DuckDB reads the files of the frontier, as in a query. A comparison of the views' queries with the
stored rows also tests the law of views.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kappa.base.duck import DUCKDB_ERRORS, Connection, told_by, without_kind
from kappa.base.errors import DeclarationError
from kappa.base.sql import quoted
from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal
from kappa.state.files.duckdb_access import open_for_few_rows
from kappa.state.log_clock import log_clock
from kappa.state.offsets import Offsets
from kappa.tables.parquet import casts_sql
from kappa.tables.versions import files
from kappa.tables.views.exact_rows import rows_of
from kappa.tables.views.served import read_sql

_SHOWN = 3


def rows_of_log(local: LocalPipeline, log: MemoryLog) -> dict[str, list[dict[str, Any]]]:
    """Folds a log in one slice, and returns the rows that readers see, by table or view.

    Raises the errors of a slice, and of `served_rows`.
    """
    with tempfile.TemporaryDirectory(prefix="kappa-tables-") as scratch:
        build = Rehearsal(Path(scratch), local, log, driver_rows=log.end.distance(Offsets()))
        try:
            build.fold(log.end)
            return served_rows(build)
        finally:
            build.close()


def served_rows(build: Rehearsal) -> dict[str, list[dict[str, Any]]]:
    """Reads all tables and views at the frontier, rows ordered by all columns.

    Raises DeclarationError if a view cannot be read, or computed.
    """
    tables = _tables(build)
    views = build.pipeline.view_queries
    found = {}
    with _opened(build, tables, views) as duck:
        for name in (*tables, *views):
            with _told_of_views(build, name):
                found[name] = [*rows_of(duck, f"from {quoted(name)} order by all")]
    return found


def unlike_queries(build: Rehearsal) -> list[str]:
    """Returns a sentence for each maintained view that differs from the query (I11).

    Compares at the frontier. Raises DeclarationError if a view cannot be read, or computed.
    """
    births = [table for table in build.birth.tables if table.view is not None]
    tables, found = _tables(build), list[str]()
    queries = {view.name: view.sql for view in build.pipeline.views}
    stored = {birth.name: tables.pop(birth.name) for birth in births}
    for birth in births:
        # A view over this view reads columns of the served types: a hugeint is a decimal there.
        queries[birth.name] = f"select {casts_sql(birth.served)} from (\n{queries[birth.name]}\n)"
    with _opened(build, tables, queries) as duck:
        for birth in births:
            sides = (f"({stored[birth.name]})", quoted(birth.name))
            for (one, other), is_stored in ((sides, True), (sides[::-1], False)):
                with _told_of_views(build, birth.name):
                    rows = [*rows_of(duck, f"from {one} except all from {other} order by all")]
                if rows:
                    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
                    found.append(
                        f"view {birth.name} {'stores' if is_stored else 'lacks'}"
                        f" {', '.join(map(str, rows[:_SHOWN]))}{more},"
                        f" which its query {'does not have' if is_stored else 'has'}"
                    )
    return found


def _tables(build: Rehearsal) -> dict[str, str]:
    """Returns the query for each table's rows at the frontier, by name."""
    newest = build.publisher.newest
    clock = log_clock(build.birth, newest.log_time)
    return {
        writer.birth.name: read_sql(
            writer.birth,
            files(
                writer.path,
                newest.versions[writer.birth.name],
                newest.file_lists.get(writer.birth.name),
            ),
            clock=clock,
        )
        for writer in build.slices.writers
    }


@contextmanager
def _opened(
    build: Rehearsal, tables: Mapping[str, str], views: Mapping[str, str]
) -> Iterator[Connection]:
    with open_for_few_rows() as duck:
        for name, sql in tables.items():
            duck.execute(f"create view {quoted(name)} as {sql}")
        pending = dict(views)
        while pending:
            refused = {
                name: why for name, sql in pending.items() if (why := _make(duck, name, sql))
            }
            if len(refused) == len(pending):
                # A view that reads a refused view is refused only for that reason.
                source = {view.name: view.source for view in build.pipeline.views}
                name, why = next(iter(refused.items()))
                raise DeclarationError(f"{source[name]}: view {name} cannot be read: {why}")
            pending = {name: views[name] for name in refused}
        yield duck


@contextmanager
def _told_of_views(build: Rehearsal, name: str) -> Iterator[None]:
    """Raises DeclarationError, with the view's line, if DuckDB cannot compute the view."""
    try:
        yield
    except DUCKDB_ERRORS as error:
        for view in build.pipeline.views:
            if view.name == name:
                raise DeclarationError(
                    f"{view.source}: view {name} cannot be computed over these records: "
                    f"{without_kind(told_by(error)[0])}",
                    hint="fix its query: other records may be fit for it, and these are not",
                ) from error
        raise


def _make(duck: Connection, name: str, sql: str) -> str:
    try:
        duck.execute(f"create view {quoted(name)} as {sql}")
    except DUCKDB_ERRORS as error:
        return without_kind(told_by(error)[0])
    return ""
