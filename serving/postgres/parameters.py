"""Converts the values of a client's parameters to SQL. Pure.

A client sends each value in text or binary form, with the number of the value's type, or with 0 if
the client does not know the type. A value without a type becomes a plain text literal. DuckDB, like
Postgres, infers the type of such a literal from its position.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone

from kappa.base.sql import text
from kappa.serving.postgres.messages import PostgresError
from kappa.serving.query.postgres.wire_types import (
    BOOL,
    BYTEA,
    DATE,
    DUCKDB_TYPES,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    OID,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TIMETZ,
    UUID,
    WIRE_TYPES,
    unpack_numeric,
)

_NAMES = {each.oid: each.name for each in WIRE_TYPES}
_ELEMENTS = {each.array: each.oid for each in WIRE_TYPES if each.array}
# The types that are texts; 0 is a type that the client has not said.
_TEXTS = frozenset({0} | {each.oid for each in WIRE_TYPES if each.category in {"S", "X", "Z"}})
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
# A value of an array's text, up to a comma or the end. Nothing that was matched is tried otherwise:
# a text of blanks would take the square of its length.
_ARRAY_VALUE = re.compile(
    r"""\s*+(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"\s*+|(?P<bare>(?:[^,"{}\\]|\\.)*+))(?=,|\Z)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parameter_sql(content: bytes | None, oid: int, *, binary: bool) -> str:
    """Converts a parameter's value to an SQL expression for DuckDB.

    `content` is the value in text or binary form, or None for null. `oid` is the number of the
    value's type. Raises PostgresError if the value does not fit its type, or if Kappa does not know
    the binary form of the type.
    """
    if content is None:
        return "null" if oid in _TEXTS else f"cast(null as {_duckdb_name(oid)})"
    try:
        element = _ELEMENTS.get(oid)
        if element is not None:
            values = _unpacked_array(content) if binary else texts_of_array(content.decode())
            listed = (_value_sql(each, element, binary=binary) for each in values)
            return f"[{', '.join(listed)}]::{_duckdb_name(oid)}"
        return _value_sql(content, oid, binary=binary)
    except (ValueError, struct.error, OverflowError) as error:
        raise PostgresError(
            "22P03" if binary else "22P02",
            f"a parameter is no value of the type with the number {oid}: {error}",
            hint="see the type that the statement's description has for it",
        ) from error


def _value_sql(content: bytes | str | None, oid: int, *, binary: bool) -> str:
    if content is None:
        return "null"
    if isinstance(content, str):
        written = content
    elif binary:
        written = _unpacked(content, oid)
    else:
        written = content.decode()
    if "\0" in written:
        raise ValueError("it has a NUL character")
    if oid in _TEXTS:
        # A text of a declared type is a text whatever stands beside.
        return text(written) if oid in {0, 705} else f"cast({text(written)} as varchar)"
    if oid == BYTEA.oid:
        return _bytes_sql(content if binary and isinstance(content, bytes) else _hex_of(written))
    if oid == NUMERIC.oid:
        return _number_sql(written)
    return f"cast({text(written)} as {_duckdb_name(oid)})"


def _duckdb_name(oid: int) -> str:
    if oid in _ELEMENTS:
        return f"{_duckdb_name(_ELEMENTS[oid])}[]"
    name = _NAMES.get(oid, "varchar")
    return "decimal(38, 9)" if oid == NUMERIC.oid else DUCKDB_TYPES.get(name, name)


def _number_sql(written: str) -> str:
    """Returns the SQL expression of a number that is written as text.

    The expression is a decimal, with as many decimal places as the text has. A number with an
    exponent, or with more than 38 digits, becomes a double.
    """
    whole, _, fraction = written.strip().lstrip("+-").partition(".")
    if not (whole + fraction).isdecimal() or not (whole + fraction).isascii():
        # With an exponent, or not a number.
        return f"cast({text(written)} as double)"
    digits = max(len(whole) + len(fraction), 1)
    if digits > 38:
        return f"cast({text(written)} as double)"
    return f"cast({text(written)} as decimal({digits}, {len(fraction)}))"


def _bytes_sql(content: bytes) -> str:
    return f"unhex({text(content.hex())})"


def _hex_of(written: str) -> bytes:
    if not written.startswith("\\x"):
        raise ValueError(r"bytes are written as \x and hexadecimal digits")
    return bytes.fromhex(written[2:])


