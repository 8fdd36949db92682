"""A merge: how contributions fold into the rows of their keys, in SQL that Spark, DataFusion (delta-rs) and DuckDB speak (laws 4 and 9). Pure.

The expressions are written once here, names quoted in the way of each. Sums of whole numbers and decimals are added with 37 digits
and cast back, which all of them refuse to do where the result does not fit; delta-rs would wrap a plain sum silently.
Read next: engine/fold/fold.py for how rows become contributions, engine/write/commit.py, which has merges done, serving/query/query.py, which reads through one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

from kappa.base.sql import quoted
from kappa.folds.fold import MergedFold, Quote
from kappa.folds.order import ORDER_COLUMNS, later
from kappa.folds.sums import carried
from kappa.state.build import TableBirth

_ORDER = tuple(name for name, _ in ORDER_COLUMNS)


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge does, as SQL in which `t` is the table and `s` the contributions; names are quoted already."""

    match: str
    update: Mapping[str, str]
    insert: Mapping[str, str]
    update_when: str | None = None


def contribution_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """Lists a contribution's columns: the table's without those that follow from others, exact sums at 37 digits."""
    folds = table.folds.items()
    follow = {each for name, fold in folds for each in fold.following(name)}
    sums = {each for name, fold in folds for each in fold.sums(name)}
    return tuple(
        (name, carried(kind) if name in sums else kind)
        for name, kind in table.columns
        if name not in follow
    )


def committed_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """The columns of what is merged into a table: contributions, or where folds are combined the new rows themselves."""
    return table.columns if table.is_combined else contribution_columns(table)


def merge_for(table: TableBirth, quote: Quote) -> Merge:
    """How contributions fold into a table that has keys: `t` is the table, `s` the contributions."""
    # Brackets matter: DataFusion reads `a is not distinct from b and c` as `a is not distinct from (b and c)`.
    match = " and ".join(
        f"(t.{quote(key)} is not distinct from s.{quote(key)})" for key in table.keys
    )
    whole = {quote(name): f"s.{quote(name)}" for name, _ in table.columns}
    if table.is_combined or table.steps_over:
        return Merge(match, update=whole, insert=whole)
    if table.latest is not None:
        return Merge(
            match,
            update=whole,
            insert=whole,
            update_when=later(
                [f"s.{quote(name)}" for name in _ORDER], [f"t.{quote(name)}" for name in _ORDER]
            ),
        )
    types = dict(table.columns)
    merged = [(name, fold) for name, fold in table.folds.items() if isinstance(fold, MergedFold)]
    return Merge(
        match,
        update={
            column: sql
            for name, fold in merged
            for column, sql in fold.updated(name, types, quote).items()
        },
        insert=whole
        | {
            column: sql
            for name, fold in merged
            for column, sql in fold.inserted(name, types, quote).items()
        },
    )


def is_mergeable(table: TableBirth) -> bool:
    """True where contributions to a table can be folded before they meet its rows, by the same merge: so they may wait (merge on read)."""
    return bool(table.keys) and not table.is_combined and not table.steps_over


def contributions_of(table: TableBirth) -> TableBirth:
    """The table that holds contributions to a mergeable table, folded by key: its rows are what one slice would have contributed."""
    return replace(table, columns=contribution_columns(table))


def merged_sql(table: TableBirth, rows: str, contributions: Iterable[str]) -> str:
    """The query for a table's rows with contributions folded in, all given as queries for all of their columns with its types: what a merge would leave.

    DuckDB takes what a query wants of keys to the files only where keys are compared as equal, which nulls never are. So contributions
    whose keys have a null are folded apart; where there are none, as nearly always, neither join of that reads the table.
    """
    among, into = merge_for(contributions_of(table), quoted), merge_for(table, quoted)
    waiting = reduce(
        lambda one, other: _joined_sql(
            contributions_of(table), among, one, "full", other, among.match
        ),
        contributions,
    )
    keys = [quoted(name) for name in table.keys]
    known, equal = (
        " and ".join(each)
        for each in ([f"{key} is not null" for key in keys], [f"t.{key} = s.{key}" for key in keys])
    )
    with_null = f"select * from ({waiting}) where not ({known})"
    without_theirs = f"select * from ({rows}) as t anti join ({with_null}) as s on {into.match}"
    return (
        f"{_joined_sql(table, into, without_theirs, 'full', f'select * from ({waiting}) where {known}', equal)} "
        f"union all {_joined_sql(table, into, rows, 'right', with_null, into.match)}"
    )


def _joined_sql(
    table: TableBirth, how: Merge, rows: str, kind: str, contributions: str, match: str
) -> str:
    """What `how` makes of rows and contributions that are joined in this way: of keys whichever side has them, of all else what is folded."""
    columns = [f"coalesce(t.{key}, s.{key}) as {key}" for key in map(quoted, table.keys)]
    for name in (quoted(name) for name, _ in table.columns if name not in table.keys):
        folded = (
            how.update.get(name, f"t.{name}")
            if how.update_when is None
            else f"case when {how.update_when} then s.{name} else t.{name} end"
        )
        columns.append(
            f"case when s._is_there is null then t.{name} when t._is_there is null then {how.insert[name]} else {folded} end as {name}"
        )
    there = "select *, true as _is_there from"
    return f"select {', '.join(columns)} from ({there} ({rows})) as t {kind} join ({there} ({contributions})) as s on {match}"
