"""A child process with its own Spark, which answers requests about pipelines.

Commands do not run Spark in their own process: Spark takes seconds to start, and the user's
functions could do anything to the process. If the platform runs, a command uses a spare of the
platform as the child: Spark already runs in the spare. Otherwise the command starts a child itself.
The request, the answer and all temporary files of the child are in a folder that is deleted when
the child ends. The child ends when the command's process ends. The programs that a child runs are
in kappa/engine/children, such as describe.py and law_program.py.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, Self

from kappa.base.errors import KappaError
from kappa.base.fork_call import limit_memory
from kappa.base.process import tied
from kappa.base.program import command_of, project_options
from kappa.base.settings import Settings
from kappa.base.temporary_folders import CHILD, make_folder
from kappa.code.task import ENDED, SPARES, Task, socket_name, spare_sockets
from kappa.state.store import open_store

# A line of a program's stderr that begins so is for the caller's `say`.
PROGRESS = "kappa progress: "
# A line that begins so names the pipeline whose own time begins.
BEGINS = "kappa begins: "
# A quiet machine takes six seconds to start Spark.
_START_SECONDS = 240.0
# The most bytes that a pipeline takes of a program's own process.
_MEMORY = 4 << 30
# How many last lines of stderr are kept for the error about a child that gives no answer.
_KEPT_LINES = 50


def ask_program(
    settings: Settings,
    folder: Path,
    program: str,
    pipelines: Mapping[str, str],
    *,
    seconds: Callable[[int], float],
    cut: Callable[[str, str | None], Mapping[str, Any]],
    say: Callable[[str], None] = lambda _line: None,
    more: Callable[[], Mapping[str, object]] = dict,
) -> dict[str, Any]:
    """Runs a program in a child process with Spark, and returns the program's answers.

    The result contains an answer for each pipeline, by the pipeline's name. The program handles one
    pipeline after the other. If a pipeline takes too long, the child is killed, and another process
    handles the remaining pipelines. Raises KappaError if Spark does not start.

    Args:
        settings: The project's settings.
        folder: The folder of the project.
        program: The module that the child runs.
        pipelines: The names of pipelines, and the module of each.
        seconds: Returns the time limit of a pipeline, given the number of pipelines without answer.
        cut: Returns the answer for a pipeline whose process was ended. Its second argument is None
            if the pipeline took too long; otherwise it is the last line that the process printed.
        say: Is called when Spark starts, and with each line of progress that the program prints.
        more: Returns further fields of the request.
    """
    answers: dict[str, Any] = {}
    with ExitStack() as ending:
        children = _kept.get() or ending.enter_context(_Children(settings))
        while pending := {name: each for name, each in pipelines.items() if name not in answers}:
            child = children.child()
            if child.is_cold:
                say("starts Spark")
            place = child.folder / secrets.token_hex(4)
            place.mkdir()
            request = {"folder": str(folder), "pipelines": pending, **more()}
            (place / "request.json").write_text(json.dumps(request), encoding="utf-8")
            ran = child.run(Task(program, (str(place),)), partial(_of_left, seconds, pending), say)
            was_cold, child.is_cold = child.is_cold, False
            answers |= _read_answers(place)
            is_over = answers.keys() >= pending.keys()
            last = None
            if ran.is_late:
                children.end()
            elif not is_over and not ran.is_done:
                # A spare ends with its supervisor, even in the middle of a task.
                if children.give_up_spare():
                    continue
                last = (ran.lines or [f"it ended{child.exit_code()} and said nothing"])[-1]
                children.end()
                # A process that has answered before ended for a reason of its own, such as a kill.
                if ran.begun is None and not was_cold:
                    continue
            elif not is_over:
                last = (ran.lines or ["it said nothing"])[-1]
            if is_over:
                break
            if ran.begun is None or ran.begun in answers or ran.begun not in pending:
                raise KappaError(
                    f"Spark gave no answer about {', '.join(pending)}: "
                    f"{last or f'it did not start within {_START_SECONDS:g} s'}",
                    hint="see whether Spark starts here: python -m kappa.setup",
                )
            answers[ran.begun] = cut(ran.begun, last)
    return answers


def put_answer(scratch: Path, name: str, answer: Mapping[str, Any]) -> None:
    """Adds a program's answer about the pipeline `name` to a file in the folder `scratch`."""
    answers = {**_read_answers(scratch), name: answer}
    coming = scratch / "answer.json.coming"
    coming.write_text(json.dumps(answers), encoding="utf-8")
    coming.replace(scratch / "answer.json")


def begin_pipeline_limits(name: str) -> None:
    """Starts the time limit of a pipeline, and limits the memory of this process.

    A program with Spark calls this function before it handles a pipeline. The memory limit does not
    apply to the JVM, which has its own limit, or to Spark's Python workers, since these are other
    processes.
    """
    limit_memory(_MEMORY)
    print(f"{BEGINS}{name}", file=sys.stderr, flush=True)


