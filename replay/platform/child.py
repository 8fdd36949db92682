"""Starts, ends, kills and reaps a child process of the supervisor.

A child runs in its own session. When the supervisor dies, the kernel kills the processes of this
session (kappa/base/process.py requests this), unless the child should outlive the supervisor. Only
the main thread may use this module, because the kernel ties a child to the thread that started the
child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kappa.base.failpoint import failpoint
from kappa.base.log_lines import error_in
from kappa.base.process import ensure_session_gone, start_apart, start_tied
from kappa.base.program import command_of
from kappa.code.task import Task
from kappa.replay.platform.messages import warning

_LOG_BYTES = 10_000_000
_NAP_SECONDS = 0.02
# A program that fails ends with a line like this (kappa/base/program.py), near the end of its log.
_END_BYTES = 64_000
_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 30.0
# A child that ran for so long was well: the next death counts as the first.
WELL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """The number of a child's deaths in a row, and the earliest time of the child's next start.

    The wait before the next start doubles after each death. Times are in seconds of the child's
    clock.
    """

    deaths: int = 0
    not_before: float = 0.0

    def after_death(self, *, ran_seconds: float, now: float) -> BackOff:
        """Returns the back-off after another death.

        If the child ran for a minute or longer, the death counts as the first in a row.
        """
        deaths = 1 if ran_seconds >= WELL_SECONDS else self.deaths + 1
        pause = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** (deaths - 1))
        return BackOff(deaths, now + pause)


# Gives a task to a waiting process, and returns the process; None without a waiting process.
HandOver = Callable[[Task], subprocess.Popen[bytes] | None]


class ChildProcess:
    """A child process of the supervisor, with methods that start, end and restart the process."""

    def __init__(
        self,
        what: str,
        log: Path,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float],
        patience_seconds: float,
        nice: int = 0,
        inherits: tuple[int, ...] = (),
        outlives: bool = False,
        is_handed_tasks: bool = False,
        hand_over: HandOver | None = None,
    ) -> None:
        """Creates a child that does not run yet.

        Args:
            what: The name of the child in messages for the operator.
            log: The file to which the child's output is appended.
            say: Prints a message for the operator.
            clock: Returns seconds that never move back.
            patience_seconds: The time between a request to end and a kill of the child.
            nice: The priority of the child, 0 to 19. A greater number is a lower priority.
            inherits: The open files that the child inherits.
            outlives: True if the child survives a kill of this process. Then `nice` has no effect.
            is_handed_tasks: True if the child receives a task on its standard input.
            hand_over: Gives a task to a waiting process, and returns the process. If it returns
                None, or if `hand_over` is None, a new process is started.
        """
        self.what = what
        self._log = log
        self._say = say
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._nice = nice
        self.inherits = inherits
        self._outlives = outlives
        self._is_handed_tasks = is_handed_tasks
        self._hand_over = hand_over
        self._process: subprocess.Popen[bytes] | None = None
        # True if the program was given to a waiting process.
        self.was_handed_over = False
        self._begun_at = 0.0
        self._log_begins = 0
        self._killed_at: float | None = None
        self._back_off = BackOff()

    @property
    def pid(self) -> int | None:
        """Returns the process id of the child, or None if it is not started or was reaped."""
        return None if self._process is None else self._process.pid

    @property
    def ran_seconds(self) -> float:
        """Returns the seconds since the child was started."""
        return self._clock() - self._begun_at

    @property
    def asked_to_end(self) -> bool:
        """Returns True if the process that was started last has been asked to end."""
        return self._killed_at is not None

    def start(self, module: str, *arguments: str) -> None:
        """Starts a module as the child's program, and appends its output to the log."""
        failpoint("child.before_start")
        log = open_log(self._log)
        self._log_begins = log.stat().st_size if log.exists() else 0
        taken = self._hand_over and self._hand_over(Task(module, arguments, log=str(log)))
        self.was_handed_over = taken is not None
        self._process = taken or self._spawn_process(command_of(module, *arguments), log)
        failpoint("child.after_start")
        self._begun_at, self._killed_at = self._clock(), None

    def hand_over(self, line: bytes) -> subprocess.Popen[bytes] | None:
        """Writes a task to the child's process, and returns the process.

        Afterwards the caller manages the process, and this object no longer does. Returns None if
        the process cannot accept a task now.
        """
        process = self._process
        if process is None or process.stdin is None:
            return None
        try:
            # An empty pipe takes the whole line.
            os.write(process.stdin.fileno(), line)
        except BrokenPipeError:
            return None
        self._process = None
        return process

    def ensure_started(self, module: str, *arguments: str) -> None:
        """Starts the child, unless it runs already or must still wait after a death."""
        if self._process is None and self._clock() >= self._back_off.not_before:
            self.start(module, *arguments)

    def reap_exit_code(self) -> int | None:
        """Reaps a child that has exited, and kills the remaining processes of the child's session.

        Returns the exit code, or None if the child still runs or was not started.
        """
        if self._process is None or (code := self._process.poll()) is None:
            return None
        failpoint("child.before_reap")
        ensure_session_gone(self._process.pid)
        failpoint("child.after_reap")
        _close_input(self._process)
        self._process = None
        return code

    def reap_death(self) -> None:
        """Reaps a child that has exited. An exit counts as a death, whatever the exit code is."""
        if (code := self.reap_exit_code()) is not None:
            self.has_died(code)

    def last_error(self) -> str:
        """Returns the last error message that the child has logged since its start, or ""."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(self._log_begins, log.seek(0, os.SEEK_END) - _END_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next(filter(None, map(error_in, reversed(lines))), "")

    def has_died(self, code: int) -> None:
        """Counts an exit with exit code `code` as a death, and reports the death to the operator.

        Each death in a row prolongs the wait before the next start.
        """
        self._back_off = self._back_off.after_death(ran_seconds=self.ran_seconds, now=self._clock())
        seconds = round(self._back_off.not_before - self._clock(), 1)
        self._say(
            warning(
                f"{self.what} ended with {code}, see {self._log}; it is started again in "
                f"{seconds:g} s"
            )
        )

    def forget_deaths(self) -> None:
        """Resets the back-off, so that the child can start without waiting.

        Call this method if the cause of the deaths may have been fixed.
        """
        self._back_off = BackOff()

    def ask_to_end(self) -> None:
        """Asks the child to end, without waiting.

        If the child was asked before, and has not ended within `patience_seconds`, the child is
        killed.
        """
        if self._process is None or self._process.poll() is not None:
            return
        if self._killed_at is None:
            self._killed_at = self._clock() + self._patience_seconds
            failpoint("child.before_end")
            self._process.terminate()
            failpoint("child.after_end")
        elif self._clock() > self._killed_at:
            self._say(warning(f"{self.what} does not end, and is killed"))
            self.kill()

    def kill(self) -> None:
        """Kills all processes of the child's session, even stopped ones, and waits."""
        if self._process is not None:
            ensure_session_gone(self._process.pid)
            self._process.wait()
            _close_input(self._process)

    def end(self) -> None:
        """Asks the child to end, waits, and kills it if it does not end in time."""
        end_all([self])

    def _spawn_process(self, command: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            if self._outlives:
                return start_apart(command, output=output, inherits=self.inherits)
            return start_tied(
                command,
                output=output,
                nice=self._nice,
                inherits=self.inherits,
                source=subprocess.PIPE if self._is_handed_tasks else subprocess.DEVNULL,
            )


def _close_input(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def end_all(children: list[ChildProcess]) -> None:
    """Asks all children to end at the same time, waits, and kills those that do not end in time."""
    for child in children:
        child.ask_to_end()
    while [
        child.pid for child in children if child.reap_exit_code() is None and child.pid is not None
    ]:
        for child in children:
            child.ask_to_end()
        time.sleep(_NAP_SECONDS)


def open_log(path: Path) -> Path:
    """Prepares a log file: creates its folder, and renames the file if it is large.

    Only the last renamed file is kept. Returns the path of the log.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".old.log"))
    return path


def ended_message(what: str, code: int, more: str = "") -> str:
    """Returns a message about the exit of the process `what`, followed by the text `more`.

    The message is a warning unless the exit code is 0 or the process was ended by SIGTERM.
    """
    told = f"{what} {ended_text(code)}{more}"
    return told if code in {0, -signal.SIGTERM} else warning(told)


def ended_text(code: int) -> str:
    """Describes in words how a process has exited, from its exit code."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
