"""A valid record: the only definition of validity, for all code that decodes. Pure.

The topic's format decodes bytes to fields (kappa/declare/formats). If a topic declares no format, a
value must be exactly one JSON object in UTF-8 (kappa/declare/values/json_text.py). Unknown fields
are ignored, and repeated fields are rejected. No value is converted to another type: a string is
not a number, and 1.0 is not an integer. A value out of range is rejected (value.py defines the
ranges). A missing field gets its column's default, or is null. If no field has the column's own
name, the column's earlier names are tried. The rules of a JSON Schema are checked last
(schema_rules.py). The Kafka key, if declared, must equal the event's key field, as text or in its
own format (keys.py).

A record of a change (kappa/declare/formats/debezium_events.py) writes or deletes a row, or
truncates the table. In a deletion only the key is certain: values that the source no longer knew
are null, even if they are declared not null. Debezium sends a null value after each deletion. This
null value adds no information. It has no position in the source, so Kappa could not recognize a
repetition of the null value. Therefore, in a retained topic, the null value deletes no key.

If a modification of this module, or of the modules named here, makes other records valid or
invalid, the number in `kappa.code.fingerprint` must be raised. kappa/records/decode implements the
decoding of batches by this definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kappa.declare.formats.format import RowEffect, SourceChangeReader
from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.declare.values.reason import Reason, Rejected, show_value
from kappa.declare.values.schema_rules import rule_of
from kappa.declare.values.value import check_of, default_of
from kappa.records.keys import KeyReader, written_key


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A record with a null value, which deletes the key `key` from a compacted topic.

    If `key` is None, no key is deleted.
    """

    key: str | int | None


# A row's values in the order of the topic's columns, in the form of value.py.
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Removal:
    """A change that deletes a row, or truncates a table.

    `row` contains the values that the source still knew.
    """

    row: Row
    truncates: bool


class RecordReader:
    """A reader of a topic's records.

    The reader prepares its rules once, from the topic's declaration.
    """

    def __init__(self, topic: Topic) -> None:
        self._compacted = topic.kind is TopicKind.COMPACTED
        reader = topic.format.event_reader(topic.columns)
        self._fields = reader.fields
        self._changes = reader if isinstance(reader, SourceChangeReader) else None
        self._columns = tuple(
            (
                column.name,
                column.nullable,
                reader.column_check(column),
                default_of(column, check_of(column.type)),
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
        self._keys = KeyReader(topic)
        self._topic = topic

    def read(self, key: bytes | None, value: bytes | None) -> Row | Tombstone | Removal:
        """Decodes and checks a record, and returns the event's row.

        For a null value, returns a Tombstone. For a change that deletes a row or truncates a table,
        returns a Removal. Raises Rejected if the record is not valid.
        """
        if self._changes is not None:
            return self._changed(self._changes, key, value)
        if value is None:
            if not self._compacted:
                raise Rejected(
                    Reason.NULL_VALUE,
                    "the value is null, which deletes a key; "
                    "this topic is a history and deletes nothing",
                )
            return Tombstone(self._keys.value(key))
        row = self._row(self._fields(value))
        if self._key_place is not None:
            self._keys.check_same(key, row[self._key_place])
        return row

    def read_unkeyed(self, value: bytes) -> tuple[Row, bytes | None]:
        """Decodes and checks an event without a key. Returns its row and the key that it needs.

        The key is None if the topic declares no key. The method `read` accepts the event with the
        returned key. Raises Rejected if the event is not valid.
        """
        row = self._row(self._fields(value))
        if self._key_place is None:
            return row, None
        if row[self._key_place] is None:
            raise Rejected(
                Reason.NULL_KEY, f"{self._columns[self._key_place][0]} is null, and is the key"
            )
        return row, written_key(self._topic, row[self._key_place])

    def _changed(
        self, reader: SourceChangeReader, key: bytes | None, value: bytes | None
    ) -> Row | Tombstone | Removal:
        if value is None:
            return Tombstone(self._keys.value(key) if self._compacted else None)
        change = reader.read_change(key, value)
        row = self._row(change.fields, is_whole=change.effect is RowEffect.WRITES)
        if self._key_place is not None and change.effect is not RowEffect.TRUNCATES:
            told, field = self._keys.value(key), row[self._key_place]
            if told != field or field is None:
                raise Rejected(
                    Reason.KEY_MISMATCH,
                    f"the key is {show_value(told)} "
                    f"and {self._columns[self._key_place][0]} is {show_value(field)}",
                )
        if change.effect is RowEffect.WRITES:
            return row
        return Removal(row, truncates=change.effect is RowEffect.TRUNCATES)

    def _row(self, event: dict[str, Any], *, is_whole: bool = True) -> Row:
        """Returns the row for an event's fields. Raises Rejected if a field is not valid.

        If `is_whole` is False, missing fields are null, even if their columns are not nullable.
        """
        for name, old_names in self._was:
            # Presence decides, not the value: beside the new name an old name is an unknown field.
            values = [event.pop(old) for old in old_names if old in event]
            if values and name not in event:
                event[name] = values[0]
        row: list[Any] = []
        for name, nullable, check, default in self._columns:
            found = event.get(name)
            if found is not None:
                row.append(check(found, name))
            elif default is not None and name not in event and is_whole:
                row.append(default)
            elif nullable or not is_whole:
                row.append(None)
            else:
                raise Rejected(
                    Reason.MISSING, f"{name} is {'null' if name in event else 'missing'}"
                )
        if self._rule is not None:
            self._rule(event, "")
        return tuple(row)
