"""Merges: the SQL by which contributions are folded into the stored rows of their keys. Pure.

Keys are compared null-safely, and every fold ignores nulls. The SQL is valid in Spark, DataFusion
(delta-rs) and DuckDB; only the quotes of names differ.
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
    """A merge of contributions into a table, as parts of an SQL statement with quoted names.

    In the SQL, `t` is the table and `s` contains the contributions. `match` is the condition that
    the keys are equal. `update` maps each column to the expression for its new value in a matching
    row, and `insert` maps each column to the expression for its value in a new row. If
    `update_when` is given, only the matching rows that satisfy this condition are updated.
    """

    match: str
    update: Mapping[str, str]
    insert: Mapping[str, str]
    update_when: str | None = None


def contribution_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """Lists the columns of the contributions to a table, as pairs of name and type.

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
    """Lists the columns of the rows that a merge writes into a table, as (name, type) pairs.

    For most tables, a slice's contributions are merged into the table. They have the columns of
    `contribution_columns`. If a merge cannot express one of the table's folds, Kappa computes the
    whole new rows first and merges these rows. They have all columns of the table.
    """
    return table.columns if table.is_combined else contribution_columns(table)


def merge_for(table: TableBirth, quote: Quote) -> Merge:
    """Returns the merge of contributions into a table that has keys.

    `quote` is the function that quotes a name for the engine that will run the merge.
    """
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
    """Returns True if a table's merge can also combine two contributions to the same row.

    Then contributions to the table can wait in a table of recent rows, combined by key.
    """
    return bool(table.row_keys) and not (table.is_combined or table.steps_over or table.file)


def contributions_of(table: TableBirth) -> TableBirth:
    """Returns the description of a table of recent rows, which stores contributions to `table`.

    The stored contributions are combined by key, like the contributions of a single slice.
    """
    return replace(table, columns=contribution_columns(table))


def merged_sql(table: TableBirth, rows: str, contributions: Iterable[str]) -> str:
    """Returns the DuckDB query for a table's rows as they would be after a merge of contributions.

    `rows` is a query for the table's stored rows, and each of `contributions` is a query for
    contributions. These queries return all columns, in the table's types. If a reader gives
    conditions on keys, DuckDB can skip parts of the files, but only if the query compares keys by
    `=`. This comparison never matches a null. So the query folds contributions with a null in a key
    in a separate part, with another comparison. Such contributions are rare; if there are none,
    that part does not read the table.
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
    """Returns the query that joins a table's rows with contributions, and folds them.

    `kind` is the kind of the join, such as "full", and `match` is its condition. If only one side
    of the join has a row with certain keys, the keys of the result come from this side. `how` is
    the merge, which says how the other columns are folded.
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
