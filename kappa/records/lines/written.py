"""The writing of a record as an envelope, so that tools for JSON can edit the record."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from kappa.kafka.producer import ProducedRecord
from kappa.records.lines.envelope import refuse_constant


def envelope_line(
    record: ProducedRecord, *, note: str = "", beside: Mapping[str, Any] | None = None
) -> str:
    """Returns the line that `envelope_record` reads as this record, byte for byte.

    A value that is a JSON object is written as an object. `beside` are fields that a reader
    ignores.
    """
    raw = [
        name
        for name, value in (("key", record.key), ("value", record.value))
        if value is not None and not _is_text(value)
    ]
    headers = [
        (name, value) for name, value in record.headers if value is not None and not _is_text(value)
    ]
    # Headers of the same name are all written alike.
    encoded = {*raw, *(f"headers.{name}" for name, _ in headers)}
    written = [
        (name, _written_value(value, f"headers.{name}" in encoded))
        for name, value in record.headers
    ]
    fields: dict[str, Any] = {
        **(beside or {}),
        "note": note or None,
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "headers": None
        if not written
        else dict(written)
        if len(dict(written)) == len(written)
        else written,
        "base64": sorted(encoded) or None,
        "key": _written_value(record.key, "key" in encoded),
    }
    before = json.dumps(
        {name: value for name, value in fields.items() if value is not None}, ensure_ascii=False
    )
    value = json.dumps(_written_value(record.value, "value" in encoded), ensure_ascii=False)
    if (
        record.value is not None
        and "value" not in encoded
        and _is_object(text := record.value.decode())
    ):
        value = text
    return f'{before[:-1]}{", " if len(before) > 2 else ""}"value": {value}}}'


# `encoded` is positional: each of the three calls looks it up in a set.
def _written_value(value: bytes | None, encoded: bool) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value).decode() if encoded else value.decode()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_object(text: str) -> bool:
    """Returns True if a text is a JSON object that can be part of a line unchanged."""
    # Python splits lines at more characters than Kappa does, and so do users' editors.
    if len(text.splitlines()) != 1 or text != text.strip():
        return False
    try:
        return isinstance(json.JSONDecoder(parse_constant=refuse_constant).decode(text), dict)
    except (ValueError, RecursionError):
        return False
