"""Protobuf's messages: a value becomes a row, damage becomes a reject, with and without framing."""

from __future__ import annotations

import base64
import math
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from decoded import read_row
from google.protobuf import message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from kappa import Protobuf, Subject, Topic
from kappa.base.errors import DeclarationError, KappaError, UsageError
from kappa.declare.formats.protobuf_schema import message_named, message_types, read_proto
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    RegisteredSchema,
    frame_message,
    open_schemas,
    put_pin,
)
from kappa.records.record import RecordReader

ORDER = """
syntax = "proto3";
package shop; // of orders
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
option java_package = "a.b; message {";

message Other { string id = 1; message Deep { int32 n = 1; } }
/* An order:
   message Order { */
message Order {
  reserved 100, 110 to 120;
  enum State { option allow_alias = true; NEW = 0; PAID = 1; SETTLED = 1; GONE = -1; }
  message Address { string city = 1; google.protobuf.Timestamp since = 2; repeated State was = 3; }
  string id = 1;
  optional int32 n = 2 [deprecated = true];
  sint64 big = 3;
  uint64 huge = 4;
  double x = 5;
  float f = 6;
  bool flag = 7;
  google.protobuf.Timestamp at = 8;
  State state = 9;
  repeated string tags = 10;
  map<string, int64> counts = 11;
  Address address = 12;
  oneof pay { string card = 13; Address sent_to = 14; }
  google.protobuf.StringValue note = 15;
  map<int32, Address> places = 16;
  fixed32 small = 17;
}
"""
COLUMNS = (
    "id string not null, n int, big bigint not null, huge decimal(20,0) not null, "
    "x double not null, f float not null, flag boolean not null, at timestamp, "
    "state string not null, tags array<string> not null, "
    "counts array<struct<key:string not null,value:bigint not null>> not null, "
    "address struct<city:string not null,since:timestamp,was:array<string> not null>, "
    "card string, "
    "sent_to struct<city:string not null,since:timestamp,was:array<string> not null>, "
    "note string, places array<struct<key:int not null,value:struct<city:string not null,"
    "since:timestamp,was:array<string> not null> not null>> not null, small bigint not null"
)
MESSAGE = message_factory.GetMessageClass(message_named(message_types(ORDER), "shop.Order"))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
# Microseconds from the year 1 to 9999.
MOMENTS = st.integers(-62135596800000000, 253402300799999999)
ADDRESSES = st.fixed_dictionaries(
    {"city": TEXTS, "since": st.none() | MOMENTS, "was": st.lists(st.sampled_from(["NEW", "GONE"]))}
)
EVENTS = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(-(2**63), 2**63 - 1),
        "huge": st.integers(0, 2**64 - 1),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "at": st.none() | MOMENTS,
        "state": st.sampled_from(["NEW", "PAID", "GONE"]),
        "tags": st.lists(TEXTS, max_size=3),
        "counts": st.dictionaries(TEXTS, st.integers(-(2**63), 2**63 - 1), max_size=3),
        "address": st.none() | ADDRESSES,
        "card": st.none() | TEXTS,
        "sent_to": st.none() | ADDRESSES,
        "note": st.none() | TEXTS,
        "places": st.dictionaries(st.integers(-(2**31), 2**31 - 1), ADDRESSES, max_size=2),
        "small": st.integers(0, 2**32 - 1),
    }
).map(lambda event: event if event["card"] is None else {**event, "sent_to": None})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protobuf")
    (folder / "kappa.toml").touch()
    return folder


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    open_schemas(None)


def declared(project: Path, source: str) -> Any:
    """Returns the object that a file of the project declares."""
    scope = {"Protobuf": Protobuf, "Subject": Subject, "Topic": Topic}
    exec(compile(f"made = {source}", project / "pipelines.py", "exec"), scope)  # a user's file
    return scope["made"]


def of_file(project: Path, text: str = ORDER, name: str = "shop.Order", event: str = "") -> Topic:
    (project / "order.proto").write_text(text)
    options = f", message={name!r}" if name else ""
    topic: Topic = declared(project, f"Topic('t'{event}, format=Protobuf('order.proto'{options}))")
    return topic


