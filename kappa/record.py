"""A valid record: the one definition of what is decoded, for every path that decodes. Pure.

A record is exactly one JSON object in UTF-8. Unknown fields are ignored, repeated ones rejected; nothing is coerced (a
string is no number, 1.0 no integer), and what is out of range is rejected; a missing field is its column's default, or null.
A field that is not there under its name is looked for under the names it had. What a JSON Schema demands besides is held last
(schema_rules.py). The Kafka key, where one is declared, is the event's key field as text. A change here that rejects or accepts other records raises
`kappa.semantics`. JSON is RFC 8259's, times are RFC 3339's. Read next: engine/decode.py, which runs it.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from decimal import InvalidOperation
from enum import StrEnum
from typing import Any, assert_never

from kappa.columns import INTEGERS, Array, Column, Decimal, Scalar, Struct, Type
from kappa.schema_rules import MISSING, rule_of
from kappa.topic import Topic, TopicKind

# Deeper than any event is meant to be, and far from where the JSON parser's own stack ends: that end depends on the
# caller, and a record must not be valid on one path and too deep on another.
DEEPEST = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_MICROS = 86_400_000_000
# The first and the last moment that a timestamp may be: microseconds since 1970, UTC.
FIRST_MICROS = (date(1, 1, 1).toordinal() - _EPOCH_DAY) * _DAY_MICROS
LAST_MICROS = (date(9999, 12, 31).toordinal() - _EPOCH_DAY + 1) * _DAY_MICROS - 1
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])")
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_BRACKETS = re.compile(r"[\[\]{}]")
# Python refuses to read integers beyond 4,300 digits, by a setting of the process; ours is no setting. Texts that are
# shorter cannot hold such a one, and are read without a look at each integer.
_LONGEST_INTEGER = 4_000


class Reason(StrEnum):
    """Why a record is not valid, in a word for machines."""

    NULL_VALUE = "null_value"
    NULL_KEY = "null_key"
    KEY_NOT_UTF8 = "key_not_utf8"
    BAD_KEY = "bad_key"
    KEY_MISMATCH = "key_mismatch"
    NOT_UTF8 = "not_utf8"
    BYTE_ORDER_MARK = "byte_order_mark"
    MALFORMED = "malformed_json"
    NOT_AN_OBJECT = "not_an_object"
    REPEATED_FIELD = "repeated_field"
    LONE_SURROGATE = "lone_surrogate"
    TOO_DEEP = "too_deep"
    MISSING = "missing_field"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    BAD_FORMAT = "bad_format"
    AGAINST_SCHEMA = "against_schema"
    BAD_REDRIVE = "bad_redrive"
    # The record itself is valid, and the pipeline's function fails on it (engine/culprits.py).
    FUNCTION_FAILED = "function_failed"
    LATE = "late"


class Rejected(Exception):  # a verdict about a record, not a mistake of the program
    """The record is not valid: the word for machines, and a sentence for people."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A null value in a compacted topic: the key is deleted."""

    key: str | int


# A row's values in the order of the topic's columns. A timestamp is an integer of microseconds since 1970, UTC, a date
# one of days; a decimal is Python's; a struct is a dict.
Row = tuple[Any, ...]
_Check = Callable[[Any, str], Any]


