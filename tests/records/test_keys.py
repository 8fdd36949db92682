"""Keys in their own format: the key column's value, or a reject with its reason."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from both_ways import ensure_same_in_parts
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from decoded import read_record
from examples import examples
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from kappa import Avro, Csv, Json, Protobuf, Subject, Topic
from kappa.base.errors import DeclarationError, UsageError
from kappa.declare.formats.protobuf_schema import message_named, message_types
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    RegisteredSchema,
    frame_message,
    open_schemas,
    pin_path,
)
from kappa.declare.values.reason import Rejected
from kappa.engine.children.event_generator import event_of
from kappa.kafka.reader import Record
from kappa.records.decode.raw_records import raw_table
from kappa.records.decode.readers import plain_reader
from kappa.records.lines.produce import event_records
from kappa.records.record import RecordReader, Tombstone
from kappa.replay.status.topics.records import SeenRecord, decoder_of, filter_of

PROTO = 'syntax = "proto3"; message Key { string code = 1; }'
RECORD = {"type": "record", "name": "Key", "fields": [{"name": "code", "type": "string"}]}
CODE = {"properties": {"code": {"type": "string"}}, "required": ["code"]}
JSON_SCHEMA = {"title": "Key", "type": "object", **CODE}
PAIR = {**RECORD, "fields": [*RECORD["fields"], {"name": "more", "type": "int"}]}
FORMS = {
    "record": ("Avro(Subject('record'))", "AVRO", json.dumps(RECORD)),
    "bare": ("Avro(Subject('bare'))", "AVRO", '{"type": "string"}'),
    "number": ("Avro(Subject('number'))", "AVRO", '{"type": "long"}'),
    "message": ("Protobuf(Subject('message'))", "PROTOBUF", PROTO),
    "schema": ("Json(Subject('schema'))", "JSON", json.dumps(JSON_SCHEMA)),
    "pair": ("Avro(Subject('pair'))", "AVRO", json.dumps(PAIR)),
}
TEXT_FORMS = [name for name in FORMS if name not in {"number", "pair"}]
CONTEXT = SerializationContext("t", MessageField.KEY)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
Records = list[tuple[bytes | None, bytes | None]]


@cache
def client() -> SchemaRegistryClient:
    """Returns the official client with its in-memory registry; a real one is in tests/kafka."""
    made = SchemaRegistryClient.new_client({"url": "mock://keys"})
    for name, (_, kind, text) in FORMS.items():
        made.register_schema(name, Schema(text, kind))
    return made


def id_of(name: str) -> int:
    _, kind, text = FORMS[name]
    return int(client().lookup_schema(name, Schema(text, kind)).schema_id)


@cache
def serializer(name: str) -> Callable[[Any], bytes]:
    """Returns a function that serializes a key's value with the official serializer."""
    _, kind, text = FORMS[name]
    options = {"auto.register.schemas": False, "subject.name.strategy": lambda *_: name}
    if kind == "AVRO":
        avro = AvroSerializer(client(), text, conf=options)
        return lambda key: avro({"code": key} if name == "record" else key, CONTEXT)
    if kind == "JSON":
        written = JSONSerializer(text, client(), conf=options)
        return lambda key: written({"code": key}, CONTEXT)
    message = message_factory.GetMessageClass(message_named(message_types(PROTO), "Key"))
    options |= {"use.deprecated.format": False, "auto.register.schemas": True}
    proto = ProtobufSerializer(message, client(), options)
    return lambda key: proto(message(code=key), CONTEXT)


