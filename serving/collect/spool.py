"""Events on the local disk that wait for the broker, in order and of limited total size.

The events survive if the process is killed, but may be lost in a power failure, because nothing is
synced. A process appends to its own file of the spool, and the next process starts another file. If
the process was killed while it wrote an event, the incomplete event at the end of the file is
ignored. The spool's position is the place after the last event that need not be sent again.

The spool may be used by one thread at a time.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from io import RawIOBase
from pathlib import Path

import msgspec
from msgspec import Struct

from kappa.base.disk import put_file
from kappa.base.document_seal import sealed, unsealed
from kappa.base.log_lines import Level, write_log_line
from kappa.serving.collect.acknowledged_send import ArrivedEvent

_HEAD = struct.Struct(">II")
_FILE_BYTES = 4 << 20
_POSITION = "position"


class _Position(Struct, frozen=True):
    file: int
    offset: int


class Spool:
    """A folder of files that contain events, in the order in which the events arrived."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Opens the spool with the files and the position of an earlier process.

        Raises OSError if the folder is not usable.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._most = most_bytes
        self._numbers = sorted(int(path.stem) for path in folder.glob("*.events"))
        self._position = self._read_position()
        self._sizes = {number: self._path(number).stat().st_size for number in self._numbers}
        # The place behind the events that `read` has returned last.
        self._next = self._position
        self._file: RawIOBase | None = None
        self._forget_sent()

    @property
    def bytes(self) -> int:
        """Returns the size of the spool's files in bytes, including events already sent."""
        return sum(self._sizes.values())

    def append(self, events: Sequence[ArrivedEvent]) -> int:
        """Appends events while there is room, and returns the number of appended events.

        Raises OSError if the file cannot be written; then no event was appended.
        """
        frames, size = [], 0
        for event in events:
            payload = msgspec.msgpack.encode(event)
            frame = _HEAD.pack(len(payload), zlib.crc32(payload)) + payload
            if self.bytes + size + len(frame) > self._most:
                break
            frames.append(frame)
            size += len(frame)
        if not frames:
            return 0
        file = self._open()
        number = self._numbers[-1]
        try:
            _write_whole(file, b"".join(frames))
        except OSError:
            # A part of the events may be written, and nothing may follow such a part.
            with suppress(OSError):
                file.truncate(self._sizes[number])
            self._close()
            raise
        self._sizes[number] += size
        if self._sizes[number] >= _FILE_BYTES:
            self._close()
        return len(frames)

    def read(self, most_events: int, most_bytes: int) -> list[ArrivedEvent]:
        """Returns the next events: those after the events that the last call returned.

        Returns at most `most_events` events and about `most_bytes` bytes, but at least one whole
        event. Returns [] if there are no more events.
        """
        while True:
            found = self._read_file(most_events, most_bytes)
            later = [number for number in self._numbers if number > self._next.file]
            if found or not later:
                return found
            self._next = _Position(later[0], 0)

    def keep_position(self) -> None:
        """Stores the position after the events read so far, so that they are not sent again.

        Raises OSError if the position cannot be written.
        """
        self._position = self._next
        content, _ = sealed(msgspec.to_builtins(self._position))
        put_file(self._folder / _POSITION, content, synced=False)
        self._forget_sent()

    def close(self) -> None:
        """Closes the file to which events are appended."""
        self._close()

    def _read_file(self, most_events: int, most_bytes: int) -> list[ArrivedEvent]:
        number, offset = self._next.file, self._next.offset
        if number not in self._sizes:
            return []
        with self._path(number).open("rb") as file:
            file.seek(offset)
            content = file.read(min(max(most_bytes, 0), self._sizes[number] - offset))
            if len(content) >= _HEAD.size:
                # A single event is read whole, however large it is.
                length, _ = _HEAD.unpack_from(content)
                content += file.read(max(0, _HEAD.size + length - len(content)))
        found: list[ArrivedEvent] = []
        at = 0
        while len(found) < most_events and at + _HEAD.size <= len(content):
            length, crc = _HEAD.unpack_from(content, at)
            payload = content[at + _HEAD.size : at + _HEAD.size + length]
            if len(payload) < length or zlib.crc32(payload) != crc:
                break
            found.append(msgspec.msgpack.decode(payload, type=ArrivedEvent))
            at += _HEAD.size + length
        self._next = _Position(number, offset + at)
        return found

    def _open(self) -> RawIOBase:
        if self._file is None:
            number = max(self._numbers[-1] if self._numbers else 0, self._position.file) + 1
            self._file = self._path(number).open("xb", buffering=0)
            self._numbers.append(number)
            self._sizes[number] = 0
        return self._file

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_position(self) -> _Position:
        first = _Position(self._numbers[0] if self._numbers else 0, 0)
        try:
            document, _ = unsealed((self._folder / _POSITION).read_bytes())
            found = msgspec.convert(document, _Position)
        except FileNotFoundError:
            return first
        except ValueError as error:
            write_log_line(
                f"{self._folder / _POSITION} is damaged, so the whole spool is sent again: {error}",
                Level.WARN,
            )
            return first
        return max(first, found, key=lambda each: (each.file, each.offset))

    def _forget_sent(self) -> None:
        """Deletes the files whose events all precede the stored position."""
        for number in [each for each in self._numbers if each < self._position.file]:
            self._path(number).unlink(missing_ok=True)
            self._numbers.remove(number)
            del self._sizes[number]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012}.events"


def _write_whole(file: RawIOBase, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) or 0 :]
