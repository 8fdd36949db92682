"""The protocol between the server and a worker: messages called frames.

A frame is a letter, a length, and that number of bytes. Received bytes are never run or unpickled.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

_HEAD = struct.Struct(">cI")

# In this order: a snapshot to open, its receipt, a query, the tables that the query names, a piece
# of the answer, its end, the reason of a refusal.
OPENED, ACCEPTED, ASKED, NAMED, PIECE, ENDED, REFUSED = b"O", b"A", b"Q", b"N", b"P", b"E", b"R"


def frame_bytes(kind: bytes, content: bytes = b"") -> bytes:
    """Encodes a frame as bytes. `kind` is the letter of the frame."""
    return _HEAD.pack(kind, len(content)) + content


def put_frame(file: int, kind: bytes, content: bytes = b"") -> None:
    """Writes a frame to a blocking file descriptor.

    A socket with a timeout is not blocking, so it must not be used here.
    """
    pending = memoryview(frame_bytes(kind, content))
    while pending:
        pending = pending[os.write(file, pending) :]


def take_frame(receive: Callable[[int], bytes], *, most: int) -> tuple[bytes, bytes] | None:
    """Returns the letter and the content of the next frame.

    `receive` returns up to the given number of bytes from the other side. Returns None if the other
    side has closed the connection. Raises ValueError if the frame is longer than `most` bytes.
    """
    head = _receive_exactly(receive, _HEAD.size)
    if head is None:
        return None
    kind, length = _HEAD.unpack(head)
    if length > most:
        raise ValueError(f"a frame of {length} bytes where at most {most} were expected")
    content = _receive_exactly(receive, length)
    return None if content is None else (kind, content)


def _receive_exactly(receive: Callable[[int], bytes], count: int) -> bytes | None:
    pieces: list[bytes] = []
    while count:
        piece = receive(min(count, 1 << 16))
        if not piece:
            return None
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
