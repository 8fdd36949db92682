"""Changes of Debezium: a change becomes a row or a removal, damage a reject with a reason."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from decoded import read_change
from hypothesis import given
from hypothesis import strategies as st

from kappa import Debezium, Table, Topic, pipeline
from kappa.base.errors import DeclarationError, UsageError
from kappa.declare.formats.debezium_envelope import change_identity
from kappa.declare.formats.format import RecordFormat
from kappa.declare.values.reason import Rejected
from kappa.kafka.reader import Record
from kappa.records.decode.decoder import originals_in
from kappa.records.decode.raw_records import raw_table
from kappa.records.keys import KeyReader
from kappa.records.lines.events import EventWriter
from kappa.records.lines.produce import event_records
from kappa.records.record import RecordReader, Tombstone
from kappa.replay.status.topics.records import SeenRecord, decoder_of, filter_of
from kappa.serving.collect.declared_topics import DeclaredTopics

FACTS = "change_op string not null, change_id string not null"
ROW = "id bigint not null, name string not null, amount decimal(10,2), at timestamp, day date"
PLAIN = Debezium(times="micros", decimals="text")
SOURCE = {"version": "3.7.0.Final", "connector": "postgresql", "table": "orders"}
SOURCE |= {"ts_ms": 1_700_000_000_123, "ts_us": 1_700_000_000_123_456, "snapshot": "false"}
SOURCE |= {"sequence": '["26812296","26812608"]', "txId": 744, "lsn": 26_812_608, "xmin": None}
ANN = {"id": 1, "name": "Ann", "amount": "2.50", "at": 1_700_000_000_000_001, "day": 19_000}
KEY = b'{"id": 1}'


def topic(event: str = f"{ROW}, {FACTS}", form: str | RecordFormat = PLAIN, **more: Any) -> Topic:
    declared = {"key": "id", "identity": "change_id", **more}
    return Topic("shop.app.orders", event=event, format=form, **declared)


def compacted(event: str = ROW, form: RecordFormat = PLAIN) -> Topic:
    return topic(event, form, kind="compacted", identity=())


def change(op: str, row: Any, *, before: Any = None, **source: Any) -> dict[str, Any]:
    rows = {"before": row if op == "d" else before, "after": None if op == "d" else row}
    source = {**SOURCE, **source}
    return {**rows, "source": source, "transaction": None, "op": op, "ts_ms": 1_700_000_000_500}


def sent(found: Any) -> bytes:
    return found if isinstance(found, bytes) else json.dumps(found).encode()


def read(of: Topic, value: Any, key: Any = KEY) -> Any:
    key, value = (None if each is None else sent(each) for each in (key, value))
    return read_change(of, key, value)


def test_a_row_that_is_written_has_the_columns_after_the_change_and_its_facts() -> None:
    for operation in "cru":
        found = read(topic(), change(operation, ANN, before={"id": 1, "name": "Anne"}))

        assert len(found.pop("change_id")) == 32
        assert found == {
            **ANN, "amount": Decimal("2.5"), "change_op": operation,
        }  # fmt: skip


def test_a_deletion_is_a_removal_with_what_the_source_still_knew() -> None:
    truncates, row = read(topic(), change("d", {"id": 1, "name": None}))

    assert not truncates
    assert (row["id"], row["name"], row["amount"], row["change_op"]) == (1, None, None, "d")


def test_a_truncation_is_a_removal_without_a_row_or_a_key() -> None:
    truncates, row = read(topic(), {**change("t", None), "after": None}, key=None)

    assert truncates
    assert {name for name, value in row.items() if value is not None} == {"change_op", "change_id"}


def test_a_tombstone_deletes_its_key_where_repeats_stay_and_nothing_where_they_go() -> None:
    # Behind the repeat of a deletion there is one that nothing tells from the first: a row that
    # was created again between them would be lost.
    assert read(topic(), None) == Tombstone(None)
    assert read(compacted(), None) == Tombstone(1)
    assert read(compacted(), None, key=b"1") == "bad_key"
    assert read(compacted(), None, key=None) == "null_key"


def test_an_update_of_a_key_is_two_changes_of_two_identities() -> None:
    # Debezium sends both with one place in the log, and a tombstone between.
    gone = read(topic(), change("d", ANN))[1]
    made = read(topic(), change("c", {**ANN, "id": 2}), key=b'{"id": 2}')

    assert (gone["id"], made["id"]) == (1, 2)
    assert gone["change_id"] != made["change_id"]


def test_a_repeat_has_the_identity_of_the_first_whoever_sends_it() -> None:
    of = topic()
    first = read(of, change("u", ANN))["change_id"]
    again = change("u", ANN, version="4.0", ts_ms=5, sequence='["0","1"]', xmin=7)
    assert read(of, again)["change_id"] == first
    others = [
        change("u", ANN, lsn=26_812_609),
        change("u", ANN, txId=745),
        change("c", ANN),
        # Rows of a snapshot, or of one COPY, have one place.
        change("u", {**ANN, "id": 2}),
        change("u", ANN, table="others"),
    ]
    found = [read(topic(key=None), each)["change_id"] for each in others]
    assert len({first, *found}) == 1 + len(others)


def test_facts_are_columns_like_any_other() -> None:
    event = (
        f"{ROW}, {FACTS}, change_at timestamp, change_lsn bigint, change_tx bigint,"
        " change_snapshot string, change_key string, change_before struct<amount:decimal(10,2)>,"
        " sequence string, place bigint, op string"
    )
    form = Debezium(
        times="micros",
        decimals="text",
        facts={"sequence": "source.sequence", "place": "transaction.total_order"},
    )
    whole = change("u", {**ANN, "op": "of the row"}, before={"amount": "1.25"})
    found = read(topic(event, form), {**whole, "transaction": {"id": "7", "total_order": 3}})

    assert found["change_at"] == SOURCE["ts_us"]
    assert (found["change_lsn"], found["change_tx"]) == (26_812_608, 744)
    assert (found["change_snapshot"], found["change_key"]) == ("false", '{"id":1}')
    assert found["change_before"] == {"amount": Decimal("1.25")}
    assert (found["sequence"], found["place"]) == (SOURCE["sequence"], 3)
    # A column of the row is not taken for a fact.
    assert (found["op"], found["change_op"]) == ("of the row", "u")


def test_facts_may_have_other_names() -> None:
    of = topic(
        "id bigint not null, change_op bigint, op string, uid string",
        Debezium(facts={"op": "op", "uid": "id"}),
        identity="uid",
    )
    found = read(of, change("c", {"id": 1, "change_op": 7}))
    assert (found["change_op"], found["op"], len(found["uid"])) == (7, "c", 32)


def test_a_key_of_several_columns_is_one_text() -> None:
    of = topic(f"a bigint, b string, change_key string not null, {FACTS}", PLAIN, key="change_key")
    row = {"a": 1, "b": "x"}
    found = read(of, change("c", row), key={"b": "x", "a": 1})
    assert found["change_key"] == '{"a":1,"b":"x"}'
    assert read(of, change("d", row), key=row)[1]["change_key"] == '{"a":1,"b":"x"}'
    # Of one of its columns there would be one row for many.
    assert read(topic(f"a bigint, {FACTS}", key="a"), change("c", row), key=row) == "key_mismatch"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ({"id": 2}, "key_mismatch"),
        ({"other": 1}, "key_mismatch"),
        ({}, "key_mismatch"),
        ({"id": None}, "key_mismatch"),
        ({"id": "1"}, "wrong_type"),
        (b"1", "bad_key"),
        (b"{", "bad_key"),
        (b"\xff", "bad_key"),
        (None, "null_key"),
    ],
)
def test_a_key_that_is_not_the_rows_is_a_reject(key: Any, reason: str) -> None:
    assert read(topic(), change("c", ANN), key=key) == reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "malformed_json"),
        (b"[]", "not_an_object"),
        ({"id": 1, "name": "Ann"}, "malformed_change"),
        ({**change("c", ANN), "op": "m"}, "malformed_change"),
        ({**change("c", ANN), "op": ["c"]}, "malformed_change"),
        ({**change("c", ANN), "source": None}, "malformed_change"),
        ({**change("c", ANN), "after": None}, "malformed_change"),
        ({**change("d", ANN), "before": None}, "malformed_change"),
        ({"schema": None, "payload": None}, "malformed_change"),
        (change("c", {**ANN, "name": None}), "missing_field"),
        (change("c", {"id": 1}), "missing_field"),
        (change("c", {**ANN, "name": "__debezium_unavailable_value"}), "missing_field"),
        (change("c", {**ANN, "id": "1"}), "wrong_type"),
        (change("c", {**ANN, "day": 2.5}), "wrong_type"),
        (change("c", {**ANN, "day": 10**9}), "out_of_range"),
        (change("c", {**ANN, "at": 10**18}), "out_of_range"),
        (change("c", {**ANN, "amount": "D0JA"}), "bad_format"),
        (change("c", {**ANN, "amount": "1.234"}), "out_of_range"),
    ],
)
def test_what_is_no_change_of_a_row_is_a_reject(value: Any, reason: str) -> None:
    assert read(topic(), value) == reason


def test_what_a_record_without_schemas_does_not_say_is_a_reject() -> None:
    of = topic(form="debezium-json")
    # A thousandth of it would be a time, too; and `1234` is three bytes as well as a number.
    assert read(of, change("c", ANN)) == "bad_format"
    assert read(of, change("c", {**ANN, "at": None, "amount": "1234"})) == "bad_format"
    read_by_values = read(of, change("c", {**ANN, "at": "2024-01-31T12:00:00Z", "amount": 2.5}))
    assert read_by_values["amount"] == Decimal("2.5")


def test_columns_come_and_go() -> None:
    older = change("c", {"id": 1, "name": "Ann"})
    assert read(topic(), older)["amount"] is None
    of = topic(f"id bigint not null, full string default '?', {FACTS}", was={"full": "name"})
    assert read(of, older)["full"] == "Ann"
    assert read(of, change("c", {"id": 1}))["full"] == "?"
    # Of a deletion a default would be made up.
    assert read(of, change("d", {"id": 1}))[1]["full"] is None


def wrapped(row: Mapping[str, Any], fields: list[dict[str, Any]], op: str = "c") -> dict[str, Any]:
    """Returns a change in the form that Connect's converter writes with schemas."""
    of_row = {"type": "struct", "fields": fields, "optional": True}
    sides = [{**of_row, "field": side} for side in ("before", "after")]
    return {"schema": {"type": "struct", "fields": sides}, "payload": change(op, dict(row))}


