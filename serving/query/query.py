"""Queries: SQL over exactly the files of a pinned snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kappa.base.errors import KappaError
from kappa.serving.query.pin.at_log import Past
from kappa.serving.query.pin.catalog import pin, pin_at
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.reader.checked import are_all_checked, ensure_named_whole, tables_read
from kappa.serving.query.reader.opened import open_reader
from kappa.serving.query.reader.reader import Limits, Reader, Rows
from kappa.serving.query.reader.relations import files_of, left_of, put_relations, relations_of
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_Found = TypeVar("_Found")

# A lease is lost only if a reader paused for longer than it lasts; thrice in a row is no accident.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's rows, and the snapshot that they are true of."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    snapshot: Snapshot

    @property
    def generation(self) -> int:
        """Returns the generation of the snapshot."""
        return self.snapshot.generation

    @property
    def offsets(self) -> Mapping[str, Offsets]:
        """Returns the offsets of each build; all of its tables are at one frontier."""
        return {build: each.offsets for build, each in self.snapshot.frontiers.items()}

    @property
    def versions(self) -> Mapping[str, Mapping[str, int]]:
        """Returns the version of each table, by build."""
        return {build: each.versions for build, each in self.snapshot.frontiers.items()}


def answer(
    store: Store, sql: str, *, when: Past | None = None, lease_seconds: float = 60.0
) -> Answer:
    """Answers one query from what is served now, or was served at a moment of the past.

    Raises UsageError, with DuckDB's own candidates as a hint, if the query has a mistake. Raises
    Conflict if its snapshot could not be kept long enough, again and again. Raises the errors of
    `pin_at`, too.
    """
    return read(store, lambda reader: reader.rows(sql), when=when, lease_seconds=lease_seconds)


def read(
    store: Store,
    queries: Callable[[Reader], Rows],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> Answer:
    """Returns the rows that `queries` makes of one snapshot, by any number of queries.

    Pins and retries as `ask` does.
    """

    def found(reader: Reader, snapshot: Snapshot) -> Answer:
        rows = queries(reader)
        return Answer(rows.columns, rows.types, rows.rows, snapshot)

    return ask(store, found, when=when, lease_seconds=lease_seconds)


def ask(
    store: Store,
    question: Callable[[Reader, Snapshot], _Found],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> _Found:
    """Returns the result of `question` over one pinned snapshot, of now or of the past.

    Asks again on a newer snapshot if the first was not kept until the end. A relation that cannot
    be made fails the queries that name it, and no others.
    """
    attempt = 0
    while True:
        attempt += 1
        with (
            pin(
                store,
                lease_seconds=lease_seconds,
                beside=lambda snapshot: relations_of(snapshot, store),
            )
            if when is None
            else pin_at(store, when, lease_seconds=lease_seconds) as pinned
        ):
            try:
                with _connected(pinned.snapshot, store, None) as reader:
                    found = question(reader, pinned.snapshot)
                pinned.confirm()
            except KappaError:
                # A file collected during the query looks like any error, unless the lease holds.
                if pinned.holds() or attempt == _ATTEMPTS:
                    raise
                continue
            return found


def connect(snapshot: Snapshot, store: Store, *, limits: Limits | None = None) -> Reader:
    """Opens a reader of a whole snapshot, which is to be kept pinned meanwhile.

    Raises UsageError, with its name, if one of the relations cannot be made.
    """
    reader = _connected(snapshot, store, limits)
    for broken in reader.broken:
        reader.close()
        raise broken.refusal()
    return reader


def _connected(snapshot: Snapshot, store: Store, limits: Limits | None) -> Reader:
    relations = relations_of(snapshot, store)
    reader = open_reader(limits, served=bool(snapshot.serving), showing=relations)
    reader.left = lambda: left_of(relations, store)
    reader.files = lambda: files_of(relations)

    def check(sql: str) -> None:
        if not are_all_checked(store, relations):
            named = tables_read(reader.tree, sql, relations)
            ensure_named_whole(store, snapshot, relations, named)

    reader.before = check
    try:
        if reader.shows != relations:
            put_relations(reader, relations)
            reader.shows = relations
    except BaseException:
        reader.close()
        raise
    return reader
