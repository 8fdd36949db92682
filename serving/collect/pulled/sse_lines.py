"""The events of a stream of server-sent events, from bytes as they arrive. Pure.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import re

from kappa.serving.collect.lines import TOO_LARGE, Invalid

_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
# For a line that is too long, the bytes kept: the field's name, and enough to see the excess.
_NAME_BYTES = 64
_MOST_ID_BYTES = 1024
# An id that could not be sent as a header.
_NO_ID = re.compile(r"[\x00-\x1f\x7f]|^\s|\s$")
_LONGEST_RETRY_SECONDS = 600.0


class SseLines:
    """The lines of a stream. `last_id` is the id of the last whole event."""

    def __init__(self, last_id: str, most: int) -> None:
        """Continues after the event `last_id`; an event has at most `most` bytes."""
        self.last_id = last_id
        self.retry_seconds: float | None = None
        self._most = most
        self._line = bytearray()
        self._after_cr = False
        self._is_first = True
        self._next_id = last_id
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes | Invalid]:
        """Takes bytes, and returns the events that these bytes complete."""
        found: list[bytes | Invalid] = []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return found
        self._after_cr = chunk.endswith(b"\r")
        *whole, rest = _END.split(chunk)
        for part in whole:
            self._add(part)
            line = bytes(self._line)
            self._line.clear()
            if self._is_first:
                self._is_first = False
                line = line.removeprefix(_BOM)
            if line:
                self._field(line)
            else:
                found += self._dispatched()
        self._add(rest)
        return found

    def _add(self, part: bytes) -> None:
        self._line += part[: max(0, self._most + _NAME_BYTES - len(self._line))]

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            # A line's end is between two lines of data.
            self._size += len(value) + (1 if self._data else 0)
            if self._size <= self._most:
                self._data.append(value)
            else:
                self._data = [b""]
        elif name == b"id":
            text = value.decode(errors="replace")
            if len(value) <= _MOST_ID_BYTES and _NO_ID.search(text) is None:
                self._next_id = text
        elif name == b"retry" and value.isdigit() and len(value) < 12:
            self.retry_seconds = min(_LONGEST_RETRY_SECONDS, int(value) / 1000)

    def _dispatched(self) -> list[bytes | Invalid]:
        data, size = self._data, self._size
        self._data, self._size = [], 0
        self.last_id = self._next_id
        if not data:
            return []
        if size > self._most:
            return [Invalid(TOO_LARGE, f"it has more than {self._most:,} bytes")]
        return [b"\n".join(data)]
