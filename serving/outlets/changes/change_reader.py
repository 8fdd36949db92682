"""A reader of the hub: what waits for it, in bounds, and whether it reads too slowly."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kappa.base.errors import KappaError
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.changes.recorded import RecordedChanges
from kappa.serving.query.reader.client import Client

# A reader for which so many change sets wait, or so much text, is sent back to its cursor.
_MOST_SETS, _MOST_TEXT = 1_000, 32 << 20


@dataclass(eq=False)
class ChangeReader:
    """One reader: the change sets that wait for it, and the cursor of the last one it was sent.

    `notify` is called from other threads. After `late` or `error` nothing more is added. One that
    begins `from_now` gets no snapshot. What leads to its beginning is broken off if its `client`
    leaves.
    """

    table: str
    chosen: Filter | None
    cursor: Cursor | None
    notify: Callable[[], None]
    from_now: bool = False
    client: Client = field(default_factory=Client)
    waiting: deque[RecordedChanges] = field(default_factory=deque)
    late: bool = False
    error: KappaError | None = None
    _changed: threading.Lock = field(default_factory=threading.Lock)

    def add(self, recorded: RecordedChanges) -> None:
        """Adds a change set, or notes that the reader is too slow."""
        with self._changed:
            text = sum(each.size for each in self.waiting)
            if self.waiting and (len(self.waiting) >= _MOST_SETS or text > _MOST_TEXT):
                self.late = True
                self.waiting.clear()
            else:
                self.waiting.append(recorded)
        self.notify()

    def end(self, error: KappaError) -> None:
        """Ends its change sets by an error, after those that wait."""
        self.error = error
        self.notify()

    def take(self) -> RecordedChanges | None:
        """Takes the next change set; None if none waits. Raises the error that ended them."""
        with self._changed:
            if self.waiting:
                return self.waiting.popleft()
        if self.error is not None:
            raise self.error
        return None