def _read_answers(place: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((place / "answer.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def _of_left(seconds: Callable[[int], float], pending: Collection[str], before: int) -> float:
    return seconds(len(pending) - before)


@contextmanager
def one_child(settings: Settings, *, at_once: bool = False) -> Iterator[None]:
    """Uses one child process for all requests within the block, so that Spark starts only once.

    The child starts with the first request; with `at_once`, it starts immediately.
    """
    with _Children(settings) as children:
        if at_once:
            children.child()
        before = _kept.set(children)
        try:
            yield
        finally:
            _kept.reset(before)


class _Children:
    """The child process of a block, which answers one or several requests.

    The child starts with the first request, and ends with the block. If the child ends earlier, the
    next request starts another child.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._child: _Child | None = None
        self._borrows = True

    def child(self) -> _Child:
        """Returns the child process, after connecting to it or starting it if there is none.

        If a spare of the platform is free, the spare becomes the child. Otherwise a process is
        started.
        """
        if self._child is None:
            door = _open_spare(self._settings) if self._borrows else None
            self._child = _StartedChild(self._settings) if door is None else _BorrowedSpare(door)
        return self._child

    def give_up_spare(self) -> bool:
        """Ends the child if it is a spare, and returns True. All later children are new processes.

        Returns False if the child is not a spare. Then the child continues to run.
        """
        if not isinstance(self._child, _BorrowedSpare):
            return False
        self._borrows = False
        self.end()
        return True

    def end(self) -> None:
        """Ends the child, if there is one. The next request then starts another child."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


_kept: ContextVar[_Children | None] = ContextVar("kept", default=None)


@dataclass(frozen=True, slots=True)
class _TaskResult:
    """The result of a task: the last lines of stderr, and the pipeline that began last.

    `lines` does not contain the lines of progress. `begun` is None if no pipeline has begun.
    `is_done` is True if the process waits for another task. `is_late` is True if the process was
    ended because a pipeline took too long, or because no pipeline began in time.
    """

    lines: list[str]
    begun: str | None
    is_done: bool
    is_late: bool


class _Child:
    """A child process that runs tasks. `folder` contains the files of the tasks.

    `is_cold` is True until Spark runs in the child. Then the first task must wait until Spark has
    started.
    """

    def __init__(
        self, tasks: IO[bytes], says: IO[str], folder: Path, *, is_cold: bool = False
    ) -> None:
        self.is_cold = is_cold
        self._tasks = tasks
        self._says = says
        self.folder = folder

    def run(
        self, task: Task, seconds: Callable[[int], float], say: Callable[[str], None]
    ) -> _TaskResult:
        """Runs a task, and passes the lines of progress that the task prints to `say`.

        When a pipeline begins, `seconds` is called with the number of pipelines that began before,
        and returns the time limit of this pipeline. If a pipeline exceeds its limit, the child is
        killed.
        """
        lines: deque[str] = deque(maxlen=_KEPT_LINES)
        begun = list[str]()
        is_done = False
        late = threading.Event()

        def kill() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(_START_SECONDS, kill)
        timer.start()
        try:
            # The child has ended: its last output follows.
            with suppress(BrokenPipeError):
                self._tasks.write(task.line)
                self._tasks.flush()
            # A spare that was given to another first has not read the task.
            with suppress(ConnectionResetError):
                for line in self._says:
                    if line.startswith(ENDED):
                        is_done = True
                        break
                    if line.startswith(BEGINS):
                        timer.cancel()
                        timer = threading.Timer(seconds(len(begun)), kill)
                        timer.start()
                        begun.append(line.removeprefix(BEGINS).rstrip())
                    elif line.startswith(PROGRESS):
                        say(line.removeprefix(PROGRESS).rstrip())
                    elif line.strip():
                        lines.append(line.strip())
        finally:
            timer.cancel()
        return _TaskResult(list(lines), begun[-1] if begun else None, is_done, late.is_set())

    def exit_code(self) -> str:
        """Returns the text ` with CODE` if the exit code of the child is known, otherwise ""."""
        return ""

    def kill(self) -> None:
        """Ends the child immediately, so that its output ends too."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends the child, and deletes its folder."""
        self.kill()
        for stream in (self._tasks, self._says):
            # The child may take no more tasks.
            with suppress(OSError):
                stream.close()
        # The JVM may still write; the next process removes the files that are left then.
        shutil.rmtree(self.folder, ignore_errors=True)


class _StartedChild(_Child):
    """A child that this process has started itself."""

    def __init__(self, settings: Settings) -> None:
        folder = make_folder(Path(tempfile.gettempdir()), CHILD)
        command = command_of(
            "kappa.engine.children.spare",
            *project_options(settings),
            *("--folder", str(folder / "spark"), "--door", "no"),
        )
        self._process = subprocess.Popen(
            tied(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # Else a project's file named like a library hides the library from Spark's workers.
            env={**os.environ, "PYTHONSAFEPATH": "1", "TMPDIR": str(folder)},
        )
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        says = TextIOWrapper(self._process.stderr, encoding="utf-8", errors="replace")
        super().__init__(self._process.stdin, says, folder, is_cold=True)

    def exit_code(self) -> str:
        return f" with {self._process.wait()}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class _BorrowedSpare(_Child):
    """A spare of the platform, used as the child. The spare exits when this process disconnects."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        super().__init__(
            door.makefile("wb"),
            door.makefile("r", encoding="utf-8", errors="replace"),
            make_folder(Path(tempfile.gettempdir()), CHILD),
        )

    def run(
        self, task: Task, seconds: Callable[[int], float], say: Callable[[str], None]
    ) -> _TaskResult:
        # A spare has the platform's environment and working directory.
        own = replace(task, environment=tuple(os.environ.items()), folder=str(Path.cwd()))
        return super().run(own, seconds, say)

    def kill(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        super().end()
        self._door.close()


def _open_spare(settings: Settings) -> socket.socket | None:
    """Connects to a free spare of the platform that uses this root, and returns the socket.

    Returns None if no spare is free.
    """
    for place in spare_sockets(open_store(settings).local.path(SPARES)):
        door = socket.socket(socket.AF_UNIX)
        try:
            with socket_name(place) as name:
                door.connect(name)
        except OSError:
            # Another process has just come, or the spare has been killed.
            door.close()
            continue
        return door
    return None
