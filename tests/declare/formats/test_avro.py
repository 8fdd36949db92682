"""Avro's records: a value becomes a row, damage becomes a reject, with and without framing."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from decoded import read_row
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from kappa import Avro, Subject, Topic
from kappa.base.errors import DeclarationError, KappaError, Unreachable, UsageError
from kappa.declare.formats.avro_schema import parse_avro, read_record
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    RegisteredSchema,
    frame_message,
    open_schemas,
    put_pin,
)
from kappa.declare.values.reason import Rejected
from kappa.records.record import RecordReader

DATE = {"type": "int", "logicalType": "date"}
TIMESTAMPS = [{"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros")]
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
ADDRESS = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": "city", "type": "string"}, {"name": "since", "type": DATE}],
}
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "doc": "prose",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "big", "type": ["null", "long"], "default": None},
        {"name": "x", "type": "double"},
        {"name": "f", "type": ["float", "null"]},
        {"name": "flag", "type": "boolean"},
        {"name": "at", "type": TIMESTAMPS[0]},
        {"name": "seen", "type": ["null", TIMESTAMPS[1]]},
        {"name": "day", "type": DATE},
        {"name": "price", "type": MONEY},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "address", "type": ["null", ADDRESS]},
        {"name": "before", "type": ["null", "State"]},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}
COLUMNS = (
    "id string not null, n int not null, big bigint, x double not null, f float, "
    "flag boolean not null, at timestamp not null, seen timestamp, day date not null, "
    "price decimal(38,2) not null, state string not null, tags array<string> not null, "
    "counts array<struct<key:string not null,value:bigint not null>> not null, "
    "address struct<city:string not null,since:date not null>, before string, "
    "token string not null"
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LONGS = st.integers(-(2**63), 2**63 - 1)
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
DAYS = st.dates()
EVENTS = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "n": st.integers(-(2**31), 2**31 - 1),
        "big": st.none() | LONGS,
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "f": st.none() | st.floats(width=32, allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "at": MOMENTS.map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "seen": st.none() | MOMENTS,
        "day": DAYS,
        "price": st.integers(-(10**38) + 1, 10**38 - 1).map(
            lambda whole: Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -2))
        ),
        "state": st.sampled_from(["NEW", "PAID"]),
        "tags": st.lists(st.none() | TEXTS, max_size=3),
        "counts": st.dictionaries(TEXTS, LONGS, max_size=3),
        "address": st.none() | st.fixed_dictionaries({"city": TEXTS, "since": DAYS}),
        "before": st.none() | st.sampled_from(["NEW", "PAID"]),
        "token": st.uuids().map(str),
    }
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("avro")
    (folder / "kappa.toml").touch()
    return folder


def declared(project: Path, source: str, **names: Any) -> Any:
    """Returns the object that a file of the project declares."""
    file = project / "pipelines.py"
    scope = {"Avro": Avro, "Subject": Subject, "Topic": Topic, **names}
    exec(compile(f"made = {source}", file, "exec"), scope)  # a user's file
    return scope["made"]


def of_file(project: Path, schema: Any, options: str = "", event: str = "") -> Topic:
    return _of_file(project, json.dumps(schema), options, event)


# An example of a property costs no new declaration.
@cache
def _of_file(project: Path, schema: str, options: str, event: str) -> Topic:
    (project / "order.avsc").write_text(schema)
    topic: Topic = declared(project, f"Topic('t'{event}, format=Avro('order.avsc'{options}))")
    return topic


def of_subject(project: Path, schema: Any) -> Topic:
    return _of_subject(project, json.dumps(schema))


@cache
def _of_subject(project: Path, schema: str) -> Topic:
    put_pin(project, PinnedSchema("t-value", 3, 7, RegisteredSchema("AVRO", schema)))
    topic: Topic = declared(project, "Topic('t', format=Avro(Subject('t-value')))")
    return topic


def written(schema: Any, event: Any) -> bytes:
    into = BytesIO()
    schemaless_writer(into, parse_schema(schema), event)
    return into.getvalue()


def row_of(event: dict[str, Any]) -> tuple[Any, ...]:
    def micros(at: datetime | None) -> int | None:
        return at and (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def days(day: date) -> int:
        return day.toordinal() - date(1970, 1, 1).toordinal()

    address = event["address"]
    values = {
        **event,
        "at": micros(event["at"]),
        "seen": micros(event["seen"]),
        "day": days(event["day"]),
        "counts": [{"key": k, "value": v} for k, v in sorted(event["counts"].items())],
        "address": address and {"city": address["city"], "since": days(address["since"])},
    }
    return tuple(values[field["name"]] for field in ORDER["fields"])


def read(topic: Topic, value: bytes) -> tuple[Any, ...] | str:
    return read_row(RecordReader(topic), value)


class Registry:
    """Schemas by id. A client of the real registry is tested in tests/kafka."""

    def __init__(self, schemas: dict[int, Any]) -> None:
        self._schemas = schemas
        self.asked: list[int] = []

    def schema(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        found = self._schemas.get(schema_id)
        return RegisteredSchema("AVRO", None if found is None else json.dumps(found))


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    open_schemas(None)


def test_columns_are_the_fields_of_the_schema(project: Path) -> None:
    assert ", ".join(map(str, of_file(project, ORDER).columns)) == COLUMNS


@given(EVENTS)
def test_a_record_is_the_row_of_its_values(project: Path, event: dict[str, Any]) -> None:
    assert read(of_file(project, ORDER), written(ORDER, event)) == row_of(event)
    assert read(of_subject(project, ORDER), frame_message(7, written(ORDER, event))) == row_of(
        event
    )


@given(EVENTS, st.data())
def test_a_truncated_record_and_one_with_more_bytes_is_a_reject(
    project: Path, event: dict[str, Any], data: st.DataObject
) -> None:
    topic, value = of_file(project, ORDER), written(ORDER, event)
    cut = data.draw(st.integers(0, len(value) - 1))
    more = data.draw(st.binary(min_size=1, max_size=3))

    assert read(topic, value[:cut]) in {"malformed_avro", "not_utf8"}
    assert read(topic, value + more) == "malformed_avro"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "the record ends early"),
        (b"\x08ab", "the record ends early"),
        (b"\x02a\x00\x00\x00", "the record ends early"),
        (b"\xff", "the record ends early"),
        (b"\x7bab", "a length in it is negative"),
        (b"\x02a\x08", "a union or an enum in it has no such branch"),
        (b"\x02a\x00\x08", "a union or an enum in it has no such branch"),
    ],
)
def test_damage_of_a_record_is_named_without_the_words_of_its_library(
    value: bytes, why: str
) -> None:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "price", "type": "double"},
    ]
    schema = parse_avro(json.dumps({"type": "record", "name": "Paid", "fields": fields}))
    with pytest.raises(Rejected) as rejected:
        read_record(value, schema.bare)
    assert rejected.value.detail == f"the value is not a record of its schema: {why}"


def field_of(kind: Any) -> Any:
    fields = [{"name": "id", "type": "string"}, {"name": "odd", "type": kind}]
    return {"type": "record", "name": "A", "fields": fields}


def doubled(levels: int, leaf: list[Any]) -> Any:
    """Returns a record that contains two records, each of which contains two, and so on."""
    kind: Any = {"type": "record", "name": "D0", "fields": leaf}
    for level in range(1, levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"D{level - 1}"}]
        kind = {"type": "record", "name": f"D{level}", "fields": fields}
    return kind


ENDLESS = {"type": "record", "name": "R", "fields": [{"name": "more", "type": "R"}]}


@pytest.mark.parametrize(
    "schema",
    [
        doubled(40, []),
        doubled(40, [{"name": "n", "type": "int"}]),
        field_of({"type": "array", "items": doubled(12, [])}),
        field_of({"type": "array", "items": ENDLESS}),
    ],
)
def test_a_writers_schema_that_takes_for_ever_is_a_reject(project: Path, schema: Any) -> None:
    open_schemas(Registry({8: schema}))
    assert read(of_subject(project, ORDER), frame_message(8, b"\0" * 8)) == "schema_mismatch"


@pytest.mark.parametrize("size", [17, 2_000, 100_000])
def test_a_decimal_of_any_bytes_is_a_reject(project: Path, size: int) -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    fields = [{"name": "price", "type": decimal}]
    schema = {"type": "record", "name": "Paid", "fields": fields}
    plain = {"type": "record", "name": "Paid", "fields": [{"name": "price", "type": "bytes"}]}
    topic = of_file(project, schema)

    assert read(topic, written(plain, {"price": b"\x7f" * size})) == "out_of_range"
    assert read(topic, written(plain, {"price": b"\0" * size})) == (Decimal(0),)


@given(EVENTS, st.data())
def test_any_damage_is_a_reject_or_a_row(
    project: Path, event: dict[str, Any], data: st.DataObject
) -> None:
    topic = of_subject(project, ORDER)
    open_schemas(Registry({}))
    value = bytearray(frame_message(7, written(ORDER, event)))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))

    read(topic, bytes(value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no_schema_id"),
        (b"\x00\x00\x00\x07", "no_schema_id"),
        (b"\x01\x00\x00\x00\x07\x02a", "no_schema_id"),
        (b'{"id": "a"}', "no_schema_id"),
        (b"\x00\x00\x00\x00\x07", "malformed_avro"),
        (b"\x00\x00\x00\x00\x08\x02a", "unknown_schema"),
        (b"\x00\x00\x00\x00\x07\x02\xff", "not_utf8"),
        (b"\x00\x00\x00\x00\x07\x01", "malformed_avro"),
        (b"\x00\x00\x00\x00\x07" + b"\xff" * 9 + b"\x7f", "malformed_avro"),
        (b"\x00\x00\x00\x00\x07\x02a", ("a",)),
    ],
)
def test_framing_that_is_wrong_is_a_reject(project: Path, value: bytes, reason: Any) -> None:
    schema = {"type": "record", "name": "A", "fields": [{"name": "id", "type": "string"}]}
    topic = of_subject(project, schema)
    open_schemas(Registry({}))

    assert read(topic, value) == reason


def test_each_record_is_read_by_the_schema_it_was_written_with(project: Path) -> None:
    def record(*fields: Any) -> Any:
        return {"type": "record", "name": "A", "fields": list(fields)}

    def field(name: str, kind: Any, **more: Any) -> Any:
        return {"name": name, "type": kind, **more}

    newest = record(
        field("name", "string", aliases=["id"]),
        field("n", "double"),
        field("note", ["null", "string"], default=None),
        field("at", {"type": "long", "logicalType": "timestamp-millis"}, default=5),
    )
    topic = of_subject(project, newest)
    micros = field("at", {"type": "long", "logicalType": "timestamp-micros"})
    registry = Registry(
        {
            1: record(field("id", "string"), field("n", "int")),
            2: record(field("n", "long"), field("id", "string"), field("gone", "bytes")),
            3: record(field("name", "string"), field("n", "float"), field("note", "string")),
            4: record(field("name", "string")),
            5: record(field("name", "string"), field("n", "int"), micros),
            6: {"type": "no such type"},
            8: record(field("name", "string"), field("n", "string")),
            9: record(field("name", "string"), field("n", {"type": "array", "items": "null"})),
        }
    )
    open_schemas(registry)
    events = {
        1: {"id": "a", "n": 1},
        2: {"n": 2, "id": "b", "gone": b"x"},
        3: {"name": "c", "n": 0.5, "note": "x"},
    }
    reader = RecordReader(topic)
    schemas = {each: json.loads(registry.schema(each).text or "") for each in events}
    registry.asked.clear()
    found = [
        reader.read(None, frame_message(each, written(schemas[each], event)))
        for each, event in [*events.items()] * 2
    ]

    rows = [("a", 1.0, None, 5000), ("b", 2.0, None, 5000), ("c", 0.5, "x", 5000)]
    assert found == rows * 2
    assert registry.asked == [1, 2, 3]
    for each in (4, 5, 6, 8, 9):
        assert read(topic, frame_message(each, b"\x02a\x02\x02")) == "schema_mismatch"


def test_a_registry_that_is_away_is_no_reject(project: Path) -> None:
    class Away:
        def schema(self, _schema_id: int) -> RegisteredSchema:
            raise Unreachable("the registry is away")

    topic = of_subject(project, ORDER)
    with pytest.raises(KappaError, match="no registry is set"):
        read(topic, frame_message(8, b""))
    open_schemas(Away())
    with pytest.raises(Unreachable):
        read(topic, frame_message(8, b""))


@given(EVENTS)
def test_events_of_a_test_are_written_by_the_schema(project: Path, event: dict[str, Any]) -> None:
    topic = of_subject(project, ORDER)
    text = json.dumps({**event, "price": str(event["price"])}, default=str)

    assert read(topic, topic.format.encode_event(json.loads(text), topic.columns)) == row_of(event)


def test_an_event_that_fits_no_schema_is_refused(project: Path) -> None:
    with pytest.raises(UsageError, match="is missing, and its schema"):
        of_file(project, ORDER).format.encode_event({"id": 1}, ())
    with pytest.raises(UsageError, match="has no id"):
        of_file(project, ORDER, ", framed=True").format.encode_event({"id": 1}, ())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("bytes", "bytes at odd"),
        ("null", "null at odd"),
        ({"type": "fixed", "name": "F", "size": 4}, "F at odd"),
        (["string", "int"], "a union of string, int at odd"),
        ({"type": "array", "items": "bytes"}, "bytes at an element of odd"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp-nanos at odd"),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis at odd"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 39}, "a decimal of 39 digits"),
    ],
)
def test_a_field_that_makes_no_column_is_refused_by_name_and_may_be_left_out(
    project: Path, kind: Any, message: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        of_file(project, field_of(kind))

    assert message in refused.value.message
    assert [
        str(column)
        for column in of_file(project, field_of(kind), event=", event='id string not null'").columns
    ] == ["id string not null"]


@pytest.mark.parametrize(
    ("schema", "event", "message"),
    [
        ({"type": "string"}, ", event='id string'", "id is not a field of the schema"),
        ({"type": "record", "name": "A"}, "", "the schema has no fields"),
        ({"type": "enum", "name": "A"}, "", "the schema is not Avro"),
        (field_of("B"), "", "no type B"),
        (field_of(["null", "A"]), "", "A contains itself"),
        (field_of("int"), ", event='id int'", "id is int, and the schema has string there"),
        (field_of("int"), ", event='ID string'", "ID is not a field of the schema"),
        (field_of("int"), ", event='id string', was={'id': 'key'}", "has an old name"),
        (field_of("int"), ", event=\"id string default ''\"", "has a default"),
        (field_of("int"), ", event={'type': 'object', 'properties': {'id': {'type': 'string'}}}",
         "leave out event"),
    ],
)  # fmt: skip
def test_a_schema_that_declares_no_event_is_refused_with_the_users_line(
    project: Path, schema: Any, event: str, message: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        of_file(project, schema, event=event)

    assert message in str(refused.value)
    assert refused.value.message.startswith(f"{project / 'pipelines.py'}:1: ")


def test_a_subject_that_is_not_pinned_says_how_to_pin_it(project: Path) -> None:
    with pytest.raises(DeclarationError) as refused:
        declared(project, "Avro(Subject('new/subject', version=4))")
    assert "kappa schemas pin new/subject --version 4" in refused.value.hint
    pin = PinnedSchema("new/subject", 3, 9, RegisteredSchema("AVRO", json.dumps(ORDER)))
    put_pin(project, pin)
    with pytest.raises(DeclarationError, match=r"has version 3 .* and version 4 is declared"):
        declared(project, "Avro(Subject('new/subject', version=4))")

    assert declared(project, "Avro(Subject('new/subject', version=3))").framed


def test_prose_of_a_schema_is_no_part_of_the_version(project: Path) -> None:
    first = of_file(project, ORDER)
    prose = of_file(project, {**ORDER, "doc": "other prose"})
    fields = [*ORDER["fields"], {"name": "new", "type": "int"}]
    other = of_file(project, {**ORDER, "fields": fields})

    assert (
        [*first.format.declared_lines()]
        == [*prose.format.declared_lines()]
        != [*other.format.declared_lines()]
    )


def test_a_declaration_is_sent_to_spark_as_it_is(project: Path) -> None:
    import pickle

    topic = of_subject(project, ORDER)
    again = pickle.loads(pickle.dumps(topic))  # our own

    assert again == topic
    assert read(again, frame_message(7, b"")) == "malformed_avro"
