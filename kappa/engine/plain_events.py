"""Decodes whole batches of plain events by DuckDB, many times as fast as record by record, and only what is proven valid.

What is valid is defined in kappa/record.py alone. Here a record is taken only where writing its values again gives its very
bytes: that text is one flat JSON object, with each field once and each value of exactly its type, whatever a laxer reader of JSON
would have let pass. The order of fields and the spaces between them, a layout, are learned from the records themselves; a topic has
one or a few. Every other record, be it valid or not, is left to the reader of records. Read next: engine/decode.py, which asks both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import Self

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.arrow import arrow_schema
from kappa.columns import INTEGERS, Column, Decimal, Scalar
from kappa.record import FIRST_MICROS, LAST_MICROS
from kappa.topic import Topic

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
# The reader of records refuses numbers that are longer, or further from 1, than any that is meant, also in fields that nobody declares.
_SHORT_NUMBER = r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?"
_FIELD = re.compile(rf'(?P<before>{_SPACE}"(?P<name>[^"\\\x00-\x1f]+)"{_SPACE}:{_SPACE})(?P<value>{_TEXT}|{_NUMBER}|true|false|null)(?P<after>{_SPACE}(?:,|\}}{_SPACE}$))')
_OPENING = re.compile(rf"{_SPACE}\{{")

_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIMESTAMP = rf"{_DATE}[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_FIRST_DAY = "0001-01-01"

Places = npt.NDArray[np.int64]


class _Kind(Enum):
    """How a value is spelled in an event."""

    TEXT = auto()
    NUMBER = auto()
    INTEGER = auto()
    BOOLEAN = auto()


# As which of DuckDB's types it is taken out; of a number that need not be an integer, all its digits are wanted.
_TAKEN = {_Kind.TEXT: "VARCHAR", _Kind.NUMBER: "VARCHAR", _Kind.INTEGER: "BIGINT", _Kind.BOOLEAN: "BOOLEAN"}


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a layout: the text before its value, and how that is spelled; no column: it is not declared."""

    before: str
    name: str
    kind: _Kind
    column: Column | None


@dataclass(frozen=True, slots=True)
class _Layout:
    """How events of one kind are written."""

    fields: tuple[_Field, ...]
    after: str


