"""The place in a source up to which events are acknowledged, stored in the root."""

from __future__ import annotations

from msgspec import Struct

from kappa.state.documents import Documents
from kappa.state.store import Store

_FOLDER = "collector/pull"


class PullPosition(Struct, frozen=True, omit_defaults=True):
    """A place in a source: after an event of a stream, or a document with its digest.

    `source` is the digest of the source's address, `document` the digest of a document's bytes.
    """

    source: str
    last_event_id: str = ""
    etag: str = ""
    last_modified: str = ""
    document: str = ""


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
