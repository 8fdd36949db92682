"""Decodes many plain Protobuf messages at once, with compiled code.

A plain message contains each field at most once, in the field's own wire type. It contains no
repeated field and no field whose type is a message that the user defines. The reader of single
records decodes every other record, valid or not.

This file contains all compiled code for Protobuf and all constants in that code, because
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
from kappa.declare.formats.protobuf_events import TIMESTAMP, WRAPPERS, Protobuf, ProtobufReader
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Bytes, Ends, Numbers, Places, arrow_type
from kappa.declare.values.columns import Decimal, Scalar
from kappa.records.decode.binary_columns import Marks, column_of, keep_fitting, keyed_rows
from kappa.records.decode.find_loops import mark_texts
from kappa.records.decode.find_values import Texts, texts_of
from kappa.records.decode.frames import begin_with
from kappa.records.decode.plain_reader import PlainReader


class Shape(IntEnum):
    """The binary form of a field's value: a wire type, or a Timestamp message."""

    VARINT = 0
    # Eight bytes.
    FIXED64 = 1
    # A length, then bytes.
    BYTES = 2
    # A google.protobuf.Timestamp.
    MOMENT = 3
    # Four bytes.
    FIXED32 = 5
    # The other reader reads a record that has such a field.
    OTHER = 8


# Nothing writes to Arrow's own memory.
_READ_ONLY = tuple(types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.uint8))
_TAG_BYTES, _LENGTH_BYTES, _NUMBER_BYTES = 5, 5, 10
_LAST_TAG = (1 << 32) - 1
_LAST_LENGTH = (1 << 31) - 1
# The years 1 to 9999.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_SECONDS_TAG, _NANOS_TAG = 8, 16


@compiled(
    types.UniTuple(types.int64, 2)(_READ_ONLY[1], types.int64, types.int64, types.int64),
)
def _read_varint(data: Bytes, at: int, end: int, most: int) -> tuple[int, int]:
    """Returns the variable-length number that begins at `at`, and the position after it.

    The position is -1 if the number does not end within `most` bytes, or is longer than necessary.
    """
    found = np.uint64(0)
    for place in range(most):
        if at >= end:
            return 0, -1
        byte = np.uint64(data[at])
        at += 1
        if place == _NUMBER_BYTES - 1 and byte > np.uint64(1):
            return 0, -1
        found |= (byte & np.uint64(127)) << np.uint64(7 * place)
        if byte < np.uint64(128):
            return int(np.int64(found)), (at if byte or not place else -1)
    return 0, -1


@compiled(
    types.UniTuple(types.int64, 3)(_READ_ONLY[1], types.int64, types.int64, types.int64),
)
def _read_value(data: Bytes, at: int, end: int, shape: int) -> tuple[int, int, int]:
    """Returns the value that begins at `at`, its length in bytes, and the position after it.

    For a field of bytes or text, the value is the position where the bytes begin; for other shapes,
    the length is 0. The position after the value is -1 if there is no such value.
    """
    if shape == Shape.VARINT:
        found, at = _read_varint(data, at, end, _NUMBER_BYTES)
        return found, 0, at
    if shape == Shape.BYTES:
        length, at = _read_varint(data, at, end, _LENGTH_BYTES)
        if at < 0 or length > _LAST_LENGTH or length > end - at:
            return 0, 0, -1
        return at, length, at + length
    if shape == Shape.FIXED64 or shape == Shape.FIXED32:  # noqa: PLR1714  # Numba has no sets
        size = 8 if shape == Shape.FIXED64 else 4
        if end - at < size:
            return 0, 0, -1
        bits = np.uint64(0)
        for byte in range(size):
            bits |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        return int(np.int64(bits)), 0, at + size
    return 0, 0, -1