def of_subject(project: Path, text: str = ORDER, name: str = "shop.Order") -> Topic:
    put_pin(project, PinnedSchema("t-value", 3, 7, RegisteredSchema("PROTOBUF", text)))
    source = f"Topic('t', format=Protobuf(Subject('t-value'), message={name!r}))"
    topic: Topic = declared(project, source)
    return topic


def put(into: Any, event: dict[str, Any]) -> Any:
    """Writes an event into a message, and returns the message."""
    states = {"NEW": 0, "PAID": 1, "GONE": -1}
    for name, value in event.items():
        match name, value:
            case _, None:
                pass
            case "at" | "since", _:
                getattr(into, name).seconds = value // 1_000_000
                getattr(into, name).nanos = value % 1_000_000 * 1000
            case "state", _:
                into.state = states[value]
            case "was", _:
                into.was.extend(states[each] for each in value)
            case "tags", _:
                into.tags.extend(value)
            case "note", _:
                into.note.value = value
            case "counts", _:
                into.counts.update(value)
            case "places", _:
                for key, each in value.items():
                    put(into.places[key], each)
            case "address" | "sent_to", _:
                getattr(into, name).SetInParent()
                put(getattr(into, name), value)
            case _:
                setattr(into, name, value)
    return into


def written(event: dict[str, Any]) -> bytes:
    value: bytes = put(MESSAGE(), event).SerializeToString()
    return value


def row_of(event: dict[str, Any]) -> tuple[Any, ...]:
    def listed(found: dict[Any, Any]) -> list[Any]:
        return [{"key": key, "value": value} for key, value in sorted(found.items())]

    made = {
        **event,
        "huge": Decimal(event["huge"]),
        "counts": listed(event["counts"]),
        "places": listed(event["places"]),
    }
    return tuple(made[field.name] for field in MESSAGE.DESCRIPTOR.fields)


@pytest.fixture(scope="module")
def plain(project: Path) -> RecordReader:
    return RecordReader(of_file(project))


@pytest.fixture(scope="module")
def subject(project: Path) -> RecordReader:
    return RecordReader(of_subject(project))


class Registry:
    """Schemas by id. A client of the real registry is tested in tests/kafka."""

    def __init__(self, schemas: dict[int, RegisteredSchema]) -> None:
        self._schemas = schemas

    def schema(self, schema_id: int) -> RegisteredSchema:
        return self._schemas.get(schema_id, RegisteredSchema("AVRO", None))


def test_columns_are_the_fields_of_the_message(project: Path) -> None:
    assert ", ".join(map(str, of_file(project).columns)) == COLUMNS


@given(EVENTS)
def test_a_message_is_the_row_of_its_values(
    plain: RecordReader, subject: RecordReader, event: dict[str, Any]
) -> None:
    value = written(event)

    assert read_row(plain, value) == row_of(event)
    # The second message of its schema.
    assert read_row(subject, frame_message(7, b"\x02\x02" + value)) == row_of(event)


@given(EVENTS, st.data())
def test_any_damage_is_a_reject_or_a_row(
    subject: RecordReader, event: dict[str, Any], data: st.DataObject
) -> None:
    open_schemas(Registry({}))
    value = bytearray(frame_message(7, b"\x02\x02" + written(event)))
    for _ in range(data.draw(st.integers(0, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))

    read_row(subject, bytes(value[: data.draw(st.integers(0, len(value)))]))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no_schema_id"),
        (b"\0\0\0\7", "no_schema_id"),
        (b"\1\0\0\0\7\2\2", "no_schema_id"),
        (frame_message(7, b""), "malformed_protobuf"),
        (frame_message(7, b"\x02"), "malformed_protobuf"),
        (frame_message(7, b"\x01"), "malformed_protobuf"),
        (frame_message(7, b"\xff\xff\xff\xff\xff\xff"), "malformed_protobuf"),
        (frame_message(7, b"\x02\x02\x0a\x05a"), "malformed_protobuf"),
        (frame_message(7, b"\x02\x02\x0a\x01\xff"), "malformed_protobuf"),
        (frame_message(7, b"\x02\x02\x48\x07"), "out_of_range"),
        (frame_message(7, b"\x00"), "schema_mismatch"),
        (frame_message(7, b"\x04\x02\x00"), "schema_mismatch"),
        (frame_message(7, b"\x02\x0a"), "schema_mismatch"),
        (frame_message(8, b"\x00"), "unknown_schema"),
        (frame_message(9, b"\x00"), "schema_mismatch"),
        (frame_message(10, b"\x00"), "schema_mismatch"),
    ],
)
def test_bad_bytes_are_rejected_with_their_reason(project: Path, value: bytes, reason: str) -> None:
    kinds = {
        7: RegisteredSchema("PROTOBUF", ORDER),
        9: RegisteredSchema("AVRO", '"string"'),
        10: RegisteredSchema("PROTOBUF", "message {"),
    }
    open_schemas(Registry(kinds))

    # One that has asked another registry before remembers which ids that did not know.
    assert read_row(RecordReader(of_subject(project)), value) == reason


