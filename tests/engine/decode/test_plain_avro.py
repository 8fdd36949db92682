"""Whole batches of Avro give the rows of the reader of single records, and no invalid ones."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import pytest
from both_ways import check, damaged, declared, is_valid, opened_schemas
from examples import examples
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from kappa import Avro, Topic
from kappa.declare.formats.registry_schemas import frame_message

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "E",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "n", "type": "int"},
        {"name": "big", "type": ["long", "null"]},
        {"name": "flag", "type": "boolean"},
        {"name": "x", "type": ["null", "double"]},
        {"name": "f", "type": "float"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
# The fields in another order, one of them no longer null; one of another type; one more.
OTHERS: dict[int, Any] = {
    2: {**SCHEMA, "fields": SCHEMA["fields"][::-1]},
    3: {
        **SCHEMA,
        "fields": [
            {**each, "type": "string"} if each["name"] == "note" else each
            for each in SCHEMA["fields"]
        ],
    },
    4: {
        **SCHEMA,
        "fields": [
            {**each, "type": "int"} if each["name"] == "big" else each for each in SCHEMA["fields"]
        ],
    },
    5: {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "more", "type": "bytes"}]},
}
ALL = {1: SCHEMA, **OTHERS}
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
EVENTS = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "note": TEXTS,
        "n": st.integers(-(2**31), 2**31 - 1),
        "big": st.integers(-(2**31), 2**31 - 1),
        "flag": st.booleans(),
        "x": st.none() | st.floats(),
        "f": st.floats(width=32),
        "at": LONGS | st.integers(-(10**14), 10**14),
        "seen": st.none() | LONGS,
        "day": st.integers(-(2**31), 2**31 - 1) | st.integers(-1000, 1000),
        "more": st.binary(max_size=3),
    }
)


@pytest.fixture(scope="module", autouse=True)
def _schemas() -> Any:
    with opened_schemas("AVRO", {each: json.dumps(schema) for each, schema in ALL.items()}):
        yield


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Topic]:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "kappa.toml").touch()
    (folder / "e.avsc").write_text(json.dumps(SCHEMA))
    sources = {
        "framed": "Topic('t', format=Avro('e.avsc', framed=True))",
        "bare": "Topic('t', format=Avro('e.avsc'))",
        "keyed": "Topic('t', format=Avro('e.avsc', framed=True), key='n')",
    }
    return declared(folder, sources, Avro=Avro)


def written(schema: Any, event: Any) -> bytes:
    into = BytesIO()
    # A writer may write any number of the type: logical types are no matter of the bytes.
    bare = json.loads(json.dumps(schema).replace('"logicalType"', '"x-logical"'))
    schemaless_writer(into, parse_schema(bare), event)
    return into.getvalue()


@pytest.mark.law
@examples(150)
@given(st.lists(st.tuples(EVENTS, st.sampled_from([1, 2, 3, 4, 5, 9])), max_size=6), st.data())
def test_whole_batches_give_the_rows_of_the_reader_of_records(
    topics: dict[str, Topic], events: list[tuple[Any, int]], data: st.DataObject
) -> None:
    records: list[tuple[bytes | None, bytes | None]] = []
    for event, schema_id in events:
        framed = frame_message(schema_id, written(ALL.get(schema_id, SCHEMA), event))
        value = damaged(framed, data)
        key = data.draw(st.sampled_from([str(event["n"]).encode(), b"x", None]))
        records.append((key, value))
    records += [(None, None), (b"k", b"")]

    check(topics["framed"], records)
    check(topics["keyed"], records)
    check(topics["bare"], [(key, value and value[5:]) for key, value in records])


def test_plain_records_are_all_read_together(topics: dict[str, Topic]) -> None:
    event = {"id": "a", "note": "b", "n": -1, "big": 7, "flag": True, "x": None, "f": 0.5}
    event |= {"at": 5, "seen": None, "day": -3, "more": b""}
    records: list[tuple[bytes | None, bytes | None]] = [
        (b"-1", frame_message(each, written(schema, event))) for each, schema in ALL.items()
    ]
    broken = frame_message(
        1, written(SCHEMA, {**event, "id": "\N{SNOWMAN}"}).replace(b"\xe2", b"\xff")
    )

    assert check(topics["keyed"], records) == [True, True, True, False, False]
    assert check(topics["keyed"], [(b"7", records[0][1]), (b"-1", broken)]) == [False, False]
    assert check(topics["bare"], [(None, written(SCHEMA, event))]) == [True]
    assert [is_valid(topics["keyed"], each) for each in records] == [True] * 5
