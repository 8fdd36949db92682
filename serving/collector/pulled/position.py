"""The place in a source up to which its events are acknowledged, on the disk."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from kappa.base.disk import put_file


class PullPosition(Struct, frozen=True, omit_defaults=True):
    """A place in a source: behind an event of a stream, or a document as it was.

    `source` is the digest of the source's address, `document` that of a document's bytes.
    """

    source: str
    last_event_id: str = ""
    etag: str = ""
    last_modified: str = ""
    document: str = ""


def read_position(file: Path, source: str) -> PullPosition:
    """Returns the position of a source; its beginning if there is none. Raises OSError."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=PullPosition)
    except (FileNotFoundError, msgspec.MsgspecError):
        return PullPosition(source)
    # Another source's place means nothing here.
    return found if found.source == source else PullPosition(source)


def put_position(file: Path, position: PullPosition, *, synced: bool) -> None:
    """Writes a position down. Raises OSError."""
    put_file(file, msgspec.json.encode(position), synced=synced)
