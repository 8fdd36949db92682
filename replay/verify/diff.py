"""The diff: how the served rows of two builds differ at equal offsets, table by table, computed by DuckDB.

Each table is one query over the files of both sides: a full join by key, or where rows have no keys the rows themselves,
grouped and counted. Both spill, so memory is bounded by settings and not by the tables. Keys match null-safely; a null, a
NaN and both zeros equal themselves, and what else of two rows counts as equal is the fold's to say (kappa/declare/table.py). Read next:
serving/query/pair.py for the sides, unsettled.py for keys that are set aside, equality.py for the comparison that a proof takes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from kappa.base.errors import Broken, UsageError
from kappa.declare.table import CLOSE, REJECTS, Exactness
from kappa.journal.journal import Count, Difference
from kappa.state.build import Birth, TableBirth, range_columns
from kappa.state.frontier import Frontier
from kappa.values.columns import INTEGERS, Decimal, Scalar, parse_type, quoted
from serving.query.pair import AFTER, BEFORE, put_keys
from serving.query.reader import Reader
from serving.query.table_sql import text

_UNSETTLED = "unsettled"
_DOUBLES = frozenset({Scalar("float"), Scalar("double")})


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two builds, and the frontier at which it is compared."""

    birth: Birth
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class Sample:
    """A row that differs, in the columns that both sides have; a changed one with the values of both sides.

    `times`: of appended rows, how many more there are on that side.
    """

    kind: Literal["added", "removed", "changed"]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    times: int = 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two builds differ in: a difference per table, samples of it, and what became of the records on the way there."""

    differences: tuple[Difference, ...]
    samples: Mapping[str, tuple[Sample, ...]]
    counts: tuple[Count, ...]
    incomparable_topics: tuple[str, ...]


# The keys of a table that are to be set aside; None where all of them are settled.
Unsettled = Callable[[TableBirth], Iterable[str] | None]
# What is compared, before and after, as SQL that stands after `from`.
Sources = tuple[str, str]


def compare(
    reader: Reader,
    before: Side,
    after: Side,
    *,
    comparable: frozenset[str],
    unsettled: Unsettled,
    samples: int = 0,
    only: Collection[str] | None = None,
) -> Comparison:
    """Compares all tables of two builds, or those in `only`; `samples` rows of each kind are shown, in the order of their keys.

    The offsets of the `comparable` topics are equal on both sides. Raises UsageError where neither side has a table of
    `only`, and Broken where a key stands twice in a table.
    """
    old = {table.name: table for table in before.birth.tables if table.name != REJECTS}
    new = {table.name: table for table in after.birth.tables if table.name != REJECTS}
    names = [*new, *(name for name in old if name not in new)]
    for name in only or ():
        if name not in names:
            raise UsageError(
                f"neither build has a table {name}",
                hint=f"they have {', '.join(names) or 'none'}; views are not compared",
            )
    found = {
        name: _compared(reader, name, old.get(name), new.get(name), comparable, unsettled, samples)
        for name in names
        if only is None or name in only
    }
    apart = sorted({*before.birth.topic_ids, *after.birth.topic_ids} - comparable)
    return Comparison(
        tuple(difference for difference, _ in found.values()),
        {name: shown for name, (_, shown) in found.items()},
        (*tallied(before.frontier, after.frontier), *_rejected(reader, before.birth, after.birth)),
        tuple(apart),
    )


def _compared(
    reader: Reader,
    name: str,
    old: TableBirth | None,
    new: TableBirth | None,
    comparable: frozenset[str],
    unsettled: Unsettled,
    samples: int,
) -> tuple[Difference, tuple[Sample, ...]]:
    if old is None or new is None:
        return Difference(
            name,
            None if old is None else _rows(reader, _whole(BEFORE, name)),
            None if new is None else _rows(reader, _whole(AFTER, name)),
        ), ()
    before, after = dict(old.served), dict(new.served)
    common = {column: kind for column, kind in new.served if before.get(column) == kind}
    found = Difference(
        name,
        None,
        None,
        columns_gone=tuple(column for column in before if column not in after),
        columns_new=tuple(column for column in after if column not in before),
        columns_retyped={
            column: (before[column], after[column])
            for column in after
            if before.get(column, after[column]) != after[column]
        },
        incomparable=_incomparable(old, new, common, comparable),
    )
    if found.incomparable:
        return replace(
            found,
            rows_before=_rows(reader, _whole(BEFORE, name)),
            rows_after=_rows(reader, _whole(AFTER, name)),
        ), ()
    if not new.keys:
        return compare_appended(
            reader, found, common, samples, sources=(_whole(BEFORE, name), _whole(AFTER, name))
        )
    sources, aside = settled(reader, new, unsettled)
    # Where a column is folded otherwise than before, nothing says how far apart its values may be.
    likeness = {
        column: new.exactness(column)
        for column in common
        if new.exactness(column) is old.exactness(column)
    }
    return compare_keyed(
        reader,
        replace(found, unsettled=aside),
        new.keys,
        common,
        samples,
        sources=sources,
        likeness=likeness,
    )


def settled(reader: Reader, table: TableBirth, unsettled: Unsettled) -> tuple[Sources, int]:
    """The rows of a table with keys, before and after, but for those of unsettled keys; and how many keys that sets aside."""
    whole = (_whole(BEFORE, table.name), _whole(AFTER, table.name))
    keys = unsettled(table)
    if keys is None:
        return whole, 0
    (key,) = table.keys
    own = f"cast(t.{quoted(key)} as varchar)"
    put_keys(reader, _UNSETTLED, keys)
    if not _put_rejected(reader, table, own, whole):
        return whole, 0
    written = f"{_UNSETTLED} u on {own} = u.key"
    aside = " union ".join(
        f"select t.{quoted(key)} from {side} t semi join {written}" for side in whole
    )
    before, after = (f"(select t.* from {side} t anti join {written})" for side in whole)
    return (before, after), _rows(reader, f"({aside})")


def _put_rejected(reader: Reader, table: TableBirth, own: str, whole: Sources) -> int:
    """Adds keys of which one side alone has a row, and both have a record that is a reject; gives how many keys are set aside in all.

    A reject changes no row, and yet compaction takes what stood before it: a build that reads the topic after that has no row. A record that
    is a reject to one side alone is a difference between the codes.
    """
    both = f'{_whole(BEFORE, REJECTS)} semi join {_whole(AFTER, REJECTS)} using (topic, partition, "offset")'
    rejected = f"select distinct try(decode(key)) as key from {both} where topic = {text(table.latest or '')}"
    before, after = (f"exists (from {side} t where {own} = r.key)" for side in whole)
    apart = f"select key from ({rejected}) r where {before} <> {after} and key not in (select key from {_UNSETTLED})"
    reader.command(f"insert into {_UNSETTLED} {apart}")
    return _rows(reader, _UNSETTLED)


def _incomparable(
    old: TableBirth, new: TableBirth, common: Mapping[str, str], comparable: frozenset[str]
) -> str:
    if set(old.keys) != set(new.keys):
        return f"its keys are ({', '.join(new.keys)}), and were ({', '.join(old.keys)})"
    if old.latest != new.latest:
        return f"it is {_latest_of(new)}, and was {_latest_of(old)}"
    if new.latest is not None and new.latest not in comparable:
        return f"topic {new.latest} is not the same topic for both builds"
    if not comparable:
        return "no topic is the same for both builds"
    retyped = [key for key in new.keys if key not in common]
    if retyped:
        return f"its key {retyped[0]} is {dict(new.served).get(retyped[0])}, and was {dict(old.served).get(retyped[0])}"
    return "" if common else "no column is the same in both"


def _latest_of(table: TableBirth) -> str:
    return (
        "folded from the function's rows"
        if table.latest is None
        else f"the latest of topic {table.latest}"
    )


def compare_keyed(
    reader: Reader,
    found: Difference,
    keys: tuple[str, ...],
    common: Mapping[str, str],
    samples: int,
    *,
    sources: Sources,
    likeness: Mapping[str, Exactness],
) -> tuple[Difference, tuple[Sample, ...]]:
    """Compares rows by their keys, in the `common` columns (name -> type); `found` is what is known of the difference already.

    `likeness` says of columns that a fold has made what counts as equal; others are exact.
    """
    values = [column for column in common if column not in keys]
    numbers = [column for column in values if _is_number(common[column])]
    differs = {column: _differs(column, likeness.get(column, Exactness.EXACT)) for column in values}
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
        # Of a row that one side does not have, that side's key is null.
        by = f"row({', '.join(f'coalesce(o.{quoted(key)}, n.{quoted(key)})' for key in keys)})"
        measured += [
            f"arg_min({other}, {by}, {samples}) filter (where o._here is null)",
            f"arg_min({own}, {by}, {samples}) filter (where n._here is null)",
            f"arg_min(row({own}, {other}), {by}, {samples}) filter (where {changed})",
        ]
    match = " and ".join(f"(o.{quoted(key)} is not distinct from n.{quoted(key)})" for key in keys)
    old, new = (f"(select *, true as _here from {source})" for source in sources)
    # Names of served columns never begin with an underscore, so `_here` is nobody's.
    ((removed, added, both, different, *rest),) = reader.rows(
        f"select {', '.join(measured)} from {old} o full join {new} n on {match}"
    ).rows
    rows_before, rows_after = (_rows(reader, source) for source in sources)
    if (rows_before, rows_after) != (removed + both, added + both):
        raise Broken(
            f"table {found.table} holds a key twice: {rows_before} rows before and {rows_after} after match as {both}",
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
        *(Sample("added", None, _named(common, row)) for row in more),
        *(Sample("removed", _named(common, row), None) for row in gone),
        *(Sample("changed", _named(common, one), _named(common, other)) for one, other in pairs),
    )


def compare_appended(
    reader: Reader, found: Difference, common: Mapping[str, str], samples: int, *, sources: Sources
) -> tuple[Difference, tuple[Sample, ...]]:
    """Compares rows that have no keys, in the `common` columns: equal ones are counted on both sides."""
    listed = ", ".join(quoted(column) for column in common)
    before, after = sources
    both = (
        f"select {listed}, false as _new from {before} union all select {listed}, true from {after}"
    )
    counted = f"select {listed}, count(*) filter (where not _new) as _before, count(*) filter (where _new) as _after from ({both}) group by {listed}"
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
            f"arg_min(row({row}, _after - _before), {row}, {samples}) filter (where _after > _before)",
            f"arg_min(row({row}, _before - _after), {row}, {samples}) filter (where _before > _after)",
        ]
    ((rows_before, rows_after, added, removed, *rest),) = reader.rows(
        f"select {', '.join(measured)} from ({counted})"
    ).rows
    difference = replace(
        found, rows_before=rows_before, rows_after=rows_after, added=added, removed=removed
    )
    more, gone = ((each or []) for each in rest) if rest else ([], [])
    return difference, (
        *(Sample("added", None, _named(common, row), times) for row, times in more),
        *(Sample("removed", _named(common, row), None, times) for row, times in gone),
    )


def _differs(column: str, exactness: Exactness) -> str:
    old, new = f"o.{quoted(column)}", f"n.{quoted(column)}"
    distinct = f"{old} is distinct from {new}"
    match exactness:
        case Exactness.EXACT | Exactness.ESTIMATED:
            return f"({distinct})"
        case Exactness.ROUNDED:
            # A null is at no distance, and neither are NaN and infinity.
            alike = f"isfinite({old}) and isfinite({new}) and abs({new} - {old}) <= {CLOSE!r} * greatest(abs({old}), abs({new}), 1)"
        case Exactness.APPROXIMATE:
            low, high = map(quoted, range_columns(column))
            alike = f"o.{low} <= n.{high} and n.{low} <= o.{high}"
    return f"({distinct} and not coalesce({alike}, false))"


def _relative_change(column: str) -> str:
    old, new = f"cast(o.{quoted(column)} as double)", f"cast(n.{quoted(column)} as double)"
    larger = f"greatest(abs({old}), abs({new}))"
    # NaN and infinity are at no distance; that of two large doubles may be beyond them, so there each is divided first.
    distance = f"case when isfinite({new} - {old}) then abs({new} - {old}) / {larger} else abs({new} / {larger} - {old} / {larger}) end"
    return f"case when isfinite({old}) and isfinite({new}) then {distance} end"


def _packed(side: str | None, columns: Iterable[str]) -> str:
    each = (f"{side}.{quoted(column)}" if side else quoted(column) for column in columns)
    return f"row({', '.join(each)})"


def _named(columns: Iterable[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(columns, row, strict=True))


def _is_number(kind: str) -> bool:
    found = parse_type(kind)
    return (
        isinstance(found, Decimal)
        or found in _DOUBLES
        or (isinstance(found, Scalar) and found.name in INTEGERS)
    )


def _whole(schema: str, table: str) -> str:
    return f"{quoted(schema)}.{quoted(table)}"


def _rows(reader: Reader, source: str) -> int:
    return int(reader.rows(f"select count(*) from {source}").rows[0][0])


def tallied(before: Frontier, after: Frontier) -> Iterable[Count]:
    """What became of the records of each topic, but for those that were folded."""
    for topic in sorted({*before.tally, *after.tally}):
        old, new = (list(side.tally.get(topic, {}).values()) for side in (before, after))
        yield Count(
            topic,
            "duplicate",
            sum(tally.duplicate for tally in old),
            sum(tally.duplicate for tally in new),
        )
        yield Count(
            topic,
            "rejected",
            sum(tally.rejected for tally in old),
            sum(tally.rejected for tally in new),
        )


def _rejected(reader: Reader, before: Birth, after: Birth) -> Iterable[Count]:
    sides = [
        schema
        for schema, birth in ((BEFORE, before), (AFTER, after))
        if any(table.name == REJECTS for table in birth.tables)
    ]
    if not sides:
        return
    all_of_them = " union all ".join(
        f"select topic, reason, '{schema}' as side from {_whole(schema, REJECTS)}"
        for schema in sides
    )
    counts = ", ".join(f"count(*) filter (where side = '{schema}')" for schema in (BEFORE, AFTER))
    for topic, reason, old, new in reader.rows(
        f"select topic, reason, {counts} from ({all_of_them}) group by all order by all"
    ).rows:
        yield Count(topic, f"rejected as {reason}", old, new)
