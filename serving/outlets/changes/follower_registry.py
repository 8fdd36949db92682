"""The hub: one follower for each followed table, shared by all readers of a server.

Any number of readers may follow a table. A change set is computed once, and written as text once
for each filter in use. A small text is kept in memory, and a large text in an unnamed file. A new
reader first gets the changes from its cursor to the frontier that the hub has reached; these
changes are computed once for all readers with the same cursor and filter. If a reader reads too
slowly, its waiting change sets are discarded. The reader then gets the net difference from its last
cursor.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO
from weakref import WeakValueDictionary

from kappa.base.errors import Conflict, KappaError
from kappa.serving.outlets.changes.change_set import ChangeSet, ChangeSetHead
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.difference import changes_until
from kappa.serving.outlets.changes.filter import Filter, ensure_fits
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.outlets.changes.table_snapshot import (
    Clock,
    Point,
    ensure_point_kept,
    point_at,
    point_of,
)
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.reader import Limits
from kappa.state.store import Store
from kappa.state.table import TableBirth

# The size of a message with rows, in characters.
_PIECE = 1 << 16
# A larger text is in a file.
_IN_MEMORY = 4 << 20
# A reader for which so many change sets wait, or so much text, is sent back to its cursor.
_MOST_SETS, _MOST_TEXT = 1_000, 32 << 20
_LOOK_SECONDS = 1.0
# For a follower that another process was ahead of.
_PATIENCE_SECONDS, _NAP_SECONDS = 5.0, 0.02


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """A message of a change set for a reader.

    The last message of each change set contains the cursor.
    """

    event: str
    text: str
    cursor: Cursor | None = None


class RecordedChanges:
    """A change set as messages of text, which can be read any number of times.

    Several threads may read at once. The first message contains the head of the change set, further
    messages contain rows, and the last message contains the cursor.
    """

    def __init__(self, change_set: ChangeSet, chosen: Filter | None, folder: Path) -> None:
        """Writes the messages of a change set for readers with the filter `chosen`.

        If the messages are long, they are written to a file in `folder`. Raises KappaError if the
        file cannot be written.
        """
        self.head: ChangeSetHead = change_set.head
        self.size = 0
        self._pieces: list[str] = []
        self._file: BinaryIO | None = None
        self._places: list[tuple[int, int]] = []
        for piece in _json_arrays(change_set.json_lines(chosen)):
            try:
                self._add_piece(piece, folder)
            except OSError as error:
                raise KappaError(
                    f"could not write the changes of {self.head.table}: {error.strerror or error}",
                    hint="see whether the disk is full or the folder may be written",
                ) from error
        self.counts = change_set.counts(chosen)
        document = {**self.head.as_document(chosen), "changes": asdict(self.counts)}
        self._begin = json.dumps(document, ensure_ascii=False)

    def messages(self) -> Iterator[ChangeMessage]:
        """Yields the messages of the change set."""
        yield ChangeMessage("begin", self._begin)
        for piece in self._pieces:
            yield ChangeMessage("rows", piece)
        for place, size in self._places:
            assert self._file is not None, "it has places only in a file"
            text = os.pread(self._file.fileno(), size, place).decode()
            yield ChangeMessage("rows", text)
        cursor = self.head.cursor
        yield ChangeMessage("commit", json.dumps({"cursor": str(cursor)}), cursor)

    def _add_piece(self, piece: str, folder: Path) -> None:
        content = piece.encode()
        self.size += len(content)
        if self._file is None and self.size > _IN_MEMORY:
            folder.mkdir(parents=True, exist_ok=True)
            # The file has no name, so it ends with the last reader, however that reader ends.
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
            weakref.finalize(self, _close_file, self._file)
            before, self._pieces = self._pieces, []
            for each in before:
                self._write_piece(each.encode())
        if self._file is None:
            self._pieces.append(piece)
        else:
            self._write_piece(content)

    def _write_piece(self, content: bytes) -> None:
        assert self._file is not None, "it was opened before"
        self._places.append((self._file.tell(), len(content)))
        self._file.write(content)
        self._file.flush()


def _close_file(file: BinaryIO) -> None:
    # A full disk, which has refused bytes before, refuses them now, too.
    with suppress(OSError):
        file.close()


def _json_arrays(lines: Iterator[str]) -> Iterator[str]:
    """Joins changes into JSON arrays, and yields each array as text.

    `lines` are the changes as JSON objects. An array contains many changes.
    """
    held, size = list[str](), 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _PIECE:
            yield f"[{','.join(held)}]"
            held, size = [], 0
    if held:
        yield f"[{','.join(held)}]"


@dataclass(eq=False)
class ChangeReader:
    """A reader of a table's changes, and the change sets that wait for the reader.

    `cursor` is the cursor of the last change set that the reader was sent. `notify` is called from
    other threads when a change set is added or the reader's state changes. After `late` or `error`
    is set, no change sets are added. If `from_now` is True, the reader gets no snapshot. If the
    `client` leaves, the computation of the reader's first change set is interrupted.
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

    def add_changes(self, recorded: RecordedChanges) -> None:
        """Adds a change set to those that wait for the reader.

        If too many change sets wait already, marks the reader as late instead, and discards all
        change sets that wait.
        """
        with self._changed:
            text = sum(each.size for each in self.waiting)
            if self.waiting and (len(self.waiting) >= _MOST_SETS or text > _MOST_TEXT):
                self.late = True
                self.waiting.clear()
            else:
                self.waiting.append(recorded)
        self.notify()

    def end_with_error(self, error: KappaError) -> None:
        """Ends the reader's sequence of change sets with an error.

        The reader first gets the change sets that wait, and then the error.
        """
        self.error = error
        self.notify()

    def take_changes(self) -> RecordedChanges | None:
        """Removes the next change set from those that wait, and returns it.

        Returns None if no change set waits. If an error has ended the sequence, raises the error
        instead.
        """
        with self._changed:
            if self.waiting:
                return self.waiting.popleft()
        if self.error is not None:
            raise self.error
        return None


