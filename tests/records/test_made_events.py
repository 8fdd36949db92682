"""Events of any format that `kappa produce` makes: a slice decodes exactly the given values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from examples import examples
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st

from kappa import Avro, Csv, Json, Protobuf, Subject, Text, Topic
from kappa.base.errors import UsageError
from kappa.declare.formats.avro_events import written_record
from kappa.declare.formats.avro_schema import parse_avro
from kappa.declare.formats.protobuf_schema import message_named, message_types, why_unwritten
from kappa.declare.formats.registry_schemas import PinnedSchema, RegisteredSchema, pin_path
from kappa.kafka.producer import ProducedRecord
from kappa.records.lines.events import EventWriter
from kappa.records.lines.form import Given
from kappa.records.lines.input_events import csv_events, given_as, parquet_events, placed_lines
from kappa.records.lines.produce import line_records
from kappa.records.record import RecordReader

EVENT = (
    "id string not null, n int, x double, ok boolean, price decimal(20,4), at timestamp, day date"
)


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    """Returns an Avro record; its fields are given as name, type and optional default."""
    keys = ("name", "type", "default")
    made = [dict(zip(keys, field, strict=False)) for field in fields]
    return {"type": "record", "name": name, "fields": made}


def logical(kind: str, logical_type: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


AVRO = record(
    "Order",
    ("id", "string"),
    ("n", ["null", "int"]),
    ("x", ["null", "double"]),
    ("ok", ["null", "boolean"]),
    ("price", ["null", logical("bytes", "decimal", precision=20, scale=4)]),
    ("at", ["null", logical("long", "timestamp-micros")]),
    ("day", ["null", logical("int", "date")]),
)
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Order {
  string id = 1; optional int32 n = 2; optional double x = 3; optional bool ok = 4;
  google.protobuf.Timestamp at = 5;
}
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "n": {"type": ["integer", "null"]},
        "x": {"type": ["number", "null"]},
        "ok": {"type": ["boolean", "null"]},
        "at": {"type": ["string", "null"], "format": "date-time"},
    },
    "required": ["id"],
}
# An event as JSON has it; a topic has the fields that its format can say.
ROWS = st.fixed_dictionaries(
    {
        # A text that no CSV could mean otherwise.
        "id": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9),
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "ok": st.none() | st.booleans(),
        "price": st.none()
        | st.decimals(-(10**15), 10**15, places=4).map(lambda each: each.normalize()),
        "at": st.none()
        | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001
        "day": st.none() | st.dates(),
    }
)


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Topic]:
    """Returns topics of each format, as a project file declares them."""
    project = tmp_path_factory.mktemp("project")
    (project / "kappa.toml").touch()
    (project / "order.avsc").write_text(json.dumps(AVRO))
    (project / "order.proto").write_text(PROTO)
    texts = {"AVRO": json.dumps(AVRO), "PROTOBUF": PROTO, "JSON": json.dumps(SCHEMA)}
    for kind, text in texts.items():
        subject = f"{kind.lower()}-value"
        path = project / pin_path(subject)
        path.parent.mkdir(parents=True, exist_ok=True)
        pin = PinnedSchema(subject, 3, 7, RegisteredSchema(kind, text))
        path.write_bytes(msgspec.json.encode(pin))
    made: dict[str, Topic] = {}
    formats = {
        "json": f"event={EVENT!r}",
        "csv": f"event={EVENT!r}, format=Csv(separator=';')",
        "avro": "format=Avro('order.avsc')",
        "protobuf": "format=Protobuf('order.proto')",
        "framed json": "format=Json(Subject('json-value'))",
        "framed avro": "format=Avro(Subject('avro-value'))",
        "framed protobuf": "format=Protobuf(Subject('protobuf-value'))",
    }
    names = (Avro, Csv, Json, Protobuf, Subject, Topic)
    scope: dict[str, Any] = {each.__name__: each for each in names}
    for name, declared in formats.items():
        source = f"made = Topic('t', key='id', {declared})"
        exec(compile(source, project / "pipelines.py", "exec"), scope)  # a user's file
        made[name] = scope["made"]
    return made


FORMATS = ("json", "csv", "avro", "protobuf", "framed json", "framed avro", "framed protobuf")


def expected(topic: Topic, row: dict[str, Any]) -> tuple[Any, ...]:
    """Returns the row that a slice has for an event, computed with plain JSON of its columns."""
    event = ", ".join(f"{column.name} {column.type}" for column in topic.columns)
    reader = RecordReader(Topic("plain", event=event))
    columns = [column.name for column in topic.columns]
    fields = {name: jsonable(row[name]) for name in columns}
    text = msgspec.json.Encoder(decimal_format="number").encode(fields)
    return reader.read(None, text)


def jsonable(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def only(topic: Topic, row: dict[str, Any]) -> dict[str, Any]:
    return {column.name: row[column.name] for column in topic.columns}


def decoded(topic: Topic, record: ProducedRecord) -> Any:
    return RecordReader(topic).read(record.key, record.value)


@pytest.mark.law
@pytest.mark.parametrize("form", FORMATS)
def test_json_rows_of_csv_and_of_parquet_are_decoded_as_what_they_were(
    topics: dict[str, Topic], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = topics[form]
    folder = tmp_path_factory.mktemp("files")

    @examples(15)
    @given(st.lists(ROWS, min_size=1, max_size=4))
    def equal(rows: list[dict[str, Any]]) -> None:
        wanted = [expected(topic, row) for row in rows]
        encode = msgspec.json.Encoder(decimal_format="number").encode
        given_rows = [
            {name: jsonable(value) for name, value in only(topic, row).items()} for row in rows
        ]
        lines = [encode(row) + b"\n" for row in given_rows]
        table = csv_of([column.name for column in topic.columns], given_rows)
        path = folder / "rows.parquet"
        pq.write_table(arrow_of(topic, rows), path)

        for records in (
            placed_lines(lines, EventWriter(topic).of_json),
            csv_events(topic, table),
            parquet_events(topic, path),
        ):
            assert [decoded(topic, record) for _, record in records] == wanted

    equal()


def csv_of(names: list[str], rows: list[dict[str, Any]]) -> list[bytes]:
    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, bool):
            return str(value).lower()
        doubled = str(value).replace('"', '""')
        return f'"{doubled}"'

    lines = [",".join(names), *(",".join(text(row[name]) for name in names) for row in rows)]
    return "\n".join(lines).encode().splitlines(keepends=True)


ARROW = {
    "id": pa.string(),
    "n": pa.int32(),
    "x": pa.float64(),
    "ok": pa.bool_(),
    "price": pa.decimal128(20, 4),
    "at": pa.timestamp("us", "UTC"),
    "day": pa.date32(),
}


def arrow_of(topic: Topic, rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([(column.name, ARROW[column.name]) for column in topic.columns])
    return pa.Table.from_pylist([only(topic, row) for row in rows], schema=schema)


def test_a_decimal_keeps_all_its_digits(topics: dict[str, Topic]) -> None:
    line = b'{"id": "a", "price": 1234567890123456.7891, "x": 0.5}'
    record = EventWriter(topics["avro"]).of_json(line)
    assert decoded(topics["avro"], record)[4] == Decimal("1234567890123456.7891")


def test_json_is_sent_byte_for_byte(topics: dict[str, Topic]) -> None:
    line = b'{"id":  "a", "more": [1.10]}'
    assert EventWriter(topics["json"]).of_json(line) == ProducedRecord(line, b"a")
    framed = EventWriter(topics["framed json"]).of_json(line)
    assert framed == ProducedRecord(b"\0\0\0\0\x07" + line, b"a")


def test_lists_objects_and_maps_come_from_each_kind_of_file(tmp_path: Path) -> None:
    topic = Topic("t", event="id string, tags array<string>, at struct<x:int,y:decimal(3,1)>")
    columns = ["id,tags,at\n", '"a","[""x"", null]","{""x"": 1, ""y"": 2.5}"\n']
    table = pa.Table.from_pylist(
        [{"id": "a", "tags": ["x", None], "at": {"x": 1, "y": Decimal("2.5")}}]
    )
    pq.write_table(table, tmp_path / "t.parquet")

    wanted = ("a", ["x", None], {"x": 1, "y": Decimal("2.5")})
    for records in (
        csv_events(topic, [each.encode() for each in columns]),
        parquet_events(topic, tmp_path / "t.parquet"),
    ):
        assert [decoded(topic, record) for _, record in records] == [wanted]


def test_a_row_of_csv_may_have_lines_in_quotes_and_is_named_by_its_first() -> None:
    topic = Topic("t", event="id string not null, n int")
    text = b'\xef\xbb\xbfid,n\r\n"a\nb",1\r\n\r\n"c ""x""\n",\r\nd,no\r\n'
    rows = csv_events(topic, text.splitlines(keepends=True), "t.csv")

    assert [decoded(topic, next(rows)[1]) for _ in range(2)] == [("a\nb", 1), ('c "x"\n', None)]
    with pytest.raises(UsageError, match=r"^t\.csv line 7 is not an event: n is the text \"no\""):
        next(rows)


CSV = Topic("t", event="id string not null, n int, at timestamp", key="id")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("id,nn\n1,2\n", "t.csv line 1 has nn, which is not a field of topic t"),
        ("id,id\n", "t.csv line 1 names id twice"),
        ("id,\n", "t.csv line 1 names a column without a name"),
        ("id,n\n1\n", "t.csv line 2 has 1 value, and the header names 2"),
        ("id,n\n1,x\n", 't.csv line 2 is not an event: n is the text "x", not a whole number'),
        ("id,n\n,1\n", "t.csv line 2 is not an event of topic t: id is null"),
        ("n\n1\n", "t.csv line 2 is not an event of topic t: id is missing"),
        ("id,at\n1,today\n", 't.csv line 2 is not an event of topic t: at is "today"'),
        ('id,n\n"1,2\n3,4\n', "t.csv line 2 is not CSV: a quote is opened and never closed"),
        ("id,n\n\xff,2\n", "t.csv line 2 is not UTF-8: byte 0"),
    ],
)
def test_a_row_of_csv_that_is_no_event_is_one_sentence(lines: str, sentence: str) -> None:
    given_lines = lines.encode("latin-1").splitlines(keepends=True)
    with pytest.raises(UsageError) as refused:
        list(csv_events(CSV, given_lines, "t.csv"))
    assert refused.value.message.startswith(sentence)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"id": ["a"], "more": [1]}, "{path} has more, which is not a field of topic t"),
        ({"id": ["a", None]}, "{path} row 2 is not an event of topic t: id is null"),
        ({"id": ["a"], "n": [2.5]}, "{path} row 1 is not an event of topic t: n is the number 2.5"),
        (
            {"id": ["a"], "n": [float("nan")]},
            "{path} row 1 has the n nan, which is not a JSON number",
        ),
        ({"id": [b"a"]}, "{path} row 1 has a id of the type bytes, which events do not have"),
        (
            {"id": ["a"], "at": [datetime(2024, 1, 1)]},  # noqa: DTZ001
            "{path} row 1 has at without a zone: 2024-01-01T00:00:00",
        ),
    ],
)
def test_odd_row_of_parquet_is_told(columns: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    """The refusal is one sentence."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(columns), path)
    with pytest.raises(UsageError) as refused:
        list(parquet_events(CSV, path))
    assert refused.value.message.startswith(sentence.format(path=path))


