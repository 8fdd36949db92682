"""Laws of `kappa produce`: a line gives a record, byte for byte, or one error sentence."""

from __future__ import annotations

import json

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import Topic
from kappa.base.errors import UsageError
from kappa.kafka.producer import Acknowledged, ProducedRecord
from kappa.records.lines.envelope import envelope_line, envelope_record
from kappa.records.lines.produce import event_records, produce_lines
from kappa.state.offsets import Offsets

FLIGHTS = Topic("flights", key="id", event="id string not null, at timestamp")
PLANES = Topic("planes", kind="compacted", key="tailnum", event="tailnum string, seats int")
NUMBERED = Topic("numbered", key="n", event="n bigint")


class Sent:
    """A log that acknowledges each record."""

    largest_record = 1_000_000

    def __init__(self) -> None:
        self.records: list[ProducedRecord] = []

    def produce(self, records, topic, *, on_progress) -> Acknowledged:
        assert on_progress is None
        self.records = list(records)
        return Acknowledged(len(self.records), Offsets({topic: {0: len(self.records)}}))


@pytest.mark.parametrize("line", [b'{"id": "a", "x":  1.10}', '{"id": "ÅÄ日本"}'.encode()])
def test_an_event_is_sent_byte_for_byte_under_its_key(line: bytes) -> None:
    assert event_records(FLIGHTS)(line) == ProducedRecord(line, json.loads(line)["id"].encode())


@pytest.mark.parametrize(
    "line",
    [
        *(b"{", b"[]", b"null", b"\xff", b'{"id": null}', b'{"id": true}', b'{"id": {}}'),
        b'{"other": 1}',
    ],
)
def test_an_event_without_a_key_is_sent_without_one(line: bytes) -> None:
    assert event_records(FLIGHTS)(line) == ProducedRecord(line, None)


def test_a_number_is_a_key_as_text() -> None:
    assert event_records(NUMBERED)(b'{"n": -12}').key == b"-12"


def test_an_event_of_an_undeclared_topic_has_no_key() -> None:
    assert event_records(None)(b'{"id": "a"}').key is None


def test_a_compacted_topic_takes_no_event_without_its_key() -> None:
    with pytest.raises(UsageError, match="has no tailnum"):
        event_records(PLANES)(b'{"seats": 3}')