def coded(number: int) -> str:
    return base64.b64encode(number.to_bytes(8, signed=True)).decode()


TIME, CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
MICROS = 1_700_000_000_000_001


@pytest.mark.parametrize(
    ("kind", "schema", "value", "wanted"),
    [
        ("timestamp", {"name": f"{TIME}.MicroTimestamp"}, MICROS, MICROS),
        ("timestamp", {"name": f"{TIME}.Timestamp"}, MICROS // 1000, MICROS - 1),
        ("timestamp", {"name": f"{CONNECT}.Timestamp"}, MICROS // 1000, MICROS - 1),
        ("timestamp", {"name": f"{TIME}.NanoTimestamp"}, MICROS * 1000 + 7, MICROS),
        ("timestamp", {"name": f"{TIME}.ZonedTimestamp"}, "2023-11-14T22:13:20.000001Z", MICROS),
        ("timestamp", {"name": f"{TIME}.Date"}, 19_000, "wrong_type"),
        ("timestamp", {}, MICROS, "bad_format"),
        ("timestamp", {"name": f"{TIME}.MicroTime"}, 5, "bad_format"),
        ("date", {"name": f"{TIME}.Date"}, 19_000, 19_000),
        ("date", {"name": f"{CONNECT}.Date"}, -1, -1),
        ("date", {"name": f"{TIME}.MicroTimestamp"}, 19_000, "wrong_type"),
        ("date", {"name": f"{TIME}.ZonedTimestamp"}, "2024-01-31", "wrong_type"),
        ("bigint", {"name": f"{TIME}.MicroTime"}, 5, 5),
        ("decimal(10,2)", {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}},
         coded(-1234), Decimal("-12.34")),
        ("decimal(38,10)", {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "4"}},
         coded(10**18 + 1), Decimal("100000000000000.0001")),
        ("decimal(10,2)", {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "3"}},
         coded(1234), "out_of_range"),
        ("decimal(10,2)", {"name": f"{CONNECT}.Decimal"}, coded(1234), "bad_format"),
        ("decimal(10,2)", {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}},
         "?", "bad_format"),
        ("decimal(10,2)", {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}},
         12.5, Decimal("12.5")),
        ("decimal(10,2)", {"name": "io.debezium.data.VariableScaleDecimal"},
         {"scale": 1, "value": coded(125)}, Decimal("12.5")),
        ("decimal(10,2)", {"name": "io.debezium.data.VariableScaleDecimal"},
         {"scale": "1"}, "bad_format"),
        ("decimal(10,2)", {}, "12.5", Decimal("12.5")),
        ("string", {"name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}},
         coded(1234), "wrong_type"),
        ("string", {"name": "io.debezium.data.Uuid"}, "a-b", "a-b"),
        ("array<timestamp>", {"items": {"name": f"{TIME}.Timestamp"}}, [1, None], [1000, None]),
        ("array<timestamp>", {"items": 7}, [1], "bad_format"),
        ("array<int>", {}, 5, "wrong_type"),
        ("struct<a:date not null>", {"fields": [{"field": "a", "name": f"{TIME}.Date"}]},
         {"a": 3}, {"a": 3}),
        ("struct<a:date not null>", {"fields": [{"field": "a", "name": f"{TIME}.Date"}]},
         {}, "missing_field"),
    ],
)  # fmt: skip
def test_a_value_is_what_its_schema_says(
    kind: str, schema: dict[str, Any], value: Any, wanted: Any
) -> None:
    of = topic(f"id bigint not null, x {kind}, {FACTS}", "debezium-json")
    fields = [{"type": "int64", "field": "id"}, {"type": "any", **schema, "field": "x"}]
    # The key has its schema, too.
    key = {"schema": {"type": "struct", "fields": fields[:1]}, "payload": {"id": 1}}

    found = read(of, wrapped({"id": 1, "x": value}, fields), key)

    assert (found if isinstance(found, str) else found["x"]) == wanted


