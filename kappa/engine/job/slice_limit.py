"""The time that a slice may take: a function that never returns ends its job, and is named."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kappa.base.errors import ExitCode
from kappa.state.slices import Slice


def _end_process() -> None:
    # Neither the function nor Spark can be made to return.
    os._exit(ExitCode.FAILED)


class SliceLimit:
    """The limit of one job's slices, in seconds."""

    def __init__(
        self, seconds: float, where: str, *, end: Callable[[], None] = _end_process
    ) -> None:
        """Takes where the pipeline's function is, for the message; `end` ends this process."""
        self._seconds = seconds
        self._where = where
        self._end = end

    @contextmanager
    def over(self, piece: Slice) -> Iterator[None]:
        """Ends the process if the block, which folds a slice, takes too long.

        The next job folds the slice again, and in parts once two have ended in it.
        """
        if math.isinf(self._seconds):
            yield
            return
        timer = threading.Timer(self._seconds, self._late, [piece])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _late(self, piece: Slice) -> None:
        print(
            f"error: slice {piece.leg}/{piece.number} ({piece.start} to {piece.end}) is not folded"
            f" after {self._seconds:g} s, and the job ends: the function at {self._where} may not"
            " return on one of its records\n"
            "hint: after two such ends the slice is folded in parts; engine.slice_seconds in"
            " kappa.toml is the limit",
            file=sys.stderr,
            flush=True,
        )
        self._end()
