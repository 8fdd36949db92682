"""Decodes many plain Avro records at once, with compiled code.

A plain record is written with a flat schema that contains exactly the fields of the declared
schema, with the same types. The reader of single records decodes every other record, valid or not.

This file contains all compiled code for Avro and all constants in that code, because
kappa/base/loops.py identifies the cached machine code only by the digest of this file.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from kappa.base.loops import compiled
from kappa.declare.formats.avro_events import Avro, AvroReader
from kappa.declare.formats.registry_schemas import FRAME_BYTES
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Bytes, Ends, Numbers, Places, arrow_type
from kappa.declare.values.columns import Scalar
from kappa.declare.values.reason import Rejected
from kappa.records.decode.binary_columns import column_of, keep_fitting, keyed_rows
from kappa.records.decode.find_values import Texts, texts_of
from kappa.records.decode.frames import by_schema
from kappa.records.decode.plain_reader import PlainReader


class Coding(IntEnum):
    """The binary encoding of a field's value."""

    # A length, then bytes.
    TEXT = 0
    BOOLEAN = 1
    INTEGER = 2
    # Eight or four bytes.
    DOUBLE = 3
    FLOAT = 4


# Nothing writes to Arrow's own memory.
_READ_ONLY = tuple(
    types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.uint8, types.boolean)
)


@compiled(types.UniTuple(types.int64, 2)(_READ_ONLY[1], types.int64, types.int64))
def _read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the variable-length number that begins at `at`, and the position after it.

    The position is -1 if the number does not end before `end`, or is too long.
    """
    found = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift <= np.uint64(63):
        byte = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return 0, -1
        found |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return int(np.int64(found >> np.uint64(1)) ^ -np.int64(found & np.uint64(1))), at
        shift += np.uint64(7)
    return 0, -1


@compiled(
    types.void(
        _READ_ONLY[0],
        _READ_ONLY[1],
        types.int64[::1],
        types.int64,
        types.int64[:, ::1],
        types.int64[:, ::1],
        types.int64[:, ::1],
        types.boolean[::1],
    )
)
def read_all(
    ends: Ends,
    data: Bytes,
    places: Numbers,
    skipped: int,
    spec: Numbers,
    values: Numbers,
    lengths: Numbers,
    sure: npt.NDArray[np.bool_],
) -> None:
    """Decodes the records at the indexes `places` of a batch, without their first `skipped` bytes.

    `spec` contains, for each field, its coding and the union branch for null, or -1 if the
    field cannot be null. The function fills `values` and `lengths`. A value is a number, a
    boolean, the bits of a double or float, or the position where a text begins. The length
    -1 means null. `sure` is set to True for each record that was decoded exactly to its
    end.
    """
    for number in range(len(places)):
        at = int(ends[places[number]]) + skipped
        end = int(ends[places[number] + 1])
        for field in range(len(spec)):
            coding, null = spec[field, 0], spec[field, 1]
            if null >= 0:
                branch, at = _read_varint(data, at, end)
                if at < 0 or branch < 0 or branch > 1:
                    at = -1
                    break
                if branch == null:
                    lengths[field, number] = -1
                    continue
            if coding == Coding.TEXT:
                length, at = _read_varint(data, at, end)
                if at < 0 or length < 0 or length > end - at:
                    at = -1
                    break
                values[field, number] = at
                lengths[field, number] = length
                at += length
            elif coding == Coding.INTEGER:
                values[field, number], at = _read_varint(data, at, end)
                if at < 0:
                    break
            elif coding == Coding.BOOLEAN:
                if at >= end or data[at] > 1:
                    at = -1
                    break
                values[field, number] = data[at]
                at += 1
            else:
                size = 8 if coding == Coding.DOUBLE else 4
                if end - at < size:
                    at = -1
                    break
                bits = np.uint64(0)
                for byte in range(size):
                    bits |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
                values[field, number] = np.int64(bits)
                at += size
        sure[number] = at == end


_CODINGS = {
    "string": Coding.TEXT,
    "boolean": Coding.BOOLEAN,
    "int": Coding.INTEGER,
    "long": Coding.INTEGER,
    "double": Coding.DOUBLE,
    "float": Coding.FLOAT,
}


class _Field(NamedTuple):
    """A field of a writer's schema. `null` is the number of the union branch for null, or -1."""

    name: str
    kind: str
    null: int


