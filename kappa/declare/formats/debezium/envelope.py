"""One change, of an envelope and its Kafka key, whatever they were written in. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.declare.formats.debezium.change import RowEffect, SourceChange
from kappa.declare.formats.debezium.facts import (
    BEFORE,
    IDENTITY,
    KEY,
    OPERATION,
    TIME,
    identity,
    key_text,
    moment,
    part,
)
from kappa.declare.formats.debezium.row_values import RowValues
from kappa.declare.formats.debezium.written import Written
from kappa.declare.values.columns import Column, Scalar
from kappa.declare.values.reason import Reason, Rejected, kind_of, shown
from kappa.declare.values.value import Check

_DELETES, _TRUNCATES = "d", "t"
_KNOWN = {"c", "r", "u", _DELETES, _TRUNCATES}
# So many schemas of one topic are remembered; rows change theirs seldom.
_MOST_SCHEMAS = 64


@dataclass(frozen=True, slots=True)
class TakenApart:
    """A value or a key: its fields, and how each was written (None: it does not say).

    `schema` is the same for equal schemas.
    """

    fields: Mapping[str, Any]
    schema: str | int | None = None
    written: Callable[[], Written] | None = None


class EnvelopeReader:
    """A reader of changes with these columns."""

    def __init__(
        self, columns: Sequence[Column], facts: Mapping[str, str], values: RowValues
    ) -> None:
        self._values = values
        self._facts = {column: facts[column.name] for column in columns if column.name in facts}
        # A column of the row under its own name, and under those it had.
        self._columns = {
            name: column
            for column in columns
            if column.name not in facts
            for name in (*column.was, column.name)
        }
        self._key_names = {name for name, path in facts.items() if path == KEY}
        self._checks: dict[object, Mapping[str, Check]] = {}
        self._of_facts = {column: _fact_check(column, path) for column, path in self._facts.items()}
        self._before = next((c for c, path in self._facts.items() if path == BEFORE), None)
        self._wants_key = KEY in self._facts.values()

    def change(self, key: Callable[[], TakenApart], value: TakenApart) -> SourceChange:
        """Returns the change that an envelope is. `key` is asked for only if a column wants it.

        Raises Rejected if it is none.
        """
        envelope = value.fields
        operation = envelope.get("op")
        if operation is None:
            raise _malformed("the value has no op, so it is no envelope of Debezium's")
        if not isinstance(operation, str) or operation not in _KNOWN:
            raise _malformed(f"op is {shown(operation)}, which is no change of a row")
        source = envelope.get("source")
        if not isinstance(source, dict):
            raise _malformed(f"source is {kind_of(source)}, not an object")
        effect = (
            RowEffect.DELETES
            if operation == _DELETES
            else RowEffect.TRUNCATES
            if operation == _TRUNCATES
            else RowEffect.WRITES
        )
        side = "before" if effect is RowEffect.DELETES else "after"
        row = envelope.get(side)
        fields: dict[str, Any] = {}
        if effect is not RowEffect.TRUNCATES:
            if not isinstance(row, dict):
                raise _malformed(f"op is {operation}, and {side} is {kind_of(row)}, not a row")
            fields = self._row(row, side, value)
        for column, path in self._facts.items():
            found = self._fact(path, operation, envelope, source, row, key)
            if path == BEFORE and found is not None:
                fields[column.name] = self._checks_of("before", value)[""](found, column.name)
            elif found is not None:
                fields[column.name] = self._of_facts[column](found, column.name)
        return SourceChange(effect, fields)

    def key_value(self, key: TakenApart, column: Column) -> Any:
        """Returns what the Kafka key says that the row's key is."""
        if column.name in self._key_names:
            return key_text(key.fields)
        if len(key.fields) > 1:
            raise Rejected(
                Reason.KEY_MISMATCH,
                f"the key has the fields {', '.join(sorted(map(str, key.fields)))[:200]}, and the "
                f"topic's key is {column.name} alone: let change_key be the key",
            )
        for name in (column.name, *column.was):
            if key.fields.get(name) is not None:
                return self._checks_of("key", key)[name](key.fields[name], name)
        raise Rejected(
            Reason.KEY_MISMATCH,
            f"the key has {', '.join(map(shown, key.fields)) or 'no field'}, and not {column.name}",
        )

    def _row(self, row: Mapping[str, Any], side: str, value: TakenApart) -> dict[str, Any]:
        checks = self._checks_of(side, value)
        return {
            name: None if row[name] is None else check(row[name], name)
            for name, check in checks.items()
            if name in row and name
        }

    def _checks_of(self, side: str, parts: TakenApart) -> Mapping[str, Check]:
        """Returns the checks of a row's columns by name, and of the whole row by ""."""
        place = None if parts.schema is None else (side, parts.schema)
        checks = self._checks.get(place)
        if checks is None:
            written = None if parts.written is None else parts.written()
            if written is not None and side != "key":
                written = written.fields.get(side)
            checks = {
                name: self._values.check(
                    column.type, None if written is None else written.fields.get(name)
                )
                for name, column in self._columns.items()
            }
            if self._before is not None:
                checks[""] = self._values.check(self._before.type, written)
            if len(self._checks) >= _MOST_SCHEMAS:
                self._checks.clear()
            self._checks[place] = checks
        return checks

    @staticmethod
    def _fact(
        path: str,
        operation: str,
        envelope: Mapping[str, Any],
        source: Mapping[str, Any],
        row: Mapping[str, Any] | None,
        key: Callable[[], TakenApart],
    ) -> Any:
        match path:
            case _ if path == OPERATION:
                return operation
            case _ if path == IDENTITY:
                return identity(operation, source, row)
            case _ if path == KEY:
                # A truncated table has no key.
                return None if operation == _TRUNCATES else key_text(key().fields)
            case _ if path == TIME:
                return moment(source)
            case _ if path == BEFORE:
                return envelope.get("before")
            case _:
                return part(envelope, path)


def _fact_check(column: Column, path: str) -> Check:
    if path in {OPERATION, IDENTITY, KEY}:
        return lambda found, _name: found
    values = RowValues(times=_unit(path), decimals="text")
    check = values.check(column.type, None)
    if column.type != Scalar("string"):
        return check
    # A place may be a number in one connector and a text in another.
    return lambda found, name: check(
        found if isinstance(found, str) else json.dumps(found, default=str), name
    )


def _unit(path: str) -> str:
    """Returns the unit of a moment: facts have it in their names."""
    return {"ms": "millis", "ns": "nanos"}.get(path.rpartition("_")[2], "micros")


def _malformed(detail: str) -> Rejected:
    return Rejected(Reason.MALFORMED_CHANGE, detail)
