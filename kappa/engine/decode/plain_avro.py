"""Plain Avro records, decoded many at once by compiled code.

A plain record is written with a flat schema of which each field is one of the declared schema's, of
the same type. Every other record, valid or not, is left to the reader of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.engine.decode.assemble import Places
from kappa.engine.decode.find_loops import gather
from kappa.engine.decode.find_values import Texts, texts_of
from kappa.formats.avro_events import Avro, AvroReader
from kappa.formats.avro_loops import Coding, read_all
from kappa.formats.schema_source import FRAME_BYTES, MAGIC
from kappa.values.arrow import arrow_type
from kappa.values.columns import Column, Scalar
from kappa.values.lengths import Bytes, Numbers, array_of, ends_of
from kappa.values.reason import Rejected
from kappa.values.value import FIRST_MICROS, LAST_MICROS

# After so many records it is decided whether it pays.
_TRIES = 2_000
_DAY_MICROS = 86_400_000_000


_CODINGS = {
    "string": Coding.TEXT,
    "boolean": Coding.BOOLEAN,
    "int": Coding.INTEGER,
    "long": Coding.INTEGER,
    "double": Coding.DOUBLE,
    "float": Coding.FLOAT,
}


class _Field(NamedTuple):
    """A field of a writer's schema: its coding, and which branch of a union is null (-1: none)."""

    name: str
    kind: str
    null: int


