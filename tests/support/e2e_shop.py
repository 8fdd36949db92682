"""A small shop: a pipeline that end-to-end tests deploy and change, and its right tables.

The right content of the tables is computed in plain Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record

V1 = '''
"""Orders of a shop."""
from kappa import Table, Topic, View, avg_, count, max_, min_, pipeline, sum_

ORDERS = Topic("orders", partitions=3, key="customer", \
event="customer string not null, item string, amount bigint, at timestamp")
ITEMS = Topic("items", kind="compacted", key="item", \
event="item string not null, title string", partitions=2)


@pipeline(
    reads={"orders": ORDERS, "items": ITEMS},
    writes=[
        Table("by_customer", keys=("customer",), \
fold={"orders": count(), "amount": sum_("amount"), "least": min_("amount"), \
"most": max_("amount"), "amounts": count("amount"), "mean": avg_("amount")}, \
checks=["orders > 0", "mean is not distinct from amount / amounts"]),
        Table("by_item", keys=("item",), fold={"orders": count()}),
        Table("order_log"),
        Table("items", latest=ITEMS),
        View("titled", "select title, sum(orders)::bigint as orders \
from by_item join items using (item) group by all"),
    ],
)
def shop(orders):
    """What customers order."""
    return {"by_customer": orders, "by_item": orders, \
"order_log": orders.select("customer", "item", "amount", "at")}
'''


def without_returns(text: str) -> str:
    """Returns the pipeline's code with negative amounts left out of a customer's orders."""
    changed = text.replace(
        '{"by_customer": orders,', '{"by_customer": orders.where("amount is null or amount >= 0"),'
    )
    assert changed != text
    return changed


V2 = without_returns(V1)
# The orders alone, in two tables, for tests of other things: each table is work in each slice.
LEAN_1 = """
from kappa import Table, Topic, avg_, count, max_, min_, pipeline, sum_

ORDERS = Topic("orders", partitions=3, key="customer", \
event="customer string not null, item string, amount bigint, at timestamp")


@pipeline(
    reads={"orders": ORDERS},
    writes=[
        Table("by_customer", keys=("customer",), \
fold={"orders": count(), "amount": sum_("amount"), "least": min_("amount"), \
"most": max_("amount"), "amounts": count("amount"), "mean": avg_("amount")}),
        Table("order_log"),
    ],
)
def shop(orders):
    return {"by_customer": orders, "order_log": orders.select("customer", "item", "amount", "at")}
"""
LEAN_2 = without_returns(LEAN_1)


def order(number: int, *, amount: int | None = None, customer: str | None = None) -> ProducedRecord:
    """Returns the order with this number; every seventh amount is null, every fifth negative."""
    customer = customer or f"cust-{number % 17} é✈"
    given = (
        amount
        if amount is not None
        else None
        if number % 7 == 0
        else -number
        if number % 5 == 0
        else number
    )
    event = {
        "customer": customer,
        "item": f"item-{number % 9}",
        "amount": given,
        "at": 1_700_000_000_000 + number // 2,
    }
    return ProducedRecord(
        key=customer.encode(), value=json.dumps(event, ensure_ascii=False).encode()
    )


def item(number: int, title: str | None) -> ProducedRecord:
    """Returns the record of an item's title; None deletes it."""
    name = f"item-{number}"
    return ProducedRecord(
        key=name.encode(),
        value=None if title is None else json.dumps({"item": name, "title": title}).encode(),
    )


def orders_and_a_title(turn: int) -> Iterator[tuple[str, ProducedRecord]]:
    """Yields the records that a producer sends in one turn, each with its topic."""
    for number in range(40 * turn, 40 * turn + 40):
        yield "orders", order(number)
    yield "items", item(turn % 9, f"title {turn}" if turn % 4 else None)


def expected(records: Iterable[Record], *, version: int) -> dict[str, list[tuple[Any, ...]]]:
    """Computes the tables' content from these valid records of the broker, by plain loops."""
    by_customer: dict[str, list[Any]] = {}
    by_item: dict[Any, int] = {}
    order_log: list[tuple[Any, ...]] = []
    items: dict[str, str] = {}
    for record in records:
        if record.topic == "items":
            name = (record.key or b"").decode()
            if record.value is None:
                items.pop(name, None)
            else:
                items[name] = json.loads(record.value)["title"]
            continue
        assert record.value is not None
        event = json.loads(record.value)
        amount = event["amount"]
        by_item[event["item"]] = by_item.get(event["item"], 0) + 1
        order_log.append((event["customer"], event["item"], amount))
        if version == 1 or amount is None or amount >= 0:
            row = by_customer.setdefault(event["customer"], [0, None, None, None])
            row[0] += 1
            if amount is not None:
                row[1] = amount if row[1] is None else row[1] + amount
                row[2] = amount if row[2] is None else min(row[2], amount)
                row[3] = amount if row[3] is None else max(row[3], amount)
    return {
        "by_customer": sorted((name, *row) for name, row in by_customer.items()),
        "by_item": sorted(by_item.items()),
        "order_log": sorted(order_log, key=repr),
        "items": sorted(items.items()),
    }


ASKED = {
    "by_customer": (
        "select customer, orders, amount, least, most from by_customer order by customer"
    ),
    "by_item": "select item, orders from by_item order by item",
    "order_log": "select customer, item, amount from order_log",
    "items": "select item, title from items order by item",
}
