"""Decodes whole batches of plain JSON events, much faster than the reader of single records.

The decoder is compiled code. kappa/records/record.py is the only definition of validity; this
decoder decodes only records that it proves to be valid. A record is decoded here only if the bytes
around the values are exactly the texts of a layout, and if the values have exactly the types of
their columns. So the record is a flat JSON object that contains each field once. A layout is the
order of the fields and the spaces between them. Layouts are learned from the records themselves; a
topic has few layouts. DuckDB converts the texts of values other than integers, booleans and
strings. The reader of single records decodes every other record, valid or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.base.duck import Connection, open_connection
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.topic_formats import is_framed
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Places, arrow_schema
from kappa.declare.values.columns import INTEGERS, Column, Decimal, Scalar, Type
from kappa.declare.values.json_schema import SchemaPlace
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS
from kappa.records.decode.find_loops import Spelling
from kappa.records.decode.find_values import Expected, Found, Texts, find, strings, texts_of
from kappa.records.decode.frames import messages_of
from kappa.records.decode.plain_reader import PlainReader

# If bytes are not UTF-8, so many records are left to the other reader.
_TOGETHER = 1_000
# If a topic has more kinds of events than this, the others are read record by record.
_LAYOUTS = 8
# A new layout is looked for only once so many records have no known layout, and only until so many
# looks have failed.
_STRANGE = 50
_LOOKS = 50


class PlainEvents(PlainReader):
    """A reader of a topic's plain JSON events. Only one thread may use it."""

    def __init__(self, topic: Topic, left_out: frozenset[str]) -> None:
        """Prepares the reader. The topic must meet the conditions that the method `of` checks."""
        self._topic = topic
        self._framed = is_framed(topic.format)
        self._left_out = left_out
        self._schema = arrow_schema([(column.name, str(column.type)) for column in topic.columns])
        self._layouts: list[Layout] = []
        self._looks = 0

    @classmethod
    def of(cls, topic: Topic, left_out: frozenset[str] = frozenset()) -> Self | None:
        """Returns a reader of a topic's plain events, or None if the topic is not supported.

        The reader may return null for the columns in `left_out`.
        """
        simple = all(
            isinstance(column.type, Scalar | Decimal) and column.default is None and not column.was
            for column in topic.columns
        )
        key = topic.key_column
        keyed = key is None or str(key.type) in {"string", *INTEGERS}
        # Any other topic makes a record depend on earlier records, or on the schema's rules.
        alone = (
            isinstance(topic.format, Json)
            and (topic.schema is None or is_plain_schema(topic.schema))
            and topic.lateness_ms is None
            and not topic.identity
        )
        return cls(topic, left_out) if simple and keyed and alone else None

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Decodes the plain records of a batch, from their keys and values (bytes or null).

        Returns parts. A part is a pair: the indexes of its records in the batch, in ascending
        order, and their rows. Records that are not plain are in no part.
        """
        texts = _cast_texts(messages_of(values) if self._framed else values)
        records, by_key = texts_of(texts), texts_of(keys)
        parts: list[tuple[Places, pa.RecordBatch]] = []
        left = np.arange(len(texts))
        for layout in self._layouts:
            left = self._read_by(layout, records, by_key, left, parts)
        while (unknown := self._unknown(texts, left)) is not None:
            self._layouts.append(unknown)
            left = self._read_by(unknown, records, by_key, left, parts)
        self._count_records(len(texts), len(texts) - len(left))
        return parts

    def _read_by(
        self,
        layout: Layout,
        records: Texts,
        keys: Texts,
        left: Places,
        parts: list[tuple[Places, pa.RecordBatch]],
    ) -> Places:
        """Decodes those records that have the given layout, and adds their rows to `parts`.

        `left` contains the indexes of the records to try. Returns the indexes of the records that
        do not have the layout.
        """
        key = next(
            (number for number, field in enumerate(layout.fields) if field.name == self._topic.key),
            -1,
        )
        found = find(
            records,
            left,
            layout.between,
            [expected_value(field) for field in layout.fields],
            keys,
            key,
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
        self, layout: Layout, records: Texts, found: Found, sure: Places
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """Returns the rows of the records that have a layout, and a mask of the valid rows.

        `sure` contains the indexes of these records. A row is valid if all of its values are valid
        for their columns; the layout does not prove this.
        """
        place_of = {field.name: number for number, field in enumerate(layout.fields)}
        columns: dict[str, pa.Array] = {}
        texts: dict[str, tuple[Type, pa.Array]] = {}
        for column in self._topic.columns:
            place = place_of.get(column.name)
            if place is None:
                continue
            read_already = layout.fields[place].spelling in {Spelling.INTEGER, Spelling.BOOLEAN}
            # A column that is left out is made only if its value decides whether the record is
            # valid.
            if column.name in self._left_out and (read_already or column.type == Scalar("string")):
                continue
            values, lengths = found.values[place, sure], found.lengths[place, sure]
            if read_already:
                columns[column.name] = _plain_column(column, values, lengths < 0)
            else:
                columns[column.name] = strings(records, values, lengths)
                if column.type != Scalar("string"):
                    texts[column.name] = column.type, columns[column.name]
        made, fit = typed_columns(texts, len(sure))
        columns |= made
        arrays = [
            columns[each.name].cast(each.type)
            if each.name in columns
            else pa.nulls(len(sure), each.type)
            for each in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), fit

    def _unknown(self, texts: pa.Array, left: Places) -> Layout | None:
        """Learns a new layout from some of the records at the indexes `left`.

        Returns None if these records have no new layout, or if no further layout may be learned.
        """
        if len(left) < _STRANGE or len(self._layouts) == _LAYOUTS or self._looks == _LOOKS:
            return None
        samples = [texts[int(place)].as_py() for place in (left[0], left[len(left) // 2], left[-1])]
        found = next(
            (
                layout
                for text in samples
                if text is not None
                and (layout := layout_of(text, self._topic)) is not None
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


def _cast_texts(values: pa.Array) -> pa.Array:
    """Casts bytes to strings. Values that are not UTF-8 become null.

    The cast fails as a whole if a value is not UTF-8. So the values are then cast in groups of
    1,000, and all values of a group become null if one of them is not UTF-8.
    """
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _TOGETHER:
            return pa.nulls(len(values), pa.string())
    return pa.concat_arrays(
        [_cast_texts(values.slice(start, _TOGETHER)) for start in range(0, len(values), _TOGETHER)]
    )


_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP = rf"{_DATE}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_FIRST_DAY = "0001-01-01"


def typed_columns(
    texts: Mapping[str, tuple[Type, pa.Array]], count: int
) -> tuple[dict[str, pa.Array], npt.NDArray[np.bool_]]:
    """Converts texts to columns with DuckDB. Returns the columns, and a mask of the valid rows.

    `texts` contains the type and the texts of each column, by name. A row is valid if all of its
    texts are valid for their types.
    """
    if not texts:
        return {}, np.ones(count, np.bool_)
    kinds = {f"c{number}": kind for number, (kind, _) in enumerate(texts.values())}
    conditions = [
        f"({name} is null or {condition})"
        for name, kind in kinds.items()
        for condition in _fitting_conditions(kind, name)
    ]
    values = ", ".join(f"{_value_sql(kind, name)} as {name}" for name, kind in kinds.items())
    asked = pa.table([array for _, array in texts.values()], names=list(kinds))
    # A registered name belongs to a cursor, so others may query at the same time.
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


def _fitting_conditions(kind: Type, found: str) -> Iterator[str]:
    """Yields the SQL conditions under which a text is a valid value of a type."""
    value = _value_sql(kind, found)
    match kind:
        case Scalar("double" | "float"):
            # 0 and -0 differ in a single one of their spellings.
            yield f"isfinite({value}) and not ({value} = 0 and signbit({value}))"
        case Scalar("date"):
            yield f"regexp_full_match({found}, '{_DATE}') and {value} >= date '{_FIRST_DAY}'"
        case Scalar("timestamp"):
            yield f"regexp_full_match({found}, '{_TIMESTAMP}')"
            yield f"{value} between {FIRST_MICROS} and {LAST_MICROS}"
        case _:
            pass


def _value_sql(kind: Type, found: str) -> str:
    """Returns SQL that converts a text to a value of a type, or to null if that is impossible."""
    match kind:
        case Scalar("float"):
            return f"try_cast(try_cast({found} as double) as float)"
        case Scalar("timestamp"):
            return f"epoch_us(try_cast({found} as timestamp))"
        case _:
            return f"try_cast({found} as {kind})"


_FIELDS = 100
_SPACE = r"[ \t\n\r]*"
_TEXT = r'"[^"\\\x00-\x1f]*"'
# RFC 8259, section 6.
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
# The most digits of a number before the point, behind it and in the exponent. The reader of records
# refuses longer numbers, also in fields that are not declared.
_NUMBER_DIGITS = (40, 40, 3)
_FIELD = re.compile(
    rf'(?P<before>{_SPACE}"(?P<name>[^"\\\x00-\x1f]+)"{_SPACE}:{_SPACE})(?P<value>{_TEXT}|{_NUMBER}|true|false|null)(?P<after>{_SPACE}(?:,|\}}{_SPACE}$))'
)
_OPENING = re.compile(rf"{_SPACE}\{{")


@dataclass(frozen=True, slots=True)
class LayoutField:
    """A field of a layout: the text before its value, its name, and the form of its value.

    `column` is the column with the field's name, or None if the event declares no such column.
    """

    before: str
    name: str
    spelling: Spelling
    column: Column | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of some events: their fields in order, and the text after the last value."""

    fields: tuple[LayoutField, ...]
    after: str

    @property
    def between(self) -> list[bytes]:
        """Returns the texts before, between and after the values."""
        return [*(field.before.encode() for field in self.fields), self.after.encode()]


