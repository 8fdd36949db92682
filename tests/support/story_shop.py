"""A shop whose builds differ in rows and columns, with sinks, for a long story of switches."""

from __future__ import annotations

import random
from collections.abc import Iterator

from e2e_shop import LEAN_1, order, without_returns

from kappa.kafka.producer import ProducedRecord

TABLES = ("by_customer", "order_log", "by_count")
SINKS = {"customers": "by_customer", "counts": "by_count"}
_MOST = '"most": max_("amount"), '


def _changed(text: str, before: str, after: str) -> str:
    assert before in text, before
    return text.replace(before, after, 1)


FIRST = _changed(
    _changed(LEAN_1, "import Table,", "import Sink, Table, View,"),
    '        Table("order_log"),\n',
    """        Table("order_log"),
        View(
            "by_count",
            "select orders, count(*) as customers, sum(amount)::bigint as amount "
            "from by_customer group by orders",
            keys=["orders"],
        ),
        Sink("customers", of="by_customer"),
        Sink("counts", of="by_count"),
""",
)
# Other customers' rows, and some customers less.
WITHOUT_RETURNS = without_returns(FIRST)
# Other columns of all rows.
WITHOUT_MOST = _changed(FIRST, _MOST, "")
# Fewer rows without keys, and other rows with some.
WITHOUT_AN_ITEM = _changed(
    FIRST,
    "def shop(orders):\n",
    "def shop(orders):\n    orders = orders.where(\"item <> 'item-3'\")\n",
)
# The same rows: an overlay of the first, or a replay whose code alone differs.
WITH_A_VIEW = _changed(
    FIRST,
    "        Sink(",
    '        View("totals", "select sum(orders)::bigint as n from by_customer"),\n        Sink(',
)
REWRITTEN = _changed(
    FIRST, '{"by_customer": orders,', '{"by_customer": orders.where("customer is not null"),'
)
SAME_ROWS = frozenset({FIRST, WITH_A_VIEW, REWRITTEN})
VERSIONS = (FIRST, WITHOUT_RETURNS, WITHOUT_MOST, WITHOUT_AN_ITEM, WITH_A_VIEW, REWRITTEN)


class Orders:
    """The orders of a producer, a few each turn, so that most slices touch some customers."""

    def __init__(self, seed: int, of_turn: int = 8) -> None:
        self._draw = random.Random(seed)
        self._of_turn = of_turn
        self._number = 0

    def __call__(self, _turn: int) -> Iterator[tuple[str, ProducedRecord]]:
        for _ in range(self._of_turn):
            self._number += 1
            customer = f"cust-{self._draw.randrange(60)} é✈"
            yield "orders", order(self._number, customer=customer)