@compiled(types.UniTuple(types.int64, 2)(_READ_ONLY[1], types.int64, types.int64))
def _read_timestamp(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the time in a Timestamp message, in microseconds since 1970, and the message's end.

    The end is -1 if the bytes are not a plain Timestamp in the years 1 to 9999.
    """
    seconds, nanos = np.int64(0), np.int64(0)
    last = 0
    while at < end:
        tag = data[at]
        found, at = _read_varint(data, at + 1, end, _NUMBER_BYTES)
        if at < 0 or tag <= last:
            return 0, -1
        if tag == _SECONDS_TAG:
            seconds = np.int64(found)
        elif tag == _NANOS_TAG:
            nanos = np.int64(found)
        else:
            return 0, -1
        last = tag
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND or not 0 <= nanos < 1_000_000_000:
        return 0, -1
    return int(seconds * 1_000_000 + nanos // 1000), end


@compiled(
    types.UniTuple(types.int64, 3)(_READ_ONLY[1], types.int64, types.int64, types.int64),
)
def _read_wrapped(data: Bytes, at: int, end: int, shape: int) -> tuple[int, int, int]:
    """Returns the value in a wrapper message, in the same form as `_read_value`.

    If the wrapper is empty, the value is zero or the empty text.
    """
    if at == end:
        return at if shape == Shape.BYTES else 0, 0, end
    if data[at] != 8 + shape:
        return 0, 0, -1
    found, length, behind = _read_value(data, at + 1, end, shape)
    return found, length, (behind if behind == end else -1)


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
def read_messages(
    ends: Ends,
    data: Bytes,
    places: Numbers,
    skipped: int,
    spec: Numbers,
    values: Numbers,
    lengths: Numbers,
    sure: npt.NDArray[np.bool_],
) -> None:
    """Decodes the messages at the indexes `places` of a batch, without the first `skipped` bytes.

    `spec` contains, for each field, its number, its shape, and whether its value is in a wrapper.
    The function fills `values` and `lengths`. A value is a number, bits, or the position where
    bytes begin. `lengths` must contain -1 before the call, and still contains -1 for absent fields
    afterwards. Unknown fields are skipped. A message that contains a field twice is not plain.
    `sure` is set to True for each plain message that was decoded to its end.
    """
    count = len(spec)
    for number in range(len(places)):
        at = int(ends[places[number]]) + skipped
        end = int(ends[places[number] + 1])
        field = count - 1
        while 0 <= at < end:
            tag, at = _read_varint(data, at, end, _TAG_BYTES)
            if at < 0 or tag < 8 or tag > _LAST_TAG:
                at = -1
                break
            wire = tag & 7
            # Most writers write fields in order of declaration.
            looked = 0
            while looked < count:
                field = field + 1 if field + 1 < count else 0
                if spec[field, 0] == tag >> 3:
                    break
                looked += 1
            if looked == count:
                _, _, at = _read_value(data, at, end, wire if wire != Shape.MOMENT else Shape.OTHER)
                continue
            shape, wrapped = spec[field, 1], spec[field, 2]
            outer = Shape.BYTES if wrapped or shape == Shape.MOMENT else shape
            if wire != outer or lengths[field, number] >= 0:
                at = -1
                break
            value, length, at = _read_value(data, at, end, outer)
            if at < 0:
                break
            if shape == Shape.MOMENT:
                value, behind = _read_timestamp(data, value, at)
                length = 0
                at = at if behind >= 0 else -1
            elif wrapped:
                value, length, behind = _read_wrapped(data, value, at, shape)
                at = at if behind >= 0 else -1
            values[field, number] = value
            lengths[field, number] = length
        sure[number] = at == end


# The number of records in a batch that are searched for an unknown frame.
_LOOKS = 16
# By FieldDescriptor.Type.
_STRING, _MESSAGE, _ENUM = 9, 11, 14
_SHAPES = {
    **dict.fromkeys((3, 4, 5, 8, 13, _ENUM, 17, 18), Shape.VARINT),
    **dict.fromkeys((1, 6, 16), Shape.FIXED64),
    **dict.fromkeys((2, 7, 15), Shape.FIXED32),
    **dict.fromkeys((_STRING, 12), Shape.BYTES),
}
_SIGNED_32, _UNSIGNED_32, _ZIGZAG_32, _ZIGZAG_64, _BOOLEAN = {5, 15, _ENUM}, 13, 17, 18, 8


class _Part(NamedTuple):
    """The description of a message's field: what the compiled loop and the later checks need."""

    name: str
    number: int
    kind: int
    shape: Shape
    wrapped: bool
    # True if an absent field is null, and not zero.
    presence: bool
    # True if a message without the field is left to the other reader.
    needed: bool
    # Of fields that exclude each other.
    oneof: str
    # The names of an enum's numbers.
    names: dict[int, str]


class PlainProtobuf(PlainReader):
    """A reader of a topic's plain Protobuf messages. Only one thread may use it."""

    def __init__(self, topic: Topic, form: Protobuf, left_out: frozenset[str]) -> None:
        """Prepares the reader. The topic must meet the conditions that the method `of` checks."""
        self._topic = topic
        self._left_out = left_out - {topic.key}
        self._reader = ProtobufReader(form, topic.columns)
        self._parts = [_field_part(each) for each in self._reader.message_descriptor.fields]
        self._spec = np.array(
            [(each.number, each.shape, each.wrapped) for each in self._parts], np.int64
        )
        self._schema = pa.schema(
            [pa.field(column.name, arrow_type(column.type)) for column in topic.columns]
        )
        # The frames of the declared message.
        self._frames: list[bytes] = []

    @classmethod
    def of(cls, topic: Topic, left_out: frozenset[str] = frozenset()) -> Self | None:
        """Returns a reader of a topic's plain records, or None if the topic is not supported.

        The reader may return null for the columns in `left_out`.
        """
        form = topic.format
        if not isinstance(form, Protobuf) or topic.lateness_ms is not None or topic.identity:
            return None
        plain = all(isinstance(column.type, Scalar | Decimal) for column in topic.columns)
        return cls(topic, form, left_out) if plain else None

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Decodes the plain records of a batch, from their keys and values.

        Returns the same parts as `PlainReader.read`.
        """
        records = texts_of(values)
        parts = [
            part
            for skipped, places in self._by_frame(records)
            for part in self._rows(skipped, records, places, keys)
        ]
        self._count_records(len(values), sum(len(places) for places, _ in parts))
        return parts

    def _by_frame(self, records: Texts) -> list[tuple[int, Places]]:
        """Returns pairs (length of a frame, indexes of the records that begin with this frame).

        A frame is the bytes that a schema registry's serializer puts before a message. If a record
        begins with an unknown frame of the declared message, that frame is added to the known
        frames.
        """
        found = []
        left = np.flatnonzero(records.valid)
        for frame in self._frames:
            marks = begin_with(records, left, frame)
            found.append((len(frame), left[marks]))
            left = left[~marks]
        for _ in range(_LOOKS):
            if not len(left):
                break
            start, end = records.ends[left[0]], records.ends[left[0] + 1]
            unknown = self._reader.frame_bytes(records.data[start:end].tobytes())
            if unknown is None:
                left = left[1:]
                continue
            self._frames.append(unknown)
            marks = begin_with(records, left, unknown)
            found.append((len(unknown), left[marks]))
            left = left[~marks]
        return found

    def _rows(
        self, skipped: int, records: Texts, places: Places, keys: pa.Array
    ) -> list[tuple[Places, pa.RecordBatch]]:
        values = np.zeros((len(self._parts), len(places)), np.int64)
        lengths = np.full((len(self._parts), len(places)), -1, np.int64)
        sure = np.zeros(len(places), np.bool_)
        read_messages(
            records.ends, records.data, places, skipped, self._spec, values, lengths, sure
        )
        self._keep_sure(records.data, values, lengths, sure)
        at = {part.name: number for number, part in enumerate(self._parts)}
        found = [(column, at[column.name]) for column in self._topic.columns]
        for column, place in found:
            # The texts of an enum come from the schema, so they are valid.
            if self._parts[place].kind != _ENUM:
                keep_fitting(column, records.data, values[place], lengths[place], sure)
            elif not column.nullable:
                sure &= lengths[place] >= 0
        kept = np.flatnonzero(sure)
        made = {
            column.name: _enum_names(self._parts[place], values[place, kept], lengths[place, kept])
            if self._parts[place].kind == _ENUM
            else column_of(column, records.data, values[place, kept], lengths[place, kept])
            for column, place in found
            if column.name not in self._left_out
        }
        rows, same = keyed_rows(self._topic, made, keys.take(pa.array(places[kept])), self._schema)
        if not same.all():
            kept, rows = kept[same], rows.filter(pa.array(same))
        return [(places[kept], rows)] if len(kept) else []

    def _keep_sure(self, data: Bytes, values: Numbers, lengths: Numbers, sure: Marks) -> None:
        """Converts the values to their fields' types.

        Sets `sure` to False for messages that are not valid, or that the reader of single records
        must decode.
        """
        known: dict[str, npt.NDArray[np.int64]] = {}
        for part, numbers, sizes in zip(self._parts, values, lengths, strict=True):
            absent = sizes < 0
            if part.needed:
                sure &= ~absent
            if part.oneof:
                known[part.oneof] = known.get(part.oneof, np.zeros(len(sizes), np.int64)) + ~absent
            numbers[:] = _typed_numbers(part.kind, numbers)
            if not part.presence:
                sizes[absent] = 0
            if part.kind == _STRING and part.name not in {each.name for each in self._schema}:
                mark_texts(data, numbers, sizes, sure)
            if part.names:
                sure &= absent | np.isin(numbers, list(part.names))
        for several in known.values():
            # Of several fields of a oneof, the last that was written counts.
            sure &= several < 2


def _field_part(field: Any) -> _Part:
    """Returns what the compiled loop and the later checks need to know about a field."""
    kind, message = field.type, field.message_type
    wrapped = kind == _MESSAGE and message.full_name in WRAPPERS
    if wrapped:
        kind = message.fields_by_name["value"].type
    shape = _SHAPES.get(kind, Shape.OTHER)
    if kind == _MESSAGE and message.full_name == TIMESTAMP:
        shape = Shape.MOMENT
    oneof = field.containing_oneof
    names: dict[int, str] = {}
    for value in field.enum_type.values if kind == _ENUM else ():
        # Of several names for a number, the first is used.
        names.setdefault(value.number, value.name)
    return _Part(
        field.name,
        field.number,
        kind,
        Shape.OTHER if field.is_repeated else shape,
        wrapped,
        field.has_presence,
        field.is_required or field.has_default_value,
        oneof.full_name if oneof is not None and len(oneof.fields) > 1 else "",
        names,
    )


def _typed_numbers(kind: int, bits: Numbers) -> Numbers:
    """Converts the bits that the compiled loop has read to numbers of the field type `kind`."""
    if kind in _SIGNED_32:
        return bits.astype(np.int32).astype(np.int64)
    if kind == _BOOLEAN:
        return np.minimum(bits.view(np.uint64), 1).astype(np.int64)
    if kind == _UNSIGNED_32:
        return bits & 0xFFFFFFFF
    if kind in {_ZIGZAG_32, _ZIGZAG_64}:
        whole: Numbers = bits & 0xFFFFFFFF if kind == _ZIGZAG_32 else bits
        # Without a sign, and so without a sign to keep.
        halves: Numbers = np.right_shift(whole.view(np.uint64), np.uint64(1)).view(np.int64)
        return halves ^ -(bits & 1)
    return bits


def _enum_names(part: _Part, numbers: Numbers, lengths: Numbers) -> pa.Array:
    """Returns an Arrow array with the names of an enum field's values."""
    known = np.array(sorted(part.names), np.int64)
    names = pa.array([part.names[each] for each in known.tolist()], pa.string())
    return names.take(pa.array(np.searchsorted(known, numbers), mask=lengths < 0))