class ChangeHub:
    """The tables that readers of a server follow, each with one follower for all its readers."""

    def __init__(
        self,
        store: Store,
        *,
        lease_seconds: float,
        keep_seconds: float,
        limits: Limits | None,
        clock: Clock = time.time,
    ) -> None:
        """Creates a hub that follows no table yet.

        The files of a cursor are kept for `keep_seconds` after the cursor was sent to a reader.
        `limits` bound the resources that large change sets may use.
        """
        self._store = store
        self._lease_seconds = lease_seconds
        self._keep_seconds = keep_seconds
        self._limits = limits
        self._clock = clock
        self.folder: Path = store.local.path("tmp")
        # The number of computed change sets: each is for all readers of a table.
        self.computed = 0
        self._lock = threading.Lock()
        self._tables: dict[str, _TableHub] = {}
        # The first changes of readers, by cursors, table and filter, while somebody reads them.
        self._begun = WeakValueDictionary[tuple[object, ...], RecordedChanges]()
        self._beginning = WeakValueDictionary[tuple[object, ...], threading.Lock]()

    def begin_reader(self, reader: ChangeReader) -> RecordedChanges | None:
        """Adds a reader, and returns the changes since the reader's cursor.

        The hub then adds later change sets to the reader. Returns None if nothing has changed since
        the cursor. Raises UsageError if the table is not served or if the filter does not fit.
        Raises Conflict if the cursor is later than the state that is served. Raises ClientLeft if
        the client leaves before the changes are computed.
        """
        self._ensure_fits(reader)
        reader.waiting.clear()
        reader.late, reader.error = False, None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            table, point = self._join_table(reader)
            if reader.from_now or not _is_past(reader.cursor, point):
                break
            # Another process was ahead of this follower, or the cursor was never given out.
            table.remove_reader(reader)
            if time.monotonic() > deadline or _is_past(
                reader.cursor, self._served_point(reader.table)
            ):
                raise Conflict(
                    f"cursor {reader.cursor} is past what is served", hint="ask without a cursor"
                )
            time.sleep(_NAP_SECONDS)
        try:
            return self._changes_until(reader, point)
        except BaseException:
            self.remove_reader(reader)
            raise

    def remove_reader(self, reader: ChangeReader) -> None:
        """Removes a reader. The reader then gets no more change sets."""
        with self._lock:
            table = self._tables.get(reader.table)
        if table is not None:
            table.remove_reader(reader)

    def make_follower(self, table: str, chosen: Filter | None = None) -> Follower:
        """Creates a follower of a table.

        Raises UsageError if the table is not served, or if `chosen` does not fit the table.
        """
        return Follower(
            self._store,
            table,
            chosen=chosen,
            lease_seconds=self._lease_seconds,
            keep_seconds=self._keep_seconds,
            limits=self._limits,
            clock=self._clock,
        )

    def _ensure_fits(self, reader: ChangeReader) -> None:
        """Raises UsageError if a reader's table is not served, or if its filter does not fit.

        If the hub already follows the table, the filter is compared with the columns that the
        follower knows.
        """
        with self._lock:
            table = self._tables.get(reader.table)
        birth = None if table is None else table.served_table()
        if birth is None:
            self.make_follower(reader.table, reader.chosen)
        elif reader.chosen is not None:
            ensure_fits(reader.chosen, birth)

    def _join_table(self, reader: ChangeReader) -> tuple[_TableHub, Point]:
        """Adds a reader to the readers of its table.

        Returns the hub of the table, and the state that this hub has reached. The reader gets every
        change set after that state.
        """
        with self._lock:
            table = self._tables.get(reader.table)
            point = None if table is None else table.add_reader(reader)
            if table is None or point is None:
                table = _TableHub(self, reader.table)
                point = table.start_with_reader(reader)
                self._tables[reader.table] = table
            return table, point

    def _served_point(self, table: str) -> Point | None:
        """Returns the present state of a table, or None if no pipeline serves the table."""
        with pin_served(self._store, lease_seconds=self._lease_seconds) as pinned:
            return point_of(pinned.snapshot, table)

    def _changes_until(self, reader: ChangeReader, point: Point) -> RecordedChanges | None:
        """Returns the changes from a reader's cursor to a state of the table.

        Returns None if there are no changes. Readers with the same cursor and filter share the
        result.
        """
        if reader.from_now:
            reader.cursor = point.cursor
        if reader.cursor == point.cursor:
            return None
        key = reader.cursor, point.cursor, reader.table, reader.chosen
        with self._lock:
            turn = self._beginning.get(key)
            if turn is None:
                turn = self._beginning[key] = threading.Lock()
        reader.client.take_turn(turn)
        try:
            found = self._begun.get(key)
            if found is None:
                found = self._begun[key] = self._record_changes(reader, point)
            return found
        finally:
            turn.release()

    def _record_changes(self, reader: ChangeReader, point: Point) -> RecordedChanges:
        now, before = self._clock(), None
        if reader.cursor is not None:
            before = point_at(self._store, reader.cursor, reader.table, now)
        if before is not None and not self._is_kept(before):
            before = None
        with changes_until(
            self._store,
            before,
            point,
            is_first=reader.cursor is None,
            limits=self._limits,
            client=reader.client,
        ) as change_set:
            recorded = RecordedChanges(change_set, reader.chosen, self.folder)
        if not (self._is_kept(point) and (before is None or self._is_kept(before))):
            raise Conflict(
                f"the files of cursor {point.cursor} were deleted while they were read",
                hint="ask again; a longer changes.keep_seconds in kappa.toml helps",
            )
        return recorded

    def _is_kept(self, point: Point) -> bool:
        return ensure_point_kept(self._store, point, now=self._clock(), seconds=self._keep_seconds)


