"""A memory of records in a bucket that never change.

A reader reads each such record once, and looks for the newest record each time. Records on a disk
are read each time: reading a file costs nothing, and damage shows.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from kappa.base.errors import Damaged
from kappa.state.build import Birth, folded_by, read_birth
from kappa.state.documents import NumberedRecords
from kappa.state.files.address import ask_together
from kappa.state.frontier import Frontier, frontier_records
from kappa.state.lease import floor_records
from kappa.state.store import Store

_Record = TypeVar("_Record")
# By build.
_BIRTHS: WeakKeyDictionary[Store, dict[str, Birth]] = WeakKeyDictionary()
# By the name of the first record of a kind: the number of the newest, and the newest.
_NEWEST: WeakKeyDictionary[Store, dict[str, tuple[int, Any]]] = WeakKeyDictionary()


def birth_of(store: Store, build: str) -> Birth:
    """Returns the birth certificate of a build that exists.

    Raises the errors of `read_birth`.
    """
    if store.is_on_disk:
        return read_birth(store, build)
    known = _BIRTHS.setdefault(store, {})
    if build not in known:
        known[build] = read_birth(store, build)
    return known[build]


def last_frontier(store: Store, build: str) -> Frontier | None:
    """Returns the frontier that readers of a build see now.

    Returns None if the build has published no frontier.
    """
    return _last_record(store, frontier_records(store, build), guesses=True)


def floor_of(store: Store, build: str) -> int:
    """Returns the present floor of a build, as `floor` does."""
    last = _last_record(store, floor_records(store, folded_by(store, build)))
    return 0 if last is None else last.frontier


def _last_record(
    store: Store, records: NumberedRecords[_Record], *, guesses: bool = False
) -> _Record | None:
    newest = {} if store.is_on_disk else _NEWEST.setdefault(store, {})
    name = records.name(1)
    known: tuple[int, _Record] | None = newest.get(name)
    last = records.last() if known is None else _last_record_since(store, records, known, guesses)
    if last is None:
        return None
    newest[name] = last
    return last[1]


def _last_record_since(
    store: Store, records: NumberedRecords[_Record], known: tuple[int, _Record], guesses: bool
) -> tuple[int, _Record] | None:
    """Returns the newest record and its number.

    With `guesses`, the next record is read while the numbers are listed.
    """
    number, _ = known

    def next_record() -> _Record | None:
        # An unreadable record matters only if it is the newest.
        with suppress(Damaged):
            return records.get(number + 1)
        return None

    numbers, *guessed = ask_together(
        store.url,
        lambda: records.numbers(after=number - 1),
        *([next_record] if guesses else []),
    )
    if not numbers:
        # The list may lack a record that is there: nobody goes back to an older one for that.
        return known if records.get(number) is not None else records.last()
    last = numbers[-1]
    if last == number:
        return known
    found = guessed[0] if guessed and last == number + 1 else None
    found = found or records.get(last)
    return records.last() if found is None else (last, found)
