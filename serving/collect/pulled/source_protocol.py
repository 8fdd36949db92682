"""The interface that receives the events of a source, and the stored position in a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from kappa.serving.collect.lines import Invalid
from kappa.state.documents import Documents
from kappa.state.store import Store

_FOLDER = "collector/pull"


class PullPosition(Struct, frozen=True, omit_defaults=True):
    """A position in a source: the last event of a stream, or the digest of a document.

    `source` is the digest of the source's address, and `document` is the digest of a document's
    bytes. For an MQTT server, `client` is the name of the session, and `filters` are the session's
    subscriptions.
    """

    source: str
    last_event_id: str = ""
    etag: str = ""
    last_modified: str = ""
    document: str = ""
    client: str = ""
    filters: tuple[str, ...] = ()


_POSITION = Documents(PullPosition, derived=True)


def read_position(store: Store, name: str, source: str) -> PullPosition:
    """Returns the stored position in a source, or the source's beginning if none is stored.

    `source` is the digest of the source's address; a stored position with another digest is
    ignored. Raises KappaError if the position cannot be read.
    """
    found = _POSITION.get(store, _position_name(name), f"the position in source {name}")
    # Another source's place means nothing here.
    return found if found is not None and found.source == source else PullPosition(source)


def put_position(store: Store, name: str, position: PullPosition) -> None:
    """Stores a position. Raises KappaError if the position cannot be written."""
    _POSITION.put(store, _position_name(name), position)


def _position_name(source: str) -> str:
    return f"{_FOLDER}/{source}.json"


class Visitor(Protocol):
    """The object that receives the events and positions of one connection to a source.

    `again_seconds` is the wait before the next connection.
    """

    position: PullPosition
    again_seconds: float

    def opened(self) -> None:
        """Records that the source is available. After an outage, also logs this."""

    async def take(
        self, events: Sequence[bytes | Invalid], position: PullPosition | None = None
    ) -> None:
        """Sends events until the broker has acknowledged or refused each event.

        Then stores `position`, unless it is None.
        """

    async def keep(self, position: PullPosition) -> None:
        """Stores a position. Raises SourceAway if the position cannot be written."""

    def report(self, what: str) -> None:
        """Logs a message about the source, such as an error or a recovery."""