def test_each_record_is_read_by_its_own_schema() -> None:
    reader = RecordReader(topic(f"id bigint not null, x timestamp, {FACTS}", "debezium-json"))
    rows = []
    for _ in range(2):
        for name in ("Timestamp", "MicroTimestamp"):
            fields = [{"field": "id"}, {"field": "x", "name": f"{TIME}.{name}"}]
            found = reader.read(KEY, sent(wrapped({"id": 1, "x": 5}, fields)))
            assert isinstance(found, tuple)
            rows.append(found[1])
    assert rows == [5000, 5, 5000, 5]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=4)
    | st.sampled_from(["c", "d", "t", "__debezium_unavailable_value", "before", 1.5]),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from(
            ["id", "name", "amount", "at", "day", "schema", "payload", "fields", "field", "items",
             "parameters", "scale", "value", "op", "source", "before", "after", "lsn", "ts_us"]
        ),
        inner, max_size=3,
    ),
    max_leaves=6,
)  # fmt: skip


@given(st.data())
def test_any_damage_is_a_reject_with_a_reason_or_a_row(data: st.DataObject) -> None:
    of = topic(
        f"{ROW}, {FACTS}, change_at timestamp, change_key string, change_before struct<id:int>"
    )
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "amount", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}},
    ]
    whole: Any = data.draw(
        st.sampled_from([change("u", ANN, before=ANN), change("d", ANN), wrapped(ANN, fields)])
    )
    whole = json.loads(json.dumps(whole))
    for _ in range(data.draw(st.integers(1, 3))):
        at = whole
        while isinstance(at, dict) and at:
            name = data.draw(st.sampled_from(sorted(at)))
            if not isinstance(at[name], dict) or data.draw(st.booleans()):
                at[name] = data.draw(VALUES)
                break
            at = at[name]
    value = bytearray(sent(whole))
    for _ in range(data.draw(st.integers(0, 1))):
        place = data.draw(st.integers(0, len(value)))
        value[place : place + 1] = data.draw(st.binary(max_size=2))
    key = data.draw(st.sampled_from([KEY, None]) | st.binary(max_size=5) | VALUES.map(sent))

    read(of, bytes(value), key)
    read(compacted(), bytes(value), key)
    read(compacted(), None, key)


