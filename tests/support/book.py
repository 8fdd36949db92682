"""A simple consumer's copy of a table: its rows, position and history, in SQLite.

A change set is applied in one transaction together with the position after it, as a user's program
would do it. So the consumer can be killed at any time. Changes that do not fit are recorded as
faults.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SCHEMA = """
create table if not exists rows (key text primary key, row text not null, times integer not null);
create table if not exists place (place text not null);
create table if not exists sets (
    number integer primary key, kind text, generation integer, build text, frontier integer,
    changes integer, digest text
);
create table if not exists faults (fault text not null);
"""
_LIMIT = 1 << 128


def row_text(row: Mapping[str, Any]) -> str:
    """Returns a row as text. Equal rows have equal texts."""
    return json.dumps(row, sort_keys=True, ensure_ascii=False)


def digest_of(rows: Iterable[tuple[str, int]]) -> int:
    """Returns a digest of rows with their counts; it does not depend on the order."""
    return sum(times * _number(text) for text, times in rows) % _LIMIT


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


@dataclass(frozen=True, slots=True)
class Applied:
    """One applied change set: its kind, its cursor, and the table's digest after it."""

    number: int
    kind: str
    generation: int
    build: str
    frontier: int
    changes: int
    digest: int


class Book:
    """The rows of one table, as its consumer has recorded them."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=60, isolation_level=None)
        # A killed process loses nothing that was committed: only power would.
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = off")
        self._db.executescript(_SCHEMA)
        self._rows = {
            key: (row, times)
            for key, row, times in self._db.execute("select key, row, times from rows")
        }
        self._digest = digest_of(self._rows.values())
        self._touched = set[str]()
        (last,) = self._db.execute("select max(number) from sets").fetchone()
        self._cursor = (
            None
            if last is None
            else self._db.execute(
                "select generation, build, frontier from sets where number = ?", (last,)
            ).fetchone()
        )
        found = self._db.execute("select place from place").fetchone()
        self.place: dict[str, Any] = {} if found is None else json.loads(found[0])

    @contextmanager
    def change_set(self, kind: str, cursor: str, place: Mapping[str, Any]) -> Iterator[None]:
        """Applies the changes of the block as the change set with this cursor."""
        generation, build, frontier = _parsed(cursor)
        self._db.execute("begin immediate")
        self._touched.clear()
        if kind in {"snapshot", "reset"}:
            self._touched |= {*self._rows}
            self._rows.clear()
            self._digest = 0
        if self._cursor is not None and kind != "snapshot":
            self._ensure_forward(self._cursor, (generation, build, frontier))
        yield
        for key in self._touched:
            row = self._rows.get(key)
            if row is None:
                self._db.execute("delete from rows where key = ?", (key,))
            else:
                self._db.execute("insert or replace into rows values (?, ?, ?)", (key, *row))
        self.place = {**place}
        self._db.execute("delete from place")
        self._db.execute("insert into place values (?)", (json.dumps(self.place),))
        self._db.execute(
            "insert into sets (kind, generation, build, frontier, changes, digest) "
            "values (?, ?, ?, ?, ?, ?)",
            (kind, generation, build, frontier, len(self._touched), str(self._digest)),
        )
        self._db.execute("commit")
        self._cursor = generation, build, frontier

    def _ensure_forward(self, last: tuple[int, str, int], this: tuple[int, str, int]) -> None:
        generation, build, frontier = last
        if this[0] < generation or (this[:2] == last[:2] and this[2] < frontier):
            self.fault(f"backward: {this} after {last}")
        elif this == last:
            self.fault(f"duplicate: {this} twice")
        elif this[0] == generation and this[1] != build:
            self.fault(f"gap: {this} after {last}, without a switch")

    def fault(self, what: str) -> None:
        """Records a fault."""
        self._db.execute("insert into faults values (?)", (what,))

    def take_away(self, key: str, row: str | None, times: int = 1) -> None:
        """Takes a row away, and records a fault if the row is not there.

        If `row` is None, the key's row may have any content.
        """
        held, there = self._rows.pop(key, ("", 0))
        if there < times or row not in {None, held}:
            self.fault(f"gap: {times} of {row} are to go, there are {there} of {held}")
        if there > times:
            self._rows[key] = held, there - times
        self._digest = (self._digest - min(times, there) * _number(held)) % _LIMIT
        self._touched.add(key)

    def add(self, key: str, row: str, times: int = 1) -> None:
        """Adds a row, and records a fault if the key already has another row.

        A table without keys has the row itself as the key, and may contain equal rows.
        """
        held, there = self._rows.get(key, (row, 0))
        if there and key != row:
            self.fault(f"duplicate: {row} comes to {held}")
            self._digest = (self._digest - there * _number(held)) % _LIMIT
            there = 0
        self._rows[key] = row, there + times
        self._digest = (self._digest + times * _number(row)) % _LIMIT
        self._touched.add(key)

    def close(self) -> None:
        """Closes the book. Changes that were not committed are left out."""
        self._db.close()

    def row(self, key: str) -> str | None:
        """Returns the row of a key, or None if there is none."""
        found = self._rows.get(key)
        return None if found is None else found[0]


def applied(path: Path, *, after: int = 0) -> list[Applied]:
    """Returns the change sets that a consumer has applied, after the one with number `after`."""
    return [
        Applied(*fields, int(digest))
        for *fields, digest in _read(
            path,
            "select number, kind, generation, build, frontier, changes, digest from sets "
            f"where number > {after} order by number",
        )
    ]


def last_applied(path: Path) -> Applied | None:
    """Returns the last change set that a consumer has applied, or None."""
    found = _read(path, "select max(number) from sets")
    return None if not found or found[0][0] is None else applied(path, after=found[0][0] - 1)[-1]


def faults(path: Path) -> list[str]:
    """Returns the faults that a consumer has recorded."""
    return [fault for (fault,) in _read(path, "select fault from faults")]


def _read(path: Path, sql: str) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    db = sqlite3.connect(path, timeout=60)
    try:
        return db.execute(sql).fetchall()
    except sqlite3.OperationalError as error:
        # The consumer has just begun.
        if "no such table" in str(error):
            return []
        raise
    finally:
        db.close()


def _parsed(cursor: str) -> tuple[int, str, int]:
    generation, build, frontier = cursor.split(".")
    return int(generation), build, int(frontier)
