"""A child process of the supervisor: started, asked to end, killed if late, reaped.

A child runs in its own session, which dies with the supervisor (kappa/base/process.py), unless the
child is to outlive the supervisor. Only the main thread may use this module, since the kernel ties
a child to the thread that started the child.
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
    """A child's deaths in a row, and the time before which the child is not started again.

    The wait before the next start doubles after each death. Times are in seconds of the child's
    clock.
    """

    deaths: int = 0
    not_before: float = 0.0

    def after_death(self, *, ran_seconds: float, now: float) -> BackOff:
        """Returns the back-off after another death."""
        deaths = 1 if ran_seconds >= WELL_SECONDS else self.deaths + 1
        pause = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** (deaths - 1))
        return BackOff(deaths, now + pause)


# Gives a task to a waiting process, and returns the process; None without a waiting process.
HandOver = Callable[[Task], subprocess.Popen[bytes] | None]


class ChildProcess:
    """A child process, running or not."""

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
        """Makes a child that does not run yet.

        Args:
            what: The name of the child in messages for the operator.
            log: The file to which the child's output is appended.
            say: Gets messages for the operator.
            clock: Gives seconds that only go forward.
            patience_seconds: The time from a request to end until the child is killed.
            nice: The priority of the child, 0 to 19: a greater number leaves more to others.
            inherits: The open files that the child inherits.
            outlives: Whether the child outlives a kill of this process; then `nice` has no effect.
            is_handed_tasks: Whether the child gets a task by its standard input.
            hand_over: May give the program that is to be started to a waiting process.
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
        """The process id of the child; None before the start and once the child was reaped."""
        return None if self._process is None else self._process.pid

    @property
    def ran_seconds(self) -> float:
        """The seconds since the start of the child."""
        return self._clock() - self._begun_at

    @property
    def asked_to_end(self) -> bool:
        """True once the process that was started last was asked to end."""
        return self._killed_at is not None

    def start(self, module: str, *arguments: str) -> None:
        """Starts a module as the child's program; the output is appended to the log."""
        failpoint("child.before_start")
        log = open_log(self._log)
        self._log_begins = log.stat().st_size if log.exists() else 0
        taken = self._hand_over and self._hand_over(Task(module, arguments, log=str(log)))
        self.was_handed_over = taken is not None
        self._process = taken or self._spawn_process(command_of(module, *arguments), log)
        failpoint("child.after_start")
        self._begun_at, self._killed_at = self._clock(), None

    def hand_over(self, line: bytes) -> subprocess.Popen[bytes] | None:
        """Writes a task to the process, and gives the process away.

        Returns None if the process takes no task now.
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
        """Starts the child unless it runs, or has died and waits for the next start."""
        if self._process is None and self._clock() >= self._back_off.not_before:
            self.start(module, *arguments)

    def reap_exit_code(self) -> int | None:
        """Reaps a child that has ended, with all of the session.

        Returns the exit code; None if the child still runs or was not started.
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
        """Reaps a child that has ended, which is a death whatever the exit code is."""
        if (code := self.reap_exit_code()) is not None:
            self.has_died(code)

    def last_error(self) -> str:
        """Returns the sentence of the last error in the log since the start, or ""."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(self._log_begins, log.seek(0, os.SEEK_END) - _END_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next(filter(None, map(error_in, reversed(lines))), "")

    def has_died(self, code: int) -> None:
        """Counts an exit code as a death: the next start waits, longer after each death."""
        self._back_off = self._back_off.after_death(ran_seconds=self.ran_seconds, now=self._clock())
        seconds = round(self._back_off.not_before - self._clock(), 1)
        self._say(
            warning(
                f"{self.what} ended with {code}, see {self._log}; it is started again in "
                f"{seconds:g} s"
            )
        )

    def forget_deaths(self) -> None:
        """Lets the child start at once: the cause of the deaths may have been fixed."""
        self._back_off = BackOff()

    def ask_to_end(self) -> None:
        """Asks the child to end, and kills the child once the patience is over. Does not wait."""
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
        """Kills the session of the child, stopped processes too, and waits for its end."""
        if self._process is not None:
            ensure_session_gone(self._process.pid)
            self._process.wait()
            _close_input(self._process)

    def end(self) -> None:
        """Ends the child and waits."""
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
    """Asks all children to end at once, waits, and kills children that do not end."""
    for child in children:
        child.ask_to_end()
    while [
        child.pid for child in children if child.reap_exit_code() is None and child.pid is not None
    ]:
        for child in children:
            child.ask_to_end()
        time.sleep(_NAP_SECONDS)


def open_log(path: Path) -> Path:
    """Prepares a log: makes the folder, and moves a large file aside.

    The last older file is kept. Returns the path of the log.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".old.log"))
    return path


def ended_message(what: str, code: int, more: str = "") -> str:
    """Returns that a process has ended: a warning, unless the process was asked to or is done."""
    told = f"{what} {ended_text(code)}{more}"
    return told if code in {0, -signal.SIGTERM} else warning(told)


def ended_text(code: int) -> str:
    """Returns how a process has ended, in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