def test_frames_that_name_messages_at_length_are_not_kept(project: Path) -> None:
    open_schemas(Registry({7: RegisteredSchema("PROTOBUF", ORDER)}))
    reader = RecordReader(of_subject(project))
    tracemalloc.start()
    try:
        for number in range(50):
            indexes = b"\xa0\x9c\x01" + bytes([2 * number]) * 10_000
            assert read_row(reader, frame_message(7, indexes)) == "malformed_protobuf"
        for number in range(10, 5_000):
            index = bytes([2, 0x80 | number & 0x7F, number >> 7])
            assert read_row(reader, frame_message(7, index)) == "schema_mismatch"
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_numbers_and_times_that_columns_cannot_hold_are_rejected(plain: RecordReader) -> None:
    assert read_row(plain, MESSAGE(x=math.nan).SerializeToString()) == "out_of_range"
    assert read_row(plain, MESSAGE(f=math.inf).SerializeToString()) == "out_of_range"
    late = MESSAGE()
    late.at.seconds = 2**62
    assert read_row(plain, late.SerializeToString()) == "out_of_range"
    # Presence decides: an empty message has its defaults, and null for what can be absent.
    assert isinstance(row := read_row(plain, b""), tuple)
    assert (row[0], row[1], row[7], row[8], row[12]) == ("", None, None, "NEW", None)


def test_a_writer_of_another_version_is_read_by_the_name_of_its_message(project: Path) -> None:
    subject = RecordReader(of_subject(project))
    newer = """syntax = "proto3"; package shop;
    message Order { string id = 1; string more = 500; } message Other { string id = 1; }"""
    value = b"\x0a\x01a" + b"\xa2\x1f\x01b"
    text = read_proto(newer)
    text.name = "newer.proto"
    described = base64.b64encode(text.SerializeToString()).decode()
    open_schemas(
        Registry(
            {8: RegisteredSchema("PROTOBUF", newer), 9: RegisteredSchema("PROTOBUF", described)}
        )
    )

    for each in (8, 9):
        row = read_row(subject, frame_message(each, b"\x00" + value))
        assert row[0] == "a"
        assert read_row(subject, frame_message(each, b"\x02\x02" + value)) == "schema_mismatch"


def test_a_registry_that_is_needed_and_not_set_is_no_reject(project: Path) -> None:
    with pytest.raises(KappaError, match="no registry is set"):
        RecordReader(of_subject(project)).read(None, frame_message(8, b"\0"))


@given(EVENTS)
def test_a_text_and_its_description_are_one_schema(event: dict[str, Any]) -> None:
    described = read_proto(ORDER)
    described.name = "order.proto"
    again = FileDescriptorProto.FromString(described.SerializeToString())
    assert again == described
    text = base64.b64encode(described.SerializeToString()).decode()
    made = message_factory.GetMessageClass(message_named(message_types(text), "shop.Order"))

    assert put(made(), event).SerializeToString(deterministic=True) == put(
        MESSAGE(), event
    ).SerializeToString(deterministic=True)


def test_a_schema_of_several_is_read_whole() -> None:
    times = base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode()
    address = 'syntax = "proto3"; package shop; message Address { string city = 1; }'
    order = """syntax = "proto3"; package shop; import "google/protobuf/timestamp.proto";
    import "any/path.proto"; message Order { Address to = 1; google.protobuf.Timestamp at = 2; }"""
    found = message_named(message_types(order, (times, address)), "shop.Order")

    assert [each.message_type.full_name for each in found.fields] == [
        "shop.Address",
        "google.protobuf.Timestamp",
    ]
    with pytest.raises(DeclarationError, match=r"imports any/path\.proto, which is missing"):
        message_types(order)


