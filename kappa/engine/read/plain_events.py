"""Decodes whole batches of plain events by compiled code, many times as fast as record by record, and only what is proven valid.

What is valid is defined in kappa/records/record.py alone. Here a record is taken only where it is, byte for byte, the text between the values of a layout, and
between them values of exactly their columns' types: that is one flat JSON object, with each field once. The order of fields and the spaces
between them, a layout, are learned from the records themselves; a topic has one or a few. Values that are more than integers, truths
and texts are made by DuckDB from their text. Every other record, be it valid or not, is left to the reader of records. Read next: engine/read/find_values.py,
which finds the values; engine/read/decode.py, which asks both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.base.duck import Connection, open_connection
from kappa.declare.topic import Topic
from kappa.engine.read.find_values import Expected, Found, Spelling, Texts, find, strings, texts_of
from kappa.values.arrow import arrow_schema
from kappa.values.columns import INTEGERS, Column, Decimal, Scalar, Type
from kappa.values.value import FIRST_MICROS, LAST_MICROS

# It is judged by so many records whether it pays.
_TRIES = 2_000
# Where bytes are no UTF-8, so many records are left to the other reader.
_TOGETHER = 1_000
# A topic with more kinds of events than this is read record by record, as far as they are of others.
_LAYOUTS = 8
_FIELDS = 100
# So many records must be of no known layout before another one is looked for, and so many looks in vain are enough.
_STRANGE = 50
_LOOKS = 50

_SPACE = r"[ \t\n\r]*"
_TEXT = r'"[^"\\\x00-\x1f]*"'
# RFC 8259, section 6.
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
# The reader of records refuses numbers that are longer, or further from 1, than any that is meant, also in fields that nobody declares: so many digits before the point, behind it and in the exponent.
_NUMBER_DIGITS = (40, 40, 3)
_FIELD = re.compile(
    rf'(?P<before>{_SPACE}"(?P<name>[^"\\\x00-\x1f]+)"{_SPACE}:{_SPACE})(?P<value>{_TEXT}|{_NUMBER}|true|false|null)(?P<after>{_SPACE}(?:,|\}}{_SPACE}$))'
)
_OPENING = re.compile(rf"{_SPACE}\{{")

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP = rf"{_DATE}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_FIRST_DAY = "0001-01-01"

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a layout: the text before its value, and how that is spelled; no column: it is not declared."""

    before: str
    name: str
    spelling: Spelling
    column: Column | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """How events of one kind are written."""

    fields: tuple[_Field, ...]
    after: str

    @property
    def between(self) -> list[bytes]:
        """The texts before, between and behind the values."""
        return [*(field.before.encode() for field in self.fields), self.after.encode()]


