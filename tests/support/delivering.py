"""An alert on builds that are folded by hand, with a scripted channel or a URL.

As a program, this module delivers what is due to a URL, and exits: `python delivering.py ROOT URL`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from receiver import SECRET

from kappa.declare.alert import AlertBirth
from kappa.serving.outlets.alerts.channels import (
    RECEIVED,
    Attempted,
    Channel,
    Outcome,
    Webhook,
    keys_of,
)
from kappa.serving.outlets.alerts.delivery import AlertDelivery, Rules
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.query.query import answer_query
from kappa.state.store import Store

if TYPE_CHECKING:
    from changing import ChangingWorld

DOWN = Attempted(Outcome.AGAIN, "down")
GONE = Attempted(Outcome.REFUSED, "gone")
ALERT = AlertBirth("cities", "cities", "page")
Rows = list[dict[str, Any]]


@dataclass
class Scripted:
    """A channel whose outcomes a test chooses; it keeps the received messages."""

    attempts: list[Attempted] = field(default_factory=list)
    usual: Attempted = RECEIVED
    tried: list[Any] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)

    def send(self, message: Message) -> Attempted:
        """Keeps a message, and returns the next outcome."""
        body = json.loads(message.body)
        self.tried.append(body)
        found = self.attempts.pop(0) if self.attempts else self.usual
        if found.outcome is Outcome.RECEIVED:
            self.received.append(body)
        return found


def delivery(
    world: ChangingWorld, channel: Channel, alert: AlertBirth = ALERT, **rules: Any
) -> AlertDelivery:
    """Returns a new delivery of an alert, as a process has it at its start."""
    return AlertDelivery(
        world.store, alert, channel, Rules(**rules), clock=lambda: world.now, draw=lambda: 1.0
    )


def settle(each: AlertDelivery) -> float | None:
    """Takes steps until nothing is due at once. Returns the wait until the next step."""
    for _ in range(10_000):
        if (due := each.take_step()) != 0.0:
            return due
    raise AssertionError("it never ends")


def fold_on(world: ChangingWorld, alert: AlertDelivery, folds: int) -> None:
    """Folds so many slices, and delivers each."""
    for _ in range(folds):
        world.fold()
        settle(alert)


def known(store: Store, table: str = "cities") -> Rows:
    """Returns the rows of a served table."""
    found = answer_query(store, f"from {table}")
    rows = (dict(zip(found.columns, row, strict=True)) for row in found.rows)
    return sorted(rows, key=str)


def applied(rows: Rows, messages: list[Any]) -> Rows:
    """Applies messages to the rows of cities, as a receiver does that keeps a copy of the table."""
    there = {row["city"]: row for row in rows}
    for each in messages:
        city = each["key"]["city"]
        assert each["before"] == there.get(city), each
        assert (each["op"] == "insert") == (city not in there), each
        assert (each["op"] == "delete") == (each["after"] is None), each
        if each["after"] is None:
            del there[city]
        else:
            there[city] = each["after"]
    return sorted(there.values(), key=str)


def once(messages: list[Any]) -> list[Any]:
    """Returns the messages without repeats; a repeat must equal the first message in every byte."""
    found = dict[str, Any]()
    for each in messages:
        assert found.setdefault(each["id"], each) == each
    return list(found.values())


if __name__ == "__main__":
    webhook = Webhook(sys.argv[2], keys_of(SECRET), timeout_seconds=10)
    alert = AlertDelivery(Store(Path(sys.argv[1])), ALERT, webhook, Rules())
    while (due := settle(alert)) is not None:
        alert.wait_for_change(due)
