"""Protobuf's messages as columns: what each field lands as, or why it cannot. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.formats.landing import EVENT_HINT, Landing, finite, refusing
from kappa.declare.values.columns import (
    Array,
    Column,
    Decimal,
    Scalar,
    Struct,
    Type,
    refuse_repeated,
)
from kappa.declare.values.reason import Reason, Rejected
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS, Check, check_of

_DECIMAL = Decimal(20, 0)
_BYTES, _ENUM, _GROUP, _MESSAGE = 12, 14, 10, 11
_SCALARS: dict[int, Type] = {
    1: Scalar("double"),
    2: Scalar("float"),
    **dict.fromkeys((3, 16, 18, 7, 13), Scalar("bigint")),
    **dict.fromkeys((4, 6), _DECIMAL),
    **dict.fromkeys((5, 15, 17), Scalar("int")),
    8: Scalar("boolean"),
    9: Scalar("string"),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String")
}
_KEY, _VALUE = "key", "value"


def message_landings(message: Any) -> dict[str, tuple[Landing, Callable[[Any], Any]]]:
    """Returns of each field its landing, and what takes its value out of a message."""
    found = {}
    for field in message.fields:
        try:
            found[field.name] = (_field(field, field.name, (message.full_name,)), _taken(field))
        except DeclarationError as error:
            found[field.name] = (refusing(error), _taken(field))
    if not found:
        raise DeclarationError("the message has no fields, and they are the columns")
    return found


def _taken(field: Any) -> Callable[[Any], Any]:
    """Returns what takes a field's value out of a message: null if it is absent, by presence."""
    name = field.name
    if not field.has_presence or field.has_default_value:
        return lambda message: getattr(message, name)
    return lambda message: getattr(message, name) if message.HasField(name) else None


def _is_map(field: Any) -> bool:
    return bool(
        field.type == _MESSAGE and field.is_repeated and field.message_type.GetOptions().map_entry
    )


def _field(field: Any, path: str, within: tuple[str, ...]) -> Landing:
    nullable = field.has_presence and not field.has_default_value
    if _is_map(field):
        parts = field.message_type.fields_by_name
        key = _value(parts[_KEY], f"a key of {path}", within)
        value = _value(parts[_VALUE], f"a value of {path}", within)
        entry = Struct(
            (
                Column(_KEY, key.type, nullable=False),
                Column(_VALUE, value.type, nullable=value.nullable),
            )
        )
        return Landing(Array(entry), nullable=False, land=_map(key.land, value.land))
    found = _value(field, path, within)
    if field.is_repeated:
        return Landing(Array(found.type), nullable=False, land=_array(found.land))
    return Landing(found.type, nullable=nullable, land=found.land)


def _value(field: Any, path: str, within: tuple[str, ...]) -> Landing:
    kind = field.type
    if kind in _SCALARS:
        of = _SCALARS[kind]
        is_real = str(of) in {"double", "float"}
        return Landing(of, nullable=False, land=finite(str(of)) if is_real else check_of(of))
    if kind == _ENUM:
        return Landing(Scalar("string"), nullable=False, land=_enum(field.enum_type))
    if kind != _MESSAGE:
        raise _refused(path, "bytes" if kind == _BYTES else "a group")
    message = field.message_type
    name = message.full_name
    if name == TIMESTAMP:
        return Landing(Scalar("timestamp"), nullable=False, land=_time)
    if name in WRAPPERS:
        inner = _value(message.fields_by_name[_VALUE], path, within)
        land = inner.land
        return Landing(inner.type, False, lambda found, called: land(found.value, called))  # noqa: FBT003
    if name.startswith("google.protobuf."):
        raise _refused(path, name)
    if name in within:
        raise _refused(path, f"{name}, which contains itself: columns have an end")
    return _message(message, path, (*within, name))


def _message(message: Any, path: str, within: tuple[str, ...]) -> Landing:
    parts = [
        (field.name, _field(field, f"{path}.{field.name}", within), _taken(field))
        for field in message.fields
    ]
    if not parts:
        raise _refused(path, "a message without fields")
    kind = Struct(tuple(Column(name, part.type, part.nullable) for name, part, _ in parts))
    refuse_repeated(kind.fields, path)

    def land(found: Any, name: str) -> dict[str, Any]:
        return {
            field: None if (value := take(found)) is None else part.land(value, f"{name}.{field}")
            for field, part, take in parts
        }

    return Landing(kind, nullable=False, land=land)


def _enum(kind: Any) -> Check:
    names: dict[int, str] = {}
    for value in kind.values:
        # Of names that mean one number, the first is its name.
        names.setdefault(value.number, value.name)

    def land(found: int, name: str) -> str:
        if found not in names:
            raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {found}, which {kind.name} has not")
        return names[found]

    return land


def _time(found: Any, name: str) -> int:
    moment = int(found.seconds * 1_000_000 + found.nanos // 1000)
    if not 0 <= found.nanos < 1_000_000_000 or not FIRST_MICROS <= moment <= LAST_MICROS:
        raise Rejected(
            Reason.OUT_OF_RANGE,
            f"{name} is {found.seconds} s and {found.nanos} ns, beyond what timestamp holds",
        )
    return moment


def _array(element: Check) -> Check:
    return lambda found, name: [element(each, f"an element of {name}") for each in found]


def _map(key: Check, value: Check) -> Check:
    def land(found: Any, name: str) -> list[Any]:
        # Maps have no order, and equal ones are to be equal rows.
        return [
            {_KEY: key(each, f"a key of {name}"), _VALUE: value(found[each], f"{name}.{each}")}
            for each in sorted(found)
        ]

    return land


def _refused(path: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"the schema has {what} at {path}, which makes no column",
        hint=f"declare the columns that you need, without it: {EVENT_HINT}",
    )
