"""Separated values, and lines with a pattern: a value becomes a row, damage becomes a reject."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from decoded import read_row
from house import HOUSE
from hypothesis import given
from hypothesis import strategies as st

from kappa import Csv, Text, Topic
from kappa.base.errors import DeclarationError
from kappa.declare.formats.format import RecordFormat
from kappa.declare.values.reason import Rejected
from kappa.records.record import RecordReader

EVENT = "id string, n bigint, x double, price decimal(12,2), flag boolean, at timestamp, day date"
NAMES = ("id", "n", "x", "price", "flag", "at", "day")
# Every character but half surrogates, which UTF-8 cannot have.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", '"', '""', ",", ";", "\n", "\r\n", "\r", "a,b", "-", "null"]
)
FINITE = {"allow_nan": False, "allow_infinity": False}
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: f"{at}Z")  # noqa: DTZ001
EVENTS = st.fixed_dictionaries(
    {
        "id": st.none() | TEXTS,
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "x": st.none() | st.floats(**FINITE),
        "price": st.none() | st.decimals(-(10**9), 10**9, places=2).map(str),
        "flag": st.none() | st.booleans(),
        "at": st.none() | TIMES | st.integers(-(10**12), 10**12),
        "day": st.none() | st.dates().map(str),
    }
)


def read(
    value: bytes, form: str | RecordFormat, event: str = EVENT, **more: Any
) -> tuple[Any, ...] | str:
    """Returns the row of a record, or the reason for its rejection."""
    return read_row(RecordReader(Topic("t", event=event, format=form, **more)), value)


def as_json(event: Mapping[str, Any]) -> bytes:
    """Returns the event as JSON, with the digits of its decimal."""
    text = json.dumps({name: value for name, value in event.items() if name != "price"})
    return f'{text[:-1]}, "price": {event["price"] or "null"}}}'.encode()


@given(EVENTS, st.sampled_from(",;\t|'*"))
def test_a_csv_event_is_the_row_of_the_same_event_as_json(
    event: dict[str, Any], separator: str
) -> None:
    form = Csv(separator=separator)
    line = form.encode_event(event, Topic("t", event=EVENT).columns)

    assert read(line, form) == read(as_json(event), "json")


@given(EVENTS, st.data())
def test_a_damaged_csv_line_is_a_reject_or_a_row(
    event: dict[str, Any], data: st.DataObject
) -> None:
    line = bytearray(Csv().encode_event(event, Topic("t", event=EVENT).columns))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line)))
        line[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))

    read(bytes(line), "csv")


@given(EVENTS, st.data())
def test_a_csv_line_that_lacks_a_value_is_a_reject(
    event: dict[str, Any], data: st.DataObject
) -> None:
    event["id"] = event["day"] = None
    line = Csv().encode_event(event, Topic("t", event=EVENT).columns)
    cut = data.draw(st.integers(0, len(line) - 1))

    assert isinstance(read(line[:cut], "csv"), str)


@pytest.mark.parametrize(
    ("line", "row"),
    [
        (b"a;9;2.50;USD", ("a", Decimal("2.5"), "USD")),
        (b"a;9;2.50;USD\r\n", ("a", Decimal("2.5"), "USD")),
        (b"a;9;2.50", ("a", Decimal("2.5"), "EUR")),
        (b'"a;""b""";9;;USD', ('a;"b"', None, "USD")),
        (b'"a\nb";9;1;', ("a\nb", Decimal(1), None)),
        (b'"";9;1;x', ("", Decimal(1), "x")),
        (b";9;1;x", "missing_field"),
        (b"a;9;1,5;x", "wrong_type"),
        (b"a;9;1.555;x", "out_of_range"),
        (b"a;9", "malformed_csv"),
        (b"a;9;1;x;y", "malformed_csv"),
        (b"a;9;1;x\nb;9;1;x", "malformed_csv"),
        (b"", "malformed_csv"),
        (b'"a;9;1;x', "malformed_csv"),
        (b'a"b;9;1;x', "malformed_csv"),
        (b"a\rb;9;1;x", "malformed_csv"),
        (b"\xff;9;1;x", "not_utf8"),
        ("\ufeffa;9;1;x".encode(), "byte_order_mark"),
    ],
)
def test_a_csv_line_is_read_by_its_fields(line: bytes, row: tuple[Any, ...] | str) -> None:
    form = Csv(fields=["name", "till", "amount", "currency"], separator=";")
    event = "id string not null, amount decimal(10,2), currency string default 'EUR'"

    assert read(line, form, event, was={"id": "name"}) == row


