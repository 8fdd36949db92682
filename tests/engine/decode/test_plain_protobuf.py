"""Whole batches of Protobuf give the rows of the reader of single records, and no invalid ones."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from both_ways import (
    Records,
    check,
    damaged,
    declared,
    ensure_same_in_parts,
    is_valid,
    opened_schemas,
)
from examples import examples
from google.protobuf import message_factory
from hypothesis import given
from hypothesis import strategies as st

from kappa import Protobuf, Subject, Topic
from kappa.declare.formats.protobuf_schema import message_named, message_types
from kappa.declare.formats.registry_schemas import (
    PinnedSchema,
    RegisteredSchema,
    frame_message,
    pin_path,
)
from kappa.records.decode.raw_records import raw_table
from kappa.records.decode.readers import plain_reader

FIELDS = """
  string id = 1;
  optional string note = 2;
  int32 n = 3;
  optional int64 big = 4;
  uint32 small = 5;
  uint64 huge = 6;
  sint32 down = 7;
  optional sint64 deep = 8;
  fixed32 four = 9;
  sfixed32 signed = 10;
  fixed64 eight = 11;
  sfixed64 wide = 12;
  optional double x = 13;
  float f = 14;
  bool flag = 15;
  google.protobuf.Timestamp at = 16;
  optional State state = 17;
  google.protobuf.StringValue text = 18;
  google.protobuf.Int32Value number = 19;
  google.protobuf.DoubleValue real = 20;
  oneof pay { string card = 21; int64 cash = 22; }
