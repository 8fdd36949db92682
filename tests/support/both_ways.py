"""A comparison of the reader of whole batches with the reader of single records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kappa.declare.formats.registry_schemas import RegisteredSchema, open_schemas
from kappa.declare.topic import Topic
from kappa.declare.values.reason import Rejected
from kappa.records.decode.decode import decode_table
from kappa.records.decode.decoder import loading_plain_readers
from kappa.records.decode.outcome import counts_in
from kappa.records.decode.readers import plain_reader
from kappa.records.record import RecordReader

Records = Sequence[tuple[bytes | None, bytes | None]]
_EPOCH_DAY = date(1970, 1, 1).toordinal()


@contextmanager
def opened_schemas(kind: str, texts: Mapping[int, str]) -> Iterator[None]:
    """Opens the schemas of writers, by id, for the block."""

    class Schemas:
        def schema(self, schema_id: int) -> RegisteredSchema:
            return RegisteredSchema(kind, texts.get(schema_id))

    open_schemas(Schemas())
    try:
        yield
    finally:
        open_schemas(None)


def declared(folder: Path, sources: Mapping[str, str], **names: Any) -> dict[str, Topic]:
    """Declares topics by name in a user's file, which knows `Topic` and the given names."""
    made: dict[str, Any] = {"Topic": Topic, **names}
    code = "\n".join(f"{name} = {source}" for name, source in sources.items())
    exec(compile(code, folder / "p.py", "exec"), made)  # a user's file
    return {name: made[name] for name in sources}


def damaged(value: bytes, data: st.DataObject) -> bytes:
    """Replaces, leaves out and adds up to three bytes of a value."""
    found = bytearray(value)
    for _ in range(data.draw(st.sampled_from([0, 0, 1, 3]))):
        at = data.draw(st.integers(0, len(found)))
        found[at : at + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=1))
    return bytes(found)


def check(topic: Topic, records: Records, left_out: frozenset[str] = frozenset()) -> list[bool]:
    """Reads records by both readers, and asserts that the rows are equal.

    Returns for each record whether the reader of batches was sure about it. Columns in `left_out`
    are null, except for the topic's key.
    """
    plain = plain_reader(topic, left_out)
    assert plain is not None
    reader = RecordReader(topic)
    keys, values = (pa.array([each[place] for each in records], pa.binary()) for place in (0, 1))
    # A slice of an array begins in the middle of its memory.
    keys, values = (pa.concat_arrays([each[:1], each])[1:] for each in (keys, values))
    sure = [False] * len(records)
    for places, rows in plain.read(keys, values):
        columns = [
            column.cast(pa.int64()).to_pylist()
            if pa.types.is_timestamp(column.type)
            else column.to_pylist()
            for column in rows.columns
        ]
        for number, place in enumerate(places.tolist()):
            assert not sure[place]
            sure[place] = True
            found = reader.read(*records[place])
            assert isinstance(found, tuple)
            assert [_spelled(column[number]) for column in columns] == [
                _spelled(None if name in left_out - {topic.key} else value)
                for name, value in zip(rows.schema.names, found, strict=True)
            ], records[place]
    return sure


def _spelled(value: Any) -> str:
    # 1 is not 1.0, nor is 0.0 what -0.0 is; but a decimal 1E+1 is 10.
    if isinstance(value, date):
        return repr(value.toordinal() - _EPOCH_DAY)
    return repr(value.as_integer_ratio() if isinstance(value, Decimal) else value)


def is_valid(topic: Topic, record: tuple[bytes | None, bytes | None]) -> bool:
    """Returns True if the record is not rejected."""
    try:
        RecordReader(topic).read(*record)
    except Rejected:
        return False
    return True


def ensure_same_in_parts(raw: pa.Table, topic: Topic, at_once: int) -> pa.Table:
    """Asserts that records decoded in parts give the rows of all together; returns these rows."""
    loading_plain_readers().result()
    together, clock = decode_table(raw, topic, {}, {}), dict[int, int]()
    for start in range(0, raw.num_rows, at_once):
        piece = decode_table(raw.slice(start, at_once), topic, clock, {})
        clock |= {partition: seen.log_time for partition, seen in counts_in(piece).items()}
        assert together.slice(start, at_once) == piece
    return together
