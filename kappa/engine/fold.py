"""How rows become contributions, and contributions fold into a table (laws 4 and 9).

A slice's contribution to a table is one row per key. It is folded by a merge whose expressions are written once here and
run by both writers: SQL that means the same to Spark and to DataFusion (delta-rs), names quoted in the way of each. Sums
of whole numbers and decimals are added with 37 digits and cast back, which both refuse to do where the result does not
fit; delta-rs would wrap a plain sum silently. Pure. Read next: engine/combine.py for the folds that no merge can say,
engine/contribution.py, engine/commit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from kappa.build import TableBirth, range_columns
from kappa.columns import Decimal, Scalar, Type, parse_type
from kappa.engine.decode import Fate
from kappa.merge import Merge
from kappa.shape import order_column, sketch_column, top_column
from kappa.table import FOLD_ORDER_COLUMNS, ORDER_COLUMNS, FoldKind, Option, overflow_column

Quote = Callable[[str], str]
_ORDER = tuple(name for name, _ in ORDER_COLUMNS)
_FOLD_ORDER = tuple(name for name, _ in FOLD_ORDER_COLUMNS)
# What becomes a latest row.
_KEPT = frozenset({Fate.DECODED, Fate.TOMBSTONE})
# One digit less than both engines have: Spark takes digits behind the point away from a sum that might need 39.
_WIDE_DIGITS = 37
_WIDE = f"decimal({_WIDE_DIGITS},0)"


def spark_quote(name: str) -> str:
    """A column's name as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def spark_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Columns, by name and Spark's type, as Spark reads a schema."""
    return ", ".join(f"{spark_quote(name)} {kind}" for name, kind in columns)


def arrow_quote(name: str) -> str:
    """A column's name as DataFusion's SQL has it; without quotes it would be put in lower case."""
    return '"' + name.replace('"', '""') + '"'


def contribution_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """The columns of a contribution: the table's own but for those that follow from others, with exact sums at 37 digits."""
    follow = {name for column, (how, _) in table.fold.items() for name in _following(FoldKind(how), column)}
    return tuple((name, _carried(kind) if table.fold.get(name, ("", None))[0] == FoldKind.SUM else kind) for name, kind in table.columns if name not in follow)


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
    match = " and ".join(f"(t.{quote(key)} is not distinct from s.{quote(key)})" for key in table.keys)
    whole = {quote(name): f"s.{quote(name)}" for name, _ in table.columns}
    if table.is_combined or table.steps_over:
        return Merge(match, update=whole, insert=whole)
    if table.latest is not None:
        return Merge(match, update=whole, insert=whole, update_when=_later([f"s.{quote(name)}" for name in _ORDER], [f"t.{quote(name)}" for name in _ORDER]))
    types = dict(table.columns)
    inserted = {quote(name): _first(table, name, kind, f"s.{quote(name)}") for name, kind in table.columns}
    updated: dict[str, str] = {}
    for name, (how, _) in table.fold.items():
        if FoldKind(how).by_order:
            updated |= _picked(FoldKind(how), name, quote)
        else:
            updated[quote(name)] = _folded(FoldKind(how), types[name], f"t.{quote(name)}", f"s.{quote(name)}")
    return Merge(match, update=updated, insert=inserted)


def aggregates(table: TableBirth, given: Mapping[str, str]) -> tuple[str, ...]:
    """Spark's SQL that aggregates each folded column over the rows of one key; `given` are the rows' columns and types."""
    # In the table's order: that of `fold` is whatever the birth certificate's JSON has made of it.
    folded = ((name, kind, *table.fold[name]) for name, kind in table.columns if name in table.fold)
    return tuple(
        aggregate
        for name, kind, how, column in folded
        for aggregate in (_states(name, FoldKind(how), str(column), table, given) if FoldKind(how).is_combined else _aggregates(name, kind, FoldKind(how), column, given))
    )


def latest_aggregate(table: TableBirth) -> str:
    """Spark's SQL for the newest of one key's decoded records, as a struct of the table's columns."""
    values = ", ".join(spark_quote(name) for name, _ in table.columns)
    return f"max_by(struct({values}), struct({', '.join(_ORDER)}))"


def latest_table(decoded: pa.Table, table: TableBirth) -> pa.Table:
    """The newest record per key of decoded records, a tombstone among them leaving a hidden row (law 4)."""
    columns = [decoded.column(name).to_pylist() for name in (table.keys[0], *_ORDER, "_fate")]
    newest: dict[object, tuple[tuple[int, int, int], int]] = {}
    for place, (key, log_time, partition, offset, fate) in enumerate(zip(*columns, strict=True)):
        order = (log_time, partition, offset)
        if fate in _KEPT and (key not in newest or newest[key][0] < order):
            newest[key] = order, place
    kept = decoded.take(pa.array([place for _, place in newest.values()], pa.int64()))
    deleted = pa.array([fate == Fate.TOMBSTONE for fate in kept.column("_fate").to_pylist()], pa.bool_())
    return kept.append_column("_deleted", deleted).select([name for name, _ in table.columns])