class Registered:
    """The schemas by id, as in the registry."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        try:
            found = client().get_schema(schema_id)
        except Exception:  # noqa: BLE001  # whatever it raises, it does not know the id
            return RegisteredSchema("AVRO", None)
        return RegisteredSchema(found.schema_type, found.schema_str)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "kappa.toml").touch()
    for name, (_, kind, text) in FORMS.items():
        path = folder / pin_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        pin = PinnedSchema(name, 1, id_of(name), RegisteredSchema(kind, text))
        path.write_bytes(msgspec.json.encode(pin))
    open_schemas(Registered())
    yield folder
    open_schemas(None)


def declared(project: Path, name: str, key: str = "id") -> Topic:
    form = FORMS[name][0] if name in FORMS else name
    names = (Avro, Csv, Json, Protobuf, Subject, Topic)
    scope: dict[str, Any] = {each.__name__: each for each in names}
    keys = f"kind='compacted', key={key!r}, key_format={form}"
    source = f"made = Topic('t', event='id string not null, n bigint', {keys})"
    exec(compile(source, project / "pipelines.py", "exec"), scope)  # a user's file
    return scope["made"]


@pytest.mark.law
@examples(50)
@given(st.sampled_from(TEXT_FORMS), TEXTS, TEXTS)
def test_official_keys_are_the_key_column(project: Path, name: str, key: str, other: str) -> None:
    topic, written = declared(project, name), serializer(name)(key)
    value = json.dumps({"id": key, "n": 1}).encode()

    assert read_record(topic, written, value) == (key, 1)
    assert read_record(topic, written, None) == Tombstone(key)
    if other != key:
        assert read_record(topic, serializer(name)(other), value) == "key_mismatch"


@pytest.mark.law
@examples(50)
@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_as_a_key_is_no_text(project: Path, key: int) -> None:
    topic, written = declared(project, "number", key="n"), serializer("number")(key)

    assert read_record(topic, written, json.dumps({"id": "a", "n": key}).encode()) == ("a", key)
    assert read_record(topic, written, None) == Tombstone(key)
    assert read_record(topic, str(key).encode(), None) == "bad_key"


@pytest.mark.law
@examples(100)
@given(st.sampled_from(TEXT_FORMS), TEXTS, st.data())
def test_damaged_key_is_not_equal(project: Path, name: str, key: str, data: st.DataObject) -> None:
    topic, written = declared(project, name), bytearray(serializer(name)(key))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(written)))
        written[at : at + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=1))
    value = json.dumps({"id": key}).encode()

    found = read_record(topic, bytes(written), None)
    assert found == "bad_key" or isinstance(found, Tombstone)
    same = read_record(topic, bytes(written), value)
    if found == Tombstone(key):
        assert same == (key, None)
    else:
        assert same == ("bad_key" if found == "bad_key" else "key_mismatch")


def test_records_are_looked_for_by_the_value_of_their_key(project: Path) -> None:
    topic = declared(project, "record")
    is_wanted = filter_of("ä", [], topic)

    def seen(key: bytes | None) -> SeenRecord:
        return decoder_of(topic)(Record("t", 0, 0, 0, key, b'{"id": "b"}', ()))

    assert is_wanted(seen(serializer("record")("ä")))
    assert not is_wanted(seen(serializer("record")("b")))
    assert not is_wanted(seen("ä".encode()))
    assert not is_wanted(seen(None))


def test_why_a_key_is_bad_names_what_is_wrong_with_it(project: Path) -> None:
    reader = RecordReader(declared(project, "record"))

    def why(key: bytes | None) -> tuple[str, str]:
        with pytest.raises(Rejected) as rejected:
            reader.read(key, b'{"id": "a"}')
        return str(rejected.value.reason), rejected.value.detail

    assert why(None) == ("null_key", "the key is null")
    unframed = "the key cannot be read (no_schema_id): it begins with byte 97, not with a zero"
    assert why(b"a") == ("bad_key", f"{unframed} and a schema's id of 4 bytes")
    _, unknown = why(frame_message(99, b"\2a"))
    assert unknown.startswith("the key cannot be read (unknown_schema): it was")
    assert why(serializer("record")("b")) == ("key_mismatch", 'the key is "b" and id is "a"')


def batch_of(topic: Topic, write: Callable[[Any], bytes], wrong: float) -> pa.Table:
    draw, records = random.Random(wrong), []
    for number in range(3_000):
        key, value = f"k{number % 100}", json.dumps({"id": f"k{number % 100}", "n": number})
        written = bytearray(write(key))
        if draw.random() < wrong:
            written[draw.randrange(len(written))] = draw.randrange(256)
        sent = draw.choice([bytes(written)] * 19 + [None])
        records.append((sent, value.encode() if draw.random() < 0.9 else None))
    return raw_table(
        ("t", number % 2, number // 2, 1_700_000_000_000_000 + 1_000 * number, *record, ())
        for number, record in enumerate(records)
    )


@pytest.mark.parametrize("wrong", [0.0, 0.1])
@pytest.mark.parametrize("name", TEXT_FORMS)
def test_a_large_batch_is_decoded_as_small_ones_are(project: Path, name: str, wrong: float) -> None:
    """Rows, tombstones, keys as texts, and the rejects with their reasons are the same."""
    topic = declared(project, name)
    raw = batch_of(topic, serializer(name), wrong)

    together = ensure_same_in_parts(raw, topic, 300)

    assert together.column("_key").combine_chunks() == together.column("id").combine_chunks()


@pytest.mark.parametrize("name", TEXT_FORMS)
def test_plain_records_with_plain_keys_are_read_together(project: Path, name: str) -> None:
    plain = plain_reader(declared(project, name), frozenset({"id", "n"}))
    keys = pa.array([serializer(name)(f"k{number}") for number in range(100)], pa.binary())
    values = pa.array([f'{{"id":"k{number}","n":1}}'.encode() for number in range(100)])

    ((places, rows),) = plain.read(keys, values)

    assert places.tolist() == [*range(100)]
    assert rows.column("id").to_pylist() == [f"k{number}" for number in range(100)]


@pytest.mark.parametrize("name", TEXT_FORMS)
def test_what_kappa_writes_is_what_the_official_serializers_write(project: Path, name: str) -> None:
    topic, wanted = declared(project, name), serializer(name)("ä")

    row, key = RecordReader(topic).read_unkeyed('{"id": "ä"}'.encode())
    assert row == ("ä", None)
    assert key is not None
    assert event_records(topic)('{"id": "ä"}'.encode()).key == key
    assert event_of(topic, {"id": "ä"}).key == key
    assert read_record(topic, key, None) == read_record(topic, wanted, None) == Tombstone("ä")
    # JSON has several texts for one value, and so have ids that the registry gave them.
    if name in {"record", "bare"}:
        assert key == wanted


def test_a_key_that_its_format_cannot_write_is_a_users_mistake(project: Path) -> None:
    topic = declared(project, "record")

    with pytest.raises(UsageError, match="topic t: the key 3: the event cannot be written"):
        event_of(topic, {"id": 3})


def test_how_keys_are_written_is_part_of_the_version(project: Path) -> None:
    plain = Topic("t", event="id string not null, n bigint", kind="compacted", key="id")
    formatted = [declared(project, name) for name in ("record", "message")]
    as_json = Topic("t", event="id string not null", key="id", key_format="json")

    assert plain.key_lines() == ()
    assert as_json.key_lines() == ("format json",)
    assert formatted[0].key_lines()[0] == "format avro, framed by a registry"
    assert formatted[1].key_lines()[0] == "format protobuf Key, framed by a registry"
    assert formatted[0] != plain
    assert pickle.loads(pickle.dumps(formatted[0])) == formatted[0]  # our own


@pytest.mark.parametrize(
    ("form", "key", "message"),
    [
        ("pair", "id", "the schema of keys has the fields code, more, and a topic's key is one"),
        ("number", "id", "the key is column id, a string, and the schema of keys has bigint"),
        ("record", "n", "the key is column n, a bigint, and the schema of keys has string"),
        ("'avro'", "id", "format is 'avro', which is not a format of records"),
        ("'debezium-json'", "id", "a format of changes reads whole records, and no keys"),
        ("Csv(fields=['other'])", "id", "column id is not a field of format csv"),
    ],
)
def test_format_without_key_is_refused(project: Path, form: str, key: str, message: str) -> None:
    """The refusal names the user's line."""
    with pytest.raises(DeclarationError) as refused:
        declared(project, form, key=key)

    assert message in refused.value.message
    assert refused.value.message.startswith(f"{project / 'pipelines.py'}:1: topic t: key_format: ")


def test_a_format_of_keys_without_a_key_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no column is declared that they repeat"):
        Topic("t", event="id string", key_format="json")


def test_a_format_of_changes_reads_its_keys_itself() -> None:
    event = "id string not null, change_id string not null"
    config = {"message.timestamp.type": "LogAppendTime"}
    identity = {"identity": "change_id", "identity_horizon": "1 day", "config": config}
    keys = {"key": "id", "key_format": "json"}
    with pytest.raises(DeclarationError, match="changes of rows and a key_format"):
        Topic("t", event=event, format="debezium-json", **keys, **identity)
