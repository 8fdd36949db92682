"""The valid values of each type, and their representation in rows. Pure.

Values are not converted between types, and a value out of range is rejected. In a row, a timestamp
is an integer of microseconds since 1970 in UTC, and a date is an integer of days since 1970. A
decimal is a Python Decimal, and a struct is a dict. Times as text must follow RFC 3339.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any, assert_never

from kappa.declare.values.columns import INTEGERS, Array, Column, Decimal, Scalar, Struct, Type
from kappa.declare.values.json_text import exact_value
from kappa.declare.values.reason import Reason, Rejected, kind_of, show_value

# Turns a value of JSON into the row's value; the text names the value in errors. Raises Rejected if
# the value is not valid.
Check = Callable[[Any, str], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_MICROS = 86_400_000_000
# The first and the last moment that a timestamp may be: microseconds since 1970, UTC.
FIRST_MICROS = (date(1, 1, 1).toordinal() - _EPOCH_DAY) * _DAY_MICROS
LAST_MICROS = (date(9999, 12, 31).toordinal() - _EPOCH_DAY + 1) * _DAY_MICROS - 1
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


def check_of(kind: Type) -> Check:
    """Returns the function that checks a JSON value of a type, and converts it for the row."""
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


def _check_string(found: Any, name: str) -> str:
    if type(found) is not str:
        raise _wrong_type(name, "a text", found)
    return found


def _check_boolean(found: Any, name: str) -> bool:
    if found is not True and found is not False:
        raise _wrong_type(name, "true or false", found)
    return bool(found)


def _check_double(found: Any, name: str) -> float:
    # To Python a bool is an int; here it is no number.
    if type(found) not in {float, int, Number}:
        raise _wrong_type(name, "a number", found)
    try:
        value = float(found)
    except OverflowError:
        value = math.inf
    if math.isinf(value):
        raise _out_of_range(name, found, "double")
    return value


def _check_float(found: Any, name: str) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", _check_double(found, name)))[0])
    except OverflowError:
        raise _out_of_range(name, found, "float") from None


def _check_date(found: Any, name: str) -> int:
    if type(found) is not str:
        raise _wrong_type(name, "a date as text", found)
    if not _DATE.fullmatch(found):
        raise Rejected(
            Reason.BAD_FORMAT, f"{name} is {show_value(found)}, not a date like 2024-12-31"
        )
    try:
        return date.fromisoformat(found).toordinal() - _EPOCH_DAY
    except ValueError:
        raise Rejected(
            Reason.OUT_OF_RANGE, f"{name} is {show_value(found)}, a day that is not in the calendar"
        ) from None


def _check_timestamp(found: Any, name: str) -> int:
    if type(found) is int:
        micros = found * 1000
    elif type(found) is str:
        micros = _instant_micros(found, name)
    else:
        raise _wrong_type(name, "a time as text or in epoch milliseconds", found)
    if not FIRST_MICROS <= micros <= LAST_MICROS:
        raise _out_of_range(name, found, "timestamp")
    return micros


def _instant_micros(found: str, name: str) -> int:
    if not _TIMESTAMP.fullmatch(found):
        raise Rejected(
            Reason.BAD_FORMAT,
            f"{name} is {show_value(found)}, not a time with zone and at most 6 fraction digits, "
            "like 2024-12-31T23:59:59.5Z",
        )
    try:
        since = datetime.fromisoformat(found.upper()) - _EPOCH
    except ValueError:
        # A leap second, for instance: Spark and Delta cannot store leap seconds.
        raise Rejected(
            Reason.OUT_OF_RANGE,
            f"{name} is {show_value(found)}, a time that is not in the calendar",
        ) from None
    return since.days * _DAY_MICROS + since.seconds * 1_000_000 + since.microseconds


_SCALAR_CHECKS: dict[str, Check] = {
    "string": _check_string,
    "boolean": _check_boolean,
    "double": _check_double,
    "float": _check_float,
    "date": _check_date,
    "timestamp": _check_timestamp,
}


def _integer_check(type_name: str) -> Check:
    limit = 1 << (INTEGERS[type_name] - 1)

    def check_integer(found: Any, name: str) -> int:
        if type(found) is not int:
            raise _wrong_type(name, "a whole number", found)
        if not -limit <= found < limit:
            raise _out_of_range(name, found, type_name)
        return found

    return check_integer


def _decimal_check(kind: Decimal) -> Check:
    def check_decimal(found: Any, name: str) -> Number:
        if type(found) is not int and type(found) is not Number:
            raise _wrong_type(name, "a number", found)
        number = Number(found)
        if not number.is_finite():
            raise Rejected(
                Reason.OUT_OF_RANGE, f"{name} is {show_value(found)}, which is not a number"
            )
        sign, digits, exponent = number.as_tuple()
        # By value, not by spelling: 1.10 fits one digit behind the point less than 1.11 does.
        count = len(digits)
        while count and digits[count - 1] == 0:
            count -= 1
        if count == 0:
            return Number(0)
        exponent = int(exponent) + len(digits) - count
        if exponent < -kind.scale:
            raise Rejected(
                Reason.OUT_OF_RANGE,
                f"{name} is {show_value(found)}, more digits behind the point than {kind} has",
            )
        if count + exponent + kind.scale > kind.precision:
            raise _out_of_range(name, found, str(kind))
        return Number((sign, digits[:count], exponent))

    return check_decimal


def _array_check(kind: Array) -> Check:
    element = check_of(kind.element)

    def check_array(found: Any, name: str) -> list[Any]:
        if type(found) is not list:
            raise _wrong_type(name, "an array", found)
        return [None if each is None else element(each, f"an element of {name}") for each in found]

    return check_array


def _struct_check(fields: tuple[Column, ...]) -> Check:
    checks = tuple(
        (field.name, field.nullable, typed := check_of(field.type), default_of(field, typed))
        for field in fields
    )

    def check_struct(found: Any, name: str) -> dict[str, Any]:
        if type(found) is not dict:
            raise _wrong_type(name, "an object", found)
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
                raise Rejected(
                    Reason.MISSING, f"{name}.{field} is {'null' if field in found else 'missing'}"
                )
        return made

    return check_struct


def default_of(column: Column, check: Check) -> Any:
    """Returns the value that a column has in the row if an event does not contain the field.

    Returns None if the column has no default. Raises Rejected if the default is not a valid value
    of the column.
    """
    return (
        None
        if column.default is None
        else check(exact_value(column.default), f"the default of {column.name}")
    )


def holds_decimal(kind: Type) -> bool:
    """Returns True if the type is a decimal or contains one, so that all digits must be parsed."""
    match kind:
        case Scalar():
            return False
        case Decimal():
            return True
        case Array():
            return holds_decimal(kind.element)
        case Struct():
            return any(holds_decimal(field.type) for field in kind.fields)
        case _:
            assert_never(kind)


def _wrong_type(name: str, wanted: str, found: Any) -> Rejected:
    return Rejected(Reason.WRONG_TYPE, f"{name} is {kind_of(found)}, not {wanted}")


def _out_of_range(name: str, found: Any, type_name: str) -> Rejected:
    return Rejected(
        Reason.OUT_OF_RANGE, f"{name} is {show_value(found)}, beyond what {type_name} holds"
    )
