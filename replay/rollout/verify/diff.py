"""The diff: the differences of two builds' served rows at equal offsets, computed by DuckDB.

Each table is compared by a query over the files of both sides. For a table with keys, the query is
a full join by key. For a table without keys, the query groups and counts equal rows. Both queries
spill to disk, so they can compare tables of any size within a memory limit. Null keys match null
keys. A null equals a null, a NaN equals a NaN, and 0.0 equals -0.0; the fold decides which other
values count as equal (kappa/declare/table.py defines this). serving/query/query.py opens both
sides, and unsettled_keys.py finds the keys to leave out. A proof uses the same queries
(replay/rollout/prove/prove.py).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from msgspec.structs import replace

from kappa.base.errors import Broken, KappaError, UsageError
from kappa.base.sql import quoted, text
from kappa.declare.folds.exactness import Exactness
from kappa.declare.options import REJECTS
from kappa.declare.values.columns import INTEGERS, Decimal, Scalar, parse_type
from kappa.replay.rollout.verify.unsettled_keys import KeyTexts, plain_texts
from kappa.serving.query.query import AFTER, BEFORE
from kappa.serving.query.reader.reader import Reader
from kappa.state.build import Birth
from kappa.state.build_status import table_step
from kappa.state.frontier import Frontier
from kappa.state.journal.events import Difference, OutcomeCount
from kappa.state.table import TableBirth

_DOUBLES = frozenset({Scalar("float"), Scalar("double")})


@dataclass(frozen=True, slots=True)
class RowSample:
    """A row that differs, in the columns that both sides have.

    `before` and `after` are the two versions of a changed row. For an added row, `before` is None;
    for a removed row, `after` is None. If the table has no keys, several rows may be equal; `times`
    is how many more of these equal rows one side has than the other side.
    """

    kind: Literal["added", "removed", "changed"]
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    times: int = 1


# The part of a table that an outlet sends: the table, columns (None: all), a condition (None: all).
Part = tuple[str, tuple[str, ...] | None, str | None]
# The sums of a column, before and after.
Sums = tuple[int | decimal.Decimal, int | decimal.Decimal]
# The compared relations, before and after, as SQL that follows `from`.
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
    """Compares two versions of a table by key, in the `common` columns (name -> type).

    `sources` are the rows before and after, as SQL that can follow `from`. `found` is the part of
    the difference that is already known. `samples` is the number of rows of each kind to return.
    `likeness` maps a column to the rule by which two values count as equal; the values of all other
    columns must be exactly equal. Returns the whole difference, and the sampled rows. Raises Broken
    if a key occurs twice on one side.
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
        own, other = _packed_row("o", common), _packed_row("n", common)
        # If one side lacks a row, that side's key is null.
        by_key = (f"coalesce(o.{quoted(key)}, n.{quoted(key)})" for key in keys)
        by = f"row({', '.join((_rank_by_change(numbers), *by_key))})"
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
    """Compares two versions of a table without keys, in the `common` columns (name -> type).

    The comparison counts how often each row occurs on each side. The parameters and the result are
    as in `compare_keyed`.
    """
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
        row = _packed_row(None, common)
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
    # NaN and infinity have no distance. The distance of two large doubles may overflow: divide
    # first.
    distance = (
        f"case when isfinite({new} - {old}) then abs({new} - {old}) / {larger} else abs({new} "
        f"/ {larger} - {old} / {larger}) end"
    )
    return f"case when isfinite({old}) and isfinite({new}) then {distance} end"


def _rank_by_change(numbers: Iterable[str]) -> str:
    """Returns the SQL of a row's rank: the row in which a number differs most has the lowest rank.

    A missing row and a null count like zeros, so an added row differs by its own numbers. NaN and
    infinity differ infinitely from all other values.
    """

    def distance(column: str) -> str:
        old, new = (f"coalesce(cast({side}.{quoted(column)} as double), 0.0)" for side in "on")
        return (
            f"case when {old} = {new} then 0.0 when isfinite({new} - {old}) "
            f"then abs({new} - {old}) else 'infinity'::double end"
        )

    return f"-greatest({', '.join(('0.0', *map(distance, numbers)))})"


def _packed_row(side: str | None, columns: Iterable[str]) -> str:
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