"""
SCHEMA = f"""
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Other {{ string id = 1; }}
message E {{
  enum State {{ option allow_alias = true; NEW = 0; PAID = 1; SETTLED = 1; GONE = -1; }}
  message Inner {{ string city = 1; }}
  {FIELDS}
  repeated string tags = 30;
  Inner inner = 31;
  bytes raw = 32;
  string unseen = 33;
}}
"""
OLD = """
syntax = "proto2";
message E {
  enum State { NEW = 3; PAID = 1; }
  required string id = 1;
  optional int32 n = 2 [default = 7];
  optional State state = 3;
  optional string note = 4;
}
"""
# What writers of other versions have: one field more, and the message at another place.
OTHERS = {8: SCHEMA.replace("string unseen = 33;", "string unseen = 33; string more = 500;")}
COLUMNS = (
    "id string not null, note string, n int not null, big bigint, small bigint not null, "
    "huge decimal(20,0) not null, down int not null, deep bigint, four bigint not null, "
    "signed int not null, eight decimal(20,0) not null, wide bigint not null, x double, "
    "f float not null, flag boolean not null, at timestamp, state string, text string, "
    "number int, real double, card string, cash bigint"
)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
WIDE = st.integers(0, 2**64 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": TEXTS,
        "note": TEXTS,
        "n": INTS,
        "big": LONGS,
        "small": st.integers(0, 2**32 - 1),
        "huge": WIDE,
        "down": INTS,
        "deep": LONGS,
        "four": st.integers(0, 2**32 - 1),
        "signed": INTS,
        "eight": WIDE,
        "wide": LONGS,
        "x": st.floats(),
        "f": st.floats(width=32),
        "flag": st.booleans(),
        "at": st.tuples(LONGS | st.integers(-(10**11), 10**12), st.integers(-5, 10**9 + 5)),
        "state": st.integers(-2, 2),
        "text": TEXTS,
        "number": INTS,
        "real": st.floats(),
        "card": TEXTS,
        "cash": LONGS,
        "tags": st.lists(TEXTS, max_size=2),
        "inner": TEXTS,
        "raw": st.binary(max_size=3),
        "unseen": TEXTS,
    },
)
MESSAGE = message_factory.GetMessageClass(message_named(message_types(SCHEMA), "shop.E"))


@pytest.fixture(scope="module", autouse=True)
def _schemas() -> Any:
    with opened_schemas("PROTOBUF", OTHERS):
        yield


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Topic]:
    folder = tmp_path_factory.mktemp("plain-protobuf")
    (folder / "kappa.toml").touch()
    (folder / "e.proto").write_text(SCHEMA)
    (folder / "old.proto").write_text(OLD)
    pin = folder / pin_path("t-value")
    pin.parent.mkdir(parents=True)
    known = PinnedSchema("t-value", 3, 7, RegisteredSchema("PROTOBUF", SCHEMA))
    pin.write_bytes(msgspec.json.encode(known))
    form = "format=Protobuf(Subject('t-value'), message='shop.E')"
    return declared(
        folder,
        {
            "framed": f"Topic('t', event={COLUMNS!r}, {form})",
            "keyed": f"Topic('t', event={COLUMNS!r}, {form}, key='n')",
            "bare": f"Topic('t', event={COLUMNS!r}, format=Protobuf('e.proto', message='shop.E'))",
            "strict": "Topic('t', event='id string not null, state string not null', "
            "format=Protobuf('e.proto', message='shop.E'))",
            "old": "Topic('t', format=Protobuf('old.proto'))",
            "nested": "Topic('t', event='id string not null, inner struct<city:string not null>', "
            "format=Protobuf('e.proto', message='shop.E'))",
        },
        Protobuf=Protobuf,
        Subject=Subject,
    )


def written(event: dict[str, Any]) -> bytes:
    made = MESSAGE()
    for name, value in event.items():
        match name:
            case "at":
                made.at.seconds, made.at.nanos = value
            case "text" | "number" | "real":
                getattr(made, name).value = value
                getattr(made, name).SetInParent()
            case "inner":
                made.inner.city = value
            case "tags":
                made.tags.extend(value)
            case _:
                setattr(made, name, value)
    value: bytes = made.SerializeToString()
    return value


FRAMES = [
    frame_message(7, b"\x02\x02"),
    frame_message(8, b"\x02\x02"),
    frame_message(8, b"\x00"),
    frame_message(9, b"\x00"),
    b"\0\0",
]


@pytest.mark.law
@examples(150)
@given(st.lists(st.tuples(EVENTS, st.sampled_from(FRAMES)), max_size=6), st.data())
def test_whole_batches_give_the_rows_of_the_reader_of_records(
    topics: dict[str, Topic], events: list[tuple[Any, bytes]], data: st.DataObject
) -> None:
    records: Records = []
    for event, frame in events:
        # Parts in another order, twice, unknown.
        more = data.draw(
            st.sampled_from([b"", b"", b"\x18\x05", b"\xa2\x1f\x01b", b"\x82\x01\x02\x08\x01"])
        )
        value = damaged(frame + written(event) + more, data)
        key = data.draw(st.sampled_from([str(event.get("n", 0)).encode(), b"x", b"\xff", None]))
        records.append((key, value))
    records += [(None, None), (b"k", b"")]

    check(topics["framed"], records)
    check(topics["keyed"], records, frozenset({"n", "id", "f", "state"}))
    check(topics["bare"], [(key, value and value[7:]) for key, value in records])
    check(topics["strict"], [(key, value and value[7:]) for key, value in records])
    check(topics["old"], [(key, value and value[7:]) for key, value in records])


@pytest.mark.law
@examples(150)
@given(st.lists(st.binary(max_size=12), max_size=20))
def test_any_bytes_are_a_row_of_both_or_left(topics: dict[str, Topic], values: list[bytes]) -> None:
    check(topics["bare"], [(None, value) for value in values])
    check(topics["old"], [(None, b"\x0a\x00" + value) for value in values])


def test_plain_records_are_all_read_together(topics: dict[str, Topic]) -> None:
    event = {"id": "a\N{SNOWMAN}", "n": -1, "big": 7, "flag": True, "f": 0.5, "at": (5, 1000)}
    event |= {"state": 1, "text": "", "number": 0, "card": "c", "raw": b"\xff", "unseen": "u"}
    value = written(event)
    records: Records = [(b"-1", frame + value) for frame in FRAMES]

    assert check(topics["keyed"], records) == [True, True, False, False, False]
    assert [is_valid(topics["keyed"], each) for each in records] == [True, True, *[False] * 3]
    assert check(topics["keyed"], [(b"7", records[0][1])]) == [False]
    assert check(topics["bare"], [(None, value + b"\xa2\x1f\x01b"), (None, b"")]) == [True, True]
    assert check(topics["old"], [(None, b"\x0a\x01a\x10\x05\x18\x03")]) == [True]
    # A declaration may want what the schema does not.
    assert check(topics["strict"], [(None, value), (None, written({"id": "a"}))]) == [True, False]


@pytest.mark.parametrize(
    "value",
    [
        written({"tags": ["a"]}),
        written({"inner": "a"}),
        # Twice; both of a oneof; in more bytes than it takes; texts that are no UTF-8.
        b"\x18\x05\x18\x06",
        b"\xaa\x01\x01a\xb0\x01\x07",
        b"\x98\x00\x05",
        b"\x0a\x01\xff",
        b"\x8a\x02\x01\xff",
        b"\x18",
        b"\x07",
    ],
)
def test_what_is_not_plain_is_left_and_costs_no_record_beside_it(
    topics: dict[str, Topic], value: bytes
) -> None:
    good = written({"id": "a"})

    assert check(topics["bare"], [(None, good), (None, value), (None, good)]) == [True, False, True]


@pytest.mark.parametrize("wrong", [0.0, 0.05, 1.0])
def test_a_large_batch_is_decoded_as_small_ones_are(topics: dict[str, Topic], wrong: float) -> None:
    """The rows, and the rejects with their reasons, are the same."""
    draw, topic = random.Random(wrong), topics["keyed"]
    records = []
    for number in range(4_000):
        value = bytearray(draw.choice(FRAMES[:2]) + written({"id": f"a{number}", "n": number}))
        if draw.random() < wrong:
            value[draw.randrange(len(value))] = draw.randrange(256)
        records.append((str(number).encode(), bytes(value)))
    raw = raw_table(
        ("t", number % 2, number // 2, 1_700_000_000_000_000 + 1_000 * number, *record, ())
        for number, record in enumerate(records)
    )

    ensure_same_in_parts(raw, topic, 400)


def test_nested_columns_are_left_to_the_reader_of_records(topics: dict[str, Topic]) -> None:
    assert plain_reader(topics["nested"]) is None
