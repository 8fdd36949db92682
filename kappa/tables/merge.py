"""A merge: how contributions fold into the rows of their keys, in SQL that Spark, DataFusion (delta-rs) and DuckDB speak (laws 4 and 9). Pure.

The expressions are written once here, names quoted in the way of each. Sums of whole numbers and decimals are added with 37 digits
and cast back, which all of them refuse to do where the result does not fit; delta-rs would wrap a plain sum silently.
Read next: engine/fold/fold.py for how rows become contributions, engine/write/commit.py, which has merges done, serving/query/query.py, which reads through one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from kappa.base.sql import quoted
from kappa.declare.table import FOLD_ORDER_COLUMNS, ORDER_COLUMNS, FoldKind
from kappa.state.build import TableBirth, range_columns
from kappa.tables.shape import order_column
from kappa.values.columns import Decimal, Scalar, parse_type

Quote = Callable[[str], str]
_ORDER = tuple(name for name, _ in ORDER_COLUMNS)
_FOLD_ORDER = tuple(name for name, _ in FOLD_ORDER_COLUMNS)
# One digit less than both engines have: Spark takes digits behind the point away from a sum that might need 39.
_WIDE_DIGITS = 37
WIDE = f"decimal({_WIDE_DIGITS},0)"


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge does, as SQL in which `t` is the table and `s` the contributions; names are quoted already."""

    match: str
    update: Mapping[str, str]
    insert: Mapping[str, str]
    update_when: str | None = None


def contribution_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """The columns of a contribution: the table's own but for those that follow from others, with exact sums at 37 digits."""
    follow = {
        name
        for column, (how, _) in table.fold.items()
        for name in _following(FoldKind(how), column)
    }
    return tuple(
        (name, carried(kind) if table.fold.get(name, ("", None))[0] == FoldKind.SUM else kind)
        for name, kind in table.columns
        if name not in follow
    )


def _following(how: FoldKind, column: str) -> tuple[str, ...]:
    """What is computed from a fold's hidden columns, whenever they have changed."""
    match how:
        case FoldKind.TOP_K | FoldKind.HLL | FoldKind.THETA:
            return (column,)
        case FoldKind.KLL:
            return column, *range_columns(column)
        case _:
            return ()


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
            update_when=_later(
                [f"s.{quote(name)}" for name in _ORDER], [f"t.{quote(name)}" for name in _ORDER]
            ),
        )
    types = dict(table.columns)
    inserted = {
        quote(name): _first(table, name, kind, f"s.{quote(name)}") for name, kind in table.columns
    }
    updated: dict[str, str] = {}
    for name, (how, _) in table.fold.items():
        if FoldKind(how).by_order:
            updated |= _picked(FoldKind(how), name, quote)
        else:
            updated[quote(name)] = _folded(
                FoldKind(how), types[name], f"t.{quote(name)}", f"s.{quote(name)}"
            )
    return Merge(match, update=updated, insert=inserted)


def carried(kind: str) -> str:
    """The type that sums of a column travel in: the column's own for doubles, otherwise one that cannot overflow on the way."""
    match parse_type(kind):
        case Scalar("bigint"):
            return WIDE
        case Decimal(scale=scale):
            return f"decimal({_WIDE_DIGITS},{scale})"
        case _:
            return kind


def _first(table: TableBirth, name: str, kind: str, contributed: str) -> str:
    how = table.fold.get(name)
    return _narrow(contributed, kind) if how is not None and how[0] == FoldKind.SUM else contributed


def _folded(how: FoldKind, kind: str, held: str, contributed: str) -> str:
    alone = contributed
    match how:
        case FoldKind.COUNT:
            return f"{held} + {contributed}"
        case FoldKind.SUM:
            alone = _narrow(contributed, kind)
            both = _narrow(f"cast({held} as {carried(kind)}) + {contributed}", kind)
        case FoldKind.MIN:
            both = f"case when {contributed} < {held} then {contributed} else {held} end"
        case FoldKind.MAX:
            both = f"case when {contributed} > {held} then {contributed} else {held} end"
        case FoldKind.AND | FoldKind.OR:
            both = f"({held} {how} {contributed})"
    # Nulls are ignored: one side alone stays what it is.
    return f"case when {contributed} is null then {held} when {held} is null then {alone} else {both} end"


def _narrow(sum_: str, kind: str) -> str:
    # Only sums are cast: bigint, decimal and double mean the same to both engines. DataFusion's `timestamp` would be one of
    # nanoseconds, which ends in the year 2262.
    return f"cast({sum_} as {kind})"


def _later(one: Sequence[str], other: Sequence[str]) -> str:
    """That one record's log time, and what tells records of one millisecond apart, come after another's."""
    after = f"{one[0]} > {other[0]}"
    return (
        after
        if len(one) == 1
        else f"{after} or ({one[0]} = {other[0]} and ({_later(one[1:], other[1:])}))"
    )


def _picked(how: FoldKind, name: str, quote: Quote) -> dict[str, str]:
    """A value that the order decides about, and its own order with it. Of a null none is kept, and it never wins."""
    columns = [quote(name), *(quote(order_column(name, of)) for of in _FOLD_ORDER)]
    held, contributed = ([f"{side}.{column}" for column in columns[1:]] for side in "ts")
    wins = _later(contributed, held) if how is FoldKind.LATEST else _later(held, contributed)
    return {
        column: f"case when {contributed[0]} is not null and ({held[0]} is null or {wins}) then s.{column} else t.{column} end"
        for column in columns
    }


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
