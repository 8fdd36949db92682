"""Acts that stop in the middle while other acts run, as paused processes do.

Each act has its own thread, and one thread runs at a time: an act gives the turn back at an effect,
and takes it again later. So a seed decides everything, and each run of a seed is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Act:
    """One act. When it gets the turn, it runs to its pause or to its end."""

    def __init__(self, name: str, work: Callable[[], None], *, stops_at: int) -> None:
        """Takes in `stops_at`: after this number of its own effects the act pauses, once."""
        self.name = name
        self.ended = False
        self._work = work
        self._left = stops_at
        self._error: BaseException | None = None
        self._mine, self._theirs = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        """Runs the act until it pauses or ends. Raises the error with which it ended."""
        self._mine.release()
        self._theirs.acquire()
        if self.ended:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def effect(self) -> None:
        """Counts an effect if this act causes it, and may pause here."""
        if threading.current_thread() is not self._thread:
            return
        self._left -= 1
        if self._left == 0:
            self._theirs.release()
            self._mine.acquire()

    def _run(self) -> None:
        self._mine.acquire()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  # it is raised where the act goes on
            self._error = error
        self.ended = True
        self._theirs.release()
