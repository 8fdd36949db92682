"""The tasks of a spare: they come on its input, or through its door."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from kappa.base.errors import ExitCode
from kappa.code.task import Task, socket_name, taken_socket

_MOST_BYTES = 1 << 16
# poll(2): the other side has closed its end. Linux alone has the first.
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP


class Tasks:
    """The tasks of this process, from one side: who started it, or a command that has come."""

    def __init__(self, door_at: Path | None) -> None:
        """Takes the socket that is to be the door, or None."""
        # A program that reads its input finds an empty one.
        self._input = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._rest = b""
        self._door_at = door_at
        self._door: socket.socket | None = None

    def is_there(self) -> bool:
        """Returns True if a task waits, or nobody is there to give one."""
        return b"\n" in self._rest or bool(select.select([self._input], [], [], 0)[0])

    def open_door(self) -> None:
        """Lets a command take this process from now on."""
        if self._door_at is not None:
            self._door = _listening(self._door_at)

    def __iter__(self) -> Iterator[Task]:
        """Yields each task; ends when nobody can hand over another.

        While a task runs, this process ends as soon as nobody waits for it any more.
        """
        if self._door is not None:
            select.select([self._input, self._door.fileno()], [], [])
            self._let_in(self._door)
        watched = False
        while (line := self._line()) is not None:
            if not watched:
                threading.Thread(target=self._watch, name="asker", daemon=True).start()
                watched = True
            yield Task.of_line(line)

    def _let_in(self, at: socket.socket) -> None:
        """Closes the door behind a command, unless the one who started this process was first."""
        if self._door_at is not None:
            self._door_at.rename(taken_socket(self._door_at.parent, os.getpid()))
        if not self.is_there():
            guest, _ = at.accept()
            # What programs say is for the command to read.
            os.dup2(guest.fileno(), 2)
            os.dup2(guest.detach(), self._input)
        at.close()

    def _line(self) -> bytes | None:
        while b"\n" not in self._rest:
            got = os.read(self._input, _MOST_BYTES)
            if not got:
                return None
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _watch(self) -> None:
        polled = select.poll()
        polled.register(self._input, _CLOSED)
        polled.poll()
        os._exit(ExitCode.OK)


def _listening(path: Path) -> socket.socket:
    listens = socket.socket(socket.AF_UNIX)
    # One that has a name and does not listen yet refuses whoever comes.
    named = path.with_suffix(".part")
    with socket_name(named) as name:
        listens.bind(name)
    listens.listen(1)
    named.rename(path)
    return listens
