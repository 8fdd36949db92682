"""News of a root: how a process that watches a root knows that something was put there.

A look at a root in a bucket costs requests. So a process that puts an object for which others wait
also touches a file of this host, the marker, and watchers look at the marker instead. A process
that died between the put and the touch touched nothing, so watchers also ask the bucket every few
seconds. A root in a folder is looked at directly.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kappa.base.disk import put_file

# The longest time until a put without a touch is noticed.
LOOK_SECONDS = 5.0


class MarkerWatch:
    """One watcher's looks at a marker."""

    def __init__(self, marker: Path | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Takes the marker; if it is None, each look is at the root."""
        self._marker = marker
        self._clock = clock
        self._known: object = None
        self._asked_at = -math.inf

    @contextmanager
    def looking_for_news(self) -> Iterator[bool]:
        """Gives whether to ask the root within the block. A block that fails has not asked."""
        due = self.are_due()
        try:
            yield due
        except BaseException:
            self._asked_at = -math.inf
            raise

    def are_due(self) -> bool:
        """Returns True if the root may have news since the last look, and must be asked."""
        if self._marker is None:
            return True
        # The marker is read before the root is asked: a put in between is news again.
        found = _marker_content(self._marker)
        if found == self._known and self._clock() - self._asked_at < LOOK_SECONDS:
            return False
        self._known, self._asked_at = found, self._clock()
        return True


def touch_marker(marker: Path | None) -> None:
    """Changes a marker for the watchers on this host; if this fails, watchers notice later."""
    if marker is not None:
        with suppress(OSError):
            put_file(marker, secrets.token_bytes(8), synced=False)


def _marker_content(marker: Path) -> object:
    with suppress(OSError):
        return marker.read_bytes()
    return None
