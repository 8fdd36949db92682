"""The comparison of two foldings of a log, by the fold of each column."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kappa.base.errors import Broken
from kappa.declare.options import DELETED
from kappa.engine.children.rehearsal import Rehearsal
from kappa.state.log_clock import log_clock
from kappa.state.table import TableBirth
from kappa.tables.views.exact_rows import python_rows
from kappa.tables.views.served import least_kept

# A table's rows: by key if the table has keys, else the number of times each row occurs.
FoldedRows = Mapping[tuple[Any, ...], Any]

# A longer value is cut in an error.
_LONGEST = 200


def rows_of(build: Rehearsal, table: TableBirth) -> FoldedRows:
    """Reads the rows of a table for a comparison, without gone rows.

    Raises Broken if a key occurs twice.
    """
    wanted = {*dict(table.compared), DELETED, *(table.row_keys if table.keys else ())}
    compared = [column for column, _ in table.columns if column in wanted]
    found = build.table(table.name).select(compared)
    least = least_kept(table, log_clock(build.birth, build.publisher.newest.log_time))
    if table.expiry is not None and least is not None:
        times = found[table.expiry.column]
        is_kept = pc.greater_equal(times, pa.scalar(least, times.type))
        found = found.filter(pc.fill_null(is_kept, fill_value=True))
    rows = [{column: _plain(value) for column, value in row.items()} for row in python_rows(found)]
    if table.view is not None:
        # The slices decide whether a gone row was ever stored.
        rows = [row for row in rows if not row[DELETED]]
    if table.keys:
        by_key = {tuple(row[key] for key in table.row_keys): row for row in rows}
        if len(by_key) < len(rows):
            raise Broken(
                f"table {table.name} holds a key more than once",
                hint="a fault of Kappa's: please report it, with the pipeline's file",
            )
        return by_key
    return Counter(tuple(row.items()) for row in rows)


def _plain(value: Any) -> Any:
    """Returns a value in a form that can be compared and counted."""
    match value:
        case list():
            return tuple(map(_plain, value))
        case dict():
            return tuple((name, _plain(each)) for name, each in value.items())
        case float() if math.isnan(value):
            return None
        case _:
            return value


def differences(table: TableBirth, whole: FoldedRows, found: FoldedRows) -> Iterator[str]:
    """Yields a sentence for each difference between two foldings of a table.

    `whole` are the rows after a single slice, and `found` the rows after many slices.
    """
    name = f"{'table' if table.view is None else 'view'} {table.name}"
    # Appended rows can only be compared whole.
    columns = [
        column for column, _ in table.columns if column in dict(table.served) or column == DELETED
    ]
    for row in [*whole, *(row for row in found if row not in whole)]:
        before, after = whole.get(row), found.get(row)
        match before, after:
            case (dict(), dict()):
                yield from (
                    f"{name}, key {_key_text(row)}, column {column}:"
                    f" {_cut(before[column])} and {_cut(after[column])}"
                    for column in columns
                    if not table.exactness(column).are_equal(column, before, after)
                )
            case (int() | None, int() | None):
                if (before or 0) != (after or 0):
                    shown = {column: value for column, value in row if column[0] != "_"}
                    yield f"{name} has {before or 0} and {after or 0} times {_cut(shown)}"
            case _:
                found_how = "not any more" if after is None else "besides"
                yield f"{name} has key {_key_text(row)} {found_how}"


def _key_text(key: tuple[Any, ...]) -> str:
    return ", ".join(map(_cut, key))


def _cut(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