def test_what_is_no_parquet_of_events_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    with pytest.raises(UsageError, match="cannot be read"):
        list(parquet_events(CSV, path))
    path.write_bytes(b"id,n\n")
    with pytest.raises(UsageError, match="is not a Parquet file"):
        list(parquet_events(CSV, path))
    names = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
    pq.write_table(pa.table({name: [1] for name in names}), path)
    with pytest.raises(UsageError, match="whole records") as refused:
        list(parquet_events(CSV, path))
    assert "kappa topics import" in refused.value.hint


@pytest.mark.parametrize(
    ("form", "line", "sentence"),
    [
        ("avro", b"{", "line 1 is not an event: not one JSON value"),
        ("avro", b'{"id": "a", "colour": 1}', "line 1 has colour, which is not a field of topic t"),
        ("avro", b'{"n": 1}', "line 1 cannot be written: id is missing, and"),
        ("avro", b'{"id": "a", "n": "x"}', "line 1 cannot be written: the event cannot be"),
        ("protobuf", b'{"id": "a", "n": 99999999999}', "line 1 cannot be written: the event"),
        ("framed json", b'{"n": 1}', "line 1 is not an event of topic t: id is missing"),
        ("json", b'{"id": 1}', "line 1 is not an event of topic t: id is the whole number 1"),
        ("csv", b'{"id": "a", "n": [1]}', "line 1 cannot be written: n is a list"),
    ],
)
def test_a_line_of_json_that_is_no_event_is_one_sentence(
    topics: dict[str, Topic], form: str, line: bytes, sentence: str
) -> None:
    with pytest.raises(UsageError) as refused:
        list(placed_lines([line], EventWriter(topics[form]).of_json))
    assert refused.value.message.startswith(sentence)