LINE = '{host} - {user} [{at}] "GET /a%20b?c=1 HTTP/1.1" 200 {size} "{referer}" "Mozilla (\\"x\\")"'
HIT = "host string not null, user string, at timestamp, method string, path string, status int, bytes bigint, referer string, agent string, request string"  # noqa: E501  # one line to read


@given(
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001  # the zone is beside it
    st.integers(-14 * 60, 14 * 60),
    st.none() | st.integers(0, 2**40),
    st.none() | st.sampled_from(["ann", "ann lee", "Ä"]),
)
def test_a_line_of_a_web_server_is_a_row(
    local: datetime, minutes: int, size: int | None, user: str | None
) -> None:
    local = local.replace(microsecond=0)
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{abs(minutes) % 60:02d}"
    at = f"{local.day:02d}/{months[local.month - 1]}/{local.year:04d}:{local:%H:%M:%S} {zone}"
    line = LINE.format(host="::1", user=user or "-", at=at, size=size or "-", referer="-")
    instant = local.replace(tzinfo=UTC) - timedelta(minutes=minutes)

    micros = (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    request = ("GET", "/a%20b?c=1", 200, size or None, None, r"Mozilla (\"x\")")
    assert read(line.encode(), "access-log", HIT) == (
        *("::1", user, micros, *request, "GET /a%20b?c=1 HTTP/1.1"),
    )


@given(st.data())
def test_a_damaged_line_of_a_web_server_is_a_reject_or_a_row(data: st.DataObject) -> None:
    at = "10/Oct/2000:13:55:36 +0000"
    line = bytearray(LINE.format(host="h", user="-", at=at, size=7, referer="-").encode())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(line)))
        line[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))

    found = read(bytes(line), "access-log", HIT)

    assert found in {"no_match", "not_utf8", "bad_format", "out_of_range"} or len(found) == 10


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (rb'h - - [10/Oct/2000:13:55:36 +0000] "\x16\x03" 400 0', (None, r"\x16\x03", 400)),
        (b'h - - [10/Oct/2000:13:55:36 +0000] "-" 408 -', (None, None, 408)),
        (b'h - - [10/Oct/2000:13:55:36 +0000] "" 400 0\n', (None, "", 400)),
        (b'h - - [10/Oct/2000:13:55:36 +0000] "GET /old" 200 7', ("/old", "GET /old", 200)),
        (b'h - - [31/Feb/2000:13:55:36 +0000] "GET /" 200 7', "out_of_range"),
        (b'h - - [10/Okt/2000:13:55:36 +0000] "GET /" 200 7', "bad_format"),
        (b'h - - [10/Oct/2000:13:55:36] "GET /" 200 7', "bad_format"),
        (b'h - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.0" 200', "no_match"),
        (b'h - - [10/Oct/2000:13:55:36 +0000] "GET / HTTP/1.0', "no_match"),
        (b'h - - [10/Oct/2000:13:55:36 +0000] "GET /" 200 7\nx', "no_match"),
        (b"", "no_match"),
        (b"\xff", "not_utf8"),
    ],
)
def test_odd_lines_of_a_web_server_are_read_or_rejected(line: bytes, found: Any) -> None:
    row = read(line, "access-log", HIT)

    assert (row if isinstance(row, str) else (row[4], row[9], row[5])) == found


W3C = """\
#Software: Microsoft Internet Information Services 10.0
#Version: 1.0
#Date: 2026-01-31 14:05:07
#Fields: date time c-ip cs-username cs-method cs-uri-stem cs-uri-query sc-status time-taken
2026-01-31 14:05:07 203.0.113.9 - GET /jobs q=1&at=Turin 200 31
2026-01-31 14:05:08 2001:db8::7 SHOP\\ann POST /cart/7 - 503 1204
"""


