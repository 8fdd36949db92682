"""The check of a function's frames: a frame per table, of valid columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pyspark.sql import DataFrame

from kappa.base.errors import DeclarationError, did_you_mean
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.folds.returned import missing_column_error
from kappa.declare.pipeline import ORIGIN_COLUMNS, Pipeline
from kappa.declare.table import Table
from kappa.declare.values.columns import parse_type

_PLATFORM_NAMES = frozenset(name for name, _ in (*ORIGIN_COLUMNS, *FOLD_ORDER_COLUMNS))
# Column names that Delta accepts without column mapping, which other readers do not know.
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def frames_returned(pipeline: Pipeline, returned: object) -> dict[str, DataFrame]:
    """Returns the frame of each table.

    Raises DeclarationError if a frame is missing, or extra.
    """
    source, name = pipeline.source, pipeline.name
    if not isinstance(returned, Mapping):
        what = "nothing" if returned is None else f"a {type(returned).__name__}"
        raise DeclarationError(
            f"{source}: the function of pipeline {name} returns {what}",
            hint='return {"table": frame}, one for each table',
        )
    wanted = [table.name for table in pipeline.function_tables]
    for each, frame in returned.items():
        own = {table.name: "topic" for table in pipeline.latest_tables}
        own |= {table.name: "file" for table in pipeline.tables if table.file is not None}
        if each in own:
            raise DeclarationError(
                f"{source}: pipeline {name} returns rows for table {each},"
                f" which takes them from its {own[each]}",
                hint=f"leave {each} out of what the function returns",
            )
        if each not in wanted:
            raise DeclarationError(
                f"{source}: pipeline {name} returns rows for {each!r}, which it does not write",
                hint=did_you_mean(str(each), wanted) or f'add Table("{each}") to writes',
            )
        if not isinstance(frame, DataFrame):
            raise DeclarationError(
                f"{source}: pipeline {name} returns a {type(frame).__name__} for table {each},"
                " and not a DataFrame"
            )
    missing = [each for each in wanted if each not in returned]
    if missing:
        raise DeclarationError(
            f"{source}: pipeline {name} returns no rows for table {missing[0]}",
            hint=f'return {{"{missing[0]}": frame, ...}}, or take it out of writes',
        )
    return {str(each): frame for each, frame in returned.items()}


def columns_of(table: Table, frame: DataFrame) -> Iterator[tuple[str, str]]:
    """Yields the columns that a table takes from a frame, with Spark's types.

    Raises DeclarationError if a column is not allowed in a table.
    """
    # A keyed table takes only the columns of its keys and folds; other columns may be of any type.
    order = [name for name, _ in FOLD_ORDER_COLUMNS] if table.by_order else []
    needs = None if table.is_append_only or table.ordered is not None else _needs(table)
    needed = None if needs is None else {*needs, *order}
    returned = [field.name for field in frame.schema.fields]
    for name, what in (needs or {}).items():
        if name not in returned:
            raise missing_column_error(f"{table.source}: table {table.name}", name, what, returned)
    seen: set[str] = set()
    for field in frame.schema.fields:
        if needed is not None and field.name not in needed:
            continue
        what = f"{table.source}: table {table.name} gets the column {field.name}"
        if field.name.lower() in seen:
            raise DeclarationError(
                f"{what} twice",
                hint="names are compared without regard to case; give one of them an alias",
            )
        seen.add(field.name.lower())
        if not _COLUMN_NAME.fullmatch(field.name):
            raise DeclarationError(
                f"{what}, which is no name of a stored column",
                hint="use letters, digits and underscores: .alias(...)",
            )
        if field.name.startswith("_") and field.name not in _PLATFORM_NAMES:
            raise DeclarationError(
                what,
                hint="a leading underscore marks the platform's own columns:"
                " .alias(...) without it",
            )
        kind = field.dataType.simpleString()
        try:
            parse_type(kind)
        except DeclarationError:
            raise DeclarationError(
                f"{what} of type {kind}, which a table cannot have",
                hint=f'cast it: .withColumn("{field.name}", F.col("{field.name}").cast("string"))',
            ) from None
        yield field.name, kind


def _needs(table: Table) -> dict[str, str]:
    """Returns the columns that keys and folds need, with the reasons."""
    return {
        **{
            column: f"{name} = {fold}"
            for name, fold in table.fold.items()
            for column in fold.input_columns
        },
        **{key: f"its key {key}" for key in table.keys},
    }
