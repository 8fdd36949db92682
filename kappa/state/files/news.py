"""News of a root: how a process that watches it knows that something was put there.

A root in a bucket is asked by requests. Whoever puts something that others wait for also touches a
file of this host, its marker, which watchers look at instead. One that died in between touched
nothing, so they ask the bucket every few seconds as well. In a folder they look for themselves.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kappa.base.disk import put_file

# So late at most is noticed what was put without a touch.
LOOK_SECONDS = 5.0


class News:
    """One watcher's looks at a marker."""

    def __init__(self, marker: Path | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the marker; None: the root is looked at itself, each time."""
        self._marker = marker
        self._clock = clock
        self._known: object = None
        self._asked_at = -math.inf

    @contextmanager
    def looking(self) -> Iterator[bool]:
        """Gives whether the root is to be asked within the block. One that fails has not asked."""
        due = self.are_due()
        try:
            yield due
        except BaseException:
            self._asked_at = -math.inf
            raise

    def are_due(self) -> bool:
        """Returns True if the root is to be asked: there may be news since the last time."""
        if self._marker is None:
            return True
        # Before the root is asked: what is put meanwhile is news again.
        found = _state(self._marker)
        if found == self._known and self._clock() - self._asked_at < LOOK_SECONDS:
            return False
        self._known, self._asked_at = found, self._clock()
        return True


def touch(marker: Path | None) -> None:
    """Changes a marker for the watchers on this host; if it cannot, they notice later."""
    if marker is not None:
        with suppress(OSError):
            put_file(marker, secrets.token_bytes(8), synced=False)


def _state(marker: Path) -> object:
    with suppress(OSError):
        return marker.read_bytes()
    return None