class PlainAvro:
    """A reader of the plain records of a topic. It is not for several threads."""

    def __init__(self, topic: Topic, form: Avro) -> None:
        """Takes a topic that `of` accepts."""
        self._topic = topic
        self._framed = form.framed
        self._reader = AvroReader(form)
        self._declared = {each.name: each for each in _flat(self._reader.declared) or ()}
        self._scales = {
            field["name"]: 1000 if "timestamp-millis" in str(field["type"]) else 1
            for field in self._reader.whole["fields"]
        }
        self._schema = pa.schema(
            [pa.field(column.name, arrow_type(column.type)) for column in topic.columns]
        )
        # By id, the fields as they are written; None: such records are left to the other reader.
        self._programs: dict[int, list[_Field] | None] = {}
        self._tries = self._sure = 0

    @classmethod
    def of(cls, topic: Topic) -> Self | None:
        """Makes a reader of a topic's records; None if it declares more than this one knows."""
        form = topic.format
        if not isinstance(form, Avro) or topic.lateness_ms is not None or topic.identity:
            return None
        made = cls(topic, form)
        names = {column.name for column in topic.columns}
        plain = all(isinstance(column.type, Scalar) for column in topic.columns)
        # A field that is no column decides all the same whether a record is valid.
        return made if plain and names == made._declared.keys() else None

    @property
    def pays(self) -> bool:
        """Returns False if so few records are plain that trying costs more than it saves."""
        return self._tries < _TRIES or 2 * self._sure > self._tries

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Reads the plain records among these (bytes, or null), as `PlainEvents.read` does."""
        records = texts_of(values)
        parts = []
        for schema_id, places in self._by_id(records).items():
            if schema_id not in self._programs:
                self._programs[schema_id] = self._program(schema_id)
            program = self._programs[schema_id]
            if program is not None:
                parts += self._rows(program, records, places, keys)
        self._tries += len(values)
        self._sure += sum(len(places) for places, _ in parts)
        return parts

    def _by_id(self, records: Texts) -> Mapping[int, Places]:
        """Returns the places of the records that were written with each schema; -1 without one."""
        starts, lengths = records.ends[:-1].astype(np.int64), np.diff(records.ends)
        if not self._framed:
            return {-1: np.flatnonzero(records.valid)}
        framed = np.flatnonzero(records.valid & (lengths >= FRAME_BYTES))
        heads = records.data[starts[framed][:, None] + np.arange(FRAME_BYTES)].astype(np.int64)
        ids = heads[:, 1] << 24 | heads[:, 2] << 16 | heads[:, 3] << 8 | heads[:, 4]
        ids[heads[:, 0] != MAGIC] = -1
        return {int(each): framed[ids == each] for each in np.unique(ids) if each >= 0}

    def _program(self, schema_id: int) -> list[_Field] | None:
        """Returns the fields of a writer's schema; None if they are not all as declared."""
        writer = self._reader.declared
        if schema_id >= 0:
            writer = self._reader.writer(schema_id)
        fields = None if isinstance(writer, Rejected) else _flat(writer)
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
        for column in self._topic.columns:
            place = at[column.name]
            sure &= _fits(program[place].kind, column, values[place], lengths[place], self._scales)
        kept = np.flatnonzero(sure)
        arrays = [
            self._array(column, records.data, values[place, kept], lengths[place, kept])
            for column in self._topic.columns
            for place in [at[column.name]]
        ]
        try:
            for array in arrays:
                # A text that is not UTF-8 is for the other reader, and so are those beside it.
                array.validate(full=True)
            same = self._have_keys(arrays, keys.take(pa.array(places[kept])))
        except pa.ArrowInvalid:
            return []
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if not same.all():
            kept, rows = kept[same], rows.filter(pa.array(same))
        return [(places[kept], rows)] if len(kept) else []

    def _array(self, column: Column, data: Bytes, values: Numbers, lengths: Numbers) -> pa.Array:
        null = lengths < 0
        match column.type:
            case Scalar("string"):
                ends = ends_of(lengths)
                texts = np.empty(ends[-1], np.uint8)
                gather(data, values, ends, texts)
                return array_of(pa.string(), lengths, ends, texts)
            case Scalar("boolean"):
                return pa.array(values == 1, mask=null)
            case Scalar("double"):
                return pa.array(values.view(np.float64), mask=null)
            case Scalar("float"):
                return pa.array(values.astype(np.int32).view(np.float32), mask=null)
            case Scalar("timestamp"):
                return pa.array(values * self._scales[column.name], mask=null).cast(
                    arrow_type(column.type)
                )
            case _:
                kind = arrow_type(column.type)
                wide = pa.array(values, mask=null)
                return (
                    wide.cast(pa.int32()).cast(kind) if pa.types.is_date(kind) else wide.cast(kind)
                )

    def _have_keys(self, arrays: list[pa.Array], keys: pa.Array) -> npt.NDArray[np.bool_]:
        """Marks the rows whose key, if one is declared, is that of their record."""
        if self._topic.key is None:
            return np.ones(len(keys), np.bool_)
        place = self._schema.get_field_index(self._topic.key)
        same = pc.equal(arrays[place].cast(pa.string()), keys.cast(pa.string()))
        marks: npt.NDArray[np.bool_] = same.fill_null(fill_value=False).to_numpy(
            zero_copy_only=False
        )
        return marks


def _flat(schema: Any) -> list[_Field] | None:
    """Returns the fields of a flat record; None if one is of another type than those known."""
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


def _fits(
    kind: str, column: Column, values: Numbers, lengths: Numbers, scales: Mapping[str, int]
) -> npt.NDArray[np.bool_]:
    """Marks the values that the column may have."""
    null = lengths < 0
    fits: npt.NDArray[np.bool_] = np.ones(len(values), np.bool_)
    match column.type:
        case Scalar("double"):
            fits = np.isfinite(values.view(np.float64))
        case Scalar("float"):
            fits = np.isfinite(values.astype(np.int32).view(np.float32))
        case Scalar("timestamp"):
            scale = scales[column.name]
            fits = (values >= -(-FIRST_MICROS // scale)) & (values <= LAST_MICROS // scale)
        case Scalar("date"):
            fits = (values >= FIRST_MICROS // _DAY_MICROS) & (values <= LAST_MICROS // _DAY_MICROS)
        case _ if kind == "int":
            fits = (values >= -(1 << 31)) & (values < 1 << 31)
    return (fits | null) if column.nullable else (fits & ~null)
