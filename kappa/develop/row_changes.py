"""The difference between a table's rows before and after a change of a pipeline.

All functions are pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.serving.query.render import json_value

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableChange:
    """The difference between a table's rows before and after a change of a pipeline.

    `rows` is the number of rows after the change. `changed` contains a pair (row before, row after)
    for each pair of rows that have the same keys but other values. `is_new` is True if the table
    did not exist before; `is_gone` is True if the table no longer exists.
    """

    table: str
    rows: int
    added: tuple[Row, ...] = ()
    removed: tuple[Row, ...] = ()
    changed: tuple[tuple[Row, Row], ...] = ()
    keys: tuple[str, ...] = ()
    is_new: bool = False
    is_gone: bool = False

    @property
    def is_none(self) -> bool:
        """Returns True if the rows before and after the change are equal."""
        return not (self.added or self.removed or self.changed or self.is_new or self.is_gone)


def table_change(
    table: str, before: Sequence[Row] | None, after: Sequence[Row], keys: Sequence[str] = ()
) -> TableChange:
    """Compares the rows of a table before and after a change of a pipeline.

    `before` is None if the table is new. A row before and a row after the change count as the same
    row if they have the same keys. If there are no keys, or if one side lacks a key's column or has
    the same keys twice, rows are only added or removed. Values are compared in their JSON form, and
    doubles by 12 digits, because the last digits of a sum depend on the order of its terms.
    """
    if before is None:
        return TableChange(table, len(after), tuple(after), keys=tuple(keys), is_new=True)
    old, new = _by_key(before, keys), _by_key(after, keys)
    if old is None or new is None:
        return TableChange(
            table, len(after), _beyond(after, before), _beyond(before, after), keys=()
        )
    return TableChange(
        table,
        len(after),
        tuple(row for key, row in new.items() if key not in old),
        tuple(row for key, row in old.items() if key not in new),
        tuple(
            (old[key], row)
            for key, row in new.items()
            if key in old and _text(old[key]) != _text(row)
        ),
        tuple(keys),
    )


def _by_key(rows: Iterable[Row], keys: Sequence[str]) -> dict[str, Row] | None:
    found: dict[str, Row] = {}
    for row in rows:
        if not keys or not row.keys() >= set(keys):
            return None
        key = _text({name: row[name] for name in keys})
        if key in found:
            return None
        found[key] = row
    return found


def _beyond(rows: Sequence[Row], others: Sequence[Row]) -> tuple[Row, ...]:
    """Returns the rows that are not in `others`. Rows may occur several times.

    If a row occurs n times more often in `rows` than in `others`, the result contains this row n
    times.
    """
    left = Counter(map(_text, others))
    found = []
    for row in rows:
        text = _text(row)
        if left[text]:
            left[text] -= 1
        else:
            found.append(row)
    return tuple(found)


def _text(row: Row) -> str:
    return json.dumps(_rounded(json_value(row)), sort_keys=True)


def _rounded(value: object) -> object:
    match value:
        case float():
            return float(f"{value:.12g}")
        case dict():
            return {name: _rounded(each) for name, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
        case _:
            return value