TWICE, AT = '{"a": 1.10, "a": 1e400}', "2013-01-01T01:00:00.5+01:00"
BOTH, NOTE = '"base64": ["value", "key"]', '"note": {"any": "thing"}'
HEADERS = '[["a", "/w=="], ["a", null], ["b", "x"]]'


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ('{"value": null}', ProducedRecord(None)),
        ('{"key": "N1", "value": null}', ProducedRecord(None, b"N1")),
        (f'{{"key": 12, "value": {TWICE}}}', ProducedRecord(TWICE.encode(), b"12")),
        ('{"value": "raw } text"}', ProducedRecord(b"raw } text")),
        ('{"value": ""}', ProducedRecord(b"")),
        (' { "value" : [1, 2] , "key" : null } ', ProducedRecord(b"[1, 2]")),
        ('{"value": true}', ProducedRecord(b"true")),
        (
            '{"value": 1, "timestamp": 1356998400000, "partition": 3}',
            ProducedRecord(b"1", timestamp_ms=1356998400000, partition=3),
        ),
        (f'{{"value": 1, "timestamp": "{AT}"}}', ProducedRecord(b"1", None, 1356998400500)),
        (
            '{"value": 1, "headers": {"a": "ä", "b": null}}',
            ProducedRecord(b"1", headers=(("a", "ä".encode()), ("b", None))),
        ),
        ('{"value": "\\ud83d\\ude00"}', ProducedRecord("😀".encode())),
        (f'{{"value": "/w==", "key": "aw==", {BOTH}, {NOTE}}}', ProducedRecord(b"\xff", b"k")),
        ('{"value": null, "key": null, "base64": ["value", "key"]}', ProducedRecord(None)),
        (
            f'{{"value": 1, "headers": {HEADERS}, "base64": ["headers.a"]}}',
            ProducedRecord(b"1", headers=(("a", b"\xff"), ("a", None), ("b", b"x"))),
        ),
    ],
)
def test_an_envelope_is_the_record_it_says(line: str, record: ProducedRecord) -> None:
    assert envelope_record(line.encode()) == record


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b'{"value": 1} x', "is not JSON"),
        (b'{"value": NaN}', "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is not an object"),
        (b'"x"', "is not an object"),
        (b"{}", "without a value"),
        (b'{"key": "a"}', "without a value"),
        (b'{"value": 1, "keys": 2}', "a field keys"),
        (b'{"value": 1, "value": 2}', "the field value twice"),
        (b'{"value": 1, "key": 1.5}', "the key 1.5"),
        (b'{"value": 1, "key": true}', "the key true"),
        (b'{"value": 1, "timestamp": -1}', "the timestamp -1"),
        (b'{"value": 1, "timestamp": "2013-01-01T00:00:00"}', "the timestamp"),
        (b'{"value": 1, "timestamp": "then"}', "the timestamp"),
        (b'{"value": 1, "headers": ["a"]}', "the headers"),
        (b'{"value": 1, "headers": {"a": 1}}', "the headers"),
        (b'{"value": 1, "partition": -1}', "the partition -1"),
        (b'{"value": 1, "partition": "0"}', "the partition"),
        (b'{"value": "\\ud83d"}', "half a character"),
        (b'{"value": "x", "base64": "value"}', "the base64"),
        (b'{"value": "x", "base64": ["values"]}', "values in base64"),
        (b'{"value": "x", "base64": ["headers.a"]}', "headers.a in base64"),
        (b'{"value": "/w=", "base64": ["value"]}', "a value that is not base 64"),
        (b'{"value": {"a": 1}, "base64": ["value"]}', "a value that is not base 64"),
        (b'{"value": 1, "headers": [["a"]]}', "the headers"),
    ],
)
def test_what_is_no_envelope_is_one_sentence(line: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as told:
        envelope_record(line)
    assert "\n" not in str(told.value)


def test_nothing_after_a_bad_line_is_sent_and_all_before_it_is() -> None:
    log = Sent()
    good, bad = [b'{"value": 1}\n', b"\n", b'{"value": 2}\r\n'], b'{"keys": 3}\n'
    with pytest.raises(UsageError) as told:
        # `Sent` has what matters of a log.
        produce_lines(log, "flights", [*good, bad, b'{"value": 4}\n'], envelope_record)  # type: ignore[arg-type]

    why, place = told.value.message.split("; ")
    assert why == "line 4 has a field keys, which envelopes do not have"
    assert place == "2 records before it were acknowledged, nothing after it was sent"
    assert [record.value for record in log.records] == [b"1", b"2"]
    assert told.value.hint == "did you mean key?"


def test_a_line_that_is_too_large_for_a_record_is_named_with_the_limit() -> None:
    log = Sent()
    log.largest_record = 12
    lines = [b'{"id": "12"}\n', b'{"id": "123"}\n', b"{}"]
    large = "line 2 is a record of 13 bytes, and one has at most 12; 1 record before it was"
    with pytest.raises(UsageError, match=large) as told:
        produce_lines(log, "flights", lines, ProducedRecord)  # type: ignore[arg-type]

    assert "message.max.bytes" in told.value.hint
    assert [record.value for record in log.records] == [b'{"id": "12"}']


def test_every_line_is_acknowledged() -> None:
    log = Sent()
    lines = [b'{"id": "a"}\n', b'{"id": "b"}']
    acknowledged = produce_lines(log, "flights", lines, event_records(FLIGHTS))  # type: ignore[arg-type]
    assert acknowledged.count == 2
    assert [record.key for record in log.records] == [b"a", b"b"]


ANY_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    ANY_JSON.filter(lambda value: not isinstance(value, str)),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
    st.booleans(),
)
def test_any_value_arrives_as_it_stands_there(
    value: object, separators: tuple[str, str], ascii_only: bool
) -> None:
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only)
    comma, colon = separators
    try:
        line = f'{{"key"{colon}"k"{comma}"value"{colon}{text}}}'.encode()
        sent = envelope_record(line).value
    except UnicodeEncodeError:
        return
    assert sent == (None if value is None else text.encode())


_RAW = (
    st.none()
    | st.binary(max_size=8)
    | st.text(max_size=8).map(lambda text: text.encode(errors="replace"))
    | st.sampled_from([b'{"a": 1}', b'{"a":\n1}', b' {"a": 1}', b"{}", b'{"a": NaN}'])
)


@pytest.mark.law
@examples(50)
@given(
    _RAW,
    _RAW,
    st.lists(st.tuples(st.text("ab", max_size=1), _RAW), max_size=4),
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 9),
    st.text(max_size=5),
)
def test_any_record_is_written_as_a_line_that_reads_as_that_record(
    value: bytes | None,
    key: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int | None,
    partition: int | None,
    note: str,
) -> None:
    record = ProducedRecord(value, key, timestamp, tuple(headers), partition)

    line = envelope_line(record, note=note).encode()

    assert b"\n" not in line
    assert envelope_record(line) == record


def test_a_value_that_is_an_object_is_written_as_one_for_tools_that_mend_it() -> None:
    record = ProducedRecord(b'{"n": "1.10"}', b"k", 5, (("trace", b"x"),), 0)
    line = envelope_line(record, note="wrong_type: n is a text")

    assert json.loads(line) == {
        "note": "wrong_type: n is a text",
        "partition": 0,
        "timestamp": 5,
        "headers": {"trace": "x"},
        "key": "k",
        "value": {"n": "1.10"},
    }
