"""The supervisor's spares: processes that have started Spark and wait for a job or a command.

There are `engine.spares` spares; if a spare is taken, a new spare replaces it. The supervisor
writes a job's task to the standard input of a spare, even if the spare's Spark is still starting,
because the Spark of a new process would be ready later. A command connects to the Unix socket of a
spare (kappa/engine/children/spare.py); then the socket is deleted.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kappa.base.program import project_options
from kappa.base.settings import Settings
from kappa.code.task import SPARES, Task, libraries_digest, spare_socket, taken_socket
from kappa.replay.platform.child import BackOff, ChildProcess, end_all
from kappa.state.store import Store

LOG = "spare"
# A spare has nothing to lose.
_PATIENCE_SECONDS = 1.0


@dataclass(slots=True)
class _Spare:
    """A spare: its process, the folder of its Spark, and the digest of its imported libraries."""

    child: ChildProcess
    pid: int
    folder: Path
    libraries: str

    @property
    def is_warm(self) -> bool:
        """Returns True if Spark has booted and is warm."""
        return spare_socket(self.folder.parent, self.pid).exists()

    @property
    def is_taken(self) -> bool:
        """Returns True if a command uses the spare, or has used it."""
        return taken_socket(self.folder.parent, self.pid).exists()

    def delete_leftovers(self) -> None:
        """Deletes the folder of the spare, and any socket file of the spare."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for place in self.folder.parent.glob(f"{self.pid}[-.]*"):
            place.unlink(missing_ok=True)


class Spares:
    """Starts and ends the spares of a supervisor, including spares that have been taken."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates an object without spares, and deletes the folders that earlier spares left.

        `say` prints a message for the operator. `clock` returns seconds that never move back.
        """
        self._store = store
        self._settings = settings
        self._say = say
        self._clock = clock
        self._folder = store.local.path(SPARES)
        self._free: list[_Spare] = []
        # Spares that work for a command, and spares that have become jobs.
        self._taken: list[_Spare] = []
        self._jobs: list[tuple[subprocess.Popen[bytes], _Spare]] = []
        self._back_off = BackOff()
        # Spares end with their supervisor, and leave their folders.
        shutil.rmtree(self._folder, ignore_errors=True)

    def ensure_ready(self) -> None:
        """Reaps spares that have exited, and starts a spare if one is missing.

        Spares boot one after the other, because two spares that boot at the same time are slower.
        """
        self._reap_spares()
        if (
            len(self._free) < self._settings.engine.spares
            and all(spare.is_warm for spare in self._free)
            and self._clock() >= self._back_off.not_before
        ):
            self._free.append(self._start_spare())

    @property
    def is_any_warm(self) -> bool:
        """Returns True if a free spare has booted Spark and is warm."""
        return any(spare.is_warm for spare in self._free)

    def hand_over(self, task: Task) -> subprocess.Popen[bytes] | None:
        """Gives a task to a free spare, and returns the process of this spare.

        The process exits after the task. Returns None if no spare is free.
        """
        self._reap_spares()
        # The oldest is ready, or will be first.
        while self._free:
            spare = self._free.pop(0)
            process = spare.child.hand_over(task.line)
            if process is not None:
                self._jobs.append((process, spare))
                return process
            # A command has just come.
            self._taken.append(spare)
        return None

    def end(self) -> None:
        """Ends all spares that have not become jobs."""
        end_all([spare.child for spare in (*self._free, *self._taken)])
        self._free.clear()
        self._taken.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start_spare(self) -> _Spare:
        # Its length leaves room for the name of the task in the process's command line.
        folder = self._folder / secrets.token_hex(40)
        folder.mkdir(parents=True)
        child = ChildProcess(
            "a spare",
            self._store.local.path(f"logs/{LOG}.log"),
            say=self._say,
            clock=self._clock,
            patience_seconds=_PATIENCE_SECONDS,
            is_handed_tasks=True,
        )
        child.start(
            "kappa.engine.children.spare",
            *project_options(self._settings),
            *("--folder", str(folder), "--door", "yes"),
        )
        assert child.pid is not None, "it was started"
        return _Spare(child, child.pid, folder, libraries_digest())

    def _reap_spares(self) -> None:
        for spare in tuple(self._free):
            # First: a command may be done with the spare by now.
            if spare.is_taken:
                self._free.remove(spare)
                self._taken.append(spare)
            elif spare.child.reap_exit_code() is not None:
                self._free.remove(spare)
                self._note_death(spare)
            elif spare.libraries != libraries_digest():
                spare.child.kill()
                self._free.remove(spare)
                spare.delete_leftovers()
        for spare in tuple(self._taken):
            if spare.child.reap_exit_code() is not None:
                self._taken.remove(spare)
                spare.delete_leftovers()
        for process, spare in tuple(self._jobs):
            if process.returncode is not None:
                self._jobs.remove((process, spare))
                spare.delete_leftovers()

    def _note_death(self, spare: _Spare) -> None:
        """Counts the exit of a spare without a task as a death, so that the next start waits."""
        spare.delete_leftovers()
        self._back_off = self._back_off.after_death(
            ran_seconds=spare.child.ran_seconds, now=self._clock()
        )
        self._say(f"a spare ended, see {self._store.local.path(f'logs/{LOG}.log')}")
