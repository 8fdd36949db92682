"""Whole batches give the rows of the reader of single records; only valid records are sure."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from both_ways import check, ensure_same_in_parts
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import Json, Topic
from kappa.declare.formats.registry_schemas import frame_message
from kappa.records.decode import plain_events
from kappa.records.decode.plain_events import PlainEvents
from kappa.records.decode.raw_records import raw_table

EVENT = (
    "id string not null, t string, n bigint, small smallint, tiny tinyint, i int not null,"
    " flag boolean, x double, f float, day date, at timestamp, price decimal(12,3),"
    " big decimal(38,0), part decimal(3,3)"
)
TOPIC = Topic("t", event=EVENT)
FRAMED = Topic("t", event=EVENT, format=Json(framed=True))
KEYED = Topic("t", event="id int not null, name string", key="id")
NAMED = Topic("t", event="id string, x double", key="id", kind="compacted")


def event(**fields: str) -> bytes:
    """Returns an event of TOPIC with these fields, each given as JSON text."""
    given = {"id": '"a"', "i": "1", **fields}
    return ("{" + ", ".join(f'"{name}": {text}' for name, text in given.items()) + "}").encode()


def each_of(name: str, *texts: str) -> list[bytes]:
    """Returns one event for each of these values of a field."""
    return [event(**{name: text}) for text in texts]


SURE = [
    b'{"id":"a","i":1}',
    b' {"id":"a" , "i":1 } \n',
    event(t='"x"', n="-9223372036854775808", small="32767", tiny="-128", flag="false"),
    event(x="1.5", f="0.1", day='"2024-02-29"', at='"2024-12-31T23:59:59.5Z"'),
    event(x="0", f="0.0", at="1700000000000", n="null", t="null", flag="null", day="null"),
    event(price="-12.5", big="18446744073709551615", part="0.125"),
    event(price="999999999.999", big="5", part="0"),
    event(price="7", part="null"),
    b'{"id":"a","i":1,"unknown":{}}'.replace(b"{}", b"-1.5e+20"),
    event(t="\"é✈ 'quoted' /\""),
    event(unknown="1", more='"x"'),
    event(at='"0001-01-01T00:00:00Z"', day='"9999-12-31"', x="123456789012345678"),
    event(at="-62135596800000"),
    event(x="1e-7", f="1E+2", z="0.10e-03"),
    b'{"id":"a","i":1,"ID":"b","I":2}',
]
LEFT = [
    *(None, b"", b"null", b"[1]", b'"x"', b'{"id":"a","i":1,}', b'{"id":"a","i":1, }\n'),
    *(b'{"id":"a","i":1}{}', b'\xef\xbb\xbf{"id":"a","i":1}', b'{"id":"a\xff","i":1}'),
    *(b'{"id":"a","i":1,"i":1}', b'{"id":"a","i":1,"z":1,"z":2}'),
    *each_of("z", "NaN", "-Infinity", '{"a":1,"a":2}', '[{"a":1,"a":2}]', "[1]", "{}", "1" * 4_001),
    *each_of("z", "1e99999999999999999999999"),
    *each_of("x", "NaN", "-0", "inf", "1e999", "-0.0", '"1"', "true"),
    *each_of("t", '"\\"quoted\\" \\\\ \\n"', "1", "true", '"\\u0000"', '"\\ud83d"'),
    *each_of("price", "1000000000", "0.1234", "1e2", '"1"', "01"),
    *(event(part="1"), event(big="0.5"), event(f="1e39")),
    *each_of("n", "1.0", "1e2", '"1"', "9223372036854775808"),
    *(event(small="32768"), event(tiny="-129"), event(id="1")),
    *each_of("i", "2147483648", "null"),
    *each_of("flag", "1", '"true"'),
    *each_of("day", '"2023-02-29"', '"2024-1-1"', '"0000-01-01"', "19000", '"2024-01-01 "'),
    *each_of("day", '"2024-01-01T00:00:00Z"'),
    *each_of("at", '"2024-12-31"', '"2024-12-31T23:59:59"', '"2024-12-31T23:59:60Z"'),
    *each_of("at", '"2024-12-31T24:00:00Z"', '"2024-02-30T00:00:00Z"', '"0000-12-31T23:59:59Z"'),
    *each_of("at", '"2024-12-31T23:59:59.1234567Z"', '"1700000000000"', "1700000000000.0"),
    *each_of("at", "253402300800000", "9223372036854775807"),
    *(b'{"i":1}', b'{"id":null,"i":1}', b'{"ID":"a","i":1}'),
    *(b'{"id":"a","i":1,"x":1.}', b'{"id":"a","i":1,"x":.5}', b'{"id":"a","i":1,"x":1e}'),
    *(b'{"id":"a","i":1,"x":-}', b'{"id":"a","i":1,"n":-0}', b'{"id":"a","i":1,"t":"x'),
    *(b'{"id":"a","i":1,"t":nul}', b'{"id":"a","i":1,"z":"a\tb"}'),
]


@pytest.fixture(autouse=True)
def learns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_events, "_STRANGE", 1)


@pytest.mark.parametrize("value", SURE)
def test_a_plain_event_is_read(value: bytes) -> None:
    assert check(TOPIC, [(None, value)]) == [True]


@pytest.mark.parametrize("value", LEFT)
def test_what_is_not_plain_is_left_to_the_reader_of_records(value: bytes | None) -> None:
    assert check(TOPIC, [(None, value)]) == [False]
    assert check(FRAMED, [(None, value and frame_message(7, value))]) == [False]


def test_a_framed_event_is_read_whatever_its_id() -> None:
    ids = [7, 2**32 - 1]
    frames = [(frame_message(each, b""), True) for each in ids]
    frames += [(b"\1\0\0\0\7", False), (b"\0\0\0", False), (b"", False)]

    for value in SURE:
        records: list[tuple[bytes | None, bytes | None]]
        records = [(None, frame + value) for frame, _ in frames]
        assert check(FRAMED, records) == [sure for _, sure in frames]


@pytest.mark.parametrize(
    ("topic", "key", "value", "sure"),
    [
        (KEYED, b"7", b'{"id": 7}', True),
        (KEYED, b"07", b'{"id": 7}', False),
        (KEYED, b"8", b'{"id": 7}', False),
        (KEYED, None, b'{"id": 7}', False),
        (KEYED, b"\xff", b'{"id": 7}', False),
        (NAMED, "é".encode(), '{"id": "é", "x": 1.5}'.encode(), True),
        (NAMED, b"a", b'{"id": null, "x": 1}', False),
        (NAMED, b"a", None, False),
        # No valid record: the field that is its key is not there, or spelled otherwise.
        (NAMED, b"a", b'{"x": 1}', False),
        (NAMED, b"a", b'{"ID": "a"}', False),
        (NAMED, None, b'{"x": 1}', False),
        (TOPIC, b"\xff", b'{"id":"a","i":1}', True),
        (
            *(Topic("t", event="`o'clock` string, `a b{}` int"), None),
            *(b'{"o\'clock" : "\'", "a b{}": 1, "{}":"--\'\'"}', True),
        ),
        (
            *(Topic("t", event="`größe` string, `a-b` int", key="größe"), "ü".encode()),
            *('{"größe": "ü", "a-b": 1}'.encode(), True),
        ),
        (Topic("t", event='id int, `a"b` int'), None, b'{"id": 1}', True),
    ],
)
def test_the_key_is_the_events(
    topic: Topic, key: bytes | None, value: bytes | None, sure: bool
) -> None:
    assert check(topic, [(key, value)]) == [sure]


TEXTS = st.text(st.sampled_from('aZ0 "\\/\n\t{}[],:-é✈\U0001f600nNiIfFu'), max_size=8)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.sampled_from(["1" * 4_001, "-" + "7" * 60, "1e99999999999999999999999", "5e-324", "1e400"]),
    st.sampled_from(["0.1000000000000000055511151231257827021181583404541015625", "1E2", "1.10"]),
    st.sampled_from(["0", "-0", "0.0", "-0.0", "127", "128", "-129", "01", "1700000000000"]),
)
TIMES = st.one_of(
    st.datetimes().map(lambda found: json.dumps(found.isoformat() + "Z")),
    st.dates().map(lambda found: json.dumps(found.isoformat())),
    st.from_regex(
        r'"[0-9]{4}-[01][0-9]-[0-3][0-9][T ]'
        r'[0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{1,7})?(Z|\+00:00)?"',
        fullmatch=True,
    ),
)
VALUES = st.one_of(
    NUMBERS,
    TIMES,
    TEXTS.map(json.dumps),
    TEXTS.map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(["null", "true", "false", "{}", "[1]", '{"a":1}', "NaN", "tru"]),
)
FITTING = {
    "id": TEXTS.map(json.dumps),
    "n": st.integers(-(2**63), 2**63 - 1).map(str),
    "i": st.integers(-(2**31), 2**31 - 1).map(str),
    "x": st.floats(allow_nan=False, allow_infinity=False).map(repr),
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    "price": st.decimals(-(10**9), 10**9, places=3).map(str),
    "at": TIMES,
    "day": TIMES,
}
NAMES = st.sampled_from(
    [
        *("id", "t", "n", "small", "tiny", "i", "flag", "x", "f", "day", "at"),
        *("price", "big", "part", "zz", "I", "i "),
    ]
)
SPACE = st.sampled_from(["", "", "", " ", "\n", "\t "])


@st.composite
def batches(draw: st.DrawFn) -> list[bytes]:
    """Draws objects that are almost JSON, in one or two layouts.

    Some values fit, some fields occur twice, some have spaces, and sometimes a byte is wrong.
    """
    names = [draw(st.lists(NAMES, max_size=6)) for _ in range(draw(st.integers(1, 2)))]
    layouts = []
    for each in names:
        once = list(dict.fromkeys(each)) if draw(st.booleans()) else each
        fields = [*once, *(name for name in ("id", "i") if name not in once)]
        layouts.append(
            [
                (f"{draw(SPACE)}{json.dumps(name)}{draw(SPACE)}:{draw(SPACE)}", name, draw(SPACE))
                for name in fields
            ]
        )
    return [draw(written(draw(st.sampled_from(layouts)))) for _ in range(draw(st.integers(1, 8)))]


@st.composite
def written(draw: st.DrawFn, layout: list[tuple[str, str, str]]) -> bytes:
    """Draws one record with this layout."""
    text = ",".join(
        before
        + draw(st.one_of(FITTING.get(name, VALUES), FITTING.get(name, VALUES), VALUES))
        + after
        for before, name, after in layout
    )
    found = bytearray(f"{{{text}}}".encode(errors="surrogatepass"))
    if draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(found)))
        found[place:place] = draw(
            st.sampled_from([b",", b"\xff", b"}", b'"', b"\\", b"0", b"\x00", b"-"])
        )
    return bytes(found)


@pytest.mark.slow
@pytest.mark.law
@examples(25)
@given(batches(), st.frozensets(st.sampled_from([column.name for column in TOPIC.columns])))
def test_a_sure_row_is_the_record_readers(records: list[bytes], left_out: frozenset[str]) -> None:
    keyless = [(None, value) for value in records]

    assert check(TOPIC, keyless, left_out) == check(TOPIC, keyless)


@pytest.mark.law
@examples(50)
@given(batches(), st.data())
def test_framed_events_are_those_of_the_reader_of_records(
    records: list[bytes], data: st.DataObject
) -> None:
    frames = st.sampled_from(
        [frame_message(7, b""), frame_message(2**32 - 1, b""), b"\1\0\0\0\7", b"\0\0", b""]
    )

    check(FRAMED, [(None, data.draw(frames) + value) for value in records])


def test_a_wrong_byte_in_a_batch_of_plain_events_costs_the_records_around_it() -> None:
    """Only records around a wrong byte are read singly; all others are read together."""
    records = [(None, event(n=str(number), t=f'"text {number}"')) for number in range(5_000)]
    assert all(check(TOPIC, records))

    for odd in range(2):
        records[2_500] = (None, b"," + b"a" * odd + "é".encode() * 300)
        assert sum(check(TOPIC, records)) == 4_999

    records[2_500] = (None, b"\xff")
    left = [place for place, sure in enumerate(check(TOPIC, records)) if not sure]
    assert 2_500 in left
    assert len(left) <= 1_000


@pytest.mark.parametrize("topic", [TOPIC, FRAMED], ids=["plain", "framed"])
@pytest.mark.parametrize("wrong", [0.0, 0.05, 0.6, 1.0])
def test_a_large_batch_is_decoded_as_small_ones_are(topic: Topic, wrong: float) -> None:
    draw = random.Random(wrong)
    others = [value for value in LEFT if value is not None]
    frames = [frame_message(7, b""), frame_message(255, b""), b"\0"] if topic is FRAMED else [b""]
    plain = [
        event(
            n=str(number),
            x=repr(draw.random()),
            t=json.dumps(f"text é {number}"),
            day='"2024-02-29"',
            at='"2024-12-31T23:59:59.123Z"',
        )
        for number in range(4_000)
    ]
    raw = raw_table(
        (
            "t",
            number % 2,
            number // 2,
            1_700_000_000_000_000 + 1_000 * number,
            draw.choice([None, b"k", b"\xff"]),
            draw.choice(others) if draw.random() < wrong else draw.choice(frames) + value,
            (),
        )
        for number, value in enumerate(plain)
    )

    ensure_same_in_parts(raw, topic, 400)


@pytest.mark.parametrize(
    "topic",
    [
        Topic("t", event="id string, tags array<string>"),
        Topic("t", event="id string, place struct<a:int>"),
        Topic("t", event="page string default '/'"),
        Topic("t", event="page string", was={"page": "path"}),
        Topic(
            "t", event={"type": "object", "properties": {"x": {"type": "string", "maxLength": 3}}}
        ),
        Topic("t", event="id string, at timestamp", event_time="at", lateness="1 minute"),
        Topic("t", event="id string", identity="id"),
    ],
)
def test_what_is_declared_beyond_plain_events_is_left_to_the_reader_of_records(
    topic: Topic,
) -> None:
    assert PlainEvents.of(topic) is None


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "t": {"type": ["string", "null"]},
        "n": {"type": ["integer", "null"]},
        "i": {"type": "integer"},
        "x": {"type": ["number", "null"]},
        "flag": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
    "required": ["id", "t"],
}
BY_SCHEMA = Topic("t", event=SCHEMA)
CLOSED = Topic("t", event={**SCHEMA, "additionalProperties": False}, format=Json(framed=True))


@pytest.mark.law
@examples(100)
@given(batches(), st.sampled_from(["", '"t": null, ', '"t": "x", ']))
def test_events_by_a_json_schema_are_those_of_the_reader_of_records(
    records: list[bytes], before: str
) -> None:
    values = [value.replace(b"{", f"{{{before}".encode(), 1) for value in records]

    check(BY_SCHEMA, [(None, value) for value in values])
    check(CLOSED, [(None, frame_message(7, value)) for value in values])


@pytest.mark.parametrize(
    ("value", "sure", "closed"),
    [
        (b'{"id":"a","t":null}', True, True),
        (b'{"id":"a","t":"x","n":null,"i":1,"flag":true,"at":"2024-01-01T00:00:00Z"}', True, True),
        # More than the schema has; missing; null; a time as a number.
        (b'{"id":"a","t":null,"more":1}', True, False),
        (b'{"id":"a"}', False, False),
        (b'{"id":"a","t":null,"i":null}', False, False),
        (b'{"id":"a","t":null,"at":1}', False, False),
    ],
)
def test_what_a_json_schema_demands_of_presence_is_demanded(
    value: bytes, *, sure: bool, closed: bool
) -> None:
    assert check(BY_SCHEMA, [(None, value)]) == [sure]
    assert check(CLOSED, [(None, frame_message(7, value))]) == [closed]


def test_it_gives_up_where_hardly_any_record_is_plain() -> None:
    plain = PlainEvents.of(TOPIC)
    assert plain is not None
    wrong, right = (pa.array([value] * 1_000, pa.binary()) for value in (b"{", event()))
    nobody = pa.nulls(1_000, pa.binary())
    for found in (right, wrong):
        assert plain.pays
        plain.read(nobody, found)
    assert not plain.pays
