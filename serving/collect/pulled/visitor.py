"""The visitor of a source, and the place up to which the source's events are acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from kappa.serving.collect.lines import Invalid
from kappa.state.documents import Documents
from kappa.state.store import Store

_FOLDER = "collector/pull"


class PullPosition(Struct, frozen=True, omit_defaults=True):
    """A place in a source: after an event of a stream, or a document with its digest.

    `source` is the digest of the source's address, `document` the digest of a document's bytes. At
    a server of MQTT, `client` names the session, and `filters` are its subscriptions.
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
    """Returns a source's position; the beginning if none is stored. Raises KappaError."""
    found = _POSITION.get(store, _position_name(name), f"the position in source {name}")
    # Another source's place means nothing here.
    return found if found is not None and found.source == source else PullPosition(source)


def put_position(store: Store, name: str, position: PullPosition) -> None:
    """Writes a position down. Raises KappaError."""
    _POSITION.put(store, _position_name(name), position)


def _position_name(source: str) -> str:
    return f"{_FOLDER}/{source}.json"


class Visitor(Protocol):
    """The visitor of a source; `again_seconds` is the wait until the next connection."""

    position: PullPosition
    again_seconds: float

    def opened(self) -> None:
        """Notes that the source is available."""

    async def take(
        self, events: Sequence[bytes | Invalid], position: PullPosition | None = None
    ) -> None:
        """Takes events; returns once each is settled, and the position after them is written."""

    async def keep(self, position: PullPosition) -> None:
        """Writes a position down. Raises SourceAway if the position cannot be written."""

    def report(self, what: str) -> None:
        """Writes to the log what has happened to the source."""
