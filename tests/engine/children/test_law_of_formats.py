"""The law of slices for formats: small slices, large slices and replays give the same rows."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from kappa import Avro, Csv, Json, Protobuf, Table, Topic, count, max_, pipeline, sum_
from kappa.testing import Event, law_of_slices, some_events, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

SALES = Topic(
    "sales",
    event="id string, shop int not null, amount decimal(10,2), at timestamp, note string",
    format=Csv(separator=";"),
    partitions=2,
    key="shop",
    event_time="at",
    lateness="1 hour",
)
HITS = Topic(
    "hits",
    event="host string not null, at timestamp, path string, status int, size bigint",
    format="access-log",
    was={"size": "bytes"},
)

ORDERS = Topic("orders", format=Avro("tests/data/order.avsc"), key="id")
BIDS = Topic("bids", format=Protobuf("tests/data/bid.proto"), partitions=2, key="bidder")
CLICKS = Topic(
    "clicks",
    event="id string not null, at timestamp, n int, tags array<string>",
    format=Json(framed=True),
    identity="id",
)
CUSTOMERS = Topic(
    "customers",
    event="id string not null, name string",
    kind="compacted",
    key="id",
    key_format=Avro("tests/data/key.avsc"),
)
GOOD = 'h{} - - [10/Oct/2000:13:55:{:02d} +0200] "GET /{} HTTP/1.1" 200 {}'


@pipeline(
    reads={topic.name: topic for topic in (SALES, HITS, ORDERS, BIDS, CLICKS, CUSTOMERS)},
    writes=[
        Table("shops", keys=("shop",), fold={"n": count(), "amount": sum_("amount")}),
        Table("sold"),
        Table("hits"),
        Table("orders"),
        Table("newest", keys=("id",), fold={"price": sum_("price"), "n": count()}),
        Table("bidders", keys=("bidder",), fold={"n": count(), "last": max_("at")}),
        Table("bids"),
        Table("clicks"),
        Table("customers", latest=CUSTOMERS),
    ],
)
def sold(
    sales: DataFrame, hits: DataFrame, orders: DataFrame, bids: DataFrame, clicks: DataFrame
) -> dict[str, DataFrame]:
    return {
        "shops": sales,
        "sold": sales.select("id", "shop", "amount", "at", "note"),
        "hits": hits.select("host", "at", "path", "status", "size"),
        "orders": orders.select("id", "at", "price", "lines"),
        "newest": orders,
        "bidders": bids.select("bidder", "at"),
        "bids": bids.select("auction", "price", "channel", "at", "first"),
        "clicks": clicks.select("id", "at", "n", "tags"),
    }


def lines(number: int) -> list[Event]:
    draw = random.Random(7)  # the same lines again
    odd = [
        b'h - - [10/Oct/2000:13:55:36 +0200] "-" 408 -',
        b"no line of a server",
        b'h - - [10/Oct/2000:99:55:36 +0200] "-" 408 -',
        b"\xff",
    ]
    good = (GOOD.format(n % 3, n % 60, n, draw.choice(["-", n])).encode() for n in range(number))
    return [Event(draw.choice([line, *odd])) for line in good]


@pytest.mark.long
@pytest.mark.parametrize(
    "roots", ["disk", pytest.param("bucket", marks=pytest.mark.sweep)], indirect=True
)
@pytest.mark.usefixtures("roots")
def test_the_law_of_slices_holds_for_lines_of_text() -> None:
    events = {**some_events(sold, 8, seed=3), "hits": lines(8)}

    law_of_slices(sold, events, cuts=1)


def test_events_of_a_test_are_written_in_the_topics_format() -> None:
    at = "2023-11-14T22:13:20Z"
    found = tables_of(
        sold,
        {
            "sales": [
                {"id": "", "shop": 1, "amount": "2.50", "at": at, "note": 'a;"b"'},
                {"id": None, "shop": 1, "amount": 1, "at": at},
                Event(f"x;1;2,5;{at};".encode(), key="1"),
            ],
            "hits": [Event(GOOD.format(1, 2, 3, "-").encode())],
            "bids": [{"auction": 1, "bidder": 2, "at": at}, Event(b"\x08", key="2")],
            "customers": [
                {"id": "ä", "name": "Anna"},
                {"id": "b", "name": "Ben"},
                Event(b'{"id": "c"}', key=b"x"),
                Event(None, key=b"\x02b"),
            ],
            "clicks": [{"id": "a", "n": 3}, Event(b'{"id": "b"}')],
        },
    )

    def values(table: str, *names: str) -> list[tuple[object, ...]]:
        return [tuple(row[name] for name in names) for row in found[table]]

    assert values("sold", "id", "amount", "note") == [
        ("", Decimal("2.50"), 'a;"b"'),
        (None, Decimal("1.00"), None),
    ]
    assert values("hits", "path", "size") == [("/3", None)]
    assert values("bids", "auction", "channel", "first") == [(1, None, False)]
    assert values("clicks", "id", "n") == [("a", 3)]
    assert values("customers", "id", "name") == [("ä", "Anna")]
    assert sorted((row["value"], row["reason"]) for row in found["rejects"]) == [
        (b"\x08", "malformed_protobuf"),
        (f"x;1;2,5;{at};".encode(), "wrong_type"),
        (b'{"id": "b"}', "no_schema_id"),
        (b'{"id": "c"}', "bad_key"),
    ]