NESTED = record(
    "Order",
    ("id", "string"),
    ("address", record("Address", ("city", "string"))),
    ("former", {"type": "array", "items": "Address"}, []),
    ("odd", ["null", "Address", "string"], None),
)
NESTED_PROTO = """
syntax = "proto3";
message Address { string city = 1; }
message Order { string id = 1; Address address = 2; repeated Address former = 3; }
"""
KNOWN = {"city": "a"}
UNKNOWN = {"city": "a", "ctiy": "b"}


@pytest.mark.parametrize(
    ("form", "event", "sentence"),
    [
        ("avro", {"address": UNKNOWN}, "address has ctiy, which is not a field of Address"),
        ("avro", {"address": KNOWN, "former": [UNKNOWN]}, "former has ctiy, which is not a field"),
        ("avro", {"address": KNOWN, "odd": UNKNOWN}, "fields than the schema specifies: ctiy"),
        ("avro", {"address": KNOWN, "ctiy": "b"}, "event has ctiy, which is not a field of Order"),
        ("protobuf", {"address": UNKNOWN}, '"Address" has no field named "ctiy"'),
        ("protobuf", {"former": [UNKNOWN]}, '"Address" has no field named "ctiy"'),
    ],
)
def test_a_field_that_is_unknown_deep_inside_is_refused_by_its_name(
    form: str, event: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "order.avsc").write_text(json.dumps(NESTED))
    (tmp_path / "order.proto").write_text(NESTED_PROTO)
    made = {"avro": "Avro('order.avsc')", "protobuf": "Protobuf('order.proto', message='Order')"}
    source = f"made = Topic('t', event='id string', format={made[form]})"
    scope: dict[str, Any] = {"Avro": Avro, "Protobuf": Protobuf, "Topic": Topic}
    exec(compile(source, tmp_path / "pipelines.py", "exec"), scope)  # a user's file
    line = json.dumps({"id": "a", **event}).encode()

    with pytest.raises(UsageError) as refused:
        list(placed_lines([line], EventWriter(scope["made"]).of_json))

    assert refused.value.message.startswith("line 1 cannot be written: ")
    assert "\n" not in refused.value.message
    assert sentence in refused.value.message


