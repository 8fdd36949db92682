"""A process's view of the journal: records never change, so each is read once.

A process that reads again and again (the supervisor, the HTTP server, a command that waits) shares
one view per store. Each call reads on from the last record known, so records that others append are
never missed.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.store import Store

_T = TypeVar("_T")


class _Memory:
    """The records read so far. It names no store, so it is freed when its store is."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.records: list[JournalRecord] = []
        # The last number read and the newest generation up to it, by `last_served` alone.
        self.served: tuple[int, JournalRecord | None] | None = None
        # By its step: the last number that a fold has, and its value.
        self.folds: dict[Callable[..., Any], tuple[int, Any]] = {}


_LOCK = Lock()
_MEMORIES: WeakKeyDictionary[Store, _Memory] = WeakKeyDictionary()


class JournalView:
    """The journal of a store as this process knows it. Threads may share it."""

    def __init__(self, store: Store) -> None:
        """Shares the records read with all other views of the same store."""
        self._journal = Journal(store)
        with _LOCK:
            self._memory = _MEMORIES.setdefault(store, _Memory())

    def records(self, after: int = 0) -> tuple[JournalRecord, ...]:
        """Returns the records that follow number `after`, in order, up to the newest."""
        known = self._memory.records
        with self._memory.lock:
            # One that cannot be read ends this with Damaged; those before it are kept.
            for record in self._journal.after(len(known)):
                known.append(record)  # each is kept before the next is read
            return tuple(known[after:])

    def known(self) -> tuple[JournalRecord, ...]:
        """Returns the records that this process has read, without a look for others."""
        return tuple(self._memory.records)

    def folded(self, step: Callable[[_T, JournalRecord], _T], first: _T) -> _T:
        """Returns the fold of all records by `step`, from `first`. Raises what `step` raises.

        Each record is folded once in a process: `step` is a module's function, and names the fold.
        """
        folds = self._memory.folds
        known: tuple[int, _T] = folds.get(step, (0, first))
        number, folded = known
        for record in self.records(after=number):
            number, folded = record.number, step(folded, record)
        with self._memory.lock:
            # Another thread may have come further meanwhile.
            if number >= folds.get(step, (0, first))[0]:
                folds[step] = number, folded
        return folded

    def last_served(self) -> tuple[int, JournalRecord | None]:
        """Returns the journal's last number, and the newest record that made a generation, if any.

        The first call reads back from the journal's end, and no more than it needs.
        """
        memory = self._memory
        with memory.lock:
            if memory.served is None:
                memory.served = self._journal.last_served()
            number, served = memory.served
            for record in self._journal.after(number):
                number = record.number
                served = record if isinstance(record.event, GenerationMade) else served
                memory.served = number, served
            return number, served

    def known_served(self) -> tuple[int, JournalRecord | None]:
        """Returns what `last_served` returned last, and asks only if it never did."""
        return self._memory.served or self.last_served()
