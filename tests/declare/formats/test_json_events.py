"""JSON with a registry's framing gives the same rows as JSON without it; damage is a reject."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from decoded import read_row
from hypothesis import given
from hypothesis import strategies as st

from kappa import Json, Subject, Topic
from kappa.base.errors import DeclarationError
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    RegisteredSchema,
    frame_message,
    put_pin,
)
from kappa.records.record import RecordReader

EVENT = "id string not null, n int, tags array<string>, price decimal(12,2)"
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "n": {"type": "integer", "default": 5},
    },
    "required": ["id"],
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
EVENTS = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "tags": st.none() | st.lists(st.none() | TEXTS, max_size=3),
        "price": st.none() | st.integers(-(10**6), 10**6),
    }
)
PLAIN = RecordReader(Topic("t", event=EVENT))
FRAMED = RecordReader(Topic("t", event=EVENT, format=Json(framed=True)))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kappa.toml").touch()
    return tmp_path


def pinned(project: Path, schema: Any, kind: str = "JSON", event: str = "") -> Topic:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    put_pin(project, PinnedSchema("t-value", 3, 7, RegisteredSchema(kind, text)))
    file = project / "pipelines.py"
    scope: dict[str, Any] = {"Json": Json, "Subject": Subject, "Topic": Topic}
    source = f"made = Topic('t'{event}, format=Json(Subject('t-value')))"
    exec(compile(source, file, "exec"), scope)  # a user's file
    topic: Topic = scope["made"]
    return topic


@given(EVENTS, st.integers(0, 2**32 - 1))
def test_a_framed_record_is_the_row_of_the_same_json_whatever_its_id(
    event: dict[str, Any], schema_id: int
) -> None:
    text = json.dumps(event).encode()
    found = read_row(FRAMED, frame_message(schema_id, text))

    assert isinstance(found, tuple)
    assert found == read_row(PLAIN, text)


@given(EVENTS, st.data())
def test_any_damage_is_a_reject_or_a_row(event: dict[str, Any], data: st.DataObject) -> None:
    value = bytearray(frame_message(7, json.dumps(event).encode()))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(value[: data.draw(st.integers(0, len(value)))])

    is_framed = cut[:1] == b"\0" and len(cut) >= 5
    assert read_row(FRAMED, cut) == (read_row(PLAIN, cut[5:]) if is_framed else "no_schema_id")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "no_schema_id"),
        (b"\0\0\0\7", "no_schema_id"),
        (b'{"id":"a"}', "no_schema_id"),
        (b"\0\0\0\0\7", "malformed_json"),
        (b'\0\0\0\0\7{"id":"a"', "malformed_json"),
        (b'\0\0\0\0\7{"id":"\xff"}', "not_utf8"),
        (b"\0\0\0\0\7[]", "not_an_object"),
    ],
)
def test_bad_bytes_are_rejected_with_their_reason(value: bytes, reason: str) -> None:
    assert read_row(FRAMED, value) == reason


def test_a_pinned_schema_is_the_event_with_its_columns_and_demands(project: Path) -> None:
    topic = pinned(project, SCHEMA)
    reader = RecordReader(topic)

    assert [str(each) for each in topic.columns] == [
        "id string not null",
        "n bigint not null default 5",
    ]
    assert read_row(reader, frame_message(1, b'{"id": "a", "more": 1}')) == ("a", 5)
    assert read_row(reader, frame_message(1, b'{"id": ""}')) == "against_schema"
    assert topic.format.encode_event({"id": "a"}, topic.columns) == frame_message(7, b'{"id": "a"}')


def test_the_framing_and_what_the_schema_demands_are_part_of_the_version(project: Path) -> None:
    def lines(topic: Topic) -> list[str]:
        return [
            *topic.format.declared_lines(),
            *(topic.schema.place_lines() if topic.schema else ()),
        ]

    first = lines(pinned(project, SCHEMA))
    prose = lines(pinned(project, {**SCHEMA, "title": "prose"}))
    closed = lines(pinned(project, {**SCHEMA, "additionalProperties": False}))

    assert first == prose != closed
    assert first[0] == "format json, framed by a registry"
    assert lines(Topic("t", event=EVENT, format=Json(framed=False))) == []
    assert Json() == Json(framed=False) != Json(framed=True)


@pytest.mark.parametrize(
    ("schema", "kind", "event", "message"),
    [
        (SCHEMA, "AVRO", "", "the schema is of type AVRO, not JSON Schema"),
        ("{", "JSON", "", "the schema is not JSON"),
        ("true", "JSON", "", "the schema is not a JSON object"),
        ({"type": "array", "items": {"type": "string"}}, "JSON", "", "exactly one object"),
        ({**SCHEMA, "required": ["id"], "$ref": "other.json"}, "JSON", "", "not within the schema"),
        (SCHEMA, "JSON", ", event='id string'", "declared twice"),
    ],
)
def test_a_subject_that_declares_no_event_is_refused_with_the_users_line(
    project: Path, schema: Any, kind: str, event: str, message: str
) -> None:
    with pytest.raises(DeclarationError) as refused:
        pinned(project, schema, kind, event)

    assert message in refused.value.message
    assert refused.value.message.startswith(f"{project / 'pipelines.py'}:1: ")


def test_what_is_no_subject_is_refused() -> None:
    wrong: Any = "schemas/order.json"
    with pytest.raises(DeclarationError, match="format json is given") as refused:
        Json(wrong)
    assert 'event=Path("schemas/order.json")' in refused.value.hint
