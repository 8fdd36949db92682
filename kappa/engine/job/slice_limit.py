"""The limit on the time that a slice may take without progress.

If a slice reaches the limit, a line in the job's log names the function and the slice, and the
process ends.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from kappa.base.errors import ExitCode, KappaError
from kappa.base.log_lines import Level, write_log_line
from kappa.engine.function.failure import Hoarded
from kappa.state.slices import Slice

# The signs of progress are looked at so many times within the limit, with no pause longer than
# this.
_LOOKS = 30
_LONGEST_PAUSE_SECONDS = 10.0


def _end_process() -> None:
    # Neither the function nor Spark can be made to return.
    os._exit(ExitCode.FAILED)


class SliceLimit:
    """A limit on the time that a job's slices may take without progress, in seconds."""

    def __init__(
        self,
        seconds: float,
        where: str,
        *,
        signs: Callable[[], object] = lambda: None,
        give_up: Callable[[Slice], None] = lambda _piece: None,
        end: Callable[[], None] = _end_process,
    ) -> None:
        """Stores the limit of `seconds`, and the callbacks.

        `where` is the place of the pipeline's function in the code, for the message. A slice makes
        progress if a call of `signs` returns another value than the previous call. `give_up`
        records that the slice must be split. `end` ends this process.
        """
        self._seconds = seconds
        self._where = where
        self._signs = signs
        self._give_up = give_up
        self._end = end

    @contextmanager
    def over(self, piece: Slice) -> Iterator[None]:
        """Ends the process if the `with` block makes no progress for longer than the limit.

        The block folds the slice `piece`. After the process has ended, the next job folds the slice
        in parts. Raises KappaError with the name of the slice if the user's function exceeds the
        memory limit of one of Spark's Python processes.
        """
        try:
            with self._watched(piece):
                yield
        except Hoarded as error:
            raise KappaError(
                f"{_named(piece)} is not folded: {error.message}", hint=error.hint
            ) from error

    @contextmanager
    def _watched(self, piece: Slice) -> Iterator[None]:
        if math.isinf(self._seconds):
            yield
            return
        done = threading.Event()
        threading.Thread(target=self._watch, args=(piece, done), name="limit", daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def _watch(self, piece: Slice, done: threading.Event) -> None:
        """Measures the time since the last sign of progress, and ends the process at the limit.

        If the machine slept, or did not run this thread, the fold of the slice did not run either.
        So the time between two checks counts as at most two pauses.
        """
        pause = min(self._seconds / _LOOKS, _LONGEST_PAUSE_SECONDS)
        moved = threading.Event()
        quiet, looked_at = 0.0, time.monotonic()
        looker: threading.Thread | None = None
        while not done.wait(pause):
            if looker is None:
                # Only a slice that takes its time is looked at. Spark's JVM may never answer.
                looker = threading.Thread(
                    target=self._look, args=(done, moved, pause), name="signs", daemon=True
                )
                looker.start()
            now = time.monotonic()
            quiet = 0.0 if moved.is_set() else quiet + min(now - looked_at, 2 * pause)
            moved.clear()
            looked_at = now
            if quiet >= self._seconds:
                self._late(piece)
                return

    def _look(self, done: threading.Event, moved: threading.Event, pause: float) -> None:
        before: object = None
        while True:
            # A sign that cannot be read is no sign.
            with suppress(Exception):
                if (now := self._signs()) != before:
                    before = now
                    moved.set()
            if done.wait(pause):
                return

    def _late(self, piece: Slice) -> None:
        write_log_line(
            f"{_named(piece)} made no progress for {self._seconds:g} s"
            " (engine.slice_seconds), so the job ends and the next one folds the slice in parts:"
            f" the function at {self._where} may not return on one of its records",
            Level.ERROR,
        )
        # If the note fails, as on a full disk, the slice is split after one more end.
        with suppress(Exception):
            self._give_up(piece)
        self._end()


def _named(piece: Slice) -> str:
    return f"slice {piece.leg}/{piece.number} ({piece.start} to {piece.end})"
