"""The choice of a reader of plain records for a topic."""

from __future__ import annotations

from kappa.declare.formats.avro_events import Avro
from kappa.declare.formats.protobuf_events import Protobuf
from kappa.declare.topic import Topic
from kappa.records.decode.formatted_keys import FormattedKeys, topic_of_keys
from kappa.records.decode.plain_events import PlainEvents
from kappa.records.decode.plain_reader import PlainReader


def plain_reader(topic: Topic, left_out: frozenset[str] = frozenset()) -> PlainReader | None:
    """Makes a topic's reader of many records at once; None if no reader supports the topic."""
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
