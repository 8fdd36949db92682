"""Converts the values of a row, by the writer's schema and the declared columns. Pure.

Kafka Connect has only a few types. If the meaning of a value is more specific than its type, the
name of its schema states the meaning, for instance `io.debezium.time.MicroTimestamp`. Avro schemas
contain that name as `connect.name`.

A value whose meaning is not certain is rejected: a whole number alone does not show whether it
counts milliseconds or microseconds, and a text may be digits or encoded bytes.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal as Number
from typing import Any

from kappa.declare.values.columns import Array, Column, Decimal, Scalar, Struct, Type
from kappa.declare.values.reason import Reason, Rejected, kind_of, show_value
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS, Check, check_of, default_of

# No row of a table needs a deeper schema.
_DEEPEST = 32
_DAY_MICROS = 86_400_000_000
_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
# From whole numbers to microseconds, as (factor, divisor).
UNITS = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}
_MOMENTS = {
    f"{_TIME}Timestamp": "millis",
    f"{_TIME}MicroTimestamp": "micros",
    f"{_TIME}NanoTimestamp": "nanos",
    f"{_CONNECT}Timestamp": "millis",
}
_MOMENT_TEXTS = {f"{_TIME}ZonedTimestamp", f"{_TIME}IsoTimestamp"}
_DAYS = {f"{_TIME}Date", f"{_CONNECT}Date"}
_DECIMAL = f"{_CONNECT}Decimal"
_OWN_SCALE = "io.debezium.data.VariableScaleDecimal"
_FLOATS = {Scalar("double"), Scalar("float")}
_DECIMALS = {_DECIMAL, _OWN_SCALE}
_DIGITS = re.compile(r"[+-]?[0-9]{1,80}(?:\.[0-9]{1,80})?")
# Debezium writes this text for a value that the source did not send: in texts, and in bytes.
_UNAVAILABLE = "__debezium_unavailable_value"
_UNAVAILABLES = {_UNAVAILABLE, base64.b64encode(_UNAVAILABLE.encode()).decode()}


@dataclass(frozen=True, slots=True)
class WritingSchema:
    """A description of how a value was written: the name of its Connect schema, and its parts.

    `name` is "" if the value has no meaning beyond its type. `scale` is the scale of a decimal.
    `element` describes the elements of an array, and `fields` describes the fields of a struct.
    """

    name: str = ""
    scale: int | None = None
    element: WritingSchema | None = None
    fields: Mapping[str, WritingSchema] = field(default_factory=dict)


# A value whose schema says nothing beyond the type.
PLAIN = WritingSchema()


def of_connect(schema: Any, deep: int = 0) -> WritingSchema:
    """Returns the description of how a value was written, from Kafka Connect's schema in JSON.

    Damaged parts of the schema are treated like parts that state no meaning beyond their types.
    """
    if not isinstance(schema, dict) or deep > _DEEPEST:
        return PLAIN
    name, parameters, fields = (schema.get(each) for each in ("name", "parameters", "fields"))
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    return WritingSchema(
        name if isinstance(name, str) else "",
        _whole_number(scale),
        of_connect(schema["items"], deep + 1) if "items" in schema else None,
        {
            each["field"]: of_connect(each, deep + 1)
            for each in (fields if isinstance(fields, list) else ())
            if isinstance(each, dict) and isinstance(each.get("field"), str)
        },
    )


def of_avro(schema: Any, named: Mapping[str, Any], deep: int = 0) -> WritingSchema:
    """Returns the description of how a value was written, from a parsed Avro schema."""
    if deep > _DEEPEST:
        return PLAIN
    match schema:
        case str() if schema in named:
            return of_avro(named[schema], named, deep + 1)
        case list():
            others = [each for each in schema if each != "null"]
            return of_avro(others[0], named, deep + 1) if len(others) == 1 else PLAIN
        case {"type": dict() | list() as inner}:
            return of_avro(inner, named, deep + 1)
        case dict():
            name = schema.get("connect.name")
            return WritingSchema(
                name if isinstance(name, str) else "",
                _whole_number(schema.get("scale")),
                of_avro(schema["items"], named, deep + 1) if "items" in schema else None,
                {
                    each["name"]: of_avro(each["type"], named, deep + 1)
                    for each in schema.get("fields", ())
                },
            )
        case _:
            return PLAIN


def _whole_number(found: Any) -> int | None:
    if isinstance(found, str) and found.isdecimal() and len(found) < 6:
        return int(found)
    return found if type(found) is int and 0 <= found < 100_000 else None


class RowValues:
    """Creates the functions that check and convert the values of rows."""

    def __init__(self, *, times: str | None, decimals: str | None) -> None:
        """Stores the options of `Debezium` that apply to values without a schema."""
        self._times = times
        self._decimals = decimals

    def value_check(self, kind: Type, written: WritingSchema | None) -> Check:
        """Returns the function that checks and converts a column's values.

        `written` describes how the values were written, or is None if they have no schema.
        """
        match kind:
            case Scalar(name="timestamp"):
                return _available_check(self._moment_check(written))
            case Scalar(name="date"):
                return _available_check(self._day_check(written))
            case Decimal():
                return _available_check(self._decimal_check(kind, written))
            case Array():
                return _array_check(
                    self.value_check(kind.element, written and (written.element or PLAIN))
                )
            case Struct():
                return self._struct_check(kind.fields, written)
            case _:
                return _available_check(_plain_check(kind, written))

    def _moment_check(self, written: WritingSchema | None) -> Check:
        text = check_of(Scalar("timestamp"))
        unit = self._times if written is None else _MOMENTS.get(written.name)
        name = "" if written is None else written.name

        def land_moment(found: Any, path: str) -> int:
            if type(found) is str and name in {"", *_MOMENT_TEXTS}:
                return int(text(found, path))
            if type(found) is not int or name in _DAYS:
                raise _wrong_type(path, found, name, "a time")
            if unit is None:
                raise Rejected(
                    Reason.BAD_FORMAT,
                    f"{path} is the whole number {show_value(found)}, and nothing says its unit: "
                    'declare times="micros", "millis" or "nanos", or send schemas',
                )
            factor, divisor = UNITS[unit]
            micros = found * factor // divisor
            if not FIRST_MICROS <= micros <= LAST_MICROS:
                raise _out_of_range(path, found, "timestamp")
            return micros

        return land_moment

    def _day_check(self, written: WritingSchema | None) -> Check:
        text = check_of(Scalar("date"))
        name = "" if written is None else written.name
        is_days = written is None or name in _DAYS

        def land_day(found: Any, path: str) -> int:
            if type(found) is str and name not in _MOMENT_TEXTS:
                return int(text(found.removesuffix("Z"), path))
            if type(found) is not int or not is_days:
                raise _wrong_type(path, found, name, "a day")
            if not FIRST_MICROS // _DAY_MICROS <= found <= LAST_MICROS // _DAY_MICROS:
                raise _out_of_range(path, found, "date")
            return found

        return land_day

    def _decimal_check(self, kind: Decimal, written: WritingSchema | None) -> Check:
        check = check_of(kind)
        name = "" if written is None else written.name
        # With a schema, a text without another meaning is a number's digits.
        are_digits = self._decimals == "text" if written is None else not name
        scale = written.scale if written is not None and name == _DECIMAL else None

        def land_decimal(found: Any, path: str) -> Any:
            if type(found) is dict and name in {"", _OWN_SCALE}:
                return check(_own_scale(found, path), path)
            if type(found) in {str, bytes}:
                if name == _DECIMAL:
                    if scale is None:
                        raise Rejected(
                            Reason.BAD_FORMAT, f"the schema of {path} is a decimal without a scale"
                        )
                    return check(_unscaled_decimal(found, scale, path), path)
                if type(found) is str and are_digits:
                    if not _DIGITS.fullmatch(found):
                        raise Rejected(
                            Reason.BAD_FORMAT, f"{path} is {show_value(found)}, no number"
                        )
                    return check(Number(found), path)
                if type(found) is str and written is None:
                    raise Rejected(
                        Reason.BAD_FORMAT,
                        f"{path} is the text {show_value(found)}, and nothing says whether it is "
                        "digits "
                        'or bytes: set decimal.handling.mode=string and declare decimals="text", '
                        "or send schemas",
                    )
            # A double of Avro is no exact number, but the shortest digits are the meant number.
            return check(Number(repr(found)) if type(found) is float else found, path)

        return land_decimal

    def _struct_check(self, fields: tuple[Column, ...], written: WritingSchema | None) -> Check:
        parts = [
            (
                each,
                self.value_check(
                    each.type, None if written is None else written.fields.get(each.name)
                ),
                default_of(each, check_of(each.type)),
            )
            for each in fields
        ]

        def land_struct(found: Any, path: str) -> dict[str, Any]:
            if type(found) is not dict:
                raise _wrong_type(path, found, "", "an object")
            made = {}
            for each, check, default in parts:
                value = found.get(each.name)
                if value is not None:
                    made[each.name] = check(value, f"{path}.{each.name}")
                elif default is not None and each.name not in found:
                    made[each.name] = default
                elif each.nullable:
                    made[each.name] = None
                else:
                    raise Rejected(Reason.MISSING, f"{path}.{each.name} is null or missing")
            return made

        return land_struct


def _plain_check(kind: Type, written: WritingSchema | None) -> Check:
    check = check_of(kind)
    if kind in _FLOATS:
        return _finite_check(check)
    if written is None or written.name not in _DECIMALS:
        return check

    def refuse_decimal(found: Any, path: str) -> Any:
        raise _wrong_type(path, found, written.name, str(kind))

    return refuse_decimal


def _finite_check(check: Check) -> Check:
    def land_finite(found: Any, path: str) -> Any:
        if type(found) is float and math.isnan(found):
            raise Rejected(Reason.OUT_OF_RANGE, f"{path} is NaN, which is not a number")
        return check(found, path)

    return land_finite


def _available_check(check: Check) -> Check:
    def land_available(found: Any, path: str) -> Any:
        if type(found) is str and found in _UNAVAILABLES:
            raise Rejected(
                Reason.MISSING,
                f"{path} is a large value that the source did not send, since it had not changed: "
                "alter its table with REPLICA IDENTITY FULL",
            )
        return check(found, path)

    return land_available


def _array_check(element: Check) -> Check:
    def land_array(found: Any, path: str) -> list[Any]:
        if type(found) is not list:
            raise _wrong_type(path, found, "", "an array")
        return [None if each is None else element(each, f"an element of {path}") for each in found]

    return land_array


def _own_scale(found: Mapping[str, Any], path: str) -> Number:
    scale, value = found.get("scale"), found.get("value")
    if type(scale) is not int or not -1000 <= scale <= 1000 or type(value) not in {str, bytes}:
        raise Rejected(
            Reason.BAD_FORMAT, f"{path} is an object that is not a decimal with its scale"
        )
    return _unscaled_decimal(value, scale, path)


def _unscaled_decimal(found: Any, scale: int, path: str) -> Number:
    """Returns the decimal whose unscaled value is in `found`, as bytes or as base64 text.

    No arithmetic is used, since it could round. Raises Rejected if `found` is not valid.
    """
    try:
        number = found if type(found) is bytes else base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError):
        number = b""
    if not 0 < len(number) <= 64:
        raise Rejected(
            Reason.BAD_FORMAT, f"{path} is {show_value(found)}, which are not bytes of digits"
        )
    whole = int.from_bytes(number, signed=True)
    return Number((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))


def _wrong_type(path: str, found: Any, name: str, wanted: str) -> Rejected:
    what = f"{kind_of(found)} of type {show_value(name)}" if name else kind_of(found)
    return Rejected(Reason.WRONG_TYPE, f"{path} is {what}, not {wanted}")


def _out_of_range(path: str, found: Any, kind: str) -> Rejected:
    return Rejected(Reason.OUT_OF_RANGE, f"{path} is {show_value(found)}, beyond what {kind} holds")