@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "name": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
            "at": st.none() | st.integers(-(10**15), 10**15),
            "day": st.none() | st.integers(-(10**5), 10**5),
        }
    ),
    st.sampled_from("crud"),
)
def test_what_is_written_by_hand_is_read_again(row: dict[str, Any], operation: str) -> None:
    of = topic(f"{ROW}, {FACTS}, change_lsn bigint")
    value = of.format.encode_event({**row, "change_op": operation, "change_lsn": 7}, of.columns)

    found = read(of, value, PLAIN.encoded_key("id", row["id"]))
    found = found[1] if isinstance(found, tuple) else found

    assert {name: found[name] for name in row} == row
    assert (found["change_op"], found["change_lsn"]) == (operation, 7)


def test_a_key_is_known_as_its_table_has_it() -> None:
    known = KeyReader(compacted())
    assert known.value(KEY) == 1
    assert known.value(sent({"schema": None, "payload": {"id": 7}})) == 7
    whole = KeyReader(topic("change_key string not null", kind="compacted", key="change_key",
        identity=()))  # fmt: skip
    assert whole.value(b'{"b": 2, "a": "x"}') == '{"a":"x","b":2}'
    for damaged in (b"{", None):
        with pytest.raises(Rejected):
            known.value(damaged)


def test_changes_are_looked_for_by_the_value_of_their_key() -> None:
    is_wanted = filter_of("1", [], topic())

    def seen(key: bytes | None) -> SeenRecord:
        return decoder_of(topic())(Record("t", 0, 0, 0, key, sent(change("c", ANN)), ()))

    assert [is_wanted(seen(key)) for key in (KEY, b'{"id": 2}', b"1", None)] == [True] + [False] * 3


