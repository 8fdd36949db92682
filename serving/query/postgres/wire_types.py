"""The Postgres type of each DuckDB type, and the text and binary forms of values.

DuckDB does most of the work: an SQL expression converts a value to Postgres's text form, or to a
number, a text or a list. A Python function, the packer, converts this result to the binary form. A
DuckDB type that Postgres does not have becomes text or JSON. Postgres stores times in microseconds,
so nanoseconds are truncated. Source of the binary forms: PostgreSQL, src/backend/utils/adt
(`..._send`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.declare.values.exact_sql import DuckType, json_sql, text_sql

# Turns a value that is not null into bytes.
Packer = Callable[[Any], bytes]

_EPOCH_DATE = "date '2000-01-01'"
_EPOCH_MICROS = 946_684_800_000_000
# Decimal digits in a digit of base 10,000.
_NUMERIC_DIGITS = 4


@dataclass(frozen=True, slots=True)
class WireType:
    """A Postgres type.

    `oid` is the number of the type. `size` is the number of bytes of a value, or -1 if values have
    different sizes. `array` is the number of the type of its arrays, `category` is Postgres's
    letter for the category, and `spelled` is the name of the type in SQL.
    """

    oid: int
    name: str
    size: int
    array: int
    category: str
    spelled: str


BOOL = WireType(16, "bool", 1, 1000, "B", "boolean")
BYTEA = WireType(17, "bytea", -1, 1001, "U", "bytea")
INT8 = WireType(20, "int8", 8, 1016, "N", "bigint")
INT2 = WireType(21, "int2", 2, 1005, "N", "smallint")
INT4 = WireType(23, "int4", 4, 1007, "N", "integer")
TEXT = WireType(25, "text", -1, 1009, "S", "text")
JSON = WireType(114, "json", -1, 199, "U", "json")
FLOAT4 = WireType(700, "float4", 4, 1021, "N", "real")
FLOAT8 = WireType(701, "float8", 8, 1022, "N", "double precision")
DATE = WireType(1082, "date", 4, 1182, "D", "date")
TIME = WireType(1083, "time", 8, 1183, "D", "time without time zone")
TIMESTAMP = WireType(1114, "timestamp", 8, 1115, "D", "timestamp without time zone")
TIMESTAMPTZ = WireType(1184, "timestamptz", 8, 1185, "D", "timestamp with time zone")
INTERVAL = WireType(1186, "interval", 16, 1187, "T", "interval")
TIMETZ = WireType(1266, "timetz", 12, 1270, "D", "time with time zone")
NUMERIC = WireType(1700, "numeric", -1, 1231, "N", "numeric")
UUID = WireType(2950, "uuid", 16, 2951, "U", "uuid")
OID = WireType(26, "oid", 4, 1028, "N", "oid")
JSONB = WireType(3802, "jsonb", -1, 3807, "U", "jsonb")
WIRE_TYPES = (
    *(BOOL, BYTEA, INT8, INT2, INT4, TEXT, JSON, FLOAT4, FLOAT8, DATE, TIME, TIMESTAMP),
    *(TIMESTAMPTZ, INTERVAL, TIMETZ, NUMERIC, UUID, OID, JSONB),
    # No value is given in these types, but clients look for them or send parameters in them.
    WireType(18, "char", 1, 1002, "Z", '"char"'),
    WireType(19, "name", 64, 1003, "S", "name"),
    WireType(22, "int2vector", -1, 1006, "U", "int2vector"),
    WireType(24, "regproc", 4, 1008, "N", "regproc"),
    WireType(30, "oidvector", -1, 1013, "U", "oidvector"),
    WireType(705, "unknown", -2, 0, "X", "unknown"),
    WireType(1042, "bpchar", -1, 1014, "S", "character"),
    WireType(1043, "varchar", -1, 1015, "S", "character varying"),
    WireType(2205, "regclass", 4, 2210, "N", "regclass"),
    WireType(2206, "regtype", 4, 2211, "N", "regtype"),
    WireType(2249, "record", -1, 2287, "P", "record"),
    WireType(2278, "void", 4, 0, "P", "void"),
)
# Types of Postgres that DuckDB lacks, and the DuckDB type in their place. DuckDB has the other
# names too.
DUCKDB_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("regclass", "regtype", "regproc", "regprocedure", "regnamespace"), "bigint"),
    **dict.fromkeys(("regrole", "xid"), "bigint"),
    **dict.fromkeys(("name", "unknown", "pg_node_tree", "citext", "aclitem"), "varchar"),
    **dict.fromkeys(("oidvector", "int2vector"), "bigint[]"),
    "jsonb": "json",
}

# The Postgres type by the id of a DuckDB type; all others are text, or JSON if they have parts.
_OF_DUCKDB = {
    "boolean": BOOL,
    "blob": BYTEA,
    **dict.fromkeys(("tinyint", "utinyint", "smallint"), INT2),
    **dict.fromkeys(("usmallint", "integer"), INT4),
    **dict.fromkeys(("uinteger", "bigint"), INT8),
    **dict.fromkeys(("ubigint", "hugeint", "uhugeint", "bignum", "decimal"), NUMERIC),
    "float": FLOAT4,
    "double": FLOAT8,
    "date": DATE,
    **dict.fromkeys(("time", "time_ns"), TIME),
    "time with time zone": TIMETZ,
    **dict.fromkeys(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"), TIMESTAMP),
    "timestamp with time zone": TIMESTAMPTZ,
    "interval": INTERVAL,
    "uuid": UUID,
}


@dataclass(frozen=True, slots=True)
class WireColumn:
    """A column of an answer for a Postgres client.

    `oid` is the number of the column's type. `size` is the number of bytes of a value, or
    -1 if values have different sizes. `modifier` is Postgres's type modifier. `sql` is the
    expression for a value, and `pack` is the function that converts the expression's result
    to bytes.
    """

    oid: int
    size: int
    modifier: int
    sql: str
    pack: Packer


def wire_type(kind: DuckType) -> tuple[int, int, int]:
    """Returns the Postgres type for a DuckDB type.

    The result contains the number of the type, the number of bytes of a value (-1 if values have
    different sizes), and the type modifier.
    """
    scalar = _scalar_of(kind)
    if scalar is not None:
        return scalar.oid, scalar.size, _modifier(kind)
    child = _array_child(kind)
    if child is not None:
        return child.array, -1, -1
    return JSON.oid, -1, -1


def oid_of_name(name: str) -> int:
    """Returns the number of the Postgres type for a DuckDB type that is given by name.

    `name` is in lower case, and may end with `[]`.
    """
    element = name.removesuffix("[]")
    found = _OF_DUCKDB.get(element.partition("(")[0], JSON if element == "json" else TEXT)
    return found.oid if element == name else found.array


def wire_column(sql: str, kind: DuckType, column: str, *, binary: bool) -> WireColumn:
    """Returns the SQL expression and the function that encode a column's values for a client.

    `sql` is the expression of the column, and `column` is the column's name in error messages.
    `binary` selects the binary form instead of text.
    """
    oid, size, modifier = wire_type(kind)
    scalar, child = _scalar_of(kind), _array_child(kind)
    if scalar is not None:
        if binary:
            written, pack = _binary_scalar(sql, kind, scalar)
        else:
            written, pack = _text_scalar(sql, kind, scalar), _pack_text
    elif child is not None:
        part = dict(kind.children)["child"]
        # DuckDB transforms no array, only a list.
        listed = sql if str(kind.id) == "list" else f"{sql}::{part}[]"
        if binary:
            inner, pack_inner = _binary_scalar("_v", part, child)
            written = f"list_transform({listed}, lambda _v: {inner})"
            pack = _array_packer(child.oid, pack_inner)
        else:
            written, pack = _text_array(listed, part, child), _pack_text
    else:
        written, pack = f"to_json({json_sql(sql, kind, column)})::varchar", _pack_text
    return WireColumn(oid, size, modifier, written, pack)


def _scalar_of(kind: DuckType) -> WireType | None:
    """Returns the Postgres type for a DuckDB type whose values have no parts.

    Returns None for a list, an array, a struct, a map or a union.
    """
    if str(kind) == "JSON":
        return JSON
    name = str(kind.id)
    if name in {"list", "array", "struct", "map", "union"}:
        return None
    return _OF_DUCKDB.get(name, TEXT)


def _array_child(kind: DuckType) -> WireType | None:
    """Returns the Postgres type of a list's elements.

    Returns None if `kind` is not a list, or if the elements have parts.
    """
    if str(kind.id) not in {"list", "array"}:
        return None
    return _scalar_of(dict(kind.children)["child"])


def _modifier(kind: DuckType) -> int:
    if str(kind.id) != "decimal":
        return -1
    parts = dict(kind.children)
    return (int(parts["precision"]) << 16 | int(parts["scale"])) + 4


def _text_scalar(sql: str, kind: DuckType, scalar: WireType) -> str:
    match scalar.name:
        case "bool":
            return f"case when {sql} then 't' when not {sql} then 'f' end"
        case "float4" | "float8":
            # Postgres reads no other spelling of these three.
            return (
                f"case when isnan({sql}) then 'NaN' when isinf({sql}) then "
                f"case when {sql} > 0 then 'Infinity' else '-Infinity' end else {sql}::varchar end"
            )
        case "numeric" if str(kind.id) == "decimal":
            return text_sql(sql, kind)
        case "bytea":
            return rf"'\x' || lower(hex({sql}))"
        case "date":
            return _before_christ(sql, f"{sql}::varchar", "date '0001-01-01'")
        case "timestamp":
            return _before_christ(
                sql, f"{sql}::timestamp::varchar", "timestamp '0001-01-01 00:00:00'"
            )
        case "timestamptz":
            # A cast of ICU's rounds times that are far away.
            finite = f"make_timestamp(epoch_us({sql}))"
            written = _before_christ(
                finite, f"{finite}::varchar || '+00'", "timestamp '0001-01-01 00:00:00'"
            )
            return f"case when isfinite({sql}) then {written} else {sql}::varchar end"
        case "time":
            return f"{sql}::time::varchar"
        case "interval":
            return f"replace({sql}::varchar, 'month', 'mon')"
        case _:
            return f"{sql}::varchar"


def _before_christ(sql: str, written: str, first: str) -> str:
    return (
        f"case when isfinite({sql}) and {sql} < {first} "
        f"then replace({written}, ' (BC)', '') || ' BC' else {written} end"
    )


def _text_array(sql: str, kind: DuckType, child: WireType) -> str:
    text = _text_scalar("_v", kind, child)
    if child.name not in {"bool", "int2", "int4", "int8", "float4", "float8", "numeric"}:
        text = rf"""'"' || replace(replace({text}, '\', '\\'), '"', '\"') || '"'"""
    return (
        f"case when {sql} is not null then '{{' || array_to_string(list_transform({sql}, "
        f"lambda _v: case when _v is null then 'NULL' else {text} end), ',') || '}}' end"
    )


def _binary_scalar(sql: str, kind: DuckType, scalar: WireType) -> tuple[str, Packer]:
    match scalar.name:
        case "bool":
            return sql, _pack_bool
        case "int2" | "int4" | "int8" | "float4" | "float8":
            return sql, _packer(_FORMATS[scalar.name])
        case "bytea":
            return sql, bytes
        case "numeric":
            return _text_scalar(sql, kind, scalar), pack_numeric
        case "date":
            days = f"date_diff('day', {_EPOCH_DATE}, {sql})"
            return _or_infinity(sql, days, 31, _EPOCH_DATE), _packer("!i")
        case "timestamp" | "timestamptz":
            micros = f"epoch_us({sql}) - {_EPOCH_MICROS}"
            first = "timestamptz '2000-01-01 00:00:00+00'"
            first = first if scalar is TIMESTAMPTZ else "timestamp '2000-01-01 00:00:00'"
            plain = sql if scalar is TIMESTAMPTZ else f"{sql}::timestamp"
            return _or_infinity(plain, micros, 63, first), _packer("!q")
        case "time":
            return f"epoch_us({sql}::time)", _packer("!q")
        case "timetz":
            zone = f"-date_part('timezone', {sql})"
            return f"[epoch_us({sql}::time), {zone}]", _pack_timetz
        case "interval":
            parts = (
                (
                    f"date_part('hour', {sql}) * 3600000000 "
                    f"+ date_part('minute', {sql}) * 60000000 "
                    f"+ date_part('microsecond', {sql})"
                ),
                f"date_part('day', {sql})",
                f"date_part('year', {sql}) * 12 + date_part('month', {sql})",
            )
            return f"case when {sql} is not null then [{', '.join(parts)}] end", _pack_interval
        case "uuid":
            return f"{sql}::varchar", _pack_uuid
        case _:
            return _text_scalar(sql, kind, scalar), _pack_text


_FORMATS = {"int2": "!h", "int4": "!i", "int8": "!q", "float4": "!f", "float8": "!d"}


def _or_infinity(sql: str, finite: str, bits: int, middle: str) -> str:
    most = (1 << bits) - 1
    return (
        f"case when {sql} is null then null when isfinite({sql}) then {finite} "
        f"when {sql} > {middle} then {most} else {-most - 1} end"
    )


def _packer(form: str) -> Packer:
    return struct.Struct(form).pack


def _pack_text(value: Any) -> bytes:
    return str(value).encode(errors="replace")


def _pack_bool(value: Any) -> bytes:
    return b"\1" if value else b"\0"


def _pack_uuid(value: Any) -> bytes:
    return bytes.fromhex(str(value).replace("-", ""))


def _pack_timetz(value: Any) -> bytes:
    return struct.pack("!qi", *map(int, value))


def _pack_interval(value: Any) -> bytes:
    return struct.pack("!qii", *map(int, value))


def pack_numeric(value: Any) -> bytes:
    """Converts a number to the binary form of Postgres's type `numeric`.

    `value` is the number as text. The binary form contains the digits in base 10,000, the weight,
    the sign and the number of decimal places.
    """
    text = str(value)
    sign, text = (0x4000, text[1:]) if text.startswith("-") else (0, text)
    whole, _, fraction = text.partition(".")
    whole = whole.lstrip("0")
    places = len(fraction)
    whole = whole.rjust(-(-len(whole) // _NUMERIC_DIGITS) * _NUMERIC_DIGITS, "0")
    fraction = fraction.ljust(-(-places // _NUMERIC_DIGITS) * _NUMERIC_DIGITS, "0")
    digits = [
        int((whole + fraction)[start : start + _NUMERIC_DIGITS])
        for start in range(0, len(whole + fraction), _NUMERIC_DIGITS)
    ]
    weight = len(whole) // _NUMERIC_DIGITS - 1
    while digits and digits[-1] == 0:
        digits.pop()
    while digits and digits[0] == 0:
        digits.pop(0)
        weight -= 1
    if not digits:
        weight = sign = 0
    return struct.pack(f"!HhHH{len(digits)}H", len(digits), weight, sign, places, *digits)


def unpack_numeric(content: bytes) -> str:
    """Converts a number from the binary form of Postgres's type `numeric` to text."""
    count, weight, sign, places = struct.unpack_from("!HhHH", content)
    if sign & 0xC000 == 0xC000:
        return {0xD000: "Infinity", 0xF000: "-Infinity"}.get(sign, "NaN")
    digits = struct.unpack_from(f"!{count}H", content, 8)
    whole = "".join(
        f"{digits[place] if place < count else 0:04}" for place in range(min(weight + 1, 2000))
    )
    rest = "0000" * min(-weight - 1, 2000) if weight < -1 else ""
    rest += "".join(f"{each:04}" for each in digits[max(weight + 1, 0) :])
    text = (whole.lstrip("0") or "0") + (f".{rest.ljust(places, '0')[:places]}" if places else "")
    return f"-{text}" if sign == 0x4000 else text


def _array_packer(oid: int, pack: Packer) -> Packer:
    def pack_array(values: Sequence[Any]) -> bytes:
        if not values:
            return struct.pack("!iii", 0, 0, oid)
        has_null = int(any(each is None for each in values))
        parts = [struct.pack("!iiiii", 1, has_null, oid, len(values), 1)]
        for each in values:
            content = None if each is None else pack(each)
            parts.append(b"\xff\xff\xff\xff" if content is None else _sized(content))
        return b"".join(parts)

    return pack_array


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content
