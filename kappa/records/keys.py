"""Reads, checks and writes the Kafka keys of a topic, as text or in their own format. Pure."""

from __future__ import annotations

import re
from typing import Any

from kappa.declare.formats.format import SourceChangeReader
from kappa.declare.formats.topic_formats import key_columns
from kappa.declare.topic import Topic
from kappa.declare.values.columns import INTEGERS, Scalar
from kappa.declare.values.reason import Reason, Rejected, show_value
from kappa.declare.values.value import Check, check_of

_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")


class KeyReader:
    """A reader of a topic's Kafka keys. It also compares keys with the key column."""

    def __init__(self, topic: Topic) -> None:
        self._column = topic.key_column
        self._is_number = (
            self._column is not None
            and isinstance(self._column.type, Scalar)
            and self._column.type.name in INTEGERS
        )
        self._reader = None
        # Changes have their own way to read a key.
        self._changes = None
        if topic.has_changes:
            reader = topic.format.event_reader(topic.columns)
            self._changes = reader if isinstance(reader, SourceChangeReader) else None
        if topic.key_format is not None and self._column is not None:
            (field,) = columns = key_columns(topic.key_format, self._column)
            self._reader = topic.key_format.event_reader(columns)
            self._field, self._check = field.name, self._reader.column_check(field)

    def value(self, key: bytes | None) -> str | int:
        """Returns the value of the key column, decoded from the Kafka key.

        Raises Rejected if the key is null or not valid.
        """
        if key is None:
            raise Rejected(Reason.NULL_KEY, "the key is null")
        if self._changes is not None:
            assert self._column is not None, "without one no key is looked at"
            of_change: str | int = self._changes.key_value(key, self._column)
            return of_change
        if self._reader is not None:
            found: str | int = self._formatted(key)
            return found
        text = _key_text(key)
        if self._column is None or not self._is_number:
            return text
        if not _CANONICAL_INTEGER.fullmatch(text):
            raise Rejected(
                Reason.BAD_KEY, f"the key is {show_value(text)}, not a whole number as text"
            )
        return int(check_of(self._column.type)(int(text), "the key"))

    def check_same(self, key: bytes | None, found: Any) -> None:
        """Raises Rejected if a Kafka key differs from `found`, the value of the key column."""
        if key is None:
            raise Rejected(Reason.NULL_KEY, "the key is null")
        # A number has only a single text as a key.
        text = _key_text(key) if self._reader is None else self._formatted(key)
        if found is None or text != (str(found) if self._reader is None else found):
            name = "" if self._column is None else self._column.name
            raise Rejected(
                Reason.KEY_MISMATCH,
                f"the key is {show_value(text)} and {name} is {show_value(found)}",
            )

    def _formatted(self, key: bytes) -> Any:
        assert self._reader is not None, "keys have a format"
        check: Check = self._check
        try:
            found = self._reader.fields(key).get(self._field)
            if found is not None:
                return check(found, self._field)
        except Rejected as rejected:
            detail = rejected.detail.replace("the value", "it", 1)
            raise Rejected(
                Reason.BAD_KEY, f"the key cannot be read ({rejected.reason}): {detail}"
            ) from None
        raise Rejected(Reason.BAD_KEY, f"the key has no {self._field}")


def written_key(topic: Topic, value: str | int) -> bytes:
    """Returns the Kafka key that a producer writes for a value of the key column.

    Raises UsageError if the key's format cannot encode the value.
    """
    column = topic.key_column
    if topic.key_format is None or column is None:
        return str(value).encode()
    columns = key_columns(topic.key_format, column)
    return topic.key_format.encode_event({columns[0].name: value}, columns)


def _key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise Rejected(Reason.KEY_NOT_UTF8, f"byte {error.start} of the key is not UTF-8") from None