def test_identities_do_not_depend_on_the_order_of_fields() -> None:
    found = change_identity("c", {"lsn": 1, "txId": 2}, {"a": 1, "b": None})
    assert found == change_identity("c", {"txId": 2, "lsn": 1}, {"b": None, "a": 1})


def test_the_format_is_part_of_the_version() -> None:
    facts = [{"facts": {"place": "source.pos"}}, {"facts": {"op": "op"}}]
    options = [{}, {"times": "micros"}, {"decimals": "text"}, *facts]
    declared = [Debezium(**each) for each in options]
    assert [*Debezium().declared_lines()] == ["format debezium-json"]
    assert len({tuple(each.declared_lines()) for each in declared}) == len(declared)
    # What is repeated does not change how a record is read.
    assert [*Debezium(exactly_once=True).declared_lines()] == ["format debezium-json"]
    assert topic(form="debezium-json").format == Debezium()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Debezium(times="seconds"), "times='seconds'"),
        (lambda: Debezium(decimals="bytes"), "decimals='bytes'"),
        (lambda: Debezium("xml"), "encoding='xml'"),
        (lambda: Debezium(exactly_once="yes"), "exactly_once='yes'"),
        (lambda: Debezium(facts=["op"]), "facts is a list"),
        (lambda: Debezium(facts={"a": "after.b"}), "'after.b', which no change has"),
        (lambda: Debezium(facts={1: "op"}), "which no change has"),
        (lambda: topic(f"id bigint, {FACTS}", identity=()), "no identity, and Debezium repeats"),
        (lambda: topic(identity=("id", "change_id")), "the identity id, change_id: a change is"),
        (lambda: topic(identity="id"), "a truncation has no row"),
        (lambda: topic(key="change_id"), "the key change_id, which is a fact of the change"),
        (lambda: topic(lateness="1 hour", event_time="at"), "a lateness"),
        (lambda: topic(archive=True, identity=(), form=Debezium(exactly_once=True)), "no archive"),
        (lambda: topic({"type": "object", "properties": {"id": {"type": "integer"}}}),
         "a JSON Schema is about JSON's values"),
        (lambda: topic("id bigint, change_op int"), "is the change's op, a text"),
        (lambda: topic("id bigint, change_at bigint"), "is the change's time"),
        (lambda: topic("id bigint, change_before string"), "the row before its change"),
        (lambda: topic("id bigint, change_lsn array<int>"), "source.lsn is one value"),
        (lambda: topic("id bigint, change_op string default 'c'"), "has a default"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be_meant_is_refused(wrong: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message) as refused:
        wrong()
    assert "test_debezium.py" in str(refused.value)
    assert refused.value.hint


def test_changes_come_with_their_keys_from_a_database_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a change alone has no key") as refused:
        event_records(topic())
    assert "--envelope" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="a change alone has no key") as refused:
        EventWriter(topic())
    assert "--envelope" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="events are a database's changes, which is not collected"):
        DeclaredTopics(tmp_path, ["orders"], say=print, load=lambda _: {"orders": topic()})


def test_a_change_that_names_a_reject_is_a_change_like_any_other() -> None:
    raw = raw_table([("t", 0, 5, 0, KEY, b"{}", (("kappa-redrive", b"t:0:1@1"),))])
    (batch,) = raw.to_batches()

    assert originals_in(batch, Topic("t", event="id bigint")) != {}
    assert originals_in(batch, topic()) == {}


def test_a_function_has_to_know_which_changes_delete() -> None:
    blind = topic(f"{ROW}, change_id string not null")

    with pytest.raises(DeclarationError, match="nothing tells it which of them delete") as refused:

        @pipeline(reads={"orders": blind}, writes=[Table("t")])
        def wrong(orders: Any) -> dict[str, Any]:
            return {"t": orders}

    assert "add a column change_op string" in (refused.value.hint or "")

    @pipeline(reads={"orders": blind}, writes=[Table("t", latest=blind)])
    def right() -> dict[str, Any]:
        return {}

    assert right.latest_tables
