"""The time and memory that a slice may take: a function that takes more is named with it."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kappa.base.errors import ExitCode, KappaError
from kappa.engine.function.failure import Hoarded
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

        The next job folds the slice again, and in parts once two have ended in it. Raises the error
        of a function that took too much memory again, with the slice.
        """
        try:
            with self._in_time(piece):
                yield
        except Hoarded as error:
            raise KappaError(
                f"{_named(piece)} is not folded: {error.message}", hint=error.hint
            ) from error

    @contextmanager
    def _in_time(self, piece: Slice) -> Iterator[None]:
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
            f"error: {_named(piece)} is not folded after {self._seconds:g} s, and the job ends:"
            f" the function at {self._where} may not return on one of its records\n"
            "hint: after two such ends the slice is folded in parts; engine.slice_seconds in"
            " kappa.toml is the limit",
            file=sys.stderr,
            flush=True,
        )
        self._end()


def _named(piece: Slice) -> str:
    return f"slice {piece.leg}/{piece.number} ({piece.start} to {piece.end})"
