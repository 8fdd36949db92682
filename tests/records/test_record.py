"""The one definition of a valid record: what it accepts, and the reasons for rejecting the rest."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import Topic
from kappa.declare.values.json_text import DEEPEST
from kappa.declare.values.reason import Reason, Rejected
from kappa.records.record import RecordReader, Tombstone

EVENT = """
    id string not null, t string, n bigint, small smallint, tiny tinyint, i int, flag boolean,
    x double, f float, price decimal(10,2), day date, at timestamp, tags array<string>,
    place struct<lat:double not null,names:array<struct<name:string>>>
"""
READER = RecordReader(Topic("t", event=EVENT))
KEYED = RecordReader(Topic("t", event="id int not null, name string", key="id"))
PAGES = RecordReader(
    Topic("t", kind="compacted", event="page string not null, title string", key="page")
)
NUMBERED = RecordReader(Topic("t", kind="compacted", event="id smallint not null", key="id"))
COLUMNS = [
    *("id", "t", "n", "small", "tiny", "i", "flag", "x"),
    *("f", "price", "day", "at", "tags", "place"),
]


def read(field: str, value: str) -> Any:
    row = READER.read(None, f'{{"id": "a", "{field}": {value}}}'.encode())
    return row[COLUMNS.index(field)]


def rejection(reader: RecordReader, key: bytes | None, value: bytes | None) -> Rejected:
    with pytest.raises(Rejected) as rejected:
        reader.read(key, value)
    return rejected.value


def verdict(reader: RecordReader, key: bytes | None, value: bytes) -> tuple[Any, ...] | Rejected:
    try:
        return reader.read(key, value)
    except Rejected as rejected:
        return rejected


def micros(text: str) -> int:
    since = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1)


PLACE = '{"lat": 1.5, "names": [{"name": "x", "other": [1]}, null]}'
ACCEPTED: list[tuple[str, str, Any]] = [
    ("n", "9223372036854775807", 2**63 - 1),
    ("n", "-9223372036854775808", -(2**63)),
    ("n", "-0", 0),
    ("n", "null", None),
    ("small", "-32768", -32768),
    ("tiny", "127", 127),
    ("flag", "true", True),
    ("x", "1", 1.0),
    ("x", "1e308", 1e308),
    ("x", "-0.0", -0.0),
    ("x", "1e-400", 0.0),
    ("f", "0.1", 0.10000000149011612),
    ("price", "12345678.91", Decimal("12345678.91")),
    ("price", "1.10", Decimal("1.1")),
    ("price", "1.1000", Decimal("1.1")),
    ("price", "5", Decimal(5)),
    ("price", "1e2", Decimal(100)),
    ("price", "-0.00", Decimal(0)),
    ("day", '"2024-02-29"', 19782),
    ("day", '"1969-12-31"', -1),
    ("at", '"2024-12-31T23:59:59.5Z"', micros("2024-12-31T23:59:59.500000+00:00")),
    ("at", '"2024-12-31 23:59:59.123456+05:30"', micros("2024-12-31T23:59:59.123456+05:30")),
    ("at", '"2024-12-31t23:59:59z"', micros("2024-12-31T23:59:59+00:00")),
    ("at", '"0001-01-01T00:00:00Z"', micros("0001-01-01T00:00:00+00:00")),
    ("at", "1700000000123", 1_700_000_000_123_000),
    ("at", "-1", -1000),
    ("tags", '["a", null, "\\ud83d\\ude00"]', ["a", None, "\U0001f600"]),
    ("tags", "[]", []),
    ("place", PLACE, {"lat": 1.5, "names": [{"name": "x"}, None]}),
    ("t", '"' + "x" * 100_000 + '"', "x" * 100_000),
]
REJECTED: dict[tuple[str, Reason], tuple[str, ...]] = {
    ("n", Reason.OUT_OF_RANGE): ("9223372036854775808", "9" * 5000),
    ("n", Reason.WRONG_TYPE): ("1.0", "1e3", '"1"', "true"),
    ("n", Reason.MALFORMED): ("01", "+1", "NaN"),
    ("x", Reason.MALFORMED): ("-Infinity",),
    ("x", Reason.OUT_OF_RANGE): ("1e400", "9" * 400),
    ("x", Reason.WRONG_TYPE): ("false",),
    ("f", Reason.OUT_OF_RANGE): ("1e39",),
    ("small", Reason.OUT_OF_RANGE): ("32768",),
    ("tiny", Reason.OUT_OF_RANGE): ("-129",),
    ("flag", Reason.WRONG_TYPE): ("1", '"true"'),
    ("price", Reason.OUT_OF_RANGE): (
        *("1.105", "100000000", "1e1000000", "1e-1000000", "1e99999999999999999999"),
    ),
    ("price", Reason.WRONG_TYPE): ('"1.10"', "true"),
    ("day", Reason.OUT_OF_RANGE): ('"2023-02-29"',),
    ("day", Reason.BAD_FORMAT): ('"2023-2-9"', '"2023-02-01T00:00:00Z"'),
    ("day", Reason.WRONG_TYPE): ("19782",),
    ("at", Reason.BAD_FORMAT): (
        *('"2024-12-31T23:59:59"', '"2024-12-31T23:59:59.1234567Z"', '"2024-12-31T23:59Z"'),
        *('"20241231T235959Z"', '"2024-12-31T23:59:59+0530"', '"2024-12-31T23:59:59+24:00"'),
        *('"2024-W01-1T00:00:00Z"', '"\u0662\u0660\u0662\u0664-12-31T23:59:59Z"'),
    ),
    ("at", Reason.OUT_OF_RANGE): (
        *('"2016-12-31T23:59:60Z"', '"0000-01-01T00:00:00Z"', '"0001-01-01T00:00:00+05:00"'),
        "253402300800000",
    ),
    ("at", Reason.WRONG_TYPE): ("1700000000.5", "true"),
    ("tags", Reason.WRONG_TYPE): ('"a"', "[1]"),
    ("place", Reason.WRONG_TYPE): ("[]",),
    ("place", Reason.MISSING): ('{"names": []}', '{"lat": null}'),
    ("id2", Reason.LONE_SURROGATE): ('"\\ud83d"', '{"\\ude00": 1}'),
    ("id2", Reason.REPEATED_FIELD): ("[{" + '"a": 1, "a": 1' + "}]", '{"a": 1, "\\u0061": 2}'),
    ("id", Reason.REPEATED_FIELD): ('"b"',),
    ("id2", Reason.TOO_DEEP): ("[" * DEEPEST + "]" * DEEPEST, "[" * 100_000),
}
REJECTED_CASES = [
    (field, value, reason) for (field, reason), values in REJECTED.items() for value in values
]
WHOLE: list[tuple[str, bytes | None, Reason]] = [
    ("null", None, Reason.NULL_VALUE),
    ("nothing", b"", Reason.MALFORMED),
    ("an array", b'[{"id": "a"}]', Reason.NOT_AN_OBJECT),
    ("a text", b'"a"', Reason.NOT_AN_OBJECT),
    ("null in JSON", b"null", Reason.NOT_AN_OBJECT),
    ("two objects", b'{"id": "a"} {"id": "b"}', Reason.MALFORMED),
    ("half an object", b'{"id": "a"', Reason.MALFORMED),
    ("a trailing comma", b'{"id": "a",}', Reason.MALFORMED),
    ("a control character", b'{"id": "a\x00"}', Reason.MALFORMED),
    ("Latin-1", '{"id": "é"}'.encode("latin-1"), Reason.NOT_UTF8),
    ("UTF-16", '{"id": "a"}'.encode("utf-16"), Reason.NOT_UTF8),
    ("UTF-16 that is UTF-8 too", '{"id": "a"}'.encode("utf-16-le"), Reason.MALFORMED),
    ("a surrogate in UTF-8", b'{"id": "\xed\xa0\x80"}', Reason.NOT_UTF8),
    ("a byte order mark", b'\xef\xbb\xbf{"id": "a"}', Reason.BYTE_ORDER_MARK),
    ("no id", b"{}", Reason.MISSING),
    ("a null id", b'{"id": null}', Reason.MISSING),
]


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    ACCEPTED,
    ids=[f"{field}={value[:40]}" for field, value, _ in ACCEPTED],
)
def test_what_a_column_accepts(field: str, value: str, wanted: Any) -> None:
    found = read(field, value)

    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    REJECTED_CASES,
    ids=[f"{field}={value[:40]}" for field, value, _ in REJECTED_CASES],
)
def test_what_a_column_rejects(field: str, value: str, reason: Reason) -> None:
    rejected = rejection(READER, None, f'{{"id": "a", "{field}": {value}}}'.encode())

    assert rejected.reason is reason
    assert 0 < len(rejected.detail) < 300
    rejected.detail.encode()


@pytest.mark.parametrize(
    ("value", "reason"), [case[1:] for case in WHOLE], ids=[case[0] for case in WHOLE]
)
def test_a_record_is_exactly_one_object(value: bytes | None, reason: Reason) -> None:
    assert rejection(READER, None, value).reason is reason


def test_unknown_fields_are_ignored_and_missing_ones_are_null() -> None:
    assert READER.read(b"\xff", b' {"other": {"a": [1, "x"]}, "id": "a"}\n') == ("a", *[None] * 13)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b'{"id": 1}', Reason.NULL_KEY),
        (b"\xff", b'{"id": 1}', Reason.KEY_NOT_UTF8),
        (b"2", b'{"id": 1}', Reason.KEY_MISMATCH),
        (b"01", b'{"id": 1}', Reason.KEY_MISMATCH),
        (b" 1", b'{"id": 1}', Reason.KEY_MISMATCH),
        (b"", b'{"id": 1}', Reason.KEY_MISMATCH),
    ],
)
def test_declared_key_is_a_field_as_text(key: bytes | None, value: bytes, reason: Reason) -> None:
    assert rejection(KEYED, key, value).reason is reason
    assert KEYED.read(b"-7", b'{"id": -7, "name": "x"}') == (-7, "x")


def test_a_null_value_deletes_the_key_of_a_compacted_topic() -> None:
    assert PAGES.read("/ü".encode(), None) == Tombstone("/ü")
    assert NUMBERED.read(b"-12", None) == Tombstone(-12)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, Reason.NULL_KEY),
        (b"x", Reason.BAD_KEY),
        (b"-0", Reason.BAD_KEY),
        (b"+1", Reason.BAD_KEY),
        (b"1_0", Reason.BAD_KEY),
        (b"40000", Reason.OUT_OF_RANGE),
        (b"\xfe", Reason.KEY_NOT_UTF8),
    ],
)
def test_impossible_tombstone_is_rejected(key: bytes | None, reason: Reason) -> None:
    """A tombstone whose key no event could have is rejected."""
    assert rejection(NUMBERED, key, None).reason is reason


def test_depth_is_counted_outside_of_texts() -> None:
    assert read("t", json.dumps("[{" * 500 + '"')) == "[{" * 500 + '"'
    deep = b"[" * (DEEPEST - 1) + b"]" * (DEEPEST - 1)
    assert READER.read(None, b'{"id": "a", "other": ' + deep + b"}") is not None


AFTER = Topic(
    "t",
    event=(
        "page string not null default '/', n bigint default -1, price decimal(12,3) default 0.5, "
        "at timestamp not null, seen date default '1970-01-02'"
    ),
    was={"page": ("url", "uri"), "at": "time"},
)
NEWER = RecordReader(AFTER)
TIME = '"at": 0'


@pytest.mark.parametrize(
    ("event", "page"),
    [
        ("{" + TIME + "}", "/"),
        ('{"page": "a", ' + TIME + "}", "a"),
        ('{"url": "a", ' + TIME + "}", "a"),
        ('{"uri": "a", ' + TIME + "}", "a"),
        ('{"uri": "b", "url": "a", ' + TIME + "}", "a"),
        # A producer that writes both for a while: its own name counts, wherever it stands.
        ('{"url": "b", "page": "a", ' + TIME + "}", "a"),
        ('{"page": "a", "url": 1, ' + TIME + "}", "a"),
    ],
)
def test_missing_field_has_old_names_then_a_default(event: str, page: str) -> None:
    assert NEWER.read(None, event.encode()) == (page, -1, Decimal("0.5"), 0, 1)


@pytest.mark.parametrize(
    "event",
    [
        '{"page": null, ' + TIME + "}",
        '{"url": null, ' + TIME + "}",
        '{"page": null, "url": "a", ' + TIME + "}",
    ],
)
def test_a_default_is_for_what_is_missing_and_not_for_null(event: str) -> None:
    rejected = rejection(NEWER, None, event.encode())

    assert (rejected.reason, rejected.detail) == (Reason.MISSING, "page is null")
    nulls = b'{"at": 0, "n": null, "seen": null}'
    assert NEWER.read(None, nulls) == ("/", None, Decimal("0.5"), 0, None)


def test_what_stood_under_an_old_name_must_be_valid_and_is_named_by_the_new_one() -> None:
    number = rejection(NEWER, None, b'{"url": 1, "at": 0}')
    assert number.detail == "page is the whole number 1, not a text"
    assert rejection(NEWER, None, b'{"time": "2024", "url": "a"}').reason is Reason.BAD_FORMAT
    assert rejection(NEWER, None, b"{}").detail == "at is missing"


def test_a_key_is_compared_with_its_field_under_any_name() -> None:
    event, was = "page string not null, n int", {"page": "url"}
    reader = RecordReader(Topic("t", kind="compacted", event=event, key="page", was=was))

    assert reader.read(b"a", b'{"url": "a"}') == ("a", None)
    assert rejection(reader, b"b", b'{"url": "a"}').reason is Reason.KEY_MISMATCH
    assert reader.read(b"a", None) == Tombstone("a")


WIDENED = [
    ("tinyint", "smallint"),
    ("smallint", "int"),
    ("int", "bigint"),
    ("int", "double"),
    ("float", "double"),
    ("int", "decimal(10,0)"),
    ("bigint", "decimal(19,0)"),
    ("bigint", "decimal(21,2)"),
    ("decimal(10,2)", "decimal(12,3)"),
    ("array<int>", "array<bigint>"),
    ("struct<a:int>", "struct<a:bigint,b:string>"),
]
_NUMBERS = (
    st.integers(-(2**65), 2**65).map(str)
    | st.decimals(-(10**9), 10**9, places=2).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
)


@pytest.mark.parametrize(("old", "new"), WIDENED)
@pytest.mark.law
@examples(40)
@given(number=_NUMBERS)
def test_wider_declaration_reads_the_same_value(old: str, new: str, number: str) -> None:
    nested = {"array": f"[{number}]", "struct": f'{{"a": {number}}}'}
    text = nested.get(old.partition("<")[0], number)
    event = f'{{"x": {text}}}'.encode()
    before, after = (
        verdict(RecordReader(Topic("t", event=f"x {kind}")), None, event) for kind in (old, new)
    )

    if isinstance(before, Rejected):
        return
    assert not isinstance(after, Rejected)
    match before[0], after[0]:
        case dict() as small, dict() as large:
            assert (large["a"], large["b"]) == (small["a"], None)
        case float() as small, float() as large if old == "float":
            # A float was rounded when it was read; a double keeps what was sent.
            assert small == pytest.approx(large, rel=1e-6, abs=1e-37)
        case small, large:
            assert small == large


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("double", "bigint", "1.0"),
        ("bigint", "int", str(2**31)),
        ("string", "int", '"1"'),
        ("int", "string", "1"),
        ("date", "timestamp", '"2024-01-01"'),
    ],
)
def test_what_is_no_widening_is_a_reject_and_never_coerced(old: str, new: str, value: str) -> None:
    event = f'{{"x": {value}}}'.encode()

    before, after = (RecordReader(Topic("t", event=f"x {kind}")) for kind in (old, new))

    assert before.read(None, event)
    reasons = {Reason.WRONG_TYPE, Reason.OUT_OF_RANGE, Reason.BAD_FORMAT}
    assert rejection(after, None, event).reason in reasons


@given(
    st.fixed_dictionaries(
        {"at": st.integers(0, 10**12)},
        optional={
            name: st.none() | st.text("ab", max_size=2) | st.integers(0, 9)
            for name in ("page", "url", "uri", "n", "other")
        },
    )
)
def test_renamed_fields_mean_the_same(event: dict[str, Any]) -> None:
    pages = [event[name] for name in ("page", "url", "uri") if name in event]
    others = {name: event[name] for name in event.keys() - {"page", "url", "uri"}}
    renamed = {**others, **({"page": pages[0]} if pages else {})}
    found, wanted = (verdict(NEWER, None, json.dumps(each).encode()) for each in (event, renamed))

    assert (
        (found.reason, found.detail) == (wanted.reason, wanted.detail)
        if isinstance(found, Rejected) and isinstance(wanted, Rejected)
        else found == wanted
    )


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(COLUMNS), inner, max_size=6)
    ),
    max_leaves=20,
)


@given(
    st.binary()
    | _JSON.map(lambda value: json.dumps(value).encode())
    | _JSON.map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")),
    st.none() | st.binary(),
)
def test_any_bytes_are_a_row_or_a_reject_with_a_sentence(value: bytes, key: bytes | None) -> None:
    for reader in (READER, KEYED, PAGES, NEWER):
        found = verdict(reader, key, value)

        assert isinstance(found, tuple) or found.detail.encode()


@given(
    st.fixed_dictionaries(
        {
            "id": st.text(st.characters(exclude_categories=["Cs"])),
            "n": st.none() | st.integers(-(2**63), 2**63 - 1),
            "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "flag": st.none() | st.booleans(),
            "tags": st.none()
            | st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))),
        }
    ),
    st.booleans(),
)
def test_what_was_written_is_what_is_read(event: dict[str, Any], ascii_only: bool) -> None:
    row = READER.read(None, json.dumps(event, ensure_ascii=ascii_only).encode())

    assert {name: row[COLUMNS.index(name)] for name in event} == event


@given(
    # The zone is drawn apart.
    st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29)),  # noqa: DTZ001
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.sampled_from("Tt "),
)
def test_time_is_an_instant_in_any_zone(local: datetime, minutes: int, between: str) -> None:
    zone = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
    instant = local.replace(tzinfo=UTC) - timedelta(minutes=minutes)
    since = instant - datetime(1970, 1, 1, tzinfo=UTC)

    found = read("at", json.dumps(local.isoformat(between) + zone))
    assert found == since // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("price", "found"),
    [
        (f"0.{'9' * 5_000}", Reason.OUT_OF_RANGE),
        (f"1{'0' * 4_000}.5", Reason.OUT_OF_RANGE),
        (f"1.5{'0' * 100_000}", Decimal("1.5")),
        (f"0.{'0' * 100_000}", Decimal(0)),
        ("99999999.99", Decimal("99999999.99")),
        ("1e8", Reason.OUT_OF_RANGE),
        ("-99999999.990", Decimal("-99999999.99")),
    ],
)
def test_a_decimal_may_have_any_number_of_digits(price: str, found: Any) -> None:
    """A decimal may have any number of digits, although Python parses integers only up to 4,300."""
    reader = RecordReader(Topic("t", event="price decimal(10,2)"))
    got = verdict(reader, None, f'{{"price": {price}}}'.encode())
    assert (got.reason if isinstance(got, Rejected) else got[0]) == found


@given(st.decimals(allow_nan=False, allow_infinity=False), st.sampled_from(["{}", "{:f}", "{:e}"]))
def test_a_decimal_is_exact_or_rejected(number: Decimal, spelling: str) -> None:
    text = spelling.format(number).lower().replace("e+", "e")
    fits = number == round(number, 2) and abs(number) < 10**8 if abs(number) < 10**9 else False
    found = verdict(READER, None, f'{{"id": "a", "price": {text}}}'.encode())

    if isinstance(found, Rejected):
        out_of_range = found.reason is Reason.OUT_OF_RANGE and not fits
        assert found.reason is Reason.MALFORMED or out_of_range
    else:
        assert found[COLUMNS.index("price")] == number
        assert fits


def test_a_float_is_the_nearest_one() -> None:
    assert read("f", "3.4028234663852886e38") == 3.4028234663852886e38
    assert math.copysign(1, read("x", "-0.0")) == -1
