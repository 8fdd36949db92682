"""Merges: the SQL by which contributions fold into the rows of their keys (laws 4 and 9). Pure.

The SQL is valid in Spark, DataFusion (delta-rs) and DuckDB; only the quotes of names differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from msgspec.structs import replace

from kappa.base.sql import quoted
from kappa.declare.folds.fold import MergedFold, Quote
from kappa.declare.folds.order import ORDER_COLUMNS, later_condition
from kappa.declare.folds.sums import carried_type
from kappa.state.table import SINCE, TableBirth


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge as SQL, with names already quoted. `t` is the table, and `s` the contributions.

    `match` is the condition on the keys. `update` maps each column to the expression for its new
    value in a matching row, and `insert` maps each column to the expression for its value in a new
    row. If `update_when` is given, only the matching rows that satisfy this condition are updated.
    """

    match: str
    update: Mapping[str, str]
    insert: Mapping[str, str]
    update_when: str | None = None


def contribution_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """Lists the columns of a contribution, as pairs of name and type.

    These are the table's columns, except the columns that are computed from other columns.
    """
    folds, types = table.folds.items(), dict(table.columns)
    follow = {each for name, fold in folds for each in fold.derived_columns(name, types)}
    narrow = {each for name, fold in folds for each in fold.narrow_sums(name, types)}
    return tuple(
        (name, carried_type(kind) if name in narrow else kind)
        for name, kind in table.columns
        if name not in follow
    )


def committed_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """Lists the columns of the rows that are merged into a table, as pairs of name and type.

    If the table's folds are combined, the new rows of the table are merged, with all its columns.
    Otherwise contributions are merged, with the columns of `contribution_columns`.
    """
    return table.columns if table.is_combined else contribution_columns(table)


def merge_for(table: TableBirth, quote: Quote) -> Merge:
    """Returns the merge of contributions (`s`) into a table that has keys (`t`)."""
    # Brackets matter: to DataFusion, `a is not distinct from b and c` is
    # `a is not distinct from (b and c)`.
    match = " and ".join(
        f"(t.{quote(key)} is not distinct from s.{quote(key)})" for key in table.row_keys
    )
    whole = {quote(name): f"s.{quote(name)}" for name, _ in table.columns}
    if table.is_combined or table.steps_over:
        return Merge(match, update=whole, insert=whole)
    if table.latest is not None:
        order = [quote(name) for name, _ in ORDER_COLUMNS]
        newer = later_condition([f"s.{name}" for name in order], [f"t.{name}" for name in order])
        return Merge(match, update=whole, insert=whole, update_when=newer)
    if table.view is not None:
        newer = f"s.{quote(SINCE)} > t.{quote(SINCE)}"
        return Merge(match, update=whole, insert=whole, update_when=newer)
    types = dict(table.columns)
    merged = [(name, fold) for name, fold in table.folds.items() if isinstance(fold, MergedFold)]
    return Merge(
        match,
        update={
            column: sql
            for name, fold in merged
            for column, sql in fold.updated_values(name, types, quote).items()
        },
        insert=whole
        | {
            column: sql
            for name, fold in merged
            for column, sql in fold.inserted_values(name, types, quote).items()
        },
    )


def is_mergeable(table: TableBirth) -> bool:
    """Returns True if the merge of a table can also fold contributions with each other.

    Then folded contributions may wait in a table of recent rows (merge on read).
    """
    return bool(table.row_keys) and not (table.is_combined or table.steps_over or table.file)


def contributions_of(table: TableBirth) -> TableBirth:
    """Returns the declaration of a table that stores contributions to a mergeable table.

    The contributions are folded by key, like the contributions of a single slice.
    """
    return replace(table, columns=contribution_columns(table))


def merged_sql(table: TableBirth, rows: str, contributions: Iterable[str]) -> str:
    """Returns the query for a table's rows with contributions folded in, as after a merge.

    `rows` is a query for the table's rows, and each of `contributions` is a query for
    contributions. The queries return all columns, in the table's types. DuckDB applies a query's
    conditions on keys while it reads the files only if keys are compared by equality, and nulls are
    never equal. So contributions with a null in a key are folded in a separate part of the query.
    Such contributions are rare; without them, the joins of that part do not read the table.
    """
    among, into = merge_for(contributions_of(table), quoted), merge_for(table, quoted)
    waiting = reduce(
        lambda one, other: _joined_sql(
            contributions_of(table), among, one, "full", other, among.match
        ),
        contributions,
    )
    keys = [quoted(name) for name in table.row_keys]
    known, equal = (
        " and ".join(each)
        for each in ([f"{key} is not null" for key in keys], [f"t.{key} = s.{key}" for key in keys])
    )
    with_null = f"select * from ({waiting}) where not ({known})"
    without_theirs = f"select * from ({rows}) as t anti join ({with_null}) as s on {into.match}"
    return (
        f"""{
            _joined_sql(
                table,
                into,
                without_theirs,
                "full",
                f"select * from ({waiting}) where {known}",
                equal,
            )
        } """
        f"union all {_joined_sql(table, into, rows, 'right', with_null, into.match)}"
    )


def _joined_sql(
    table: TableBirth, how: Merge, rows: str, kind: str, contributions: str, match: str
) -> str:
    """Returns the query that joins rows and contributions by this `kind` of join.

    `match` is the condition of the join. If a joined row has no counterpart on one side, its keys
    come from the other side. `how` folds the other columns.
    """
    columns = [f"coalesce(t.{key}, s.{key}) as {key}" for key in map(quoted, table.row_keys)]
    for name in (quoted(name) for name, _ in table.columns if name not in table.row_keys):
        folded = (
            how.update.get(name, f"t.{name}")
            if how.update_when is None
            else f"case when {how.update_when} then s.{name} else t.{name} end"
        )
        columns.append(
            f"case when s._is_there is null then t.{name} "
            f"when t._is_there is null then {how.insert[name]} else {folded} end as {name}"
        )
    there = "select *, true as _is_there from"
    return (
        f"select {', '.join(columns)} from ({there} ({rows})) as t "
        f"{kind} join ({there} ({contributions})) as s on {match}"
    )