CHECKED = record(
    "Payment",
    ("at", logical("long", "timestamp-micros")),
    ("state", {"type": "enum", "name": "State", "symbols": ["PAID", "SENT"]}),
    ("amount", logical("bytes", "decimal", precision=9, scale=2)),
    ("note", ["null", "string"]),
    ("tries", "int", 1),
)
PAID = {"at": "2024-01-01T00:00:00Z", "state": "PAID", "amount": 1.25}


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        ({"state": "PAID", "amount": 1}, "at is missing, and its schema has no default"),
        ({**PAID, "at": None}, "at is null, and its schema has no null"),
        ({**PAID, "state": "GONE"}, 'state is "GONE", which is not one of PAID, SENT'),
        ({**PAID, "amount": 1.255}, "amount has more than 2 digits behind the point"),
    ],
)
def test_field_that_no_avro_takes_is_named(event: dict[str, Any], sentence: str) -> None:
    schema = parse_avro(json.dumps(CHECKED))
    assert written_record(schema, None, PAID)
    with pytest.raises(UsageError) as refused:
        written_record(schema, None, event)
    assert refused.value.message == sentence


@pytest.mark.parametrize(
    ("event", "place"),
    [
        ({"counts": [{"key": "a", "value": 1}]}, "counts"),
        ({"inner": {"counts": [1]}}, "inner.counts"),
    ],
)
def test_a_map_of_protobuf_that_is_no_object_is_named(event: dict[str, Any], place: str) -> None:
    text = (
        'syntax = "proto3"; message Inner { map<string, int32> counts = 1; } '
        "message Payment { map<string, int32> counts = 1; Inner inner = 2; }"
    )
    made = GetMessageClass(message_named(message_types(text), "Payment"))()
    with pytest.raises(ParseError) as refused:
        ParseDict(event, made)
    assert why_unwritten(refused.value) == f"{place} is a map, and is given as no object"


def test_topics_whose_events_cannot_be_made_say_why() -> None:
    text = Topic("t", event="at string", format=Text(r"(?P<at>\S+)"))
    with pytest.raises(UsageError, match="lines of text: Kappa makes no line"):
        EventWriter(text)
    with pytest.raises(UsageError, match="no schema whose id"):
        EventWriter(Topic("t", event="at string", format=Json(framed=True)))


@pytest.mark.parametrize(
    ("form", "csv", "jsonl"),
    [
        ("json", Given.CSV, Given.LINES),
        ("csv", Given.LINES, Given.LINES),
        ("avro", Given.CSV, Given.JSONL),
        (None, Given.LINES, Given.LINES),
    ],
)
def test_the_form_of_a_file_follows_its_name_and_its_topic(
    topics: dict[str, Topic], form: str | None, csv: Given, jsonl: Given
) -> None:
    topic = topics[form] if form else None
    files = ("x.parquet", "x.csv", "x.jsonl", "-")
    assert [given_as(file, topic) for file in files] == [Given.PARQUET, csv, jsonl, jsonl]


def test_a_header_among_the_lines_of_a_csv_topic_is_no_event() -> None:
    topic = Topic("t", event="id string, n string", format="csv", key="id")
    with pytest.raises(UsageError, match="line 1 names the fields of topic t") as refused:
        list(placed_lines([b"id,n\n", b"a,b\n"], line_records(topic)))
    assert "--from csv" in refused.value.hint
    # Later on it may be an event.
    later: Iterator[Any] = placed_lines([b"a,b\n", b"id,n\n"], line_records(topic))
    assert [record.key for _, record in later] == [b"a", b"id"]