class RecordReader:
    """Reads the records of one topic; what can be decided from the declaration is decided once, here."""

    def __init__(self, topic: Topic) -> None:
        self._compacted = topic.kind is TopicKind.COMPACTED
        self._format = _Json(exact=any(_holds_decimal(column.type) for column in topic.columns))
        self._columns = tuple((column.name, column.nullable, check := _check(column.type), _default(column, check)) for column in topic.columns)
        self._was = tuple((column.name, column.was) for column in topic.columns if column.was)
        self._rule = None if topic.schema is None else rule_of(topic.schema, _against)
        self._key_place = None if topic.key is None else [column.name for column in topic.columns].index(topic.key)
        self._key_column = topic.key_column

    def read(self, key: bytes | None, value: bytes | None) -> Row | Tombstone:
        """The row of one record, or that it deletes its key. Raises Rejected where it is not valid."""
        if value is None:
            if not self._compacted:
                raise Rejected(Reason.NULL_VALUE, "the value is null, which deletes a key; this topic is a history and deletes nothing")
            return Tombstone(self._typed_key(self._key_text(key)))
        row = self._row(self._format.fields(value))
        if self._key_place is not None:
            text, field = self._key_text(key), row[self._key_place]
            if field is None or text != str(field):
                raise Rejected(Reason.KEY_MISMATCH, f"the key is {_shown(text)} and {self._columns[self._key_place][0]} is {_shown(field)}")
        return row

    def _row(self, event: dict[str, Any]) -> Row:
        """The columns' values, whatever format the fields came in."""
        for name, old_names in self._was:
            # Presence decides, not the value: where its name is there, an old one is a field like any other unknown one.
            stood = [event.pop(old) for old in old_names if old in event]
            if stood and name not in event:
                event[name] = stood[0]
        row: list[Any] = []
        for name, nullable, check, default in self._columns:
            found = event.get(name)
            if found is not None:
                row.append(check(found, name))
            elif default is not None and name not in event:
                row.append(default)
            elif nullable:
                row.append(None)
            else:
                raise Rejected(Reason.MISSING, f"{name} is {'null' if name in event else 'missing'}")
        if self._rule is not None:
            self._rule(event, "")
        return tuple(row)

    def _key_text(self, key: bytes | None) -> str:
        if key is None:
            raise Rejected(Reason.NULL_KEY, "the key is null")
        try:
            return key.decode()
        except UnicodeDecodeError as error:
            raise Rejected(Reason.KEY_NOT_UTF8, f"byte {error.start} of the key is not UTF-8") from None

    def _typed_key(self, text: str) -> str | int:
        column = self._key_column
        if column is None or not isinstance(column.type, Scalar) or column.type.name not in INTEGERS:
            return text
        if not _CANONICAL_INTEGER.fullmatch(text):
            raise Rejected(Reason.BAD_KEY, f"the key is {_shown(text)}, not a whole number as text")
        return int(_check(column.type)(int(text), "the key"))


class _Json:
    """The format of records: bytes to an event's fields, as Python has the values of JSON. What they mean, the reader says.

    Another format is another one of these.
    """

    def __init__(self, *, exact: bool) -> None:
        """`exact` keeps every digit of a number."""
        self._parse = _parser(_number if exact else float, None)
        self._parse_long = _parser(_number if exact else float, _integer)

    def fields(self, value: bytes) -> dict[str, Any]:
        """The fields of one event. Raises Rejected where the bytes are not exactly one object."""
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise Rejected(Reason.NOT_UTF8, f"byte {error.start} of the value is not UTF-8") from None
        if text.startswith("\ufeff"):
            raise Rejected(Reason.BYTE_ORDER_MARK, "the value begins with a byte order mark")
        # No text has more levels than opening brackets, so nearly all are spared the count.
        if text.count("{") + text.count("[") > DEEPEST and _depth(text) > DEEPEST:
            raise Rejected(Reason.TOO_DEEP, f"the value is nested deeper than {DEEPEST} levels")
        try:
            event = (self._parse if len(text) <= _LONGEST_INTEGER else self._parse_long)(text)
        except json.JSONDecodeError as error:
            raise Rejected(Reason.MALFORMED, f"not one JSON value: {error.msg} at character {error.pos}") from None
        if not isinstance(event, dict):
            raise Rejected(Reason.NOT_AN_OBJECT, f"the value is {_kind(event)}, not an object")
        # Only an escape can make half a surrogate pair: UTF-8 itself has none.
        if "\\u" in text:
            _refuse_surrogates(event)
        return event


