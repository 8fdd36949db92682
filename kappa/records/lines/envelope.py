"""An envelope: a whole Kafka record as a line of JSON.

An envelope is `{"key": "N1", "value": {...}, "timestamp": 1356998400000, "headers": {"trace": "x"},
"partition": 0}`; only `value` is required. If the value is an object, array, number or boolean, its
JSON text is sent exactly as it is in the line. For a string, its text is sent, without quotes and
escapes. For null, a tombstone is sent. Bytes that are not UTF-8 are written as a base 64 string,
and `"base64": ["value"]` lists the fields with such strings: `key`, `value`, `headers.NAME`. If two
headers have the same name, the headers are an array of pairs: `[["trace", "x"], ["trace", null]]`.
A `note` is for people and is ignored. The fields `offset`, `event` and `reject` of an exported
record are also ignored.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from kappa.base.errors import UsageError, near_or_all
from kappa.kafka.producer import ProducedRecord

_FIELDS = ("key", "value", "timestamp", "headers", "partition", "base64", "note")
# Further fields of an exported record, which were true where the record came from.
_PASSED_OVER = ("offset", "event", "reject")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SPACE = re.compile(r"[ \t\n\r]*")
EXAMPLE = '{"key": "N1", "value": {"tailnum": "N1"}}'
# Kafka's partition is a signed number of 32 bits, Kafka's time a signed number of 64 bits.
_PARTITIONS, _MILLISECONDS = 2**31, 2**63


def envelope_record(line: bytes) -> ProducedRecord:
    """Parses an envelope, and returns the record that the envelope describes.

    Raises UsageError if the line is not an envelope. The error's message continues a sentence that
    begins with a place like `line 7`.
    """
    fields = _envelope_fields(line)
    if "value" not in fields:
        raise _line_error(
            "is an envelope without a value",
            f'a tombstone says "value": null; an event: {EXAMPLE}',
        )
    key, timestamp, headers, partition, encoded = (
        fields[name][0] if name in fields else None
        for name in ("key", "timestamp", "headers", "partition", "base64")
    )
    raw = _in_base64(encoded)
    found = _header_pairs(headers, raw)
    unknown = sorted(raw - {"key", "value"} - {f"headers.{name}" for name, _ in found})
    if unknown:
        raise _line_error(
            f"has {unknown[0]} in base64, and no such field", "it names key, value and headers.NAME"
        )
    value = (
        _field_bytes(fields["value"][0], "value")
        if "value" in raw
        else _value_bytes(*fields["value"])
    )
    return ProducedRecord(
        value,
        _field_bytes(key, "key") if "key" in raw else _key_bytes(key),
        _timestamp_ms(timestamp),
        found,
        _partition_number(partition),
    )


def _in_base64(named: Any) -> frozenset[str]:
    if named is None:
        return frozenset()
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise _line_error(
            f"has the base64 {json.dumps(named)[:40]}", 'base64 names fields: ["value"]'
        )
    return frozenset(named)


def _field_bytes(found: Any, of: str) -> bytes | None:
    if found is None:
        return None
    try:
        return base64.b64decode(found, validate=True)
    except (ValueError, TypeError) as error:
        raise _line_error(
            f"has a {of} that is not base 64: {error}", "leave it out of base64 to send it as text"
        ) from error


def _envelope_fields(line: bytes) -> dict[str, tuple[Any, str]]:
    """Returns the fields of an envelope by name: the parsed value, and its JSON text in the line.

    The JSON text of a number contains all of its digits. Raises UsageError if the line is not an
    envelope.
    """
    try:
        text = line.decode()
        decoder = json.JSONDecoder(parse_constant=refuse_constant)
        whole = decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"is not JSON: {error}", hint=f"an envelope is one JSON object a line: {EXAMPLE}"
        ) from error
    if not isinstance(whole, dict):
        raise _line_error(
            f"is not an object: {text[:40]}", f"an envelope is one JSON object a line: {EXAMPLE}"
        )
    found: dict[str, tuple[Any, str]] = {}
    at = text.index("{") + 1
    # The text is JSON, so a name, a colon, a value and a comma or brace follow one another.
    while text[at := _after_space(text, at)] != "}":
        name, at = decoder.raw_decode(text, at)
        begin = _after_space(text, _after_space(text, at) + 1)
        value, end = decoder.raw_decode(text, begin)
        if name not in _FIELDS and name not in _PASSED_OVER:
            raise _line_error(
                f"has a field {name}, which envelopes do not have",
                near_or_all(name, _FIELDS),
            )
        if name in found:
            raise _line_error(f"has the field {name} twice")
        found[name] = value, text[begin:end]
        at = _after_space(text, end)
        at += text[at] == ","
    return found


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _value_bytes(value: Any, text: str) -> bytes | None:
    if value is None:
        return None
    return _encoded_text(value if isinstance(value, str) else text, "value")


def _key_bytes(key: Any) -> bytes | None:
    if key is None or isinstance(key, str):
        return None if key is None else _encoded_text(key, "key")
    if not isinstance(key, int) or isinstance(key, bool):
        raise _line_error(
            f"has the key {json.dumps(key)[:40]}", "a key is a string or a whole number"
        )
    return str(key).encode()


def _timestamp_ms(timestamp: Any) -> int | None:
    if timestamp is None:
        return None
    milliseconds = _parse_milliseconds(timestamp) if isinstance(timestamp, str) else timestamp
    if (
        isinstance(milliseconds, int)
        and not isinstance(milliseconds, bool)
        and 0 <= milliseconds < _MILLISECONDS
    ):
        return milliseconds
    raise _line_error(
        f"has the timestamp {json.dumps(timestamp)[:40]}",
        "a timestamp is milliseconds since 1970, or ISO 8601 with a zone: 2013-01-01T05:00:00Z",
    )


def _parse_milliseconds(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else (moment - _EPOCH) // timedelta(milliseconds=1)


def _header_pairs(headers: Any, raw: frozenset[str]) -> tuple[tuple[str, bytes | None], ...]:
    if headers is None:
        return ()
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(
        isinstance(each, list | tuple)
        and len(each) == 2
        and isinstance(each[0], str)
        and isinstance(each[1], str | None)
        for each in pairs
    ):
        raise _line_error(
            f"has the headers {json.dumps(headers)[:40]}",
            'headers are an object of strings: {"trace": "x"}',
        )
    return tuple(
        (
            name,
            None
            if value is None
            else _field_bytes(value, f"header {name}")
            if f"headers.{name}" in raw
            else _encoded_text(value, "headers"),
        )
        for name, value in pairs
    )


def _partition_number(partition: Any) -> int | None:
    if partition is None or (
        isinstance(partition, int)
        and not isinstance(partition, bool)
        and 0 <= partition < _PARTITIONS
    ):
        return partition
    raise _line_error(
        f"has the partition {json.dumps(partition)[:40]}", "a partition is a whole number from 0"
    )


def _encoded_text(text: str, of: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        # JSON can escape half of a surrogate pair, which UTF-8 cannot encode.
        raise _line_error(
            f"has half a character in its {of}", "a surrogate pair has two halves"
        ) from error


def refuse_constant(name: str) -> NoReturn:
    """Raises ValueError for the constants NaN, Infinity and -Infinity, which are not JSON."""
    raise ValueError(f"{name} is not one of its values")


def _line_error(what: str, hint: str = "") -> UsageError:
    return UsageError(what, hint=hint)


def envelope_line(
    record: ProducedRecord, *, note: str = "", beside: Mapping[str, Any] | None = None
) -> str:
    """Returns the envelope of a record, as a line that `envelope_record` parses to an equal record.

    A value that is a JSON object is written as an object. `note` is a text for people. `beside`
    contains further fields, which `envelope_record` ignores.
    """
    raw = [
        name
        for name, value in (("key", record.key), ("value", record.value))
        if value is not None and not _is_text(value)
    ]
    headers = [
        (name, value) for name, value in record.headers if value is not None and not _is_text(value)
    ]
    # Headers of the same name are all written alike.
    encoded = {*raw, *(f"headers.{name}" for name, _ in headers)}
    written = [
        (name, _written_value(value, f"headers.{name}" in encoded))
        for name, value in record.headers
    ]
    fields: dict[str, Any] = {
        **(beside or {}),
        "note": note or None,
        "partition": record.partition,
        "timestamp": record.timestamp_ms,
        "headers": None
        if not written
        else dict(written)
        if len(dict(written)) == len(written)
        else written,
        "base64": sorted(encoded) or None,
        "key": _written_value(record.key, "key" in encoded),
    }
    before = json.dumps(
        {name: value for name, value in fields.items() if value is not None}, ensure_ascii=False
    )
    value = json.dumps(_written_value(record.value, "value" in encoded), ensure_ascii=False)
    if (
        record.value is not None
        and "value" not in encoded
        and _is_object(text := record.value.decode())
    ):
        value = text
    return f'{before[:-1]}{", " if len(before) > 2 else ""}"value": {value}}}'


# `encoded` is positional: each of the three calls looks it up in a set.
def _written_value(value: bytes | None, encoded: bool) -> str | None:
    if value is None:
        return None
    return base64.b64encode(value).decode() if encoded else value.decode()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_object(text: str) -> bool:
    """Returns True if a text is a JSON object that can be put into a line unchanged."""
    # Python splits lines at more characters than Kappa does, and so do users' editors.
    if len(text.splitlines()) != 1 or text != text.strip():
        return False
    try:
        return isinstance(json.JSONDecoder(parse_constant=refuse_constant).decode(text), dict)
    except (ValueError, RecursionError):
        return False