def test_the_page_shows_how_a_w3c_log_is_read() -> None:
    page = (HOUSE / "docs" / "howto" / "formats.md").read_text(encoding="utf-8")
    (shown,) = re.findall(
        r"```python\n(from kappa import Text, Topic\n\n# date.*?)```", page, re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(compile(shown, "formats.md", "exec"), names)
    reader, rows, rejects = RecordReader(names["REQUESTS"]), [], []
    for line in W3C.splitlines():
        try:
            rows.append(reader.read(None, line.encode()))
        except Rejected as rejected:
            rejects.append((line[0], rejected.reason))

    begin = int(datetime(2026, 1, 31, 14, 5, 7, tzinfo=UTC).timestamp()) * 1_000_000
    assert rows == [
        (begin, "203.0.113.9", None, "GET", "/jobs", "q=1&at=Turin", 200, 31),
        (begin + 1_000_000, "2001:db8::7", "SHOP\\ann", "POST", "/cart/7", None, 503, 1204),
    ]
    assert rejects == [("#", "no_match")] * 4


def test_a_pattern_gives_fields_by_its_groups_and_what_takes_no_part_is_missing() -> None:
    form = Text(
        r"(?P<at>\S+ \S+) (?:\[(?P<level>[A-Z]+|-)\] )?(?P<n>\d+)",
        times={"at": "%Y-%m-%d %H:%M:%S,%f"},
        null="-",
    )
    event = "at timestamp not null, level string default 'INFO', n smallint"

    assert read(b"1970-01-01 00:00:01,5 [WARN] 7", form, event) == (1_500_000, "WARN", 7)
    assert read(b"1970-01-01 00:00:01,5 7", form, event) == (1_500_000, "INFO", 7)
    assert read(b"1970-01-01 00:00:01,5 [-] 7", form, event) == (1_500_000, None, 7)
    assert read(b"1970-01-01 00:00:01,5 99999", form, event) == "out_of_range"
    # Classes are ASCII's: what a program wrote as digits, and nothing that only looks so.
    assert read("1970-01-01 00:00:01,5 ٣".encode(), form, event) == "no_match"


def formatted(form: Any, event: Any = "a int") -> Any:
    return lambda: Topic("t", event=event, format=form)


@pytest.mark.parametrize(
    ("make", "message", "hint"),
    [
        (lambda: Csv(separator=";;"), "separator ';;'", "one character"),
        (lambda: Csv(separator='"'), "separator '\"'", "one character"),
        (lambda: Csv(fields=["a", "a"]), "the field a twice", "each value once"),
        (lambda: Csv(fields="ab"), "'ab' for fields", "each value once"),
        (lambda: Text("("), "not a regular expression", ""),
        (lambda: Text("a+"), "without a named group", "(?P<level>"),
        (lambda: Text("(?P<a>.)", times={"a": "%H"}), "names no day", "%Y"),
        (lambda: Text("(?P<a>.)", times={"a": "%Y%m%d%Q"}), "%Q", "%Y"),
        (lambda: Text("(?P<a>.)", null=3), "an int for null", 'null="-"'),  # type: ignore[arg-type]  # wrong
        (formatted("xml"), "'xml', which is not", "'json', 'csv'"),
        (formatted("csv", "a array<int>"), "array<int>", "without parts"),
        (formatted(Csv(fields=["a"]), "a int, b int"), "b is not a field of", "its fields are a"),
        (formatted(Text("(?P<b>.)")), "a is not a field of format text", "its fields are b"),
        (
            formatted(Text("(?P<a>.)", times={"a": "%Y%m%d"})),
            "times names a, which is not a column of type timestamp",
            "as a timestamp",
        ),
        (
            formatted("csv", {"type": "object", "properties": {"a": {"type": "string"}}}),
            "a JSON Schema is about JSON's values",
            "by DDL",
        ),
    ],
)
def test_a_format_that_cannot_be_meant_is_refused_with_its_line(
    make: Any, message: str, hint: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        make()

    assert message in refused.value.message
    assert hint in refused.value.hint
    assert refused.value.message.startswith(f"{__file__}:")
