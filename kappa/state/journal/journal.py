"""The journal: numbered, append-only records of decisions and observations.

All other facts about rollouts are computed from the journal's records (replay/rollout/rollout.py).

A process stores a record under the next number, and only if this number is free. If the number is
taken, the process reads the record with that number. If that record has the random id of the
process's own record, the write has succeeded and only the answer was lost. Otherwise another
process was first, and the decision must be made again on the present records. So the numbers in the
journal decide every race between processes; no clock is used.

Records never change. A process that reads the journal again and again (the supervisor, the HTTP
server, a command that waits) uses `JournalView`: all views of one store share the records that were
read, so each record is read once. Each call reads the records after the last known one. So a view
never misses a record that another process has appended.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from kappa.base.clock import now
from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.state.documents import Documents, NumberedRecords
from kappa.state.files.markers import MarkerWatch, touch_marker
from kappa.state.journal.events import Event, GenerationMade
from kappa.state.root import ensure_no_copy
from kappa.state.store import Store

_NEWS = "journal"


class JournalRecord(Struct, frozen=True):
    """A record of the journal. `reason` is the reason that a person gave, or ""."""

    number: int
    event: Event
    at: str
    by: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    format: int = 1
    reason: str = ""


_RECORD = Documents(JournalRecord)


def journal_records(store: Store) -> NumberedRecords[JournalRecord]:
    """Returns the records of the journal as stored files, for callers that check these files."""
    return NumberedRecords(
        store,
        "journal",
        _RECORD,
        "journal record {}",
        hint="it may come from a newer version of Kappa",
    )


class Journal:
    """The journal of one root: appends records, and reads them from the root's files."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records = journal_records(store)
        self._marker = store.news_marker(_NEWS)

    @staticmethod
    def news(store: Store, *, clock: Callable[[], float] = time.monotonic) -> MarkerWatch:
        """Returns a watcher that notices when another record is appended."""
        return MarkerWatch(store.news_marker(_NEWS), clock=clock)

    def append(self, number: int, event: Event, reason: str = "") -> JournalRecord | None:
        """Appends a record with the content `event`, and returns the record.

        `number` must follow the number of the last record that was read. `reason` is the reason
        that the user gave. Returns None if another process has appended a record with this number.
        Raises Damaged if an earlier record is missing, since a lost number must not be used again.
        Raises KappaError if the record cannot be stored, or if the record was stored but may not
        survive a power loss. Raises Copied if the root is a copy.
        """
        ensure_no_copy(self._store)
        self._records.ensure_no_hole()
        record = JournalRecord(
            number=number, event=event, at=now(), by=acting_user(), reason=reason
        )
        failpoint(f"journal.before_{event.kind}")
        try:
            put = self._records.put(number, record)
        except KappaError as error:
            if not self._may_be_put(record):
                raise
            # A repeated undo would take the first undo back.
            raise KappaError(
                f"{error.message}; the record holds if it is there, and a power loss may take it",
                hint="see kappa history before you type this again",
            ) from error
        touch_marker(self._marker)
        failpoint(f"journal.after_{event.kind}")
        if put:
            return record
        return record if self._is_put(record) else None

    def get(self, number: int) -> JournalRecord | None:
        """Returns the record `number`, or None if the journal ends before that number."""
        return self._records.get(number)

    def _may_be_put(self, record: JournalRecord) -> bool:
        try:
            return self._is_put(record)
        except KappaError:
            # Whoever looks waits for the disk, too (Store.ensure_lasting).
            return True

    def _is_put(self, record: JournalRecord) -> bool:
        taken = self.get(record.number)
        return taken is not None and taken.id == record.id

    def after(self, number: int) -> Iterator[JournalRecord]:
        """Yields the records after `number`, in order. `after(0)` yields the whole journal.

        Raises Damaged if a record has changed since it was written, or if the newest record is
        missing. `after(0)` also raises Damaged if any other record is missing.
        """
        if number == 0:
            self._records.ensure_no_hole()
        noted = self._records.noted_number()
        last = number
        for _, record in self._records.after(number):
            last = record.number
            yield record
        self._records.ensure_newest(last, noted)

    def last_served(self) -> tuple[int, JournalRecord | None]:
        """Returns the journal's last number, and the newest record that began a generation.

        The record is None if nothing has ever been served.
        """
        noted, numbers = self._records.noted_number(), self._records.numbers()
        last = numbers[-1] if numbers else 0
        while self.get(last + 1) is not None:
            last += 1
        self._records.ensure_newest(last, noted)
        for number in range(last, 0, -1):
            record = self.get(number)
            if record is not None and isinstance(record.event, GenerationMade):
                return last, record
        return last, None


