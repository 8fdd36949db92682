"""Reads a change of a row from Debezium's envelope and the Kafka key, in any encoding. Pure.

A *fact* is a column of the event that describes the change itself instead of the row, for example
the operation, the position in the source, the time or the identity. A format maps the names of
these columns to parts of the envelope.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.formats.debezium_values import RowValues, WritingSchema
from kappa.declare.formats.format import RowEffect, SourceChange
from kappa.declare.options import describe_value
from kappa.declare.values.columns import Array, Column, Scalar, Struct
from kappa.declare.values.reason import Reason, Rejected, kind_of, show_value
from kappa.declare.values.value import Check

# Facts that need no declaration beyond a column.
FACTS = {
    "change_op": "op",
    "change_id": "id",
    "change_key": "key",
    "change_at": "at",
    "change_before": "before",
    "change_lsn": "source.lsn",
    "change_tx": "source.txId",
    "change_snapshot": "source.snapshot",
}
OPERATION, IDENTITY, KEY, TIME, BEFORE = "op", "id", "key", "at", "before"
_PATH = re.compile(r"(?:source|transaction)\.[A-Za-z_][A-Za-z0-9_]*")
# These may differ in a repeated change: who read the change, how, and what was current then.
_PASSING = {"version", "ts_ms", "ts_us", "ts_ns", "sequence", "snapshot", "xmin"}
# The moment of the change at its source, the most exact unit first, in microseconds.
_MOMENTS = (("ts_us", 1, 1), ("ts_ms", 1000, 1), ("ts_ns", 1, 1000))
_DELETES, _TRUNCATES = "d", "t"
_KNOWN = {"c", "r", "u", _DELETES, _TRUNCATES}
# So many schemas of one topic are remembered; rows seldom change schemas.
_MOST_SCHEMAS = 64


def facts_of(given: Mapping[str, str] | None) -> dict[str, str]:
    """Returns the columns that describe a change itself, as `{column: part of the envelope}`.

    These columns are called facts. `given` contains the facts that the format declares. A declared
    fact replaces the default fact for the same part. Raises DeclarationError if a declared fact is
    not a part of a change.
    """
    if not isinstance(given, Mapping | None):
        raise DeclarationError(
            f"facts is {describe_value(given)}", hint='write facts={"change_file": "source.file"}'
        )
    for name, path in (given or {}).items():
        is_known = isinstance(path, str) and (path in FACTS.values() or _PATH.fullmatch(path))
        if not isinstance(name, str) or not is_known:
            raise DeclarationError(
                f"the fact {describe_value(name)} is {describe_value(path)}, which no change has",
                hint="a fact is op, id, key, at, before, or a part of source or transaction: "
                '{"change_file": "source.file"}',
            )
    # A fact with another column gives its usual name back to the row.
    taken = set((given or {}).values())
    return {name: path for name, path in FACTS.items() if path not in taken} | dict(given or {})


def check_facts(columns: Sequence[Column], facts: Mapping[str, str]) -> None:
    """Raises DeclarationError if a column that describes a change is not declared correctly.

    `facts` maps these columns to parts of Debezium's envelope. Such a column must have the type of
    its part, and may have no default and no old name.
    """
    for column in columns:
        path = facts.get(column.name)
        if path in {OPERATION, IDENTITY, KEY} and column.type != Scalar("string"):
            raise DeclarationError(
                f"column {column.name} is {column.type}, and is the change's {path}, a text",
                hint=f"declare it so: {column.name} string",
            )
        if path == TIME and column.type != Scalar("timestamp"):
            raise DeclarationError(
                f"column {column.name} is {column.type}, and is the change's time",
                hint=f"declare it so: {column.name} timestamp",
            )
        if path == BEFORE and not isinstance(column.type, Struct):
            raise DeclarationError(
                f"column {column.name} is {column.type}, and is the row before its change",
                hint=f"declare the columns that you need: {column.name} struct<amount:double>",
            )
        if path is not None and (column.default is not None or column.was):
            raise DeclarationError(
                f"column {column.name} is a fact of the change, and has "
                f"{'an old name' if column.was else 'a default'}",
                hint="leave it out; facts have one name, and are null if the change has none",
            )
        if path is not None and "." in path and isinstance(column.type, Array | Struct):
            raise DeclarationError(
                f"column {column.name} is {column.type}, and {path} is one value",
                hint="declare it as a text or a whole number",
            )


def change_moment(source: Mapping[str, Any]) -> int | None:
    """Returns the time of a change at its source, or None if the time is not known.

    The time is in microseconds since 1970. `source` is the block `source` of Debezium's envelope.
    """
    for name, factor, divisor in _MOMENTS:
        found = source.get(name)
        if type(found) is int:
            return found * factor // divisor
    return None


def change_identity(
    operation: str, source: Mapping[str, Any], row: Mapping[str, Any] | None
) -> str:
    """Returns the identity of a change, as a hash in hexadecimal digits.

    The hash covers the operation, the row, and the position of the change in the source. The
    position alone is not sufficient: all rows of a snapshot, or of one COPY, have the same
    position.
    """
    place = {name: value for name, value in source.items() if name not in _PASSING}
    text = json.dumps([operation, place, row], sort_keys=True, default=_plain_text)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def key_text(fields: Mapping[str, Any]) -> str:
    """Returns a JSON text for a key of one or several columns. Equal keys have equal texts."""
    return json.dumps(
        fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain_text
    )


def envelope_part(envelope: Mapping[str, Any], path: str) -> Any:
    """Returns a field of the envelope's block `source` or `transaction`, or None if it is missing.

    `path` is the block and the field: `source.lsn`. Raises Rejected if the block is not an object.
    """
    block, _, name = path.partition(".")
    found = envelope.get(block)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise Rejected(Reason.MALFORMED_CHANGE, f"{block} is {show_value(found)}, no object")
    return found.get(name)


def _plain_text(found: Any) -> str:
    return found.hex() if isinstance(found, bytes) else str(found)


@dataclass(frozen=True, slots=True)
class EnvelopePart:
    """The decoded value or key of a record: its fields, and the schema of its writer.

    `schema` identifies the schema: it is equal for equal schemas. `written` is a function that
    returns the description of the schema. Both are None for a record without a schema.
    """

    fields: Mapping[str, Any]
    schema: str | int | None = None
    written: Callable[[], WritingSchema] | None = None


class EnvelopeReader:
    """A reader of changes in Debezium's envelope, for the columns of one event."""

    def __init__(
        self, columns: Sequence[Column], facts: Mapping[str, str], values: RowValues
    ) -> None:
        self._values = values
        self._facts = {column: facts[column.name] for column in columns if column.name in facts}
        # Each column of the row under its own name, and under its old names.
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

    def read_change(self, key: Callable[[], EnvelopePart], value: EnvelopePart) -> SourceChange:
        """Returns the change that a record's value, an envelope of Debezium, describes.

        `key` returns the decoded Kafka key, and is called only if a column needs the key. Raises
        Rejected if the value is not a change.
        """
        envelope = value.fields
        operation = envelope.get("op")
        if operation is None:
            raise _malformed_change("the value has no op, so it is not an envelope of Debezium's")
        if not isinstance(operation, str) or operation not in _KNOWN:
            raise _malformed_change(
                f"op is {show_value(operation)}, which is not a change of a row"
            )
        source = envelope.get("source")
        if not isinstance(source, dict):
            raise _malformed_change(f"source is {kind_of(source)}, not an object")
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
                raise _malformed_change(
                    f"op is {operation}, and {side} is {kind_of(row)}, not a row"
                )
            fields = self._row_values(row, side, value)
        for column, path in self._facts.items():
            found = self._fact_value(path, operation, envelope, source, row, key)
            if path == BEFORE and found is not None:
                fields[column.name] = self._checks_of("before", value)[""](found, column.name)
            elif found is not None:
                fields[column.name] = self._of_facts[column](found, column.name)
        return SourceChange(effect, fields)

    def key_value(self, key: EnvelopePart, column: Column) -> Any:
        """Returns the value of the topic's key column, read from the Kafka key.

        Raises Rejected if the key does not contain exactly this value.
        """
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
            f"the key has {', '.join(map(show_value, key.fields)) or 'no field'}, and not "
            f"{column.name}",
        )

    def _row_values(self, row: Mapping[str, Any], side: str, value: EnvelopePart) -> dict[str, Any]:
        checks = self._checks_of(side, value)
        return {
            name: None if row[name] is None else check(row[name], name)
            for name, check in checks.items()
            if name in row and name
        }

    def _checks_of(self, side: str, parts: EnvelopePart) -> Mapping[str, Check]:
        """Returns the functions that check and convert the values of a row, by column name.

        `side` is the part of the record that contains the row: "before", "after" or "key". If a
        column of the event contains the whole row before the change, the entry "" is the function
        that converts this row.
        """
        place = None if parts.schema is None else (side, parts.schema)
        checks = self._checks.get(place)
        if checks is None:
            written = None if parts.written is None else parts.written()
            if written is not None and side != "key":
                written = written.fields.get(side)
            checks = {
                name: self._values.value_check(
                    column.type, None if written is None else written.fields.get(name)
                )
                for name, column in self._columns.items()
            }
            if self._before is not None:
                checks[""] = self._values.value_check(self._before.type, written)
            if len(self._checks) >= _MOST_SCHEMAS:
                self._checks.clear()
            self._checks[place] = checks
        return checks

    @staticmethod
    def _fact_value(
        path: str,
        operation: str,
        envelope: Mapping[str, Any],
        source: Mapping[str, Any],
        row: Mapping[str, Any] | None,
        key: Callable[[], EnvelopePart],
    ) -> Any:
        match path:
            case _ if path == OPERATION:
                return operation
            case _ if path == IDENTITY:
                return change_identity(operation, source, row)
            case _ if path == KEY:
                # A truncated table has no key.
                return None if operation == _TRUNCATES else key_text(key().fields)
            case _ if path == TIME:
                return change_moment(source)
            case _ if path == BEFORE:
                return envelope.get("before")
            case _:
                return envelope_part(envelope, path)


def _fact_check(column: Column, path: str) -> Check:
    if path in {OPERATION, IDENTITY, KEY}:
        return lambda found, _name: found
    values = RowValues(times=_moment_unit(path), decimals="text")
    check = values.value_check(column.type, None)
    if column.type != Scalar("string"):
        return check
    # A place may be a number in one connector and a text in another.
    return lambda found, name: check(
        found if isinstance(found, str) else json.dumps(found, default=str), name
    )


def _moment_unit(path: str) -> str:
    """Returns the unit of the time at a path in the envelope, such as `source.ts_ms`.

    The end of the path shows the unit.
    """
    return {"ms": "millis", "ns": "nanos"}.get(path.rpartition("_")[2], "micros")


def _malformed_change(detail: str) -> Rejected:
    return Rejected(Reason.MALFORMED_CHANGE, detail)
