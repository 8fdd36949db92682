"""A real registry and the official serializers: their records are read, live and later."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from decoded import read_record
from google.protobuf import message_factory
from http_server import QuietHandler
from ports import free_port
from registries import RunningRegistry, running_registry

from kappa.base.errors import SettingsError, Unreachable, UsageError
from kappa.base.sections import RegistrySettings
from kappa.code.project import load_pipelines
from kappa.commands.app import run_command
from kappa.declare.formats.protobuf_schema import message_named, message_types
from kappa.declare.formats.registry_schemas import RegisteredSchema, frame_message, open_schemas
from kappa.declare.topic import Topic
from kappa.kafka.registry import RegistryClient
from kappa.kafka.stored_schemas import StoredSchemas, _unknown
from kappa.records.record import RecordReader
from kappa.replay.rollout.plan.observe import pinned_subjects

pytestmark = pytest.mark.jvm

PIPELINE = """
from kappa import Avro, Subject, Table, Topic, pipeline

ORDERS = Topic("orders", format=Avro(Subject("orders-value")), key="id")

@pipeline(reads={"orders": ORDERS}, writes=[Table("newest", latest=ORDERS)])
def shop():
    return {}
"""
FIRST = {"name": "id", "type": "string"}
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        if running is None:
            pytest.skip("not run: no registry, since Apicurio cannot be fetched")
        yield running


@pytest.fixture
def project(registry: RunningRegistry, tmp_path: Path) -> Path:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "kappa.toml").write_text(f'[registry]\nurl = "{registry.url}"\n')
    (tmp_path / "pipelines" / "shop.py").write_text(PIPELINE)
    return tmp_path


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    open_schemas(None)


def order(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [FIRST, *fields]})


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def sent(registry: RunningRegistry, schema: str, event: Any, topic: str = "orders") -> bytes:
    """Serializes an event as a producer does, which registers the schema."""
    with official(registry) as client:
        serializer = AvroSerializer(client, schema)
        value = serializer(event, SerializationContext(topic, MessageField.VALUE))
    assert isinstance(value, bytes)
    return value


def official(registry: RunningRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def registered(registry: RunningRegistry, subject: str, schema: str, *references: Any) -> int:
    """Registers a schema, and returns the newest version of its subject."""
    with official(registry) as client:
        client.register_schema(subject, Schema(schema, "AVRO", [*references]))
        return client.get_latest_version(subject).version


def kappa(project: Path, *words: str) -> int:
    return run_command(["--project", str(project), *words])


def source(project: Path, url: str | None, patience_seconds: float = 0.0) -> StoredSchemas:
    return StoredSchemas(project / "root" / "schemas", RegistrySettings(url=url), patience_seconds)


def read(topic: Topic, value: bytes, key: bytes = b"a") -> Any:
    return read_record(topic, key, value)


def test_records_are_read_by_their_schemas_also_while_the_registry_is_away(
    registry: RunningRegistry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records of five schema versions are read with the schema in the middle, even offline."""
    schemas = [
        order(field("n", "int")),
        order(field("n", "long")),
        order(field("n", "long"), field("note", ["null", "string"], default=None)),
        order(field("n", "long"), field("note", ["null", "string"], default="?")),
        order(field("note", ["null", "string"]), field("n", "long"), field("tags", "string")),
    ]
    schemas[3] = order(field("n", "long"), field("note", "string", default="?"))
    values = [
        sent(registry, schema, {"id": "a", "n": n, "note": f"{n}", "tags": "x"})
        for n, schema in enumerate(schemas)
    ]
    assert kappa(project, "schemas", "pin", "orders-value", "--version", "3") == 0
    topic = load_pipelines(project)["shop"].topics[0]
    assert [str(column) for column in topic.columns] == [
        "id string not null",
        "n bigint not null",
        "note string",
    ]
    expected = [("a", n, None if n < 2 else f"{n}") for n in range(5)]

    open_schemas(source(project, registry.url))
    assert [read(topic, value) for value in values] == expected
    unknown = frame_message(999_999, b"\x02a")
    assert read(topic, unknown) == "unknown_schema"
    # The same root, and a registry that does not answer.
    open_schemas(source(project, f"http://127.0.0.1:{free_port()}"))
    assert [read(topic, value) for value in values] == expected
    assert read(topic, unknown) == "unknown_schema"
    with pytest.raises(Unreachable, match="does not answer"):
        read(topic, frame_message(12_345, b"\x02a"))
    assert "has version 3 of subject orders-value" in capsys.readouterr().err