def _has_exact_sum(kind: str) -> bool:
    found = parse_type(kind)
    # A sum of decimals has up to 38 digits: the sum of 10^10 values with 28 digits.
    is_long = isinstance(found, Decimal) and found.precision > 28
    return _is_number(kind) and found not in _DOUBLES and not is_long


def count_rows(reader: Reader, source: str) -> int:
    """Returns the number of rows in `source`, which is SQL that can follow `from`."""
    return int(reader.rows(f"select count(*) from {source}").rows[0][0])


# The keys in one statement. The table of all keys is in DuckDB, which spills.
_KEYS_BATCH = 20_000
_UNSETTLED, _REJECTED = "unsettled", "rejected_twice"


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a comparison: a build, and the frontier at which its rows are compared."""

    birth: Birth
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two builds, with samples of rows, and the numbers of records by outcome.

    The outcomes are duplicates and rejects. The keys of `samples` are the names of tables.
    `incomparable_topics` are the topics that do not have the same topic id in both builds. `sums`
    maps a table with samples to its columns of exact numbers, each with its sums (before, after).
    """

    differences: tuple[Difference, ...]
    samples: Mapping[str, tuple[RowSample, ...]]
    counts: tuple[OutcomeCount, ...]
    incomparable_topics: tuple[str, ...]
    parts: Mapping[Part, Difference] = field(default_factory=dict)
    sums: Mapping[str, Mapping[str, Sums]] = field(default_factory=dict)


# The keys of a table to set aside; None if all of them are settled.
Unsettled = Callable[[TableBirth], Iterable[str] | None]
# The reader of the keys of a table's topic.
TextsOf = Callable[[TableBirth], KeyTexts]


