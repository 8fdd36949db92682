"""The channel of Kappa's own page: the last messages of each alert, kept below the root."""

from __future__ import annotations

from msgspec import Struct

from kappa.serving.outlets.alerts.channel import RECEIVED, Attempted
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import folder
from kappa.state.documents import Documents
from kappa.state.store import Store

# So many messages of an alert are on the page.
MOST_SHOWN = 50


class ShownMessages(Struct, frozen=True):
    """The last messages of an alert, the newest first."""

    messages: tuple[Message, ...] = ()
    format: int = 1


_SHOWN = Documents(ShownMessages, derived=True)


class ShownOnPage:
    """A receiver that is Kappa's own page. A message that comes again is there once."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def send(self, message: Message) -> Attempted:
        """Puts a message on top of those that are shown."""
        there = shown_messages(self._store, self._name)
        if all(each.id != message.id for each in there):
            found = ShownMessages((message, *there)[:MOST_SHOWN])
            _SHOWN.put(self._store, f"{folder(self._name)}/shown.json", found)
        return RECEIVED


def shown_messages(store: Store, name: str) -> tuple[Message, ...]:
    """Returns the messages of an alert that the page shows, the newest first."""
    found = _SHOWN.get(store, f"{folder(name)}/shown.json", f"the messages of alert {name}")
    return () if found is None else found.messages
