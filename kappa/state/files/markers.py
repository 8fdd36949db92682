"""Markers: files by which a process notices that something new was written to a root.

Reading a root in a bucket costs requests. So a process that writes an object for which other
processes wait also changes a file on this host, the marker. Watchers read the marker instead of the
bucket. If the writing process dies between the two steps, the marker does not change. So watchers
also read the bucket every few seconds. If the root is a local folder, there is no marker, and
watchers read the root itself.
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
    """A watcher of one marker file: detects that something new may have been written to the root.

    A process that writes an object to a bucket also changes a file on this host, the marker.
    """

    def __init__(self, marker: Path | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Watches the file `marker`. If `marker` is None, the watcher always reports possible news.

        `clock` returns the present time in seconds.
        """
        self._marker = marker
        self._clock = clock
        self._known: object = None
        self._asked_at = -math.inf

    @contextmanager
    def looking_for_news(self) -> Iterator[bool]:
        """Yields True if something new may have been written, so that the block must read the root.

        Otherwise yields False. If the block raises an error, the next call yields True again.
        """
        due = self.are_due()
        try:
            yield due
        except BaseException:
            self._asked_at = -math.inf
            raise

    def are_due(self) -> bool:
        """Returns True if the caller must read the root, because something new may be there.

        This is the case if the marker file has changed since this method last returned True, if
        that was five seconds ago or more, or if no marker file is watched.
        """
        if self._marker is None:
            return True
        # The marker is read before the root is asked: a put in between is news again.
        found = _marker_content(self._marker)
        if found == self._known and self._clock() - self._asked_at < LOOK_SECONDS:
            return False
        self._known, self._asked_at = found, self._clock()
        return True


def touch_marker(marker: Path | None) -> None:
    """Changes the content of a marker file, so that its watchers on this host notice the change.

    If the file cannot be written, the watchers read the root a few seconds later anyway. If
    `marker` is None, this function does nothing.
    """
    if marker is not None:
        with suppress(OSError):
            put_file(marker, secrets.token_bytes(8), synced=False)


def _marker_content(marker: Path) -> object:
    with suppress(OSError):
        return marker.read_bytes()
    return None
