"""The shape of a build's tables: which columns are stored, of which type, and who sees them. Pure.

Columns that begin with an underscore are the platform's and left out of what is served. Read next: engine/fold/fold.py, which
fills them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping

from kappa.base.errors import DeclarationError
from kappa.declare.ordered import PLACE_COLUMNS, Ordered
from kappa.declare.pipeline import Pipeline
from kappa.declare.table import (
    FOLD_ORDER_COLUMNS,
    ORDER_COLUMNS,
    REJECTS,
    Fold,
    FoldKind,
    Table,
    overflow_column,
)
from kappa.state.build import TableBirth, range_columns
from kappa.values.columns import HEADERS, INTEGERS, Array, Column, Decimal, Scalar, Struct, Type

# The order of a latest row (law 4) and its tombstone's mark.
LATEST_COLUMNS = (*ORDER_COLUMNS, ("_deleted", "boolean"))
REJECTS_BIRTH = TableBirth(
    name=REJECTS,
    columns=(
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("key", "binary"),
        ("value", "binary"),
        ("headers", HEADERS),
        ("reason", "string"),
        ("detail", "string"),
        # The earlier offset that a redriven record names. One that was folded leaves a row that readers do not see: what it
        # names is folded once (law 7).
        ("_redrives", "bigint"),
        ("_deleted", "boolean"),
    ),
)
# Ten digits more than a row's: ten billion rows cannot overflow. Both writers add without loss within 37 (engine/fold/fold.py).
_SUM_DIGITS = 10
_WIDEST_SUMMED = 37 - _SUM_DIGITS


def table_births(
    pipeline: Pipeline, outputs: Mapping[str, Mapping[str, Type]]
) -> tuple[TableBirth, ...]:
    """The tables of a build of this pipeline, the rejects last.

    `outputs` gives, for every table that the function fills, its output columns and types in order. Raises
    DeclarationError, with the table's line, where keys or folds do not fit them.
    """
    return (*(_born(pipeline, table, outputs) for table in pipeline.tables), REJECTS_BIRTH)


def _born(
    pipeline: Pipeline, table: Table, outputs: Mapping[str, Mapping[str, Type]]
) -> TableBirth:
    if table.latest is not None:
        return _latest(table)
    if table.emitted:
        return TableBirth(
            table.name,
            tuple((column.name, str(column.type)) for column in table.emitted),
            checks=table.checks,
            thresholds=table.thresholds,
        )
    if table.ordered is not None:
        return _stepped(
            table,
            table.ordered,
            outputs[table.name],
            {topic.key for topic in pipeline.inputs.values()},
        )
    return _filled(table, outputs[table.name])


def _latest(table: Table) -> TableBirth:
    topic = table.latest
    if topic is None or topic.key is None:
        raise DeclarationError(
            f"{table.source}: table {table.name} is the latest of a topic without a key"
        )
    columns = tuple((column.name, str(column.type)) for column in topic.columns)
    return TableBirth(
        table.name,
        (*columns, *LATEST_COLUMNS),
        keys=(topic.key,),
        latest=topic.name,
        checks=table.checks,
        thresholds=table.thresholds,
    )


def _filled(table: Table, output: Mapping[str, Type]) -> TableBirth:
    if table.appends:
        return TableBirth(
            table.name,
            tuple((name, str(kind)) for name, kind in output.items()),
            checks=table.checks,
            thresholds=table.thresholds,
        )
    keys = tuple((key, str(_key_type(table, key, output))) for key in table.keys)
    folded = tuple(
        stored
        for column, fold in table.fold.items()
        for stored in _stored(table, column, fold, output)
    )
    fold = {column: (str(how.kind), how.column) for column, how in table.fold.items()}
    options = {column: dict(how.options) for column, how in table.fold.items() if how.options}
    sketched = {
        column: str(output[how.column])
        for column, how in table.fold.items()
        if how.kind in {FoldKind.HLL, FoldKind.THETA} and how.column is not None
    }
    return TableBirth(
        table.name,
        (*keys, *folded),
        keys=table.keys,
        fold=fold,
        checks=table.checks,
        thresholds=table.thresholds,
        options=options,
        sketched=sketched,
    )


def _stepped(
    table: Table, fold: Ordered, output: Mapping[str, Type], topic_keys: set[str | None]
) -> TableBirth:
    keys = tuple((key, str(_key_type(table, key, output))) for key in table.keys)
    # Rows of one Kafka key lie in one partition, whose offsets are their order (law 4).
    if not topic_keys & set(table.keys):
        named = ", ".join(sorted(key for key in topic_keys if key is not None))
        raise DeclarationError(
            f"{table.source}: table {table.name} is folded in the order of the log, and its keys {', '.join(table.keys)} do not have the topic's key among them",
            hint=f"rows of one key have an order where they lie in one partition: have {named} among the keys"
            if named
            else "declare the topic's key: Topic(..., key=...)",
        )
    _check_order(table, PLACE_COLUMNS, output, "its order")
    state = tuple((column.name, str(column.type)) for column in fold.state)
    rows = tuple((name, str(kind)) for name, kind in output.items())
    return TableBirth(
        table.name,
        (*keys, *state, *PLACE_COLUMNS),
        keys=table.keys,
        checks=table.checks,
        thresholds=table.thresholds,
        steps_over=rows,
    )


def order_column(column: str, of: str) -> str:
    """Where a table keeps, of a column that is folded by order, the log time, topic, partition or offset of the record that its value is from."""
    return f"_{column}{of}"


def sketch_column(column: str) -> str:
    """Where a table keeps the sketch that a served estimate is read from."""
    return f"_{column}_sketch"


def top_column(column: str) -> str:
    """Where a table keeps, of the values that are greatest by something, that and the order of the records that they are from."""
    return f"_{column}_top"


def _stored(
    table: Table, column: str, fold: Fold, output: Mapping[str, Type]
) -> Iterator[tuple[str, str]]:
    served = _folded_type(table, column, fold, output)
    yield column, str(served)
    if fold.kind.by_order:
        _check_order(table, FOLD_ORDER_COLUMNS, output, f"{column} = {fold}")
    match fold.kind:
        case FoldKind.FIRST | FoldKind.LATEST:
            yield from ((order_column(column, name), kind) for name, kind in FOLD_ORDER_COLUMNS)
        case FoldKind.SET:
            yield overflow_column(column), "boolean"
        case FoldKind.TOP_K:
            order = (
                Column(name.removeprefix("_"), Scalar(kind)) for name, kind in FOLD_ORDER_COLUMNS
            )
            by, value = (
                _input_type(table, each, output, f"{column} = {fold}")
                for each in (fold.inputs[-1], fold.inputs[0])
            )
            yield (
                top_column(column),
                str(Array(Struct((Column("by", by), *order, Column("value", value))))),
            )
        case FoldKind.HLL | FoldKind.THETA:
            yield sketch_column(column), "binary"
        case FoldKind.KLL:
            yield sketch_column(column), "binary"
            yield from ((name, str(served)) for name in range_columns(column))


def _check_order(
    table: Table, columns: tuple[tuple[str, str], ...], output: Mapping[str, Type], what: str
) -> None:
    for name, kind in columns:
        if str(output.get(name)) != kind:
            raise DeclarationError(
                f"{table.source}: table {table.name} needs column {name} {kind} for {what}, and the function {f'returns it as {output[name]}' if name in output else 'does not return it'}",
                hint=f"keep what tells the order in the rows: .select(..., {', '.join(repr(each) for each, _ in columns)})",
            )


def _key_type(table: Table, key: str, output: Mapping[str, Type]) -> Type:
    kind = _input_type(table, key, output, f"its key {key}")
    if isinstance(kind, Array | Struct) or kind in {Scalar("double"), Scalar("float")}:
        raise DeclarationError(
            f"{table.source}: table {table.name} has the key {key} of type {kind}, which has no exact equality",
            hint="key by text, whole numbers, decimals, dates or times",
        )
    return kind


def _folded_type(table: Table, column: str, fold: Fold, output: Mapping[str, Type]) -> Type:
    if fold.column is None:
        return Scalar("bigint")
    kind = _input_type(table, fold.column, output, f"{column} = {fold}")
    match fold.kind:
        case FoldKind.COUNT:
            return Scalar("bigint")
        case FoldKind.SUM:
            return _summed_type(table, column, fold, kind)
        case FoldKind.MIN | FoldKind.MAX:
            return _ordered_type(table, column, fold, kind)
        case FoldKind.AND | FoldKind.OR:
            if kind != Scalar("boolean"):
                raise DeclarationError(
                    f"{table.source}: table {table.name} folds {column} = {fold} over the type {kind}",
                    hint="only booleans are folded so: give a condition a name",
                )
            return kind
        case FoldKind.FIRST | FoldKind.LATEST:
            return kind
        case FoldKind.TOP_K:
            _ordered_type(
                table,
                column,
                fold,
                _input_type(table, fold.inputs[-1], output, f"{column} = {fold}"),
            )
            return Array(kind)
        case FoldKind.SET:
            return Array(_distinct_type(table, column, fold, kind))
        case FoldKind.HLL | FoldKind.THETA:
            _distinct_type(table, column, fold, kind)
            return Scalar("bigint")
        case FoldKind.KLL:
            if isinstance(kind, Scalar) and kind.name in INTEGERS:
                return Scalar("bigint")
            if kind in {Scalar("double"), Scalar("float")} or isinstance(kind, Decimal):
                return Scalar("double")
            raise DeclarationError(
                f"{table.source}: table {table.name} folds {column} = {fold} over the type {kind}",
                hint="only numbers have quantiles here",
            )


def _ordered_type(table: Table, column: str, fold: Fold, kind: Type) -> Type:
    if isinstance(kind, Array | Struct) or kind == Scalar("boolean"):
        raise DeclarationError(
            f"{table.source}: table {table.name} folds {column} = {fold} over the type {kind}, which has no order"
        )
    return kind


def _distinct_type(table: Table, column: str, fold: Fold, kind: Type) -> Type:
    if isinstance(kind, Array | Struct):
        raise DeclarationError(
            f"{table.source}: table {table.name} folds {column} = {fold} over the type {kind}",
            hint="give it one value a row: explode an array, name a field of a struct",
        )
    return kind


def _summed_type(table: Table, column: str, fold: Fold, kind: Type) -> Type:
    if isinstance(kind, Scalar) and kind.name in INTEGERS:
        return Scalar("bigint")
    if kind in {Scalar("double"), Scalar("float")}:
        return Scalar("double")
    if isinstance(kind, Decimal) and kind.precision <= _WIDEST_SUMMED:
        return Decimal(kind.precision + _SUM_DIGITS, kind.scale)
    if isinstance(kind, Decimal):
        raise DeclarationError(
            f"{table.source}: table {table.name} sums {fold.column} of type {kind}, and a sum of it may not fit",
            hint=f"cast it to at most {_WIDEST_SUMMED} digits in the function",
        )
    raise DeclarationError(
        f"{table.source}: table {table.name} folds {column} = {fold} over the type {kind}",
        hint="only numbers are summed",
    )


def _input_type(table: Table, name: str, output: Mapping[str, Type], what: str) -> Type:
    if name not in output:
        raise lacking(table, name, what, output)
    return output[name]


def lacking(table: Table, name: str, what: str, returned: Iterable[str]) -> DeclarationError:
    """Returns the refusal of a table whose column is not among those that are returned."""
    columns = tuple(returned)
    near = difflib.get_close_matches(name, columns, n=1)
    return DeclarationError(
        f"{table.source}: table {table.name} needs column {name} for {what}, "
        "and the function does not return it",
        hint=f"{f'did you mean {near[0]}? ' if near else ''}"
        f"it returns {', '.join(columns) or 'no column'}",
    )