def _parser(parse_float: Callable[[str], Any], parse_int: Callable[[str], int] | None) -> Callable[[str], Any]:
    return json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=parse_float, parse_int=parse_int).decode


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise Rejected(Reason.REPEATED_FIELD, f"{_shown(name)} stands twice in one object")
    return made


def _refuse_constant(word: str) -> None:
    raise Rejected(Reason.MALFORMED, f"{word} is no JSON")


def _integer(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise Rejected(Reason.OUT_OF_RANGE, f"a number has {len(text)} digits")
    return int(text)


def _number(text: str) -> Number:
    try:
        return Number(text)
    except InvalidOperation:
        raise Rejected(Reason.OUT_OF_RANGE, f"{_shown(text)} is beyond any number") from None


def _refuse_surrogates(found: Any) -> None:
    match found:
        case str():
            if not found.isascii() and any("\ud800" <= letter <= "\udfff" for letter in found):
                raise Rejected(Reason.LONE_SURROGATE, "a text holds half of a surrogate pair, which is no character")
        case dict():
            for name, value in found.items():
                _refuse_surrogates(name)
                _refuse_surrogates(value)
        case list():
            for value in found:
                _refuse_surrogates(value)


def _depth(text: str) -> int:
    """How deep brackets are nested, strings left out; also of what is no JSON, where it need only be the same each time."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _check(kind: Type) -> _Check:
    match kind:
        case Scalar():
            return _integer_check(kind.name) if kind.name in INTEGERS else _SCALAR_CHECKS[kind.name]
        case Decimal():
            return _decimal_check(kind)
        case Array():
            return _array_check(kind)
        case Struct():
            return _struct_check(kind.fields)
        case _:
            assert_never(kind)


def _string(found: Any, name: str) -> str:
    if type(found) is not str:
        raise _wrong(name, "a text", found)
    return found


def _boolean(found: Any, name: str) -> bool:
    if found is not True and found is not False:
        raise _wrong(name, "true or false", found)
    return bool(found)


def _double(found: Any, name: str) -> float:
    # A bool is an int to Python, and no number to us.
    if type(found) not in {float, int, Number}:
        raise _wrong(name, "a number", found)
    try:
        value = float(found)
    except OverflowError:
        value = math.inf
    if math.isinf(value):
        raise _beyond(name, found, "double")
    return value


def _float(found: Any, name: str) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", _double(found, name)))[0])
    except OverflowError:
        raise _beyond(name, found, "float") from None


def _date(found: Any, name: str) -> int:
    if type(found) is not str:
        raise _wrong(name, "a date as text", found)
    if not _DATE.fullmatch(found):
        raise Rejected(Reason.BAD_FORMAT, f"{name} is {_shown(found)}, not a date like 2024-12-31")
    try:
        return date.fromisoformat(found).toordinal() - _EPOCH_DAY
    except ValueError:
        raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {_shown(found)}, a day that is not in the calendar") from None


def _timestamp(found: Any, name: str) -> int:
    if type(found) is int:
        micros = found * 1000
    elif type(found) is str:
        micros = _instant(found, name)
    else:
        raise _wrong(name, "a time as text or in epoch milliseconds", found)
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise _beyond(name, found, "timestamp")
    return micros


def _instant(found: str, name: str) -> int:
    if not _TIMESTAMP.fullmatch(found):
        raise Rejected(Reason.BAD_FORMAT, f"{name} is {_shown(found)}, not a time with zone and at most 6 fraction digits, like 2024-12-31T23:59:59.5Z")
    try:
        since = datetime.fromisoformat(found.upper()) - _EPOCH
    except ValueError:
        # A leap second is one of these: Spark and Delta cannot write it down.
        raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {_shown(found)}, a time that is not in the calendar") from None
    return since.days * _DAY_MICROS + since.seconds * 1_000_000 + since.microseconds


_SCALAR_CHECKS: dict[str, _Check] = {"string": _string, "boolean": _boolean, "double": _double, "float": _float, "date": _date, "timestamp": _timestamp}


def _integer_check(type_name: str) -> _Check:
    limit = 1 << (INTEGERS[type_name] - 1)

    def check(found: Any, name: str) -> int:
        if type(found) is not int:
            raise _wrong(name, "a whole number", found)
        if not -limit <= found < limit:
            raise _beyond(name, found, type_name)
        return found

    return check


def _decimal_check(kind: Decimal) -> _Check:
    limit = 10**kind.precision

    def check(found: Any, name: str) -> Number:
        if type(found) is not int and type(found) is not Number:
            raise _wrong(name, "a number", found)
        sign, digits, exponent = Number(found).as_tuple()
        # By value, not by spelling: 1.10 fits one digit behind the point less than 1.11 does.
        whole = int("".join(map(str, digits)))
        while whole and whole % 10 == 0:
            whole, exponent = whole // 10, int(exponent) + 1
        if whole == 0:
            return Number(0)
        if int(exponent) < -kind.scale:
            raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {_shown(found)}, more digits behind the point than {kind} has")
        if int(exponent) > kind.precision or whole * 10 ** (int(exponent) + kind.scale) >= limit:
            raise _beyond(name, found, str(kind))
        return Number((sign, tuple(map(int, str(whole))), int(exponent)))

    return check


def _array_check(kind: Array) -> _Check:
    element = _check(kind.element)

    def check(found: Any, name: str) -> list[Any]:
        if type(found) is not list:
            raise _wrong(name, "an array", found)
        return [None if each is None else element(each, f"an element of {name}") for each in found]

    return check


def _struct_check(fields: tuple[Column, ...]) -> _Check:
    checks = tuple((field.name, field.nullable, typed := _check(field.type), _default(field, typed)) for field in fields)

    def check(found: Any, name: str) -> dict[str, Any]:
        if type(found) is not dict:
            raise _wrong(name, "an object", found)
        made = {}
        for field, nullable, of_field, default in checks:
            value = found.get(field)
            if value is not None:
                made[field] = of_field(value, f"{name}.{field}")
            elif default is not None and field not in found:
                made[field] = default
            elif nullable:
                made[field] = None
            else:
                raise Rejected(Reason.MISSING, f"{name}.{field} is {'null' if field in found else 'missing'}")
        return made

    return check


def _default(column: Column, check: _Check) -> Any:
    """What stands for a field that is missing, as a row has it; None where nothing does. Raises Rejected where it is no value of the column."""
    return None if column.default is None else check(_parser(_number, None)(column.default), f"the default of {column.name}")


def _holds_decimal(kind: Type) -> bool:
    match kind:
        case Scalar():
            return False
        case Decimal():
            return True
        case Array():
            return _holds_decimal(kind.element)
        case Struct():
            return any(_holds_decimal(field.type) for field in kind.fields)
        case _:
            assert_never(kind)


def _wrong(name: str, wanted: str, found: Any) -> Rejected:
    return Rejected(Reason.WRONG_TYPE, f"{name} is {_kind(found)}, not {wanted}")


def _against(name: str, found: Any, demand: str) -> Rejected:
    return Rejected(Reason.AGAINST_SCHEMA, f"{name} is {'missing' if found is MISSING else _kind(found)}, and {demand}")


def _beyond(name: str, found: Any, type_name: str) -> Rejected:
    return Rejected(Reason.OUT_OF_RANGE, f"{name} is {_shown(found)}, beyond what {type_name} holds")


def _kind(found: Any) -> str:
    match found:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return f"the text {_shown(found)}"
        case int():
            return f"the whole number {_shown(found)}"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return f"the number {_shown(found)}"


def _shown(found: Any) -> str:
    # Rejects are kept and read: one wild record must not fill them, nor half a surrogate stop them.
    text = json.dumps(found, ensure_ascii=False) if isinstance(found, str) else str(found)
    text = text.encode(errors="backslashreplace").decode()
    return text if len(text) <= 80 else f"{text[:77]}..."