def test_events_of_a_test_are_written_by_the_schema(project: Path) -> None:
    topic = of_subject(project)
    event = {"id": "a", "state": "PAID", "at": "2024-01-31T00:00:00Z", "counts": {"x": 1}}
    value = topic.format.encode_event(event, topic.columns)

    assert value.startswith(frame_message(7, b"\x02\x02"))
    row = read_row(RecordReader(topic), value)
    assert (row[0], row[7], row[8]) == ("a", 1_706_659_200_000_000, "PAID")
    with pytest.raises(UsageError, match="cannot be written as Protobuf"):
        topic.format.encode_event({"id": 1}, topic.columns)


def test_prose_of_a_schema_is_no_part_of_the_version(project: Path) -> None:
    first = [*of_file(project).format.declared_lines()]
    prose = [*of_file(project, ORDER.replace("of orders", "prose")).format.declared_lines()]
    other = [*of_file(project, ORDER.replace("PAID = 1", "PAID = 2")).format.declared_lines()]

    assert first == prose != other


def message(*fields: str, head: str = 'syntax = "proto3";') -> str:
    return f"{head} message A {{ string id = 1; {' '.join(fields)} }}"


@pytest.mark.parametrize(
    ("text", "name", "event", "message"),
    [
        (message("bytes odd = 2;"), "", "", "bytes at odd"),
        (message("repeated bytes odd = 2;"), "", "", "bytes at odd"),
        (message("A odd = 2;"), "", "", "A, which contains itself"),
        (
            message("google.protobuf.Any odd = 2;", head='import "google/protobuf/any.proto";'),
            "",
            "",
            "google.protobuf.Any at odd",
        ),
        (message("message B {} B odd = 2;"), "", "", "a message without fields at odd"),
        (message("B odd = 2;"), "", "", "the schema is not Protobuf"),
        (message("string id = 2;"), "", "", "the schema is not Protobuf"),
        (message("string ID = 2;"), "", "", "column ID is declared twice in: the schema"),
        (
            message("message B { int32 n = 1; int32 N = 2; } B odd = 2;"),
            "",
            "",
            "declared twice in",
        ),
        ("message A {}", "", "", "the message has no fields"),
        ("message A { string id = 1;", "", "", "it ends too early"),
        ("message A { string id = x; }", "", "", "x is not a number"),
        ("<html>", "", "", "< is not expected"),
        ('edition = "2023";', "", "", "edition is not expected"),
        ('import "other.proto"; message A { string id = 1; }', "", "", "imports other.proto"),
        ("", "", "", "the schema has the messages (none)"),
        (ORDER, "", "", "the schema has the messages shop.Other, shop.Other.Deep, shop.Order"),
        (ORDER, "shop.None", "", "the schema has no message shop.None"),
        (ORDER, "shop.Order", ", event='id int'", "the schema has string there"),
        (ORDER, "shop.Order", ", event='no string'", "no is not a field of the schema"),
    ],
)
def test_a_schema_that_declares_no_event_is_refused_with_the_users_line(
    project: Path, text: str, name: str, event: str, message: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        of_file(project, text, name, event)

    assert message in refused.value.message
    assert refused.value.message.startswith(f"{project / 'pipelines.py'}:1: ")


@given(st.data())
def test_a_damaged_text_is_refused_or_a_schema(data: st.DataObject) -> None:
    text = ORDER
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        between = data.draw(st.sampled_from(["", "{", "}", ";", "=", "[", '"', "/*", "9" * 11]))
        text = text[:start] + between + text[end:]

    with suppress(DeclarationError):
        message_named(message_types(text), "shop.Order")


def test_a_field_that_makes_no_column_may_be_left_out(project: Path) -> None:
    topic = of_file(project, message("bytes odd = 2;"), "", ", event='id string'")

    assert read_row(RecordReader(topic), b"\x0a\x01a\x12\x01\xff") == ("a",)


def test_a_declaration_is_sent_to_spark_as_it_is(project: Path) -> None:
    import pickle

    topic = of_subject(project)
    again = pickle.loads(pickle.dumps(topic))  # our own

    assert again == topic
    assert read_row(RecordReader(again), frame_message(7, b"\x02\x02\xff")) == "malformed_protobuf"
