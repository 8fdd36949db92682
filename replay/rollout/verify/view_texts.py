"""Compares the stored rows of maintained views with the users' queries, at one frontier.

After a slice, Kappa updates a view with a rewritten query, and a rewritten query cannot check
itself. So the stored rows are compared with the result of the user's own query, which DuckDB runs
over the tables (docs/design.md describes this as invariant I11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError
from kappa.base.sql import quoted, text
from kappa.serving.query.reader.table_sql import schema_of
from kappa.state.build_status import table_step
from kappa.state.journal.events import Check
from kappa.state.table import TableBirth
from kappa.tables.parquet import casts_sql, duck_type

if TYPE_CHECKING:
    # Proofs are shown without DuckDB.
    from kappa.serving.query.reader.reader import Reader

IS_ITS_TEXT = "its stored rows are those of its query"
# For a larger view, rows with this many values of one column are compared.
_SAMPLED = 32


def compare_view_texts(
    reader: Reader,
    pipeline: str,
    tables: Iterable[TableBirth],
    *,
    most_rows: int | None = None,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> Iterator[Check]:
    """Yields a check for each maintained view: its stored rows must equal the rows of its query.

    The schema of the pipeline in `reader` must contain the tables of a build. If the tables that a
    view reads have more than `most_rows` rows in total, only a sample of the view is compared. A
    check that could not be run has an error.
    """
    views = [table for table in tables if table.view is not None]
    for number, view in enumerate(views, 1):
        on_progress(table_step("comparing with its query:", view.name, number, len(views)))
        try:
            # Without it, a limit in a join may be computed wrongly
            # (kappa/state/files/duckdb_access.py).
            reader.run_command("set disabled_optimizers = 'top_n'")
            # A text's names of tables are looked up in the pipeline's schema, as for readers.
            reader.run_command(f"set search_path = {text(schema_of(pipeline))}")
            ((rows, unlike),) = reader.rows(_compared_sql(reader, view, most_rows)).rows
        except KappaError as error:
            yield Check(view.name, IS_ITS_TEXT, 0, None, error.message)
        else:
            yield Check(view.name, IS_ITS_TEXT, int(rows), int(unlike))
        finally:
            reader.run_command("reset search_path")
            reader.run_command("set disabled_optimizers = ''")


def unlike_text(check: Check) -> str:
    """Returns a sentence about a view that differs from its query or could not be compared."""
    if check.failing is None:
        return f"view {check.table} could not be compared with its query: {check.error}"
    return (
        f"view {check.table} is not its query over the tables: {check.failing:,} rows are stored"
        f" or computed alone, of {check.rows:,}"
    )


def _compared_sql(reader: Reader, view: TableBirth, most_rows: int | None) -> str:
    """Returns a query that counts the rows of a view, and the rows that only one side has.

    One side is the stored rows; the other side is the rows of the user's query.
    """
    assert view.view is not None
    where = "" if most_rows is None else _sample_condition(reader, view, most_rows)
    casts = casts_sql(view.served)
    meant = reader.declared_sql(view.view)
    stored = f"select {', '.join(quoted(name) for name, _ in view.served)} from {quoted(view.name)}"
    return (
        f"with _text as materialized (select {casts} from (\n{meant}\n){where}),"
        f" _stored as materialized ({stored}{where})"
        " select (select count(*) from _stored),"
        " (select count(*) from (from _stored except all from _text))"
        " + (select count(*) from (from _text except all from _stored))"
    )


def _sample_condition(reader: Reader, view: TableBirth, most_rows: int) -> str:
    """Returns a `where` clause that selects the rows to compare, or "" for all rows."""
    read = " + ".join(f"(select count(*) from {quoted(name)})" for name in view.reads) or "0"
    if int(reader.rows(f"select {read}").rows[0][0]) <= most_rows:
        return ""
    # DuckDB pushes constants down to the files where a query's groups and joins allow it.
    by = view.by[0]
    drawn = reader.rows(
        f"select distinct {quoted(by)}::varchar from {quoted(view.name)} where {quoted(by)} is not"
        f" null order by hash({quoted(by)}::varchar) limit {_SAMPLED}"
    ).rows
    kind = duck_type(dict(view.columns)[by])
    values = ", ".join(f"{text(value)}::{kind}" for (value,) in drawn) or f"null::{kind}"
    return f" where {quoted(by)} in ({values})"
