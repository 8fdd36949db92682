"""Chooses the reader of plain records for a topic, and reads keys that have their own format."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kappa.declare.formats.avro_events import Avro
from kappa.declare.formats.protobuf_events import Protobuf
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Places
from kappa.records.decode.plain_events import PlainEvents
from kappa.records.decode.plain_reader import PlainReader


def plain_reader(topic: Topic, left_out: frozenset[str] = frozenset()) -> PlainReader | None:
    """Returns the reader of a topic's plain records, or None if no reader supports the topic.

    The reader may return null for the columns in `left_out`.
    """
    if topic.key_format is None:
        return _reader_of(topic, left_out)
    # The key column is compared, and so made.
    records = _reader_of(topic, left_out - {topic.key})
    keys = _reader_of(topic_of_keys(topic), frozenset())
    return None if records is None or keys is None else FormattedKeys(records, keys)


def _reader_of(topic: Topic, left_out: frozenset[str]) -> PlainReader | None:
    if isinstance(topic.format, Avro):
        # The compiled code is loaded for topics of this format alone.
        from kappa.records.decode.plain_avro import PlainAvro  # noqa: PLC0415

        return PlainAvro.of(topic, left_out)
    if isinstance(topic.format, Protobuf):
        from kappa.records.decode.plain_protobuf import PlainProtobuf  # noqa: PLC0415

        return PlainProtobuf.of(topic, left_out)
    return PlainEvents.of(topic, left_out)


def topic_of_keys(topic: Topic) -> Topic:
    """Returns a topic whose events are the keys of the given topic, with the keys' format."""
    form, column = topic.key_format, topic.key_column
    assert form is not None, "keys have a format"
    assert column is not None, "it is that of a column"
    declared = f"`{column.name}` {column.type} not null" if form.declared_event() is None else None
    return Topic(topic.name, event=declared, format=form)


class FormattedKeys(PlainReader):
    """A reader of plain records whose keys are also plain, but have a separate format."""

    def __init__(self, records: PlainReader, keys: PlainReader) -> None:
        """Stores the reader of the records and the reader of the keys.

        `keys` converts the keys to texts, which are then given to `records`.
        """
        self._records, self._keys = records, keys

    @property
    def pays(self) -> bool:
        """Returns False if one of the two readers is not worth its cost."""
        return self._records.pays and self._keys.pays

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Decodes the plain records of a batch, from their keys and values.

        Returns the same parts as `PlainReader.read`.
        """
        return self._records.read(self._texts(keys), values)

    def _texts(self, keys: pa.Array) -> pa.Array:
        """Returns the decoded keys as texts. Keys that are not plain become null."""
        parts = self._keys.read(pa.nulls(len(keys), pa.binary()), keys)
        if not parts:
            return pa.nulls(len(keys), pa.binary())
        found = pa.concat_arrays([rows.column(0).cast(pa.string()) for _, rows in parts])
        place_of = np.full(len(keys), -1)
        place_of[np.concatenate([places for places, _ in parts])] = np.arange(len(found))
        return found.take(pa.array(place_of, mask=place_of < 0)).cast(pa.binary())