def as_document(record: JournalRecord) -> dict[str, Any]:
    """Converts a record to a document, in the form in which the journal stores it."""
    document: dict[str, Any] = _RECORD.plain(record)
    return document


# Who asks for the records that this task appends; None: the user of this process.
_asker: ContextVar[str | None] = ContextVar("asker", default=None)


@contextmanager
def acting_as(name: str | None) -> Iterator[None]:
    """Makes `name` the author of the records that are appended within the block.

    `name` is the name of a network client (`Identity.name`), or None for the user of this process.
    The author applies only to this task or thread, and to tasks and threads that copy its context.
    """
    before = _asker.set(name)
    try:
        yield
    finally:
        _asker.reset(before)


def acting_user() -> str:
    """Returns the author of the records that are appended now.

    This is the client of `acting_as`, or the user of this process.
    """
    return _asker.get() or process_user()


def process_user() -> str:
    """Returns the user of this process as `user@host`.

    If the environment variable KAPPA_BY is set, for example for a CI job or a bot, returns its
    value instead.
    """
    given = os.environ.get("KAPPA_BY")
    if given:
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


_T = TypeVar("_T")


class _ReadRecords:
    """The records of a journal that this process has read, and values computed from them.

    The object contains no reference to the store of the journal. So the object is freed together
    with the store.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.records: list[JournalRecord] = []
        # The last number read and the newest generation up to it, by `last_served` alone.
        self.served: tuple[int, JournalRecord | None] | None = None
        # The last number that a fold includes, and its value, by the fold's step.
        self.folds: dict[Callable[..., Any], tuple[int, Any]] = {}


_LOCK = Lock()
_MEMORIES: WeakKeyDictionary[Store, _ReadRecords] = WeakKeyDictionary()


class JournalView:
    """A view of a store's journal that caches all records it has read. Threads may share a view.

    All views of one store share the cached records.
    """

    def __init__(self, store: Store) -> None:
        """Opens a view of the journal in `store`, without reading a record."""
        self._journal = Journal(store)
        with _LOCK:
            self._memory = _MEMORIES.setdefault(store, _ReadRecords())

    def records(self, after: int = 0) -> tuple[JournalRecord, ...]:
        """Returns the records after the number `after`, in order, up to the newest one."""
        known = self._memory.records
        with self._memory.lock:
            # A damaged record ends this with Damaged; the records before are kept.
            for record in self._journal.after(len(known)):
                known.append(record)  # each is kept before the next is read
            return tuple(known[after:])

    def known(self) -> tuple[JournalRecord, ...]:
        """Returns the records that this process has already read, without reading the journal."""
        return tuple(self._memory.records)

    def folded(self, step: Callable[[_T, JournalRecord], _T], first: _T) -> _T:
        """Folds all records by `step`, beginning with the value `first`, and returns the result.

        `step` is called with the result so far and the next record, and returns the new result.
        Results are cached by `step`, so that each record is folded once per process. Therefore
        `step` must be a function at the top level of a module. Raises the errors of `step`.
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
        """Returns the journal's last number, and the newest record that began a generation.

        The record is None if nothing has ever been served. The first call reads the journal
        backwards from its end, only as far as needed.
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
        """Returns the result of the last call of `last_served`, without reading the journal.

        If there was no call yet, `last_served` is called.
        """
        return self._memory.served or self.last_served()
