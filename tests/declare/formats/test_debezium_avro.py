"""Changes of Debezium in Avro: each is read with the schema with which it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from decoded import read_change
from fastavro import parse_schema, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st

from kappa import Topic
from kappa.base.errors import UsageError
from kappa.declare.formats.registry_schemas import RegisteredSchema, frame_message, open_schemas
from kappa.declare.values.reason import Rejected
from kappa.records.keys import KeyReader
from kappa.records.record import RecordReader, Tombstone

CONNECT = "org.apache.kafka.connect.data"


def field(name: str, kind: Any, default: Any = None) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": default}


# As the converter of a registry writes a table of PostgreSQL.
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        field(
            "amount",
            {"type": "bytes", "scale": 2, "precision": 10, "logicalType": "decimal",
             "connect.version": 1, "connect.name": f"{CONNECT}.Decimal",
             "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        ),
        field("at", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}),
        field("day", {"type": "int", "connect.name": "io.debezium.time.Date"}),
        field("zoned", {"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}),
        field("ratio", "double"),
    ],
    "connect.name": "shop.app.orders.Value",
}  # fmt: skip
SOURCE = [{"name": "ts_us", "type": "long"}, field("txId", "long"), field("lsn", "long")]
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.app.orders",
    "fields": [
        field("before", ROW),
        field("after", "Value"),
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": SOURCE}},
        {"name": "op", "type": "string"},
    ],
    "connect.name": "shop.app.orders.Envelope",
}
ID = {"name": "id", "type": "long"}
KEY = {"type": "record", "name": "Key", "namespace": "shop.app.orders", "fields": [ID]}
# A later one, of another unit, by which the same number is another time.
LATER = json.dumps(ENVELOPE).replace("MicroTimestamp", "Timestamp")
AVRO_TEXTS = (json.dumps(ENVELOPE), json.dumps(KEY), LATER, None, '"string"', "{")
SCHEMAS = {
    number: RegisteredSchema("AVRO", text)
    for number, text in zip((1, 2, 3, 5, 6, 7), AVRO_TEXTS, strict=True)
} | {4: RegisteredSchema("JSON", "{}")}


def orders_topic(event: str, **more: Any) -> Topic:
    return Topic("shop.app.orders", event=event, format="debezium-avro", key="id", **more)


TOPIC = orders_topic(
    "id bigint not null, name string not null, amount decimal(10,2), at timestamp, day date,"
    " zoned timestamp, ratio double, change_op string not null, change_id string not null,"
    " change_at timestamp, change_lsn bigint",
    identity="change_id",
)
COMPACTED = orders_topic("id bigint not null, name string not null", kind="compacted")
ANN = {
    "id": 1, "name": "Ann", "amount": (1234).to_bytes(2), "at": 5_000, "day": 19_000,
    "zoned": "2024-01-31T12:00:00.5Z", "ratio": 0.5,
}  # fmt: skip


class _Known:
    def schema(self, schema_id: int) -> RegisteredSchema:
        return SCHEMAS[schema_id]


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    open_schemas(_Known())
    yield
    open_schemas(None)


def sent(schema_id: int, record: Any) -> bytes:
    into = BytesIO()
    text = SCHEMAS[schema_id].text
    assert text is not None
    schemaless_writer(into, parse_schema(_bare(json.loads(text))), record)
    return frame_message(schema_id, into.getvalue())


def _bare(schema: Any) -> Any:
    return json.loads(json.dumps(schema).replace('"logicalType": "decimal", ', ""))


def change(op: str, row: Any, schema_id: int = 1) -> bytes:
    before, after = (row, None) if op == "d" else (None, row)
    source = {"ts_us": 1_700_000_000_000_000, "txId": 3, "lsn": 7}
    return sent(schema_id, {"before": before, "after": after, "source": source, "op": op})


def read(value: bytes | None, key: bytes | None = None, of: Topic = TOPIC) -> Any:
    return read_change(of, sent(2, {"id": 1}) if key is None else key, value)


def test_a_row_is_read_by_the_schema_it_was_written_with() -> None:
    found = read(change("c", ANN))
    assert len(found.pop("change_id")) == 32
    assert found == {
        **ANN,
        "amount": Decimal("12.34"),
        "zoned": 1_706_702_400_500_000,
        "change_op": "c",
        "change_at": 1_700_000_000_000_000,
        "change_lsn": 7,
    }
    assert read(change("c", ANN, 3))["at"] == 5_000_000


def test_a_deletion_and_a_tombstone_are_as_in_json() -> None:
    truncates, row = read(change("d", ANN))
    assert (truncates, row["id"], row["change_op"]) == (False, 1, "d")
    assert read(change("t", None))[0]
    assert read(None) == Tombstone(None)


def test_a_compacted_topic_has_the_newest_row_of_each_key_and_deletes_by_tombstones() -> None:
    key = sent(2, {"id": 7})
    assert read(change("u", {**ANN, "id": 7}), key, COMPACTED) == {"id": 7, "name": "Ann"}
    assert read(None, key, COMPACTED) == Tombstone(7)
    assert read(None, b"7", COMPACTED) == "bad_key"
    assert KeyReader(COMPACTED).value(key) == 7


@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "name": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            "amount": st.none() | st.integers(-(10**10) + 1, 10**10 - 1),
            "at": st.none() | st.integers(-(10**15), 10**15),
            "day": st.none() | st.integers(-(10**5), 10**5),
            "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        }
    ),
    st.sampled_from("crud"),
)
def test_a_row_of_the_source_is_that_of_its_change(row: dict[str, Any], operation: str) -> None:
    amount = row["amount"]
    written = None if amount is None else amount.to_bytes(8, signed=True)
    value = change(operation, {**row, "amount": written, "zoned": None})

    found = read(value, sent(2, {"id": row["id"]}))
    found = found[1] if operation == "d" else found

    exact = None if amount is None else Decimal(amount).scaleb(-2)
    assert {name: found[name] for name in row} == {**row, "amount": exact}
    assert found["change_op"] == operation


@pytest.mark.parametrize(
    ("value", "key", "reason"),
    [
        (b"", None, "no_schema_id"),
        (b"{}", None, "no_schema_id"),
        (frame_message(4, b""), None, "schema_mismatch"),
        (frame_message(5, b""), None, "unknown_schema"),
        (frame_message(6, b"\x02a"), None, "malformed_change"),
        (frame_message(7, b""), None, "schema_mismatch"),
        (frame_message(1, b"\x02"), None, "malformed_avro"),
        (change("c", ANN) + b"\0", None, "malformed_avro"),
        (sent(2, {"id": 1}), None, "malformed_change"),
        (change("c", {**ANN, "ratio": float("nan")}), None, "out_of_range"),
        (change("c", {**ANN, "amount": b""}), None, "bad_format"),
        (change("c", ANN), sent(2, {"id": 2}), "key_mismatch"),
        (change("c", ANN), b"1", "bad_key"),
        (change("c", ANN), frame_message(4, b""), "bad_key"),
    ],
)
def test_what_is_no_change_is_a_reject(value: bytes, key: bytes | None, reason: str) -> None:
    assert read(value, key) == reason


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_double_that_is_no_number_is_no_decimal(number: str) -> None:
    event = "id bigint not null, ratio decimal(10,2), change_id string not null"
    of = orders_topic(event, identity="change_id")
    value = change("c", {**ANN, "ratio": float(number)})

    with pytest.raises(Rejected) as rejected:
        RecordReader(of).read(sent(2, {"id": 1}), value)
    assert rejected.value.reason == "out_of_range"


@given(st.data())
def test_any_damage_is_a_reject_with_a_reason_or_a_row(data: st.DataObject) -> None:
    value = bytearray(change(data.draw(st.sampled_from("cdt")), ANN))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(5, len(value)))
        value[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))

    read(bytes(value))


def test_a_change_in_avro_is_not_written_by_hand() -> None:
    with pytest.raises(UsageError, match="not written by hand"):
        TOPIC.format.encode_event({"id": 1}, TOPIC.columns)
    assert [*TOPIC.format.declared_lines()] == ["format debezium-avro"]
