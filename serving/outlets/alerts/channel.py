"""A channel: a way to a receiver. An attempt has an outcome, and raises nothing. Values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kappa.serving.outlets.alerts.message import Message


class Outcome(StrEnum):
    """The end of an attempt: received, to be tried again, or refused for good."""

    RECEIVED = "received"
    AGAIN = "again"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Attempted:
    """An attempt's outcome with its reason, and the seconds that the receiver asks to wait."""

    outcome: Outcome
    reason: str = ""
    wait: float = 0.0


class Channel(Protocol):
    """A way to a receiver."""

    def send(self, message: Message) -> Attempted:
        """Sends a message once, within a bounded time."""


@dataclass(frozen=True, slots=True)
class Unready:
    """The channel of an alert whose settings are not complete: all waits until they are."""

    reason: str

    def send(self, message: Message) -> Attempted:  # noqa: ARG002  # as a channel does
        """Sends nothing, and asks to be tried again."""
        return Attempted(Outcome.AGAIN, self.reason)


RECEIVED = Attempted(Outcome.RECEIVED)
