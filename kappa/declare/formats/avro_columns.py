"""Avro's schemas as columns: what each part of an event lands as, or why it cannot. Pure.

Readers get the schema without its logical types, and `Landing.land` makes the row's values, as
values/value.py has them: so a decimal is exact, and a time is microseconds. Source:
https://avro.apache.org/docs/1.12.0/specification/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal as Number
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.declare.formats.landing import EVENT_HINT, Landing, finite, refusing
from kappa.declare.values.columns import Array, Column, Decimal, Scalar, Struct, Type
from kappa.declare.values.reason import Reason, Rejected, shown
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS, Check, check_of

_SCALARS = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "enum": "string",
}
# Logical types that are only another reading of the same value.
_AS_IT_IS = {"uuid"}
_MICROS = {"timestamp-millis": 1000, "timestamp-micros": 1}
_DAY_MICROS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = FIRST_MICROS // _DAY_MICROS, LAST_MICROS // _DAY_MICROS
_MOST_DIGITS = 38
# Python gives no text of a number without end.
_MOST_BITS = 1_024
_KEY, _VALUE = "key", "value"


def landings(schema: Any, named: Mapping[str, Any]) -> dict[str, Landing]:
    """Returns the landing of each field of an event; the error is raised by the field's use.

    `schema` is parsed by fastavro, and `named` has its named types. Raises DeclarationError if it
    is no record.
    """
    if not isinstance(schema, dict) or schema.get("type") not in {"record", "error"}:
        raise DeclarationError(
            f"the schema is {_called(schema)}, and an event is one record",
            hint='its type is "record", and its fields are the columns',
        )
    if not schema["fields"]:
        raise DeclarationError("the schema has no fields, and they are the columns")
    reader = _SchemaLander(named)
    found = {}
    for field in schema["fields"]:
        try:
            found[field["name"]] = reader.landing(field["type"], field["name"], (schema["name"],))
        except DeclarationError as error:
            found[field["name"]] = refusing(error)
    return found


class _SchemaLander:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named

    def landing(self, schema: Any, path: str, within: tuple[str, ...]) -> Landing:
        """Returns the landing of a part; `within` are the records around it."""
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if len(others) != 1:
                raise _refused(path, f"a union of {', '.join(map(_called, schema))}")
            inner = self.landing(others[0], path, within)
            return Landing(inner.type, nullable=len(others) < len(schema), land=inner.land)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        whole = schema if isinstance(schema, dict) else {"type": schema}
        kind = whole["type"]
        if not isinstance(kind, str):
            return self.landing(kind, path, within)
        logical = whole.get("logicalType")
        if logical is not None:
            found = _logical(logical, whole, path)
            if found is not None:
                return found
        if kind in _SCALARS:
            return _plain(Scalar(_SCALARS[kind]))
        match kind:
            case "array":
                element = self.landing(whole["items"], f"an element of {path}", within)
                return Landing(Array(element.type), nullable=False, land=_array(element.land))
            case "map":
                value = self.landing(whole["values"], f"a value of {path}", within)
                entry = Struct(
                    (
                        Column(_KEY, Scalar("string"), nullable=False),
                        Column(_VALUE, value.type, value.nullable),
                    )
                )
                return Landing(Array(entry), nullable=False, land=_map(value.land))
            case "record":
                return self._record(whole, path, within)
            case _:
                raise _refused(path, _called(whole))

    def _record(self, schema: Mapping[str, Any], path: str, within: tuple[str, ...]) -> Landing:
        if schema["name"] in within:
            raise _refused(path, f"{schema['name']}, which contains itself: columns have an end")
        parts = {
            field["name"]: self.landing(
                field["type"], f"{path}.{field['name']}", (*within, schema["name"])
            )
            for field in schema["fields"]
        }
        if not parts:
            raise _refused(path, "a record without fields")
        kind = Struct(tuple(Column(name, part.type, part.nullable) for name, part in parts.items()))
        return Landing(kind, nullable=False, land=_record(parts))


def _logical(logical: str, schema: Mapping[str, Any], path: str) -> Landing | None:
    """Returns the landing of a logical type; None if the specification has no such one."""
    kind = schema["type"]
    match logical:
        case "timestamp-millis" | "timestamp-micros" if kind == "long":
            return _plain(Scalar("timestamp"), _time(_MICROS[logical]))
        case "date" if kind == "int":
            return _plain(Scalar("date"), _day)
        case "decimal" if kind in {"bytes", "fixed"}:
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > _MOST_DIGITS:
                raise _refused(path, f"a decimal of {precision} digits, and {_MOST_DIGITS} fit")
            decimal = Decimal(precision, scale)
            return _plain(decimal, _decimal(decimal))
        case _ if logical.startswith(("timestamp-", "local-timestamp-", "time-", "duration")):
            raise _refused(path, logical)
        case _:
            return None


def _plain(kind: Type, land: Check | None = None) -> Landing:
    return Landing(kind, nullable=False, land=land or _LANDS.get(str(kind)) or check_of(kind))


def _text(found: Any, name: str) -> Any:
    del name
    return found


_LANDS: dict[str, Check] = {
    "double": finite("double"),
    "float": finite("float"),
    "string": _text,
}


def _time(micros: int) -> Check:
    def land(found: int, name: str) -> int:
        moment = found * micros
        if not FIRST_MICROS <= moment <= LAST_MICROS:
            raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {found}, beyond what timestamp holds")
        return moment

    return land


def _day(found: int, name: str) -> int:
    if not _FIRST_DAY <= found <= _LAST_DAY:
        raise Rejected(Reason.OUT_OF_RANGE, f"{name} is {found}, beyond what date holds")
    return found


def _decimal(kind: Decimal) -> Check:
    check = check_of(kind)

    def land(found: bytes, name: str) -> Any:
        # By its digits: arithmetic of decimals would round to the context's precision.
        whole = int.from_bytes(found, signed=True)
        if whole.bit_length() > _MOST_BITS:
            raise Rejected(
                Reason.OUT_OF_RANGE, f"{name} has {len(found)} bytes, beyond what {kind} holds"
            )
        digits = tuple(map(int, str(abs(whole))))
        return check(Number((int(whole < 0), digits, -kind.scale)), name)

    return land


def _array(element: Check) -> Check:
    def land(found: list[Any], name: str) -> list[Any]:
        return [None if each is None else element(each, f"an element of {name}") for each in found]

    return land


def _map(value: Check) -> Check:
    def land(found: dict[str, Any], name: str) -> list[Any]:
        # Maps have no order, and equal ones are to be equal rows.
        return [
            {_KEY: key, _VALUE: None if each is None else value(each, f"{name}.{key}")}
            for key, each in sorted(found.items())
        ]

    return land


def _record(parts: Mapping[str, Landing]) -> Check:
    lands: list[tuple[str, Callable[[Any, str], Any]]] = [
        (name, part.land) for name, part in parts.items()
    ]

    def land(found: dict[str, Any], name: str) -> dict[str, Any]:
        return {
            field: None if (value := found[field]) is None else of_field(value, f"{name}.{field}")
            for field, of_field in lands
        }

    return land


def _refused(path: str, what: str) -> DeclarationError:
    return DeclarationError(
        f"the schema has {what} at {path}, which makes no column",
        hint=f"declare the columns that you need, without it: {EVENT_HINT}",
    )


def _called(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema.get("logicalType") or schema.get("name") or _called(schema.get("type")))
    return "a union" if isinstance(schema, list) else shown(str(schema)).strip('"')
