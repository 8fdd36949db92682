"""The place in a source up to which its events are acknowledged, in the root."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from kappa.state.store import Store

_FOLDER = "collector/pull"


class PullPosition(Struct, frozen=True, omit_defaults=True):
    """A place in a source: behind an event of a stream, or a document as it was.

    `source` is the digest of the source's address, `document` that of a document's bytes.
    """

    source: str
    last_event_id: str = ""
    etag: str = ""
    last_modified: str = ""
    document: str = ""


def read_position(store: Store, name: str, source: str) -> PullPosition:
    """Returns the position of a source; its beginning if there is none. Raises KappaError."""
    content = store.get(_name(name))
    try:
        found = None if content is None else msgspec.json.decode(content, type=PullPosition)
    except msgspec.MsgspecError:
        found = None
    # Another source's place means nothing here.
    return found if found is not None and found.source == source else PullPosition(source)


def put_position(store: Store, name: str, position: PullPosition) -> None:
    """Writes a position down. Raises KappaError."""
    store.put(_name(name), msgspec.json.encode(position))


def _name(source: str) -> str:
    return f"{_FOLDER}/{source}.json"
