"""Checks that declared views and checks use only the tables of their own pipeline."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping

from kappa.base.errors import KappaError, UsageError
from kappa.base.sql import quoted
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.reader import Reader, open_reader
from kappa.serving.query.reader.sql_rules import ensure_repeatable
from kappa.serving.query.reader.table_sql import condition_sql
from kappa.state.table import TableBirth
from kappa.tables.views.served_rows_sql import read_sql
from kappa.tables.views.syntax_tree import tables_in


def make_views(reader: Reader, views: Mapping[str, str]) -> Mapping[str, KappaError]:
    """Creates views, and returns the error of each view that cannot be created, by name.

    Each view is created after the views that it reads.
    """
    pending, refusals = dict(views), dict[str, KappaError]()
    while pending:
        refusals = {
            name: error
            for name, sql in pending.items()
            if (error := _refusal_of_view(reader, name, sql))
        }
        if len(refusals) == len(pending):
            break
        pending = {name: pending[name] for name in refusals}
    return refusals


def _refusal_of_view(reader: Reader, view: str, sql: str) -> KappaError | None:
    try:
        meant = reader.declared_sql(sql)
        reader.run_command(f"create view {quoted(view)} as {meant}")
    except TooMuch:
        raise
    except KappaError as error:
        # A file that is not at hand is no UsageError.
        return error
    return None


def unreadable_sql(
    tables: Iterable[TableBirth], views: Mapping[str, str]
) -> Mapping[str, KappaError]:
    """Finds the views and declared checks of a pipeline that do not fit the pipeline's tables.

    The queries are tried on tables without rows. Returns the errors: by the name of the view, or by
    `TABLE: CONDITION` for a check.
    """
    tables = tuple(tables)
    found: dict[str, KappaError] = {}
    with open_reader(None, served=True) as reader:
        for table in tables:
            reader.run_command(
                f"create view {quoted(table.name)} as {read_sql(table, (), clock=None)}"
            )
        refused = _refusals_by_rules(reader, tables, views, views, what="a view")
        allowed = {name: sql for name, sql in views.items() if name not in refused}
        found |= {**make_views(reader, allowed), **refused}
        for table in tables:
            conditions = {
                f"{table.name}: {condition}": condition_sql(table.name, condition)
                for condition in table.checks
            }
            found |= _refusals_by_rules(reader, tables, views, conditions, what="a check")
            for name, sql in conditions.items():
                if name not in found:
                    try:
                        reader.rows(sql)
                    except UsageError as error:
                        found[name] = error
    return found


def view_refusals(
    tables: Iterable[TableBirth], views: Mapping[str, str]
) -> Mapping[str, UsageError]:
    """Finds views whose result depends on more than the pipeline's tables.

    Returns the error of each such view, by name. A view may read the pipeline's tables and other
    views, named without a schema. A view may not read a file or the relations of other pipelines:
    the rows would have no version, and every query would fail if the file were missing. A view may
    not call a function whose value changes from call to call.
    """
    with open_reader(None, served=True) as reader:
        return _refusals_by_rules(reader, tuple(tables), views, views, what="a view")


def _refusals_by_rules(
    reader: Reader,
    tables: tuple[TableBirth, ...],
    views: Collection[str],
    queries: Mapping[str, str],
    *,
    what: str,
) -> Mapping[str, UsageError]:
    names = {table.name for table in tables} | set(views)
    columns = {column for table in tables for column, _ in table.columns}
    refusals: dict[str, UsageError] = {}
    for name, sql in queries.items():
        try:
            tree = reader.parser_tree(reader.only_select(sql))
            # A view that reads itself is refused for that; else its own name is not a table.
            others = names - ({name} - {table for _, table in tables_in(tree)})
            ensure_repeatable(tree, others, columns, what=what)
        except UsageError as error:
            refusals[name] = error
    return refusals


@functools.lru_cache(maxsize=1024)
def tables_named(sql: str) -> frozenset[str]:
    """Returns the tables that a query names.

    The tables need not exist. If the text is not a query, the result is empty.
    """
    with open_reader(None, served=True) as reader:
        return frozenset(name for _, name in reader.tables_named(sql))
