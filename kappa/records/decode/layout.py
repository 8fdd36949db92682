"""The layout of an event: the texts between values, and their spellings. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kappa.declare.topic import Topic
from kappa.declare.values.columns import INTEGERS, Column, Decimal, Scalar
from kappa.declare.values.json_schema import SchemaPlace
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS
from kappa.records.decode.find_loops import Spelling
from kappa.records.decode.find_values import Expected

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
    """A field of a layout: text before the value, spelling, and column if declared."""

    before: str
    name: str
    spelling: Spelling
    column: Column | None


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of one kind of event."""

    fields: tuple[LayoutField, ...]
    after: str

    @property
    def between(self) -> list[bytes]:
        """Returns the texts before, between and after the values."""
        return [*(field.before.encode() for field in self.fields), self.after.encode()]


def layout_of(text: str, topic: Topic) -> Layout | None:
    """Finds the layout of an event.

    Returns None if the event is not flat, or lacks a needed field.
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
    """Returns True if layout and columns decide everything that a schema demands of an event."""
    return not place.limits and all(
        not (each.place.limits or each.place.fields or each.place.element or each.place.closed)
        and (each.place.json_type != "integer" or str(each.place.column) in INTEGERS)
        for each in place.fields
    )


def _demanded_columns(topic: Topic) -> tuple[dict[str, Column], set[str]]:
    """Returns the columns with the nulls that are allowed, and the required fields.

    A record without its key field is never valid.
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
    """Returns True if a schema allows each of the fields, in this form."""
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
    """Returns the bounds that a column sets for a field's value."""
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