def compare_builds(
    reader: Reader,
    before: Side,
    after: Side,
    *,
    comparable: frozenset[str],
    unsettled: Unsettled,
    texts_of: TextsOf = lambda _table: plain_texts,
    samples: int = 0,
    only: Collection[str] | None = None,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> Comparison:
    """Compares all tables of two builds, or only the tables in `only`.

    `on_progress` is called with a text before each table. `unsettled` returns the keys of a table
    whose rows are not compared, and `texts_of` returns the function that decodes the keys in a
    table's topic. The result contains up to `samples` differing rows of each kind. In a table
    with keys, the rows in which a number differs most come first; keys break ties. The offsets of
    the `comparable` topics must be equal on both sides. Raises UsageError if neither build has a
    table in `only`, and Broken if a key occurs twice in a table.
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
    found = {}
    wanted = [name for name in names if only is None or name in only]
    for number, name in enumerate(wanted, start=1):
        on_progress(table_step("comparing", name, number, len(wanted)))
        found[name] = _compare_table(
            reader, name, old.get(name), new.get(name), comparable, unsettled, texts_of, samples
        )
    sums = {
        name: column_sums
        for name, (difference, shown) in found.items()
        if shown and (column_sums := _column_sums(reader, difference, old[name], new[name]))
    }
    apart = sorted({*before.birth.topic_ids, *after.birth.topic_ids} - comparable)
    return Comparison(
        tuple(difference for difference, _ in found.values()),
        {name: shown for name, (_, shown) in found.items()},
        (
            *tally_counts(before.frontier, after.frontier),
            *_reject_counts(reader, before.birth, after.birth),
        ),
        tuple(apart),
        sums=sums,
    )


def _column_sums(
    reader: Reader, found: Difference, old: TableBirth, new: TableBirth
) -> dict[str, Sums]:
    """Returns the sums of the columns of exact numbers in which the rows of a table differ.

    The result is empty if rows were set aside, since the sums would contain these rows.
    """
    _, common = _compared_columns(found.table, dict(old.served), dict(new.served))
    columns = [
        column
        for column, kind in common.items()
        if column not in new.keys
        and (found.added or found.removed or column in found.changed_by_column)
        and _has_exact_sum(kind)
    ]
    if found.unsettled or not columns:
        return {}
    wanted = ", ".join(f"coalesce(sum({quoted(column)}), 0)" for column in columns)
    before, after = (
        reader.rows(f"select {wanted} from {_qualified_table(schema, found.table)}").rows[0]
        for schema in (BEFORE, AFTER)
    )
    return dict(zip(columns, zip(before, after, strict=True), strict=True))


def compare_parts(
    reader: Reader,
    before: Birth,
    after: Birth,
    found: Iterable[Difference],
    parts: Iterable[Part],
) -> dict[Part, Difference]:
    """Compares only parts of tables, row by row, as an outlet that sends such a part would.

    `found` are the differences of whole tables. A part is left out if its table was not compared,
    has no keys, or has rows that were set aside, or if a build lacks a column of its condition.
    """
    whole = {each.table: each for each in found}
    old, new = ({table.name: table for table in birth.tables} for birth in (before, after))
    counted = {}
    for part in parts:
        name, columns, where = part
        known = whole.get(name)
        if known is None or not known.compared or known.unsettled or not new[name].keys:
            continue
        keys = new[name].keys
        ours, theirs = (
            {each: kind for each, kind in table.served if columns is None or each in columns + keys}
            for table in (new[name], old[name])
        )
        # The condition has its own line: a comment at its end must not reach the bracket.
        condition = "" if where is None else f" where (\n{where}\n)"
        sources = tuple(
            f"(select * from {_qualified_table(schema, name)}{condition})"
            for schema in (BEFORE, AFTER)
        )
        begun, common = _compared_columns(name, theirs, ours)
        with suppress(KappaError):
            counted[part], _ = compare_keyed(
                reader, begun, keys, common, 0, sources=(sources[0], sources[1]), likeness={}
            )
    return counted


def _compared_columns(
    name: str, before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[Difference, dict[str, str]]:
    """Compares the columns of a table, which are given with their types.

    Returns the difference of the columns, and the columns that both builds have with equal types.
    """
    common = {column: kind for column, kind in after.items() if before.get(column) == kind}
    retyped = {
        column: (before[column], kind)
        for column, kind in after.items()
        if column in before and column not in common
    }
    found = Difference(
        name,
        None,
        None,
        columns_gone=tuple(column for column in before if column not in after),
        columns_new=tuple(column for column in after if column not in before),
        columns_retyped=retyped,
    )
    return found, common


def _compare_table(
    reader: Reader,
    name: str,
    old: TableBirth | None,
    new: TableBirth | None,
    comparable: frozenset[str],
    unsettled: Unsettled,
    texts_of: TextsOf,
    samples: int,
) -> tuple[Difference, tuple[RowSample, ...]]:
    if old is None or new is None:
        return Difference(
            name,
            None if old is None else count_rows(reader, _qualified_table(BEFORE, name)),
            None if new is None else count_rows(reader, _qualified_table(AFTER, name)),
        ), ()
    found, common = _compared_columns(name, dict(old.served), dict(new.served))
    found = replace(found, incomparable=_incomparable_reason(old, new, common, comparable))
    if found.incomparable:
        return replace(
            found,
            rows_before=count_rows(reader, _qualified_table(BEFORE, name)),
            rows_after=count_rows(reader, _qualified_table(AFTER, name)),
        ), ()
    if not new.keys:
        return compare_appended(
            reader,
            found,
            common,
            samples,
            sources=(_qualified_table(BEFORE, name), _qualified_table(AFTER, name)),
        )
    sources, aside = settled_relations(reader, new, unsettled, texts_of)
    # If a column's fold has changed, no fold says how far apart equal values may be.
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


def settled_relations(
    reader: Reader, table: TableBirth, unsettled: Unsettled, texts_of: TextsOf
) -> tuple[Relations, int]:
    """Returns the comparable rows of a table, and the number of keys that were set aside.

    The rows are (before, after), each as SQL that can follow `from`. A key is set aside if its rows
    may differ only because of compaction. `unsettled` returns such keys of a table, or None if
    there are none. `texts_of` returns the function that decodes the keys in a table's topic.
    """
    whole = (_qualified_table(BEFORE, table.name), _qualified_table(AFTER, table.name))
    keys = unsettled(table)
    if keys is None:
        return whole, 0
    (key,) = table.keys
    own = f"cast(t.{quoted(key)} as varchar)"
    _put_keys(reader, _UNSETTLED, keys)
    if not _put_rejected(reader, table, own, whole, texts_of(table)):
        return whole, 0
    written = f"{_UNSETTLED} u on {own} = u.key"
    aside = " union ".join(
        f"select t.{quoted(key)} from {side} t semi join {written}" for side in whole
    )
    before, after = (f"(select t.* from {side} t anti join {written})" for side in whole)
    return (before, after), count_rows(reader, f"({aside})")


def _put_rejected(
    reader: Reader, table: TableBirth, own: str, whole: Relations, texts: KeyTexts
) -> int:
    """Sets aside keys whose rows may differ because both builds rejected a record of the key.

    A reject changes no row, but it still lets compaction remove earlier records of its key. So a
    build that reads the topic after the compaction has no row for this key. A key is set aside if
    both builds rejected a record of the key and only one build has a row for it. If only one build
    rejects a record, this is a difference between the codes, and the key is compared. Returns the
    total number of keys that are set aside.
    """
    both = (
        f"{_qualified_table(BEFORE, REJECTS)} semi join {_qualified_table(AFTER, REJECTS)} using "
        "(topic, "
        'partition, "offset")'
    )
    theirs = f"{both} where topic = {text(table.latest or '')} and key is not null"
    plain = texts is plain_texts
    # Plain keys stay in DuckDB, which spills; only JSON objects may have further texts.
    read = f"{theirs} and starts_with(try(decode(key)), '{{')" if plain else theirs
    found = reader.rows(f"select distinct key from {read}").rows
    _put_keys(reader, _REJECTED, texts(key for (key,) in found))
    rejected = f"from {_REJECTED}"
    if plain:
        rejected += f" union select try(decode(key)) from {theirs}"
    before, after = (f"exists (from {side} t where {own} = r.key)" for side in whole)
    apart = (
        f"select key from ({rejected}) r where {before} <> {after} and key not in (select key "
        f"from {_UNSETTLED})"
    )
    reader.run_command(f"insert into {_UNSETTLED} {apart}")
    return count_rows(reader, _UNSETTLED)


def _put_keys(reader: Reader, name: str, keys: Iterable[str]) -> int:
    """Creates a temporary table of distinct keys, and returns the number of its rows.

    An earlier table of the same name is replaced. The only column is `key`.
    """
    staged = quoted(f"{name}_all")
    reader.run_command(f"create or replace temp table {staged} (key varchar)")
    keys = iter(keys)
    # A key that is written all the time repeats; most of that ends in this set.
    while batch := set(islice(keys, _KEYS_BATCH)):
        reader.run_command(f"insert into {staged} select unnest(?::varchar[])", [sorted(batch)])
    reader.run_command(
        f"create or replace temp table {quoted(name)} as select distinct key from {staged}"
    )
    reader.run_command(f"drop table {staged}")
    return int(reader.rows(f"select count(*) from {quoted(name)}").rows[0][0])


def _incomparable_reason(
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
        return (
            f"its key {retyped[0]} is {dict(new.served).get(retyped[0])}, and was "
            f"{dict(old.served).get(retyped[0])}"
        )
    return "" if common else "no column is the same in both"


def _latest_of(table: TableBirth) -> str:
    return (
        "folded from the function's rows"
        if table.latest is None
        else f"the latest of topic {table.latest}"
    )


def _qualified_table(schema: str, table: str) -> str:
    return f"{quoted(schema)}.{quoted(table)}"


def tally_counts(before: Frontier, after: Frontier) -> Iterable[OutcomeCount]:
    """Yields the numbers of duplicates and of rejects in each topic, before and after."""
    for topic in sorted({*before.tally, *after.tally}):
        old, new = (list(side.tally.get(topic, {}).values()) for side in (before, after))
        yield OutcomeCount(
            topic,
            "duplicate",
            sum(tally.duplicate for tally in old),
            sum(tally.duplicate for tally in new),
        )
        yield OutcomeCount(
            topic,
            "rejected",
            sum(tally.rejected for tally in old),
            sum(tally.rejected for tally in new),
        )


def _reject_counts(reader: Reader, before: Birth, after: Birth) -> Iterable[OutcomeCount]:
    sides = [
        schema
        for schema, birth in ((BEFORE, before), (AFTER, after))
        if any(table.name == REJECTS for table in birth.tables)
    ]
    if not sides:
        return
    all_of_them = " union all ".join(
        f"select topic, reason, '{schema}' as side from {_qualified_table(schema, REJECTS)}"
        for schema in sides
    )
    counts = ", ".join(f"count(*) filter (where side = '{schema}')" for schema in (BEFORE, AFTER))
    for topic, reason, old, new in reader.rows(
        f"select topic, reason, {counts} from ({all_of_them}) group by all order by all"
    ).rows:
        yield OutcomeCount(topic, f"rejected as {reason}", old, new)
