"""Plain messages of Protobuf, decoded many at once by compiled code.

A plain message has each field at most once, in the field's own form, and neither a repeated field
nor a field with a message of the user's. Every other record, valid or not, is left to the reader of
records.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.declare.formats.protobuf_events import TIMESTAMP, WRAPPERS, Protobuf, ProtobufReader
from kappa.declare.formats.protobuf_loops import Shape, read_messages
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Bytes, Numbers, Places, arrow_type
from kappa.declare.values.columns import Decimal, Scalar
from kappa.records.decode.binary_columns import Marks, column_of, keep_fitting, keyed_rows
from kappa.records.decode.find_loops import mark_texts
from kappa.records.decode.find_values import Texts, texts_of
from kappa.records.decode.frames import begin_with
from kappa.records.decode.tried import Tried

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
    """A field of a message: its number, its form, and its value when absent."""

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


class PlainProtobuf:
    """A reader of a topic's plain messages, for a single thread."""

    def __init__(self, topic: Topic, form: Protobuf, left_out: frozenset[str]) -> None:
        """Takes a topic that `of` accepts."""
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
        self._tried = Tried()

    @classmethod
    def of(cls, topic: Topic, left_out: frozenset[str] = frozenset()) -> Self | None:
        """Makes a reader of a topic's records. Columns that are `left_out` may be null.

        Returns None if the declaration has demands that this reader does not support.
        """
        form = topic.format
        if not isinstance(form, Protobuf) or topic.lateness_ms is not None or topic.identity:
            return None
        plain = all(isinstance(column.type, Scalar | Decimal) for column in topic.columns)
        return cls(topic, form, left_out) if plain else None

    @property
    def pays(self) -> bool:
        """Returns False if plain records are too rare to be worth a try."""
        return self._tried.pays

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Reads the plain records of a batch (bytes, or null), as `PlainEvents.read` does."""
        records = texts_of(values)
        parts = [
            part
            for skipped, places in self._by_frame(records)
            for part in self._rows(skipped, records, places, keys)
        ]
        self._tried.add(len(values), sum(len(places) for places, _ in parts))
        return parts

    def _by_frame(self, records: Texts) -> list[tuple[int, Places]]:
        """Returns the places of the records that begin with each frame, and the frame's length."""
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
        """Makes numbers of the fields' types, and unmarks messages that are not valid."""
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
    """Describes a field in the form that the loop reads."""
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
    """Converts bits as written to numbers of a type."""
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
    """Makes the column of an enum's names."""
    known = np.array(sorted(part.names), np.int64)
    names = pa.array([part.names[each] for each in known.tolist()], pa.string())
    return names.take(pa.array(np.searchsorted(known, numbers), mask=lengths < 0))