def layout_of(text: str, topic: Topic) -> Layout | None:
    """Returns the layout of an event, given as JSON text.

    Returns None if the event is not a flat object, lacks a required field, or has a field that the
    topic's schema does not allow in this form.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return None
    columns, needed = _demanded_columns(topic)
    fields: list[LayoutField] = []
    before, at, last = opening[0], opening.end(), ","
    while last.endswith(","):
        found = _FIELD.match(text, at)
        if found is None or len(fields) == _FIELDS:
            return None
        column = columns.get(found["name"])
        fields.append(
            LayoutField(
                before + found["before"],
                found["name"],
                _value_spelling(column, found["value"]),
                column,
            )
        )
        before = last = found["after"]
        at = found.end()
    names = {field.name for field in fields}
    if len(names) < len(fields) or not needed <= names:
        return None
    if topic.schema is not None and not _fits_schema(topic.schema, fields):
        return None
    return Layout(tuple(fields), last)


def is_plain_schema(place: SchemaPlace) -> bool:
    """Returns True if layouts and columns check all conditions of a JSON Schema."""
    return not place.limits and all(
        not (each.place.limits or each.place.fields or each.place.element or each.place.closed)
        and (each.place.json_type != "integer" or str(each.place.column) in INTEGERS)
        for each in place.fields
    )


def _demanded_columns(topic: Topic) -> tuple[dict[str, Column], set[str]]:
    """Returns the columns by name, and the names of the fields that each event must contain.

    A column is nullable in the result if the event's field may be null. The topic's key field is
    always required.
    """
    columns = {column.name: column for column in topic.columns}
    needed = {name for name, column in columns.items() if not column.nullable or name == topic.key}
    if topic.schema is None:
        return columns, needed
    # A schema may allow a missing field but not a null, or the other way round.
    for each in topic.schema.fields:
        columns[each.name] = replace(columns[each.name], nullable=each.place.nullable)
    needed = {each.name for each in topic.schema.fields if each.required}
    return columns, needed if topic.key is None else {*needed, topic.key}


def _fits_schema(schema: SchemaPlace, fields: Sequence[LayoutField]) -> bool:
    """Returns True if the schema allows all fields of a layout, and the forms of their values."""
    return all(
        not schema.closed
        if each.column is None
        else each.column.type != Scalar("timestamp") or each.spelling is Spelling.TEXT
        for each in fields
    )


def _value_spelling(column: Column | None, value: str) -> Spelling:
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


def expected_value(field: LayoutField) -> Expected:
    """Returns the expected form of a field's value, within the bounds of its column's type."""
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
