"""A valid record: the one definition of what is decoded, for every path that decodes. Pure.

A record is exactly one JSON object in UTF-8 (json_text.py). Unknown fields are ignored, repeated ones rejected; nothing is coerced (a
string is no number, 1.0 no integer), and what is out of range is rejected (value.py); a missing field is its column's default, or null.
A field that is not there under its name is looked for under the names it had. What a JSON Schema demands besides is held last
(schema_rules.py). The Kafka key, where one is declared, is the event's key field as text. A change here, or in those files, that
rejects or accepts other records raises `kappa.code.semantics`. Read next: engine/decode/decoder.py, which runs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kappa.declare.topic import Topic
from kappa.declare.topic_kind import TopicKind
from kappa.values.columns import INTEGERS, Scalar
from kappa.values.json_text import JsonFormat
from kappa.values.reason import Reason, Rejected, shown
from kappa.values.schema_rules import rule_of
from kappa.values.value import check_of, default_of, holds_decimal

_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A null value in a compacted topic: the key is deleted."""

    key: str | int


# A row's values in the order of the topic's columns, as value.py has them.
Row = tuple[Any, ...]


class RecordReader:
    """Reads the records of one topic; what can be decided from the declaration is decided once, here."""

    def __init__(self, topic: Topic) -> None:
        self._compacted = topic.kind is TopicKind.COMPACTED
        self._format = JsonFormat(exact=any(holds_decimal(column.type) for column in topic.columns))
        self._columns = tuple(
            (
                column.name,
                column.nullable,
                check := check_of(column.type),
                default_of(column, check),
            )
            for column in topic.columns
        )
        self._was = tuple((column.name, column.was) for column in topic.columns if column.was)
        self._rule = None if topic.schema is None else rule_of(topic.schema)
        self._key_place = (
            None
            if topic.key is None
            else [column.name for column in topic.columns].index(topic.key)
        )
        self._key_column = topic.key_column

    def read(self, key: bytes | None, value: bytes | None) -> Row | Tombstone:
        """The row of one record, or that it deletes its key. Raises Rejected where it is not valid."""
        if value is None:
            if not self._compacted:
                raise Rejected(
                    Reason.NULL_VALUE,
                    "the value is null, which deletes a key; this topic is a history and deletes nothing",
                )
            return Tombstone(self._typed_key(self._key_text(key)))
        row = self._row(self._format.fields(value))
        if self._key_place is not None:
            text, field = self._key_text(key), row[self._key_place]
            if field is None or text != str(field):
                raise Rejected(
                    Reason.KEY_MISMATCH,
                    f"the key is {shown(text)} and {self._columns[self._key_place][0]} is {shown(field)}",
                )
        return row

    def _row(self, event: dict[str, Any]) -> Row:
        """The columns' values, whatever format the fields came in."""
        for name, old_names in self._was:
            # Presence decides, not the value: where its name is there, an old one is a field like any other unknown one.
            stood = [event.pop(old) for old in old_names if old in event]
            if stood and name not in event:
                event[name] = stood[0]
        row: list[Any] = []
        for name, nullable, check, default in self._columns:
            found = event.get(name)
            if found is not None:
                row.append(check(found, name))
            elif default is not None and name not in event:
                row.append(default)
            elif nullable:
                row.append(None)
            else:
                raise Rejected(
                    Reason.MISSING, f"{name} is {'null' if name in event else 'missing'}"
                )
        if self._rule is not None:
            self._rule(event, "")
        return tuple(row)

    def _key_text(self, key: bytes | None) -> str:
        if key is None:
            raise Rejected(Reason.NULL_KEY, "the key is null")
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise Rejected(
                Reason.KEY_NOT_UTF8, f"byte {error.start} of the key is not UTF-8"
            ) from None

    def _typed_key(self, text: str) -> str | int:
        column = self._key_column
        if (
            column is None
            or not isinstance(column.type, Scalar)
            or column.type.name not in INTEGERS
        ):
            return text
        if not _CANONICAL_INTEGER.fullmatch(text):
            raise Rejected(Reason.BAD_KEY, f"the key is {shown(text)}, not a whole number as text")
        return int(check_of(column.type)(int(text), "the key"))
