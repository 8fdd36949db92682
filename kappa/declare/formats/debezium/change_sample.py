"""Changes that are written by hand, for tests of pipelines. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.formats.debezium.facts import BEFORE, IDENTITY, KEY, OPERATION, TIME
from kappa.declare.values.columns import Scalar
from kappa.declare.values.reason import Rejected
from kappa.declare.values.value import check_of


def written_change(fields: Mapping[str, Any], facts: Mapping[str, str]) -> bytes:
    """Returns an envelope of a row's fields and of facts among them. Raises UsageError."""
    row: dict[str, Any] = {}
    blocks: dict[str, dict[str, Any]] = {"source": {"connector": "by hand"}, "transaction": {}}
    operation, before = "c", None
    for name, value in fields.items():
        path = facts.get(name)
        block, _, part = (path or "").partition(".")
        if path is None:
            row[name] = value
        elif path == OPERATION:
            operation = value
        elif path == BEFORE:
            before = value
        elif path == TIME:
            blocks["source"]["ts_us"] = _micros(value, name)
        elif path not in {IDENTITY, KEY}:
            blocks[block][part] = value
    after = None if operation in {"d", "t"} else row
    envelope = {
        "before": row if operation == "d" else before,
        "after": after,
        "source": blocks["source"],
        "transaction": blocks["transaction"] or None,
        "op": operation,
    }
    return json.dumps(envelope, ensure_ascii=False).encode()


def written_key(name: str, value: Any, facts: Mapping[str, str]) -> bytes:
    """Returns the Kafka key of a row; one of several columns is given as its text."""
    if facts.get(name) == KEY:
        return str(value).encode()
    return json.dumps({name: value}, ensure_ascii=False).encode()


def _micros(value: Any, name: str) -> Any:
    if value is None:
        return None
    try:
        return check_of(Scalar("timestamp"))(value, name)
    except Rejected as rejected:
        raise UsageError(rejected.detail) from None
