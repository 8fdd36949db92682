"""The facts that a change tells beside its row: operation, place in the source, time. Pure.

A fact is a column of the event like any other; its name leads to a part of the envelope.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.described import described
from kappa.declare.values.columns import Array, Column, Scalar, Struct
from kappa.declare.values.reason import Reason, Rejected, shown

# Facts that need no declaration beyond their column.
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
# Of a repeated change these may be others: who read it, how it was found, what was current then.
_PASSING = {"version", "ts_ms", "ts_us", "ts_ns", "sequence", "snapshot", "xmin"}
# The moment of the change at its source, the most exact first, in microseconds.
_MOMENTS = (("ts_us", 1, 1), ("ts_ms", 1000, 1), ("ts_ns", 1, 1000))


def facts_of(given: Mapping[str, str] | None) -> dict[str, str]:
    """Returns all facts by column. Raises DeclarationError if a given one is none."""
    if not isinstance(given, Mapping | None):
        raise DeclarationError(
            f"facts is {described(given)}", hint='write facts={"change_file": "source.file"}'
        )
    for name, path in (given or {}).items():
        is_known = isinstance(path, str) and (path in FACTS.values() or _PATH.fullmatch(path))
        if not isinstance(name, str) or not is_known:
            raise DeclarationError(
                f"the fact {described(name)} is {described(path)}, which no change has",
                hint="a fact is op, id, key, at, before, or a part of source or transaction: "
                '{"change_file": "source.file"}',
            )
    # A fact that has another column gives its own name back to the row.
    taken = set((given or {}).values())
    return {name: path for name, path in FACTS.items() if path not in taken} | dict(given or {})


def check_facts(columns: Sequence[Column], facts: Mapping[str, str]) -> None:
    """Raises DeclarationError if a column of a fact is not of its type."""
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


def moment(source: Mapping[str, Any]) -> int | None:
    """Returns when a change was made at its source, in microseconds since 1970."""
    for name, factor, divisor in _MOMENTS:
        found = source.get(name)
        if type(found) is int:
            return found * factor // divisor
    return None


def identity(operation: str, source: Mapping[str, Any], row: Mapping[str, Any] | None) -> str:
    """Returns the identity of a change: its place in the source, what it does, and its row.

    The place alone is none: the rows of a snapshot have one place, and so have those of one COPY.
    """
    place = {name: value for name, value in source.items() if name not in _PASSING}
    text = json.dumps([operation, place, row], sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def key_text(fields: Mapping[str, Any]) -> str:
    """Returns a key of one or several columns as one text, the same for equal keys."""
    return json.dumps(
        fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=_plain
    )


def part(envelope: Mapping[str, Any], path: str) -> Any:
    """Returns a part of the source's or the transaction's block, or None."""
    block, _, name = path.partition(".")
    found = envelope.get(block)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise Rejected(Reason.MALFORMED_CHANGE, f"{block} is {shown(found)}, no object")
    return found.get(name)


def _plain(found: Any) -> str:
    return found.hex() if isinstance(found, bytes) else str(found)