class PlainEvents:
    """Reads the plain ones among the events of a topic. It is not for several threads."""

    def __init__(self, topic: Topic, left_out: frozenset[str]) -> None:
        """Of a topic of which `of` says that it can be."""
        self._topic = topic
        self._left_out = left_out
        self._schema = arrow_schema([(column.name, str(column.type)) for column in topic.columns])
        self._layouts: list[_Layout] = []
        self._tries = self._sure = self._looks = 0

    @classmethod
    def of(cls, topic: Topic, left_out: frozenset[str] = frozenset()) -> Self | None:
        """A reader of its events; None where what is declared asks for more than is known here. Columns that are `left_out` may be null."""
        simple = all(
            isinstance(column.type, Scalar | Decimal) and column.default is None and not column.was
            for column in topic.columns
        )
        key = topic.key_column
        keyed = key is None or str(key.type) in {"string", *INTEGERS}
        # The reader of records goes by the order of records there, and asks of each what is remembered.
        alone = topic.schema is None and topic.lateness_ms is None and not topic.identity
        return cls(topic, left_out) if simple and keyed and alone else None

    @property
    def pays(self) -> bool:
        """False where so few of a topic's records are plain that asking for them costs more than it saves."""
        return self._tries < _TRIES or 2 * self._sure > self._tries

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Which of these records (bytes, or null) are plain, by their places, and the rows of those; in parts, each in the order of its places."""
        texts = _texts(values)
        records, by_key = texts_of(texts), texts_of(keys)
        parts: list[tuple[Places, pa.RecordBatch]] = []
        left = np.arange(len(texts))
        for layout in self._layouts:
            left = self._read_by(layout, records, by_key, left, parts)
        while (unknown := self._unknown(texts, left)) is not None:
            self._layouts.append(unknown)
            left = self._read_by(unknown, records, by_key, left, parts)
        self._tries += len(texts)
        self._sure += len(texts) - len(left)
        return parts

    def _read_by(
        self,
        layout: _Layout,
        records: Texts,
        keys: Texts,
        left: Places,
        parts: list[tuple[Places, pa.RecordBatch]],
    ) -> Places:
        """Adds a part with those of the records at these places that are of one layout; gives the places of the others."""
        key = next(
            (number for number, field in enumerate(layout.fields) if field.name == self._topic.key),
            -1,
        )
        found = find(
            records, left, layout.between, [_expected(field) for field in layout.fields], keys, key
        )
        sure = np.flatnonzero(found.sure)
        if not len(sure):
            return left
        rows, fit = self._rows(layout, records, found, sure)
        parts.append((left[sure[fit]], rows if fit.all() else rows.filter(pa.array(fit))))
        others = np.ones(len(left), np.bool_)
        others[sure[fit]] = False
        return left[others]

    def _rows(
        self, layout: _Layout, records: Texts, found: Found, sure: Places
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The rows of records of a layout, and which of them are valid: of some values their text does not say it all."""
        place_of = {field.name: number for number, field in enumerate(layout.fields)}
        columns: dict[str, pa.Array] = {}
        texts: dict[str, tuple[Type, pa.Array]] = {}
        for column in self._topic.columns:
            place = place_of.get(column.name)
            if place is None:
                continue
            read_already = layout.fields[place].spelling in {Spelling.INTEGER, Spelling.BOOLEAN}
            # What is left out is made only where that tells whether it is valid.
            if column.name in self._left_out and (read_already or column.type == Scalar("string")):
                continue
            values, lengths = found.values[place, sure], found.lengths[place, sure]
            if read_already:
                columns[column.name] = _plain_column(column, values, lengths < 0)
            else:
                columns[column.name] = strings(records, values, lengths)
                if column.type != Scalar("string"):
                    texts[column.name] = column.type, columns[column.name]
        made, fit = _made(texts, len(sure))
        columns |= made
        arrays = [
            columns[each.name].cast(each.type)
            if each.name in columns
            else pa.nulls(len(sure), each.type)
            for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), fit

    def _unknown(self, texts: pa.Array, left: Places) -> _Layout | None:
        """A layout that is not known yet, of one of the records at these places."""
        if len(left) < _STRANGE or len(self._layouts) == _LAYOUTS or self._looks == _LOOKS:
            return None
        samples = [texts[int(place)].as_py() for place in (left[0], left[len(left) // 2], left[-1])]
        found = next(
            (
                layout
                for text in samples
                if text is not None
                and (layout := _layout_of(text, self._topic)) is not None
                and layout not in self._layouts
            ),
            None,
        )
        self._looks += found is None
        return found


def _plain_column(
    column: Column, values: npt.NDArray[np.int64], null: npt.NDArray[np.bool_]
) -> pa.Array:
    if column.type == Scalar("boolean"):
        return pa.array(values == 1, mask=null)
    return pa.array(values * 1000 if column.type == Scalar("timestamp") else values, mask=null)


def _made(
    texts: Mapping[str, tuple[Type, pa.Array]], count: int
) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_]]:
    """Columns of values that DuckDB makes of their text, and of which rows all fit."""
    if not texts:
        return {}, np.ones(count, np.bool_)
    kinds = {f"c{number}": kind for number, (kind, _) in enumerate(texts.values())}
    conditions = [
        f"({name} is null or {condition})"
        for name, kind in kinds.items()
        for condition in _fitting(kind, name)
    ]
    values = ", ".join(f"{_value(kind, name)} as {name}" for name, kind in kinds.items())
    asked = pa.table([array for _, array in texts.values()], names=list(kinds))
    # A name that is asked for belongs to a cursor: others may ask beside.
    with _connection().cursor() as cursor:
        found = (
            cursor.from_arrow(asked)
            .query(
                "texts", f"select {values}, {' and '.join(conditions) or 'true'} as fit from texts"
            )
            .to_arrow_table()
        )
    *arrays, fit = (column.combine_chunks() for column in found.columns)
    return dict(zip(texts, arrays, strict=True)), fit.fill_null(fill_value=False).to_numpy(
        zero_copy_only=False
    )


@cache
def _connection() -> Connection:
    # Spark has a process a core.
    return open_connection({"threads": 1})


def _texts(values: pa.Array) -> pa.Array:
    """Bytes as texts; null where they, or some of those beside them, are none."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _TOGETHER:
            return pa.nulls(len(values), pa.string())
    return pa.concat_arrays(
        [_texts(values.slice(start, _TOGETHER)) for start in range(0, len(values), _TOGETHER)]
    )


def _layout_of(text: str, topic: Topic) -> _Layout | None:
    """How an event is written; None where it is not flat, or lacks what must be there."""
    opening = _OPENING.match(text)
    if opening is None:
        return None
    columns = {column.name: column for column in topic.columns}
    fields: list[_Field] = []
    before, at, last = opening[0], opening.end(), ","
    while last.endswith(","):
        found = _FIELD.match(text, at)
        if found is None or len(fields) == _FIELDS:
            return None
        column = columns.get(found["name"])
        fields.append(
            _Field(
                before + found["before"], found["name"], _spelling(column, found["value"]), column
            )
        )
        before = last = found["after"]
        at = found.end()
    names = {field.name for field in fields}
    # A record without the field that is its key is never valid.
    needed = {name for name, column in columns.items() if not column.nullable or name == topic.key}
    if len(names) < len(fields) or not needed <= names:
        return None
    return _Layout(tuple(fields), last)


def _spelling(column: Column | None, value: str) -> Spelling:
    spelled = {
        '"': Spelling.TEXT,
        "t": Spelling.BOOLEAN,
        "f": Spelling.BOOLEAN,
        "n": Spelling.TEXT,
    }.get(value[0], Spelling.NUMBER)
    match None if column is None else column.type:
        case Scalar("boolean"):
            return Spelling.BOOLEAN
        case Scalar("timestamp"):
            return Spelling.INTEGER if spelled is Spelling.NUMBER else Spelling.TEXT
        case Scalar("string" | "date"):
            return Spelling.TEXT
        case Scalar("double" | "float") | Decimal():
            return Spelling.NUMBER
        case Scalar():
            return Spelling.INTEGER
        case _:
            return spelled


def _expected(field: _Field) -> Expected:
    column = field.column
    nullable = column is None or column.nullable
    match None if column is None else column.type:
        case Scalar("timestamp") if field.spelling is Spelling.INTEGER:
            return Expected(field.spelling, nullable, FIRST_MICROS // 1000, LAST_MICROS // 1000)
        case Scalar(name) if name in INTEGERS:
            limit = 1 << (INTEGERS[name] - 1)
            return Expected(field.spelling, nullable, -limit, limit - 1)
        case Decimal(precision, scale):
            return Expected(field.spelling, nullable, precision - scale, scale)
        case _:
            return Expected(field.spelling, nullable, *_NUMBER_DIGITS)


def _fitting(kind: Type, found: str) -> Iterator[str]:
    """What must hold of a value besides how it is spelled."""
    value = _value(kind, found)
    match kind:
        case Scalar("double" | "float"):
            # 0 and -0 are told apart in one of their spellings only.
            yield f"isfinite({value}) and not ({value} = 0 and signbit({value}))"
        case Scalar("date"):
            yield f"regexp_full_match({found}, '{_DATE}') and {value} >= date '{_FIRST_DAY}'"
        case Scalar("timestamp"):
            yield f"regexp_full_match({found}, '{_TIMESTAMP}') and {value} between {FIRST_MICROS} and {LAST_MICROS}"
        case _:
            pass


def _value(kind: Type, found: str) -> str:
    """The value as its column has it, of its text; null, and no error, where it does not fit."""
    match kind:
        case Scalar("float"):
            return f"try_cast(try_cast({found} as double) as float)"
        case Scalar("timestamp"):
            return f"epoch_us(try_cast({found} as timestamp))"
        case _:
            return f"try_cast({found} as {kind})"