def _unpacked(content: bytes, oid: int) -> str:
    """Converts a value from binary form to text.

    `oid` is the number of the value's type. Raises ValueError if Kappa does not know the binary
    form of the type.
    """
    unpack = _UNPACKED.get(oid)
    if unpack is not None:
        return unpack(content)
    if oid == JSONB.oid:
        return content[1:].decode()
    if oid in _TEXTS or oid == JSON.oid:
        return content.decode()
    raise ValueError("its binary form is not known here: send it as text")


def _numbers(form: str) -> Callable[[bytes], str]:
    unpacker = struct.Struct(form)
    return lambda content: repr(unpacker.unpack(content)[0])


def _date_text(content: bytes) -> str:
    (days,) = struct.unpack("!i", content)
    if days in {2**31 - 1, -(2**31)}:
        return "infinity" if days > 0 else "-infinity"
    return (date(2000, 1, 1) + timedelta(days=days)).isoformat()


def _moment_text(content: bytes) -> str:
    (micros,) = struct.unpack("!q", content)
    if micros in {2**63 - 1, -(2**63)}:
        return "infinity" if micros > 0 else "-infinity"
    return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(" ")


def _time_text(content: bytes) -> str:
    (micros,) = struct.unpack("!q", content)
    return (_EPOCH + timedelta(microseconds=micros)).time().isoformat()


def _time_with_zone_text(content: bytes) -> str:
    (west,) = struct.unpack("!i", content[8:])
    zone = timezone(timedelta(seconds=-west))
    return time.fromisoformat(_time_text(content[:8])).replace(tzinfo=zone).isoformat()


def _interval_text(content: bytes) -> str:
    micros, days, months = struct.unpack("!qii", content)
    return f"{months} months {days} days {micros} microseconds"


_UNPACKED: Mapping[int, Callable[[bytes], str]] = {
    BOOL.oid: lambda content: "true" if content != b"\0" else "false",
    BYTEA.oid: lambda _content: "",
    INT2.oid: _numbers("!h"),
    INT4.oid: _numbers("!i"),
    INT8.oid: _numbers("!q"),
    OID.oid: _numbers("!I"),
    FLOAT4.oid: _numbers("!f"),
    FLOAT8.oid: _numbers("!d"),
    DATE.oid: _date_text,
    TIME.oid: _time_text,
    TIMETZ.oid: _time_with_zone_text,
    TIMESTAMP.oid: _moment_text,
    TIMESTAMPTZ.oid: lambda content: f"{_moment_text(content)}+00",
    INTERVAL.oid: _interval_text,
    NUMERIC.oid: unpack_numeric,
    UUID.oid: lambda content: str(uuid.UUID(bytes=content)),
}


def _unpacked_array(content: bytes) -> list[bytes | None]:
    dimensions, _, _ = struct.unpack_from("!iii", content)
    if dimensions == 0:
        return []
    if dimensions != 1:
        raise ValueError("it has several dimensions")
    count, _ = struct.unpack_from("!ii", content, 12)
    place, found = 20, list[bytes | None]()
    for _ in range(count):
        (length,) = struct.unpack_from("!i", content, place)
        place += 4
        if length < 0:
            found.append(None)
            continue
        if place + length > len(content):
            raise ValueError("it ends too soon")
        found.append(content[place : place + length])
        place += length
    return found


def texts_of_array(written: str) -> Sequence[str | None]:
    """Parses the text of an array, such as `{1,NULL,"a b"}`, and returns the values as texts.

    A null is returned as None. Raises PostgresError if the text is not an array of one dimension.
    """
    if not (written.startswith("{") and written.endswith("}")):
        raise PostgresError("22P02", "an array is written as {1,2}")
    found: list[str | None] = []
    place, end = 1, len(written) - 1
    while place < end or (found and place == end):
        value = _ARRAY_VALUE.match(written, place, end)
        if value is None:
            raise PostgresError(
                "22P02", "an array has several dimensions, or a quote of it has no end"
            )
        quoted, bare = value["quoted"], (value["bare"] or "").strip()
        is_null = quoted is None and bare.upper() == "NULL"
        found.append(None if is_null else _ESCAPED.sub(r"\1", bare if quoted is None else quoted))
        place = value.end() + 1
    return found