def test_schema_of_several_subjects_is_whole(registry: RunningRegistry) -> None:
    version = registered(registry, "address", json.dumps(ADDRESS))
    named = SchemaReference("Address", "address", version)
    registered(registry, "orders-of-two", order(field("address", "Address")), named)

    pin = RegistryClient(RegistrySettings(url=registry.url)).pin("orders-of-two")

    assert pin.schema == RegisteredSchema("AVRO", pin.schema.text, (pin.schema.references[0],))
    assert json.loads(pin.schema.references[0]) == ADDRESS
    assert RegistryClient(RegistrySettings(url=registry.url)).schema(pin.id) == pin.schema


def test_commands_list_show_pin_and_check(
    registry: RunningRegistry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project / "pipelines" / "shop.py"
    file.write_text(PIPELINE.replace("orders", "shops"))
    first = order(field("n", "int"))
    assert registered(registry, "shops-value", first) == 1
    with official(registry) as client:
        client.set_compatibility("shops-value", "BACKWARD")

    assert kappa(project, "validate") == 2
    assert "pin it: kappa schemas pin shops-value" in capsys.readouterr().out
    assert kappa(project, "schemas", "pin", "shops-value") == 0
    assert "schemas/pinned/shops-value.json has version 1" in capsys.readouterr().err
    assert kappa(project, "schemas", "check", "--output", "json") == 0
    assert json.loads(capsys.readouterr().out)[0]["verdict"] == "compatible"

    second = order(field("n", "int"), field("note", ["null", "string"], default=None))
    assert registered(registry, "shops-value", second) == 2
    assert kappa(project, "schemas", "list", "--output", "json") == 0
    listed = {each["subject"]: each for each in json.loads(capsys.readouterr().out)}
    assert (listed["shops-value"]["newest"], listed["shops-value"]["pinned"]) == (2, "1")
    assert kappa(project, "schemas", "show", "shops-value", "--version", "1") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(first)
    assert kappa(project, "schemas", "check", "--output", "json") == 0
    assert "version 2 is newer" in json.loads(capsys.readouterr().out)[0]["verdict"]

    (project / "schemas" / "shop.avsc").write_text(order(field("must", "string")))
    file.write_text(
        PIPELINE.replace("orders", "shops").replace(
            'Subject("shops-value")', '"schemas/shop.avsc", framed=True'
        )
    )
    assert kappa(project, "schemas", "check", "--output", "json") == 1
    assert "not compatible: " in json.loads(capsys.readouterr().out)[0]["verdict"]
    assert kappa(project, "schemas", "show", "no-such-subject") == 2
    assert "has no subject no-such-subject" in capsys.readouterr().err


def test_records_of_the_official_json_serializer_are_read_by_the_pinned_schema(
    registry: RunningRegistry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Records before and after an evolution are read; the plan reports the newer version."""
    more = {"type": "integer", "minimum": 0}
    schemas = [
        {"title": "Bid", "type": "object", "properties": fields, "required": ["id"]}
        for fields in ({"id": {"type": "string"}}, {"id": {"type": "string"}, "n": more})
    ]
    values = []
    for schema in schemas:
        with official(registry) as client:
            write = JSONSerializer(json.dumps(schema), client)
            value = write({"id": "ä", "n": 3}, SerializationContext("bids", MessageField.VALUE))
        values.append(value)
    file = project / "pipelines" / "shop.py"
    file.write_text(PIPELINE.replace("orders", "bids").replace("Avro", "Json"))
    settings = RegistrySettings(url=registry.url)

    assert kappa(project, "schemas", "pin", "bids-value", "--version", "1") == 0
    old = load_pipelines(project)
    assert pinned_subjects(settings, old.values()) == {"bids-value": (1, 2)}
    assert kappa(project, "schemas", "check", "--output", "json") == 0
    assert "version 2 is newer" in capsys.readouterr().out
    assert kappa(project, "schemas", "pin", "bids-value") == 0
    new = load_pipelines(project)
    assert pinned_subjects(settings, new.values()) == {"bids-value": (2, 2)}

    key = "ä".encode()
    assert [read(old["shop"].topics[0], value, key) for value in values] == [("ä",)] * 2
    assert [read(new["shop"].topics[0], value, key) for value in values] == [("ä", 3)] * 2
    assert read(new["shop"].topics[0], frame_message(1, b'{"id": "\xc3\xa4", "n": -1}'), key) == (
        "against_schema"
    )
    # A plan says what it can, and refuses nothing.
    away = RegistrySettings(url=f"http://127.0.0.1:{free_port()}")
    assert pinned_subjects(away, new.values()) == {"bids-value": (2, None)}
    wrong = RegistrySettings(url="registry:8081")
    assert pinned_subjects(wrong, new.values()) == {"bids-value": (2, None)}
    assert pinned_subjects(RegistrySettings(), new.values()) == {}


PROTO = """syntax = "proto3";
package pay;
import "google/protobuf/timestamp.proto";
message Other { string id = 1; }
message Paid {
  enum Way { CARD = 0; CASH = 1; }
  string id = 1;
  optional int64 n = 2;
  google.protobuf.Timestamp at = 3;
  Way way = 4;
  map<string, double> parts = 5;%s
}
"""


def test_keys_of_the_official_serializer_are_read_by_their_own_subject(
    registry: RunningRegistry, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with official(registry) as client:
        write = AvroSerializer(client, '{"type": "string"}')
        key = write("ä", SerializationContext("members", MessageField.KEY))
    declared = (
        'Topic("members", event="id string not null", key_format=Avro(Subject("members-key"))'
    )
    file = project / "pipelines" / "shop.py"
    file.write_text(
        PIPELINE.replace("orders", "members").replace(
            'Topic("members", format=Avro(Subject("members-value"))', declared
        )
    )

    assert kappa(project, "schemas", "pin", "members-key") == 0
    pipelines = load_pipelines(project)
    reader = RecordReader(next(iter(pipelines.values())).topics[0])
    assert reader.read(key, '{"id": "ä"}'.encode()) == ("ä",)
    assert reader.read_unkeyed('{"id": "ä"}'.encode()) == (("ä",), key)
    settings = RegistrySettings(url=registry.url)
    assert pinned_subjects(settings, pipelines.values()) == {"members-key": (1, 1)}
    capsys.readouterr()
    assert kappa(project, "schemas", "check", "--output", "json") == 0
    assert '"members-key"' in capsys.readouterr().out


def test_official_protobuf_records_are_read(registry: RunningRegistry, project: Path) -> None:
    """Records before and after an evolution are read.

    Python's serializer registers descriptions, others register texts.
    """
    values = []
    for more in ("", "\n  string more = 6;"):
        # A description has the name of a file, which is new to the library with each.
        described = message_named(message_types(PROTO % more), "pay.Paid")
        made = message_factory.GetMessageClass(described)(id="ä", n=-3, way=1, parts={"x": 0.5})
        made.at.seconds = 5
        with official(registry) as client:
            write = ProtobufSerializer(type(made), client, {"use.deprecated.format": False})
            context = SerializationContext("paid", MessageField.VALUE)
            values.append(write(made, context))
            other = message_factory.GetMessageClass(described.file.message_types_by_name["Other"])
            values.append(
                ProtobufSerializer(other, client, {"use.deprecated.format": False})(
                    other(id="ä"), context
                )
            )
    registered_text = Schema(PROTO % "", "PROTOBUF")
    with official(registry) as client:
        client.register_schema("texts-value", registered_text)
    file = project / "pipelines" / "shop.py"
    row = ("ä", -3, 5_000_000, "CASH", [{"key": "x", "value": 0.5}])
    for name in ("paid", "texts"):
        file.write_text(
            PIPELINE.replace("orders", name)
            .replace("Avro", "Protobuf")
            .replace('-value"))', '-value"), message="pay.Paid")')
        )
        assert kappa(project, "schemas", "pin", f"{name}-value", "--version", "1") == 0
        topic = load_pipelines(project)["shop"].topics[0]
        open_schemas(source(project, registry.url))

        found = [read(topic, value, "ä".encode()) for value in values]
        assert found == [row, "schema_mismatch"] * 2
        assert kappa(project, "schemas", "check") == 0


class _Odd(QuietHandler):
    """A registry that answers as the path of the request demands."""

    def do_GET(self) -> None:
        kind = self.path.split("/")[1]
        if kind == "slow":
            time.sleep(1.0)
        status = {"500": 500, "401": 401, "302": 302, "404": 404}.get(kind, 200)
        self.send_response(status)
        if kind == "302":
            self.send_header("location", "http://127.0.0.1:9/")
        # The client of a slow one has gone.
        with suppress(OSError):
            self.end_headers()
            self.wfile.write(b"<html>" if kind == "html" else b"{}")


@pytest.fixture
def odd() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("kind", ["500", "401", "302", "html", "other", "slow"])
def test_odd_registry_is_waited_for(odd: str, tmp_path: Path, kind: str) -> None:
    """An odd registry is waited for, and causes no rejects."""
    settings = RegistrySettings(
        url=f"{odd}/{kind}", user="ann", password="s3cret", timeout_seconds=0.3
    )
    asked = StoredSchemas(tmp_path / "schemas", settings, 0.0)
    with pytest.raises(Unreachable) as away:
        asked.schema(1)

    assert "s3cret" not in f"{away.value} {settings!r} {asked!r}"
    assert not [*tmp_path.rglob("*.json")]


def test_ids_that_nobody_knows_are_waited_for_together(odd: str, tmp_path: Path) -> None:
    """Ids that nobody knows are waited for together, because producers can send many of them."""
    schemas = StoredSchemas(tmp_path / "schemas", RegistrySettings(url=f"{odd}/404"), 0.0)
    assert schemas.schema(1).text is None
    began = time.monotonic()
    assert [schemas.schema(number).text for number in range(2, 12)] == [None] * 10
    assert time.monotonic() - began < 3.0


def test_ids_that_nobody_knows_are_kept_up_to_a_number_and_known_ones_always(
    odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any producer can write any of four billion ids, so unknown ids are stored up to a limit."""
    monkeypatch.setattr("kappa.kafka.stored_schemas.MOST_KEPT", 3)
    monkeypatch.setattr("kappa.kafka.stored_schemas._DOUBT_SECONDS", 0.0)
    folder = tmp_path / "schemas"
    schemas = StoredSchemas(folder, RegistrySettings(url=f"{odd}/404"), 0.0)
    assert [schemas.schema(number).text for number in range(9)] == [None] * 9
    assert sorted(path.name for path in folder.iterdir()) == ["0.json", "1.json", "2.json"]
    assert len(_unknown) <= 3

    # Of the newest the process remembers that it has asked; others are asked for again.
    away = replace(schemas, settings=RegistrySettings(url="http://127.0.0.1:9"))
    assert [away.schema(number).text for number in (0, 8)] == [None, None]
    with pytest.raises(Unreachable):
        away.schema(3)

    known = RegisteredSchema("JSON", "{}")
    monkeypatch.setattr(StoredSchemas, "_asked", lambda *_: known)
    assert [schemas.schema(3), replace(schemas).schema(3)] == [known, known]
    assert (folder / "3.json").exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (None, "no schema registry is set"),
        ("registry:8081", "not an HTTP URL"),
        ("http://ann:s3cret@registry", "a user or a password in it"),
    ],
)
def test_a_registry_that_cannot_be_meant_is_refused(url: str | None, message: str) -> None:
    with pytest.raises(SettingsError, match=message) as refused:
        RegistryClient(RegistrySettings(url=url))

    assert "s3cret" not in str(refused.value)
    assert isinstance(refused.value, UsageError)
