"""Opens files of lines that a command reads or writes. The name `-` means stdin or stdout."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from kappa.base.errors import UsageError
from kappa.base.program import hand_out


@contextlib.contextmanager
def open_lines(file: str) -> Iterator[Iterable[bytes]]:
    """Opens a file for reading, or stdin if `file` is `-`. Yields the lines of the file.

    Raises UsageError if the file cannot be read.
    """
    if file == "-":
        yield sys.stdin.buffer
        return
    with contextlib.ExitStack() as closing:
        try:
            lines = closing.enter_context(Path(file).open("rb"))
        except OSError as error:
            raise UsageError(
                f"{file} cannot be read: {error.strerror}",
                hint="give a file with a record a line, or - for stdin",
            ) from error
        yield lines


@contextlib.contextmanager
def open_new_file(file: str) -> Iterator[BinaryIO]:
    """Creates a file and yields it for writing, or yields stdout if `file` is `-`.

    Raises UsageError if the file exists or cannot be written.
    """
    if file == "-":
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    with contextlib.ExitStack() as closing:
        try:
            made = closing.enter_context(Path(file).open("xb"))
        except FileExistsError as error:
            raise UsageError(
                f"{file} is there already, and would be lost",
                hint="give a new file, or delete it",
            ) from error
        except OSError as error:
            raise UsageError(
                f"{file} cannot be written: {error.strerror}",
                hint="give a new file, or - for stdout",
            ) from error
        hand_out(Path(file))
        yield made
