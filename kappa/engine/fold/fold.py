"""How rows become contributions to a table (laws 4 and 9).

A slice's contribution to a table is one row per key: here is the SQL that aggregates it. It is folded by a merge (kappa/tables/merge.py).
Pure. Read next: engine/fold/combine.py for the folds that no merge can say, engine/function/contribution.py, engine/write/commit.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from kappa.base.sql import spark_quote
from kappa.declare.table import FOLD_ORDER_COLUMNS, ORDER_COLUMNS, FoldKind, Option, overflow_column
from kappa.engine.decode.fate import Fate
from kappa.state.build import TableBirth
from kappa.tables.merge import WIDE, carried
from kappa.tables.shape import order_column, sketch_column, top_column
from kappa.values.columns import Scalar, Type, parse_type

_ORDER = tuple(name for name, _ in ORDER_COLUMNS)
_FOLD_ORDER = tuple(name for name, _ in FOLD_ORDER_COLUMNS)
# What becomes a latest row.
_KEPT = frozenset({Fate.DECODED, Fate.TOMBSTONE})


def spark_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Columns, by name and Spark's type, as Spark reads a schema."""
    return ", ".join(f"{spark_quote(name)} {kind}" for name, kind in columns)


def aggregates(table: TableBirth, given: Mapping[str, str]) -> tuple[str, ...]:
    """Spark's SQL that aggregates each folded column over the rows of one key; `given` are the rows' columns and types."""
    # In the table's order: that of `fold` is whatever the birth certificate's JSON has made of it.
    folded = ((name, kind, *table.fold[name]) for name, kind in table.columns if name in table.fold)
    return tuple(
        aggregate
        for name, kind, how, column in folded
        for aggregate in (
            _states(name, FoldKind(how), str(column), table, given)
            if FoldKind(how).is_combined
            else _aggregates(name, kind, FoldKind(how), column, given)
        )
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
    deleted = pa.array(
        [fate == Fate.TOMBSTONE for fate in kept.column("_fate").to_pylist()], pa.bool_()
    )
    return kept.append_column("_deleted", deleted).select([name for name, _ in table.columns])


def _aggregates(
    name: str, stored: str, how: FoldKind, column: str | None, given: Mapping[str, str]
) -> Iterator[str]:
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
            yield from (
                f"{picked}.{of} as {spark_quote(order_column(name, of))}" for of in _FOLD_ORDER
            )


def _states(
    name: str, how: FoldKind, column: str, table: TableBirth, given: Mapping[str, str]
) -> Iterator[str]:
    """What a slice contributes to a fold that is combined (engine/fold/combine.py)."""
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
    hashed = (
        f"array_sort(transform({values}, each -> struct(xxhash64(each) as hash, each as value)))"
    )
    return f"array_sort(transform(slice({hashed}, 1, {options['limit']}), each -> each.value))"


def _sum(value: str, kind: Type, stored: str) -> str:
    match kind:
        case Scalar("bigint"):
            # In two halves of 32 bits: exact for two billion rows, where a plain sum would overflow on the way to a
            # total that fits, or not, by the order of the rows.
            high, low = (
                f"cast(sum(shiftright({value}, 32)) as decimal(20,0))",
                f"cast(sum({value} & 4294967295L) as decimal(20,0))",
            )
            return f"cast({high} * 4294967296 + {low} as {WIDE})"
        case Scalar("float" | "double"):
            return f"sum(cast({value} as double))"
        case Scalar():
            return f"cast(sum(cast({value} as bigint)) as {WIDE})"
        case _:
            return f"cast(sum({value}) as {carried(stored)})"


def _one_spelling(value: str, kind: Type) -> str:
    """NaN is no measure, so it is null; and there is one zero, as `-0.0 + 0.0` is `0.0` (IEEE 754)."""
    if kind in {Scalar("double"), Scalar("float")}:
        return f"case when isnan({value}) then null else {value} + cast(0 as {kind}) end"
    return value
