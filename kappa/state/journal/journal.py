"""The journal: numbered, append-only records of decisions and observations.

Everything else about rollouts is a fold of the journal (replay/rollout/rollout.py).

A record is put if its number is free. If the number is taken, the record with that number is read.
If that record is our own, as its random id shows, the put succeeded and only its answer was lost.
Otherwise another process was first, and the decision must be made again on the records that exist
now. So the journal decides every race, never a clock.

Records never change. A process that reads again and again (the supervisor, the HTTP server, a
command that waits) shares one `JournalView` per store, which reads each record once. Each call
reads on from the last known record, so the view never misses a record that another process appends.
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
    """A record of the journal; `reason` is the reason that a person gave, or ""."""

    number: int
    event: Event
    at: str
    by: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    format: int = 1
    reason: str = ""


_RECORD = Documents(JournalRecord)


def journal_records(store: Store) -> NumberedRecords[JournalRecord]:
    """Returns the journal's stored records, for a caller that examines the files."""
    return NumberedRecords(
        store,
        "journal",
        _RECORD,
        "journal record {}",
        hint="it may come from a newer version of Kappa",
    )


class Journal:
    """The journal under one root."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._records = journal_records(store)
        self._marker = store.news_marker(_NEWS)

    @staticmethod
    def news(store: Store, *, clock: Callable[[], float] = time.monotonic) -> MarkerWatch:
        """Returns a watcher's looks for records newer than the watcher has."""
        return MarkerWatch(store.news_marker(_NEWS), clock=clock)

    def append(self, number: int, event: Event, reason: str = "") -> JournalRecord | None:
        """Puts record `number`, which must follow the last record read.

        `reason` is the reason that the acting person gave.

        Returns None if another process's record has that number. Raises Damaged if the journal has
        a hole: a lost record is not written again. Raises KappaError if the record cannot be put,
        or was put and may not survive a power loss, and Copied if the root is a copy.
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
        """Returns record `number`, or None if the journal ends before that number."""
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
        """Yields the records that follow `number`, in order; `after(0)` is the whole journal.

        Raises Damaged if a record is not as it was written, or if the newest record is gone, and
        `after(0)` also if any record is missing.
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
        """Returns the journal's last number, and the newest record that made a generation.

        The record is None if nothing has served yet.
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
    """Returns a record as the document that the journal keeps."""
    document: dict[str, Any] = _RECORD.plain(record)
    return document


# Who asks for the records that this task appends; None: the user of this process.
_asker: ContextVar[str | None] = ContextVar("asker", default=None)


@contextmanager
def acting_as(name: str | None) -> Iterator[None]:
    """Makes a client of the network the author of the records that the block appends.

    The author is set for this task or thread, and for the tasks and threads that copy its context.
    `name` is the name of the client (`Identity.name`); None stands for the user of this process.
    """
    before = _asker.set(name)
    try:
        yield
    finally:
        _asker.reset(before)


def acting_user() -> str:
    """Returns who acts: a client of the network, or the user of this process."""
    return _asker.get() or process_user()


def process_user() -> str:
    """Returns the user of this process, as `user@host`; KAPPA_BY overrides it (CI jobs, bots)."""
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
    """The records read so far. The memory names no store, so it is freed with its store."""

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
    """The journal of a store as this process knows it. Threads may share it."""

    def __init__(self, store: Store) -> None:
        """Shares the records read with all other views of the same store."""
        self._journal = Journal(store)
        with _LOCK:
            self._memory = _MEMORIES.setdefault(store, _ReadRecords())

    def records(self, after: int = 0) -> tuple[JournalRecord, ...]:
        """Returns the records that follow number `after`, in order, up to the newest."""
        known = self._memory.records
        with self._memory.lock:
            # A damaged record ends this with Damaged; the records before are kept.
            for record in self._journal.after(len(known)):
                known.append(record)  # each is kept before the next is read
            return tuple(known[after:])

    def known(self) -> tuple[JournalRecord, ...]:
        """Returns the records that this process has read, without a look for others."""
        return tuple(self._memory.records)

    def folded(self, step: Callable[[_T, JournalRecord], _T], first: _T) -> _T:
        """Returns the fold of all records by `step`, from `first`. Raises the errors of `step`.

        A process folds each record once: `step` is a module's function, and names the fold.
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
        """Returns the journal's last number, and the newest record that made a generation, or None.

        The first call reads back from the journal's end, and only as far as needed.
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
        """Returns the last answer of `last_served`, which is called only if there is none yet."""
        return self._memory.served or self.last_served()