class _TableHub:
    """The follower of one table, with its thread and its readers.

    The thread ends when the last reader has left.
    """

    def __init__(self, hub: ChangeHub, table: str) -> None:
        self._hub = hub
        self._follower = hub.make_follower(table)
        self._changed = threading.Lock()
        self._readers = set[ChangeReader]()
        self._point = self._follower.start_now()
        self._ended = False
        self._thread = threading.Thread(
            target=self._follow_table, name=f"changes of {table}", daemon=True
        )

    def start_with_reader(self, reader: ChangeReader) -> Point:
        """Adds the first reader, starts the thread, and returns the present state of the table.

        The reader gets every change set after that state.
        """
        self._readers.add(reader)
        point = self._point
        self._thread.start()
        return point

    def served_table(self) -> TableBirth | None:
        """Returns the declaration of the followed table, as the serving build declares the table.

        Returns None if no pipeline serves the table, or if the follower's thread has ended.
        """
        with self._changed:
            lives = not self._ended and self._follower.is_served
            return self._point.table if lives else None

    def add_reader(self, reader: ChangeReader) -> Point | None:
        """Adds a reader, and returns the state of the table that the follower has reached.

        The reader gets every change set after that state. Returns None if the follower's thread has
        ended.
        """
        with self._changed:
            if self._ended:
                return None
            self._readers.add(reader)
            return self._point

    def remove_reader(self, reader: ChangeReader) -> None:
        """Removes a reader. The reader then gets no more change sets."""
        with self._changed:
            self._readers.discard(reader)

    def _follow_table(self) -> None:
        try:
            while self._has_readers():
                if self._follower.wait_for_change(_LOOK_SECONDS):
                    self._send_next_change_set()
        except KappaError as error:
            self._end_readers(error)
        except BaseException:
            self._end_readers(KappaError("the changes could not be computed", hint="ask again"))
            raise

    def _send_next_change_set(self) -> None:
        with self._follower.next_change_set() as change_set:
            if change_set is None:
                return
            self._hub.computed += 1
            with self._changed:
                filters = {each.chosen for each in self._readers}
            written = {chosen: self._record_for_filter(change_set, chosen) for chosen in filters}
            with self._changed:
                for reader in [*self._readers]:
                    if reader.chosen not in written:
                        # The reader came meanwhile, at the point before.
                        written[reader.chosen] = self._record_for_filter(change_set, reader.chosen)
                    found = written[reader.chosen]
                    if isinstance(found, KappaError):
                        reader.end_with_error(found)
                    else:
                        reader.add_changes(found)
                    if reader.late or reader.error is not None:
                        self._readers.discard(reader)
                self._point = change_set.point

    def _record_for_filter(
        self, change_set: ChangeSet, chosen: Filter | None
    ) -> RecordedChanges | KappaError:
        """Writes a change set as text for the readers with the filter `chosen`.

        Returns the text. If the text cannot be written, for example because the filter no longer
        fits the table, returns the error.
        """
        try:
            return RecordedChanges(change_set, chosen, self._hub.folder)
        except KappaError as error:
            return error

    def _has_readers(self) -> bool:
        with self._changed:
            self._ended = not self._readers
            return not self._ended

    def _end_readers(self, error: KappaError) -> None:
        with self._changed:
            self._ended = True
            for reader in self._readers:
                reader.end_with_error(error)
            self._readers.clear()


def _is_past(cursor: Cursor | None, point: Point | None) -> bool:
    """Returns True if a cursor is later than the state of a table."""
    if cursor is None or point is None:
        return False
    if cursor.generation != point.generation:
        return cursor.generation > point.generation
    return cursor.build == point.birth.build and cursor.frontier > point.frontier.number
