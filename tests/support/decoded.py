"""Readers of single records: each returns a row, or the reason for its rejection."""

from __future__ import annotations

from typing import Any

from kappa import Topic
from kappa.declare.values.reason import Rejected
from kappa.records.record import RecordReader, Removal, Tombstone


def read_record(topic: Topic, key: bytes | None, value: bytes | None) -> Any:
    """Returns the row, the removal or the tombstone of a record, or a reject's reason."""
    try:
        return RecordReader(topic).read(key, value)
    except Rejected as rejected:
        return str(rejected.reason)


def read_row(reader: RecordReader, value: bytes) -> tuple[Any, ...] | str:
    """Returns the row of a record without a key, or the reason for its rejection."""
    try:
        row = reader.read(None, value)
    except Rejected as rejected:
        return str(rejected.reason)
    assert isinstance(row, tuple)
    return row


def read_change(topic: Topic, key: bytes | None, value: bytes | None) -> Any:
    """Returns a row as a mapping, a removal with its row, a tombstone, or a reject's reason."""
    try:
        found = RecordReader(topic).read(key, value)
    except Rejected as rejected:
        return str(rejected.reason) if rejected.detail else "no detail"
    names = [column.name for column in topic.columns]
    match found:
        case Removal():
            return found.truncates, dict(zip(names, found.row, strict=True))
        case Tombstone():
            return found
        case _:
            return dict(zip(names, found, strict=True))