class PlainAvro(PlainReader):
    """A reader of a topic's plain Avro records. Only one thread may use it."""

    def __init__(self, topic: Topic, form: Avro, left_out: frozenset[str]) -> None:
        """Prepares the reader. The topic must meet the conditions that the method `of` checks."""
        self._topic = topic
        self._left_out = left_out - {topic.key}
        self._framed = form.framed
        self._reader = AvroReader(form)
        self._declared = {
            each.name: each for each in _flat_fields(self._reader.declared_schema) or ()
        }
        self._scales = {
            field["name"]: 1000 if "timestamp-millis" in str(field["type"]) else 1
            for field in self._reader.whole_schema["fields"]
        }
        self._schema = pa.schema(
            [pa.field(column.name, arrow_type(column.type)) for column in topic.columns]
        )
        # By id, the fields in the order of writing; with None, the records are left to the other
        # reader.
        self._programs: dict[int, list[_Field] | None] = {}

    @classmethod
    def of(cls, topic: Topic, left_out: frozenset[str] = frozenset()) -> Self | None:
        """Returns a reader of a topic's plain records, or None if the topic is not supported.

        The reader may return null for the columns in `left_out`.
        """
        form = topic.format
        if not isinstance(form, Avro) or topic.lateness_ms is not None or topic.identity:
            return None
        made = cls(topic, form, left_out)
        names = {column.name for column in topic.columns}
        plain = all(isinstance(column.type, Scalar) for column in topic.columns)
        # A field that is not a column still decides whether a record is valid.
        return made if plain and names == made._declared.keys() else None

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Decodes the plain records of a batch, from their keys and values.

        Returns the same parts as `PlainReader.read`.
        """
        records = texts_of(values)
        parts = []
        # Records that are not framed are of the declared schema: -1.
        found = by_schema(records) if self._framed else {-1: np.flatnonzero(records.valid)}
        for schema_id, places in found.items():
            if schema_id not in self._programs:
                self._programs[schema_id] = self._program(schema_id)
            program = self._programs[schema_id]
            if program is not None:
                parts += self._rows(program, records, places, keys)
        self._count_records(len(values), sum(len(places) for places, _ in parts))
        return parts

    def _program(self, schema_id: int) -> list[_Field] | None:
        """Returns the fields of a writer's schema, in the order in which they are written.

        Returns None if the fields differ from the declared fields. The id -1 means the declared
        schema.
        """
        writer = self._reader.declared_schema
        if schema_id >= 0:
            writer = self._reader.writer_schema(schema_id)
        fields = None if isinstance(writer, Rejected) else _flat_fields(writer)
        if fields is None or {each.name for each in fields} != self._declared.keys():
            return None
        return (
            fields if all(each.kind == self._declared[each.name].kind for each in fields) else None
        )

    def _rows(
        self, program: list[_Field], records: Texts, places: Places, keys: pa.Array
    ) -> list[tuple[Places, pa.RecordBatch]]:
        spec = np.array([(_CODINGS[each.kind], each.null) for each in program], np.int64)
        values = np.zeros((len(program), len(places)), np.int64)
        lengths = np.zeros((len(program), len(places)), np.int64)
        sure = np.zeros(len(places), np.bool_)
        skipped = FRAME_BYTES if self._framed else 0
        read_all(records.ends, records.data, places, skipped, spec, values, lengths, sure)
        at = {each.name: number for number, each in enumerate(program)}
        found = [
            (column, at[column.name], self._scales[column.name]) for column in self._topic.columns
        ]
        for column, place, scale in found:
            keep_fitting(column, records.data, values[place], lengths[place], sure, scale=scale)
        kept = np.flatnonzero(sure)
        made = {
            column.name: column_of(
                column, records.data, values[place, kept], lengths[place, kept], scale=scale
            )
            for column, place, scale in found
            if column.name not in self._left_out
        }
        rows, same = keyed_rows(self._topic, made, keys.take(pa.array(places[kept])), self._schema)
        if not same.all():
            kept, rows = kept[same], rows.filter(pa.array(same))
        return [(places[kept], rows)] if len(kept) else []


def _flat_fields(schema: Any) -> list[_Field] | None:
    """Returns the fields of a record schema, or None if a field's type is not a plain scalar."""
    found = []
    for field in schema["fields"]:
        kind, null = _plain_kind(field["type"]), -1
        if isinstance(kind, list) and len(kind) == 2 and "null" in kind:
            null = kind.index("null")
            kind = _plain_kind(kind[1 - null])
        if not isinstance(kind, str) or kind not in _CODINGS:
            return None
        found.append(_Field(field["name"], kind, null))
    return found


def _plain_kind(kind: Any) -> Any:
    return kind["type"] if isinstance(kind, dict) and kind.keys() == {"type"} else kind
