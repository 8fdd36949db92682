"""The comparison of one table's rows, before and after: by key, or as they are counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msgspec.structs import replace

from kappa.base.errors import Broken
from kappa.base.sql import quoted
from kappa.declare.folds.exactness import Exactness
from kappa.declare.values.columns import INTEGERS, Decimal, Scalar, parse_type
from kappa.serving.query.reader.reader import Reader
from kappa.state.journal.events import Difference

_DOUBLES = frozenset({Scalar("float"), Scalar("double")})


@dataclass(frozen=True, slots=True)
class RowSample:
    """A row that differs, in the columns of both sides; a changed one with both its values.

    `times`: of appended rows, how many more there are on that side.
    """

    kind: Literal["added", "removed", "changed"]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    times: int = 1


# What is compared, before and after, as SQL that follows `from`.
Relations = tuple[str, str]


def compare_keyed(
    reader: Reader,
    found: Difference,
    keys: tuple[str, ...],
    common: Mapping[str, str],
    samples: int,
    *,
    sources: Relations,
    likeness: Mapping[str, Exactness],
) -> tuple[Difference, tuple[RowSample, ...]]:
    """Compares rows by their keys, in the `common` columns (name -> type).

    `found` is what is known of the difference already. `likeness` says of columns that a fold has
    made what counts as equal; others are exact. Raises Broken if a key is twice in a table.
    """
    values = [column for column in common if column not in keys]
    numbers = [column for column in values if _is_number(common[column])]
    differs = {
        column: likeness.get(column, Exactness.EXACT).differs_sql(column) for column in values
    }
    changed = f"o._here and n._here and ({' or '.join(differs.values()) or 'false'})"
    measured = [
        "count(*) filter (where n._here is null)",
        "count(*) filter (where o._here is null)",
        "count(*) filter (where o._here and n._here)",
        f"count(*) filter (where {changed})",
        *(f"count(*) filter (where o._here and n._here and {each})" for each in differs.values()),
        *(
            f"max({_relative_change(column)}) filter (where {differs[column]})"
            for column in numbers
        ),
    ]
    if samples:
        own, other = _packed("o", common), _packed("n", common)
        # If one side lacks a row, that side's key is null.
        by = f"row({', '.join(f'coalesce(o.{quoted(key)}, n.{quoted(key)})' for key in keys)})"
        measured += [
            f"arg_min({other}, {by}, {samples}) filter (where o._here is null)",
            f"arg_min({own}, {by}, {samples}) filter (where n._here is null)",
            f"arg_min(row({own}, {other}), {by}, {samples}) filter (where {changed})",
        ]
    match = " and ".join(f"(o.{quoted(key)} is not distinct from n.{quoted(key)})" for key in keys)
    old, new = (f"(select *, true as _here from {source})" for source in sources)
    # Names of served columns never begin with an underscore, so `_here` is free.
    ((removed, added, both, different, *rest),) = reader.rows(
        f"select {', '.join(measured)} from {old} o full join {new} n on {match}"
    ).rows
    rows_before, rows_after = (count_rows(reader, source) for source in sources)
    if (rows_before, rows_after) != (removed + both, added + both):
        raise Broken(
            f"table {found.table} holds a key twice: {rows_before} rows before and "
            f"{rows_after} after match as {both}",
            hint="kappa replay makes a new build of it",
        )
    by_column = {column: count for column, count in zip(values, rest, strict=False) if count}
    changes = {
        column: change
        for column, change in zip(numbers, rest[len(values) :], strict=False)
        if change is not None
    }
    difference = replace(
        found,
        rows_before=rows_before,
        rows_after=rows_after,
        added=added,
        removed=removed,
        changed=different,
        changed_by_column=by_column,
        largest_relative_change=changes,
    )
    if not samples:
        return difference, ()
    more, gone, pairs = ((each or []) for each in rest[-3:])
    return difference, (
        *(RowSample("added", None, _by_column(common, row)) for row in more),
        *(RowSample("removed", _by_column(common, row), None) for row in gone),
        *(
            RowSample("changed", _by_column(common, one), _by_column(common, other))
            for one, other in pairs
        ),
    )


def compare_appended(
    reader: Reader,
    found: Difference,
    common: Mapping[str, str],
    samples: int,
    *,
    sources: Relations,
) -> tuple[Difference, tuple[RowSample, ...]]:
    """Compares rows that have no keys, in the `common` columns: equal ones are counted."""
    listed = ", ".join(quoted(column) for column in common)
    before, after = sources
    both = (
        f"select {listed}, false as _new from {before} union all select {listed}, true from {after}"
    )
    counted = (
        f"select {listed}, count(*) filter (where not _new) as _before, count(*) filter (where "
        f"_new) as _after from ({both}) group by {listed}"
    )
    measured = [
        "_before",
        "_after",
        "greatest(_after - _before, 0)",
        "greatest(_before - _after, 0)",
    ]
    measured = [f"coalesce(sum({each}), 0)::bigint" for each in measured]
    if samples:
        row = _packed(None, common)
        measured += [
            (
                f"arg_min(row({row}, _after - _before), {row}, {samples}) filter (where _after "
                "> _before)"
            ),
            (
                f"arg_min(row({row}, _before - _after), {row}, {samples}) filter (where "
                "_before > _after)"
            ),
        ]
    ((rows_before, rows_after, added, removed, *rest),) = reader.rows(
        f"select {', '.join(measured)} from ({counted})"
    ).rows
    difference = replace(
        found, rows_before=rows_before, rows_after=rows_after, added=added, removed=removed
    )
    more, gone = ((each or []) for each in rest) if rest else ([], [])
    return difference, (
        *(RowSample("added", None, _by_column(common, row), times) for row, times in more),
        *(RowSample("removed", _by_column(common, row), None, times) for row, times in gone),
    )


def _relative_change(column: str) -> str:
    old, new = f"cast(o.{quoted(column)} as double)", f"cast(n.{quoted(column)} as double)"
    larger = f"greatest(abs({old}), abs({new}))"
    # NaN and infinity have no distance. That of two large doubles may overflow: each is divided.
    distance = (
        f"case when isfinite({new} - {old}) then abs({new} - {old}) / {larger} else abs({new} "
        f"/ {larger} - {old} / {larger}) end"
    )
    return f"case when isfinite({old}) and isfinite({new}) then {distance} end"


def _packed(side: str | None, columns: Iterable[str]) -> str:
    each = (f"{side}.{quoted(column)}" if side else quoted(column) for column in columns)
    return f"row({', '.join(each)})"


def _by_column(columns: Iterable[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(columns, row, strict=True))


def _is_number(kind: str) -> bool:
    found = parse_type(kind)
    return (
        isinstance(found, Decimal)
        or found in _DOUBLES
        or (isinstance(found, Scalar) and found.name in INTEGERS)
    )


def count_rows(reader: Reader, source: str) -> int:
    """Returns the number of rows of a relation."""
    return int(reader.rows(f"select count(*) from {source}").rows[0][0])
