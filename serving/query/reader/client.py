"""The client of a query.

A client may leave before the answer is ready. The query is then interrupted at once, so that other
queries can run instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# How often a waiting thread looks whether its client is still there.
_LOOK_SECONDS = 0.05


class ClientLeft(Exception):
    """The error that is raised when a client has left before its answer was ready.

    The client cannot receive an error message any more.
    """


class Client:
    """A client that waits for an answer.

    `leave_now` may be called at any time, from any thread. A client that has left does not come
    back.
    """

    def __init__(self) -> None:
        self._changes = threading.Lock()
        self._has_left = False
        self._acts: list[Callable[[], None]] = []

    def leave_now(self) -> None:
        """Marks the client as left, and ends all work for the client.

        A second call does nothing.
        """
        with self._changes:
            self._has_left = True
            while self._acts:
                self._acts.pop()()

    def ensure_here(self) -> None:
        """Raises ClientLeft if the client has left."""
        if self._has_left:
            raise ClientLeft

    @contextmanager
    def calling_on_leave(self, act: Callable[[], None]) -> Iterator[None]:
        """Calls `act` if the client leaves within the block.

        In that case, an error in the block is raised as ClientLeft.
        """
        with self._changes:
            self.ensure_here()
            self._acts.append(act)
        try:
            yield
        except Exception:
            self.ensure_here()
            raise
        finally:
            with self._changes:
                if act in self._acts:
                    self._acts.remove(act)

    def take_turn(
        self, turn: threading.Lock | threading.Semaphore, seconds: float = float("inf")
    ) -> bool:
        """Waits for the lock or semaphore `turn`, and acquires it.

        Returns False if `turn` could not be acquired within `seconds`. Raises ClientLeft if the
        client leaves.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.ensure_here()
            left = deadline - time.monotonic()
            if turn.acquire(timeout=max(0.0, min(left, _LOOK_SECONDS))):
                return True
            if left <= 0:
                return False
