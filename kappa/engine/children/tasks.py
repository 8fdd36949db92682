"""The tasks of a spare, which come on the spare's input or through a door."""

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
# poll(2): the other side has closed its end. Only Linux has POLLRDHUP.
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP


class Tasks:
    """The tasks of this process, all from the same side.

    Tasks come from the process that started this process, or from a command that has come in.
    """

    def __init__(self, door_at: Path | None) -> None:
        """Takes the path of the door's socket, or None for no door."""
        # A program that reads standard input finds an empty input.
        self._input = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._rest = b""
        self._door_at = door_at
        self._door: socket.socket | None = None

    def is_there(self) -> bool:
        """Returns True if a task waits, or if nobody is left to give a task."""
        return b"\n" in self._rest or bool(select.select([self._input], [], [], 0)[0])

    def open_door(self) -> None:
        """Lets a command take this process from now on."""
        if self._door_at is not None:
            self._door = _listening(self._door_at)

    def __iter__(self) -> Iterator[Task]:
        """Yields each task, and ends when nobody can hand over another task.

        While a task runs, this process ends as soon as nobody waits any more.
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
        """Closes the socket after one command.

        If the process that started this process was first, no command comes in.
        """
        if self._door_at is not None:
            self._door_at.rename(taken_socket(self._door_at.parent, os.getpid()))
        if not self.is_there():
            guest, _ = at.accept()
            # The output of programs is for the command to read.
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
    # A socket that has a name and does not listen yet refuses all connections.
    named = path.with_suffix(".part")
    with socket_name(named) as name:
        listens.bind(name)
    listens.listen(1)
    named.rename(path)
    return listens