class PlainEvents:
    """Reads the plain ones among the events of a topic. It is not for several threads."""

    def __init__(self, topic: Topic) -> None:
        """Of a topic of which `of` says that it can be."""
        self._topic = topic
        self._schema = arrow_schema([(column.name, str(column.type)) for column in topic.columns])
        self._queries: dict[_Layout, str] = {}
        self._tries = self._sure = self._looks = 0

    @classmethod
    def of(cls, topic: Topic) -> Self | None:
        """A reader of its events; None where what is declared asks for more than is known here."""
        simple = all(isinstance(column.type, Scalar | Decimal) and column.default is None and not column.was for column in topic.columns)
        key = topic.key_column
        keyed = key is None or str(key.type) in {"string", *INTEGERS}
        # The reader of records goes by the order of records there, and asks of each what is remembered.
        alone = topic.schema is None and topic.lateness_ms is None and not topic.identity
        return cls(topic) if simple and keyed and alone else None

    @property
    def pays(self) -> bool:
        """False where so few of a topic's records are plain that asking for them costs more than it saves."""
        return self._tries < _TRIES or 2 * self._sure > self._tries

    def read(self, keys: pa.Array, values: pa.Array) -> list[tuple[Places, pa.RecordBatch]]:
        """Which of these records (bytes, or null) are plain, by their places, and the rows of those; in parts, each in the order of its places."""
        records = pa.RecordBatch.from_arrays([_texts(keys), _texts(values)], names=["k", "v"])
        parts: list[tuple[Places, pa.RecordBatch]] = []
        left = np.arange(len(records))
        for query in self._queries.values():
            left = self._read_by(query, records, left, parts)
        while (layout := self._unknown(records, left)) is not None:
            self._queries[layout] = _query(layout, self._topic)
            left = self._read_by(self._queries[layout], records, left, parts)
        self._tries += len(records)
        self._sure += len(records) - len(left)
        return parts

    def _read_by(self, query: str, records: pa.RecordBatch, left: Places, parts: list[tuple[Places, pa.RecordBatch]]) -> Places:
        """Adds a part with those of the records at these places that are of one layout; gives the places of the others."""
        if not len(left):
            return left
        found = _answer(query, records if len(left) == len(records) else records.take(pa.array(left)))
        sure: npt.NDArray[np.bool_] = found.column("sure").to_numpy()
        if sure.any():
            rows = found if sure.all() else found.filter(pa.array(sure))
            columns = [_cast(rows.column(place).combine_chunks(), field.type) for place, field in enumerate(self._schema)]
            parts.append((left[sure], pa.RecordBatch.from_arrays(columns, schema=self._schema)))
        return left[~sure]

    def _unknown(self, records: pa.RecordBatch, left: Places) -> _Layout | None:
        """A layout that is not known yet, of one of the records at these places."""
        if len(left) < _STRANGE or len(self._queries) == _LAYOUTS or self._looks == _LOOKS:
            return None
        texts = [records.column("v")[int(place)].as_py() for place in (left[0], left[len(left) // 2], left[-1])]
        found = next((layout for text in texts if text is not None and (layout := _layout_of(text, self._topic)) is not None and layout not in self._queries), None)
        self._looks += found is None
        return found


def _answer(query: str, records: pa.RecordBatch) -> pa.Table:
    try:
        return _asked(query, records)
    except (duckdb.InvalidInputException, UnicodeDecodeError):
        # A text that is no JSON stops it all, and to ask for that of each record costs a third more. (DuckDB's message quotes the text, cut anywhere: in a character, too.)
        valid = _asked("select json_valid(v) as valid from records", records).column("valid").combine_chunks()
        none = pa.scalar(None, pa.string())
        return _asked(query, pa.RecordBatch.from_arrays([records.column("k"), pc.if_else(valid, records.column("v"), none)], names=["k", "v"]))


def _asked(query: str, records: pa.RecordBatch) -> pa.Table:
    return _connection().from_arrow(pa.Table.from_batches([records])).query("records", query).to_arrow_table()


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.null_count == len(column):
        # A column that a layout has not is of no type.
        return pa.nulls(len(column), kind)
    return column if column.type == kind else column.cast(kind)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    # Spark has a process a core.
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("set TimeZone = 'UTC'")
    return connection


def _texts(values: pa.Array) -> pa.Array:
    """Bytes as texts; null where they, or some of those beside them, are none."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _TOGETHER:
            return pa.nulls(len(values), pa.string())
    return pa.concat_arrays([_texts(values.slice(start, _TOGETHER)) for start in range(0, len(values), _TOGETHER)])


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
        fields.append(_Field(before + found["before"], found["name"], _kind(column, found["value"]), column))
        before = last = found["after"]
        at = found.end()
    # DuckDB tells names apart without regard to case.
    names = {field.name.casefold() for field in fields}
    # A record without the field that is its key is never valid.
    needed = {name for name, column in columns.items() if not column.nullable or name == topic.key}
    if len(names) < len(fields) or not needed <= {field.name for field in fields}:
        return None
    return _Layout(tuple(fields), last)


def _kind(column: Column | None, value: str) -> _Kind:
    spelled = {'"': _Kind.TEXT, "t": _Kind.BOOLEAN, "f": _Kind.BOOLEAN, "n": _Kind.TEXT}.get(value[0], _Kind.NUMBER)
    match None if column is None else column.type:
        case Scalar("boolean"):
            return _Kind.BOOLEAN
        case Scalar("timestamp"):
            return _Kind.INTEGER if spelled is _Kind.NUMBER else _Kind.TEXT
        case Scalar("string" | "date"):
            return _Kind.TEXT
        case Scalar("double" | "float") | Decimal():
            return _Kind.NUMBER
        case Scalar():
            return _Kind.INTEGER
        case _:
            return spelled


def _query(layout: _Layout, topic: Topic) -> str:
    """The question: a column for each of the topic's, and of each record whether it is of this layout and valid."""
    structure = json.dumps({field.name: _TAKEN[field.kind] for field in layout.fields}, ensure_ascii=False)
    written = ", ".join([*(part for field in layout.fields for part in (_quoted(field.before), _written(field))), _quoted(layout.after)])
    conditions = [f"v = concat({written})", *(condition for field in layout.fields for condition in _conditions(field))]
    if topic.key is not None:
        conditions.append(f"k = {_found(topic.key)}::varchar")
    there = {field.name: field for field in layout.fields}
    columns = ", ".join(f"{_value(there[column.name], column) if column.name in there else 'null'} as c{place}" for place, column in enumerate(topic.columns))
    return f"select {columns}, coalesce({' and '.join(conditions)}, false) as sure from (select k, v, json_transform(v, {_quoted(structure)}) as s from records)"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _found(name: str) -> str:
    return f's."{name}"'  # a name of a layout has no quotes


def _written(field: _Field) -> str:
    """The value as an event of this layout has it."""
    found = _found(field.name)
    spelled = f"""'"' || {found} || '"'""" if field.kind is _Kind.TEXT else f"{found}::varchar"
    return f"coalesce({spelled}, 'null')"


def _conditions(field: _Field) -> Iterator[str]:
    """What must hold besides, where the value is there."""
    found, column = _found(field.name), field.column
    fits = list(_fitting(field))
    if column is not None and not column.nullable:
        yield f"{found} is not null"
        yield from fits
    elif fits:
        yield f"({found} is null or {' and '.join(fits)})"


def _fitting(field: _Field) -> Iterator[str]:
    found, column = _found(field.name), field.column
    if field.kind is _Kind.NUMBER:
        yield f"regexp_full_match({found}, {_quoted(_digits(column.type) if column is not None and isinstance(column.type, Decimal) else _SHORT_NUMBER)})"
    if column is None or isinstance(column.type, Decimal):
        return
    value = _value(field, column)
    match column.type:
        case Scalar("double" | "float"):
            # 0 and -0 are told apart in one of their spellings only.
            yield f"isfinite({value}) and not ({value} = 0 and signbit({value}))"
        case Scalar("date"):
            yield f"regexp_full_match({found}, '{_DATE}') and {value} >= date '{_FIRST_DAY}'"
        case Scalar("timestamp"):
            if field.kind is _Kind.TEXT:
                yield f"regexp_full_match({found}, '{_TIMESTAMP}') and {value} between {FIRST_MICROS} and {LAST_MICROS}"
            else:
                yield f"{found} between {FIRST_MICROS // 1000} and {LAST_MICROS // 1000}"
        case Scalar(name) if name in INTEGERS and INTEGERS[name] < INTEGERS["bigint"]:
            limit = 1 << (INTEGERS[name] - 1)
            yield f"{found} between {-limit} and {limit - 1}"
        case _:
            pass


def _digits(kind: Decimal) -> str:
    whole = f"(?:0|[1-9][0-9]{{0,{kind.precision - kind.scale - 1}}})" if kind.precision > kind.scale else "0"
    return rf"-?{whole}" + (rf"(?:\.[0-9]{{1,{kind.scale}}})?" if kind.scale else "")


def _value(field: _Field, column: Column) -> str:
    """The value as the column has it; null, and no error, where it does not fit."""
    found = _found(field.name)
    match column.type:
        case Scalar("float"):
            return f"try_cast(try_cast({found} as double) as float)"
        case Scalar("double") | Decimal():
            return f"try_cast({found} as {column.type})"
        case Scalar("date"):
            return f"try_cast({found} as date)"
        case Scalar("timestamp"):
            return (
                f"epoch_us(try_cast({found} as timestamp))"
                if field.kind is _Kind.TEXT
                else f"case when {found} between {FIRST_MICROS // 1000} and {LAST_MICROS // 1000} then {found} * 1000 end"
            )
        case _:
            return found
