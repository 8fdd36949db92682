"""A change set as text, computed once for all readers that want the same of it.

A small one is in memory, a large one in a file that has no name any more. Its pieces are messages:
one that begins it, some with rows, and one that ends it, whose id is the cursor.
"""

from __future__ import annotations

import json
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from kappa.base.errors import KappaError
from kappa.serving.outlets.changes.change_set import ChangeSet, Head
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.filter import Filter

# Of one message with rows, in characters.
_PIECE = 1 << 16
# Larger ones are in a file.
_IN_MEMORY = 4 << 20


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """One message to a reader; the last of a change set has its cursor."""

    event: str
    text: str
    cursor: Cursor | None = None


class RecordedChanges:
    """The messages of one change set, to be read any number of times, by several threads."""

    def __init__(self, change_set: ChangeSet, chosen: Filter | None, folder: Path) -> None:
        """Writes what a reader with this filter gets; a large one into a file in the folder.

        Raises KappaError if the machine refuses the file.
        """
        self.head: Head = change_set.head
        self.size = 0
        self._pieces: list[str] = []
        self._file: BinaryIO | None = None
        self._places: list[tuple[int, int]] = []
        for piece in _pieces(change_set.lines(chosen)):
            try:
                self._add(piece, folder)
            except OSError as error:
                raise KappaError(
                    f"could not write the changes of {self.head.table}: {error.strerror or error}",
                    hint="see whether the disk is full or the folder may be written",
                ) from error
        self.counts = change_set.counts(chosen)
        document = {**self.head.document(chosen), "changes": asdict(self.counts)}
        self._begin = json.dumps(document, ensure_ascii=False)

    def messages(self) -> Iterator[ChangeMessage]:
        """Yields its messages."""
        yield ChangeMessage("begin", self._begin)
        for piece in self._pieces:
            yield ChangeMessage("rows", piece)
        for place, size in self._places:
            assert self._file is not None, "it has places only in a file"
            text = os.pread(self._file.fileno(), size, place).decode()
            yield ChangeMessage("rows", text)
        cursor = self.head.cursor
        yield ChangeMessage("commit", json.dumps({"cursor": str(cursor)}), cursor)

    def _add(self, piece: str, folder: Path) -> None:
        content = piece.encode()
        self.size += len(content)
        if self._file is None and self.size > _IN_MEMORY:
            folder.mkdir(parents=True, exist_ok=True)
            # It has no name, so it ends with the last of its readers, however that ends.
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            weakref.finalize(self, _close, self._file)
            before, self._pieces = self._pieces, []
            for each in before:
                self._write(each.encode())
        if self._file is None:
            self._pieces.append(piece)
        else:
            self._write(content)

    def _write(self, content: bytes) -> None:
        assert self._file is not None, "it was opened before"
        self._places.append((self._file.tell(), len(content)))
        self._file.write(content)
        self._file.flush()


def _close(file: BinaryIO) -> None:
    # What a full disk has not taken cannot be written now either.
    with suppress(OSError):
        file.close()


def _pieces(lines: Iterator[str]) -> Iterator[str]:
    """Yields arrays of JSON, of many changes each."""
    held, size = list[str](), 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _PIECE:
            yield f"[{','.join(held)}]"
            held, size = [], 0
    if held:
        yield f"[{','.join(held)}]"
