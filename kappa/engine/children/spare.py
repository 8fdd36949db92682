"""A process that has imported Python modules, booted and warmed up Spark, and waits for a task.

    python -m kappa.engine.children.spare --project DIR --root ROOT --folder FOLDER --door yes|no

Only this process uses FOLDER, for files that Spark spills or leaves behind. The process is killed
when the process that started it exits.

A task arrives on standard input. If the task arrives before Spark has booted, nothing is warmed up.
While the process boots and warms up, it gives way to running jobs, unless a task waits already.
With `--door yes`, the process also listens on a socket in FOLDER's parent, the door, which is named
after this process (kappa/code/task.py). A command can connect to the door and send tasks. When a
command has connected, the socket is renamed, so that no second command connects. A process runs
either the tasks of one command, one after the other, or a single job. So a job never runs in a
process that has run tasks for another build.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from kappa.base.errors import ExitCode
from kappa.base.process import LOW_PRIORITY, name_process, yielding_to_others
from kappa.base.program import command_of, run_program
from kappa.base.settings import load_settings
from kappa.code.task import ENDED, Task, socket_name, spare_socket, taken_socket
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import boot_ahead, end_process

# Modules that tasks use are imported while the JVM boots.
_IMPORTED = (
    "kappa.engine.children.describe",
    "kappa.engine.job.job_run",
    # The compiled loops, for a short catch-up.
    "kappa.kafka.bulk_reader",
    "kappa.records.decode.readers",
)
_MOST_BYTES = 1 << 16
# How soon a spare that boots notices a task.
_LOOK_SECONDS = 0.1
# poll(2): the other side has closed its end. Only Linux has POLLRDHUP.
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP


def run_tasks(tasks: Tasks) -> int:
    """Runs the tasks one after the other, until a job has ended or there are no more tasks.

    A task is a job if it has a log file. Returns the job's exit code, or ExitCode.OK if there was
    no job.
    """
    for task in tasks:
        code = _run(task)
        if task.log:
            return code
        print(f"{ENDED}{code}", file=sys.stderr, flush=True)
    return ExitCode.OK


def _run(task: Task) -> int:
    """Runs a task's program in this process, and returns its exit code."""
    if task.log:
        log = os.open(task.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
    os.environ.update(task.environment)
    if task.folder:
        os.chdir(task.folder)
    name_process(lambda _spare: " ".join(command_of(task.program, *task.arguments)))
    code: int = import_module(task.program).main(list(task.arguments))
    return code


def main(arguments: list[str] | None = None) -> int:
    """Runs the program, and returns its exit code."""

    def work(given: argparse.Namespace) -> int:
        settings = load_settings(given.project, root=given.root)
        folder = Path(given.folder)
        tasks = Tasks(spare_socket(folder.parent, os.getpid()) if given.door == "yes" else None)
        is_spare = given.door == "yes"
        # A spare boots while jobs fold, and takes as much as a job: live rows would be late.
        with (
            yielding_to_others(LOW_PRIORITY if is_spare else 0) as stop_yielding,
            _calling_when_asked(tasks, stop_yielding),
        ):
            machine = boot_ahead(settings, profile=Profile.TAIL, local_dir=folder)
            for module in _IMPORTED:
                import_module(module)
            if is_spare and not tasks.is_there():
                spark = machine.session()
                warm = import_module("kappa.engine.children.warm_up")
                for warming in warm.steps(spark, folder):
                    if tasks.is_there():
                        break
                    warming()
        if is_spare and not tasks.is_there():
            tasks.open_door()
        return run_tasks(tasks)

    return run_program("kappa.engine.children.spare", work, arguments, folder=str, door=str)


@contextlib.contextmanager
def _calling_when_asked(tasks: Tasks, call: Callable[[], None]) -> Iterator[None]:
    """Calls a function once, as soon as a task waits for the end of the block."""
    has_ended = threading.Event()

    def watch() -> None:
        while not has_ended.wait(_LOOK_SECONDS):
            if tasks.is_there():
                call()
                return

    watching = threading.Thread(target=watch, name="tasks", daemon=True)
    watching.start()
    try:
        yield
    finally:
        has_ended.set()
        watching.join()


class Tasks:
    """The tasks of this process, which all come from one sender.

    The sender is the process that started this process, or a command that has connected to this
    process's socket, the door.
    """

    def __init__(self, door_at: Path | None) -> None:
        """Moves standard input to a private descriptor, from which the tasks are read.

        If a program of a task reads standard input, it finds an empty input. `door_at` is the path
        of the socket (the door) to which a command can connect, or None for no socket.
        """
        # A program that reads standard input finds an empty input.
        self._input = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._rest = b""
        self._door_at = door_at
        self._door: socket.socket | None = None

    def is_there(self) -> bool:
        """Returns True if a task waits, or if the sender has closed the input."""
        return b"\n" in self._rest or bool(select.select([self._input], [], [], 0)[0])

    def open_door(self) -> None:
        """Opens this process's socket (the door), so that a command can connect from now on."""
        if self._door_at is not None:
            self._door = _listening(self._door_at)

    def __iter__(self) -> Iterator[Task]:
        """Yields each task, and ends when the sender has closed the connection.

        If this process's socket (the door) is open, first waits for a command to connect or for a
        task on standard input. If the sender closes the connection while a task runs, this process
        exits at once.
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
        """Accepts one command that connects to the socket `at`, and closes the socket.

        If a task is already waiting on standard input, no command is accepted.
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


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        end_process(main())
