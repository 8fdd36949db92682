"""The columns that a build's tables store, with their types. Pure.

Readers never see a column whose name begins with an underscore: only Kappa itself uses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from kappa.base.errors import DeclarationError
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS, ORDER_COLUMNS
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.options import DELETED, REJECTS
from kappa.declare.ordered_fold import FIRST_OFFSET, PLACE_COLUMNS, Ordered
from kappa.declare.pipeline import Pipeline
from kappa.declare.seed import seed_columns
from kappa.declare.table import Table
from kappa.declare.values.columns import HEADERS, Array, Scalar, Struct, Type
from kappa.state.table import TableBirth

# The order of a latest row (law 4) and the mark of a tombstone.
LATEST_COLUMNS = (*ORDER_COLUMNS, (DELETED, "boolean"))
# The first record of a step's state, and the mark of a state that readers do not see.
_STATE_COLUMNS = ((FIRST_OFFSET, "bigint"), (DELETED, "boolean"))
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
        # The earlier offset that a redriven record names. A folded redriven record leaves a row
        # that readers do not see: the named record is folded once (law 7).
        ("_redrives", "bigint"),
        (DELETED, "boolean"),
    ),
)


def table_births(
    pipeline: Pipeline, outputs: Mapping[str, Mapping[str, Type]]
) -> tuple[TableBirth, ...]:
    """Describes the tables of a new build of a pipeline, as its birth certificate stores them.

    `outputs` contains, for each table whose rows the pipeline's function returns, the names and
    types of the returned columns, in order. The table of rejects is last. Raises DeclarationError,
    with the table's line, if keys or folds do not fit the columns.
    """
    return (
        *(
            replace(_table_birth(pipeline, table, outputs), expiry=table.expiry)
            for table in pipeline.tables
        ),
        REJECTS_BIRTH,
    )


def _table_birth(
    pipeline: Pipeline, table: Table, outputs: Mapping[str, Mapping[str, Type]]
) -> TableBirth:
    if table.latest is not None:
        return latest_birth(table)
    if table.emitted or table.file is not None:
        columns = table.emitted if table.file is None else seed_columns(table.file)
        return TableBirth(
            table.name,
            tuple((column.name, str(column.type)) for column in columns),
            keys=table.keys,
            checks=table.checks,
            thresholds=table.thresholds,
            file=None if table.file is None else table.file.digest,
        )
    if table.ordered is not None:
        born = _stepped_birth(
            table,
            table.ordered,
            outputs[table.name],
            {topic.key for topic in pipeline.input_topics},
        )
        if table.ordered.sessions is not None:
            _check_emitted_types(pipeline, table.ordered, born)
        return born
    return _filled_birth(table, outputs[table.name])


def latest_birth(table: Table) -> TableBirth:
    """Describes a `latest` table in the form in which a birth certificate stores the table.

    Raises DeclarationError if the table's topic has no key.
    """
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


def _filled_birth(table: Table, output: Mapping[str, Type]) -> TableBirth:
    rows = _returned_columns(table, output)
    if table.expiry is not None:
        rows.check_time(table.expiry.column)
    if table.is_append_only:
        # The columns that decide whether a row may be gone are not stored with the row.
        judges = dict(FOLD_ORDER_COLUMNS if table.expiry is not None else ())
        return TableBirth(
            table.name,
            tuple((name, str(kind)) for name, kind in output.items() if name not in judges),
            checks=table.checks,
            thresholds=table.thresholds,
        )
    keys = tuple((key, str(_key_type(key, rows))) for key in table.keys)
    folded = tuple(
        stored for name, fold in table.fold.items() for stored in fold.stored_columns(name, rows)
    )
    fold = {name: (how.kind, how.column) for name, how in table.fold.items()}
    options = {name: dict(how.options) for name, how in table.fold.items() if how.options}
    sketched = {
        name: str(output[how.column])
        for name, how in table.fold.items()
        if how.is_sketched and how.column is not None
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


def _stepped_birth(
    table: Table, fold: Ordered, output: Mapping[str, Type], topic_keys: set[str | None]
) -> TableBirth:
    returned = _returned_columns(table, output)
    keys = tuple((key, str(_key_type(key, returned))) for key in table.keys)
    # Rows of one Kafka key are in one partition as a rule, whose offsets are their order (law 4).
    if not topic_keys & set(table.keys):
        named = ", ".join(sorted(key for key in topic_keys if key is not None))
        raise DeclarationError(
            f"{table.source}: table {table.name} is folded in the order of the log, "
            f"and its keys {', '.join(table.keys)} do not have the topic's key among them",
            hint="rows of one key have an order where they lie in one partition: "
            f"have {named} among the keys"
            if named
            else "declare the topic's key: Topic(..., key=...)",
        )
    returned.check_columns(
        PLACE_COLUMNS if fold.on_time is None else FOLD_ORDER_COLUMNS, "its order"
    )
    state = fold.state_columns(returned)
    rows = tuple((name, str(kind)) for name, kind in output.items())
    return TableBirth(
        table.name,
        (*keys, *state, *PLACE_COLUMNS, *_STATE_COLUMNS),
        keys=table.keys,
        checks=table.checks,
        thresholds=table.thresholds,
        steps_over=rows,
    )


def _check_emitted_types(pipeline: Pipeline, fold: Ordered, born: TableBirth) -> None:
    """Raises DeclarationError if a column of emitted sessions has another type than declared.

    `born` is the table that folds rows into sessions with the ordered fold `fold`. When a session
    ends, it becomes a row of another table of the pipeline, which declares its columns' types.
    """
    types = dict(born.columns)
    for table in pipeline.tables:
        for column in table.emitted if table.name == fold.emits else ():
            if types[column.name] != str(column.type):
                raise DeclarationError(
                    f"{table.source}: table {table.name} has column {column.name} of type "
                    f"{column.type}, and sessions of table {born.name} have {types[column.name]}",
                    hint=f'declare it so: emitted="..., {column.name} {types[column.name]}"',
                )


def _key_type(key: str, rows: ReturnedColumns) -> Type:
    kind = rows.type_of(key, f"its key {key}")
    if isinstance(kind, Array | Struct) or kind in {Scalar("double"), Scalar("float")}:
        raise rows.table_error(
            f"has the key {key} of type {kind}, which has no exact equality",
            hint="key by text, whole numbers, decimals, dates or times",
        )
    return kind


def _returned_columns(table: Table, output: Mapping[str, Type]) -> ReturnedColumns:
    return ReturnedColumns(f"{table.source}: table {table.name}", output)