def _carried(kind: str) -> str:
    match parse_type(kind):
        case Scalar("bigint"):
            return _WIDE
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
            both = _narrow(f"cast({held} as {_carried(kind)}) + {contributed}", kind)
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
    return after if len(one) == 1 else f"{after} or ({one[0]} = {other[0]} and ({_later(one[1:], other[1:])}))"


def _picked(how: FoldKind, name: str, quote: Quote) -> dict[str, str]:
    """A value that the order decides about, and its own order with it. Of a null none is kept, and it never wins."""
    columns = [quote(name), *(quote(order_column(name, of)) for of in _FOLD_ORDER)]
    held, contributed = ([f"{side}.{column}" for column in columns[1:]] for side in "ts")
    wins = _later(contributed, held) if how is FoldKind.LATEST else _later(held, contributed)
    return {column: f"case when {contributed[0]} is not null and ({held[0]} is null or {wins}) then s.{column} else t.{column} end" for column in columns}


def _aggregates(name: str, stored: str, how: FoldKind, column: str | None, given: Mapping[str, str]) -> Iterator[str]:
    own = spark_quote(name)
    if column is None:
        yield f"count(1) as {own}"
        return
    kind = parse_type(given[column])
    value = _one_spelling(spark_quote(column), kind)
    match how:
        case FoldKind.COUNT:
            yield f"count({value}) as {own}"
        case FoldKind.SUM:
            yield f"{_sum(value, kind, stored)} as {own}"
        case FoldKind.MIN | FoldKind.MAX:
            yield f"{how}({value}) as {own}"
        case FoldKind.AND | FoldKind.OR:
            yield f"bool_{how}({value}) as {own}"
        case FoldKind.FIRST | FoldKind.LATEST:
            # With the value last, so that of several rows of one record the choice does not hang on how they lie.
            picked = f"{'max' if how is FoldKind.LATEST else 'min'}(struct({', '.join(_FOLD_ORDER)}, {value} as value)) filter (where {value} is not null)"
            yield f"{picked}.value as {own}"
            yield from (f"{picked}.{of} as {spark_quote(order_column(name, of))}" for of in _FOLD_ORDER)


def _states(name: str, how: FoldKind, column: str, table: TableBirth, given: Mapping[str, str]) -> Iterator[str]:
    """What a slice contributes to a fold that is combined (engine/combine.py)."""
    value = _one_spelling(spark_quote(column), parse_type(given[column]))
    options, types = table.options[name], dict(table.columns)
    # Spark's sketches pass over an empty text, and take only some types: by its hash each value counts.
    hashed = f"case when {value} is not null then xxhash64({value}) end"
    match how:
        case FoldKind.SET:
            found = f"collect_set({value})"
            yield f"{least_by_hash(found, options)} as {spark_quote(name)}"
            yield f"size({found}) > {options['limit']} as {spark_quote(overflow_column(name))}"
        case FoldKind.TOP_K:
            ranked = str(options.get("by", column))
            by = _one_spelling(spark_quote(ranked), parse_type(given[ranked]))
            order = ", ".join(f"{of} as {of.removeprefix('_')}" for of in _FOLD_ORDER)
            row = f"struct({by} as by, {order}, {value} as value)"
            found = f"max_by({row}, {row}, {options['k']}) filter (where {by} is not null and {value} is not null)"
            yield f"coalesce({found}, cast(array() as {types[top_column(name)]})) as {spark_quote(top_column(name))}"
        case FoldKind.HLL:
            yield f"hll_sketch_agg({hashed}, {options['lg_k']}) as {spark_quote(sketch_column(name))}"
        case FoldKind.THETA:
            yield f"theta_sketch_agg({hashed}, {options['lg_k']}) as {spark_quote(sketch_column(name))}"
        case FoldKind.KLL:
            yield f"kll_sketch_agg_{types[name]}(cast({value} as {types[name]}), {options['k']}) as {spark_quote(sketch_column(name))}"


def least_by_hash(values: str, options: Mapping[str, Option]) -> str:
    """Spark's SQL for the values of an array of distinct ones that a set keeps, in their order (law 8)."""
    hashed = f"array_sort(transform({values}, each -> struct(xxhash64(each) as hash, each as value)))"
    return f"array_sort(transform(slice({hashed}, 1, {options['limit']}), each -> each.value))"


def _sum(value: str, kind: Type, stored: str) -> str:
    match kind:
        case Scalar("bigint"):
            # In two halves of 32 bits: exact for two billion rows, where a plain sum would overflow on the way to a
            # total that fits, or not, by the order of the rows.
            high, low = f"cast(sum(shiftright({value}, 32)) as decimal(20,0))", f"cast(sum({value} & 4294967295L) as decimal(20,0))"
            return f"cast({high} * 4294967296 + {low} as {_WIDE})"
        case Scalar("float" | "double"):
            return f"sum(cast({value} as double))"
        case Scalar():
            return f"cast(sum(cast({value} as bigint)) as {_WIDE})"
        case _:
            return f"cast(sum({value}) as {_carried(stored)})"


def _one_spelling(value: str, kind: Type) -> str:
    """NaN is no measure, so it is null; and there is one zero, as `-0.0 + 0.0` is `0.0` (IEEE 754)."""
    if kind in {Scalar("double"), Scalar("float")}:
        return f"case when isnan({value}) then null else {value} + cast(0 as {kind}) end"
    return value
