"""Queries: SQL over exactly the files of a pinned snapshot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from kappa.base.errors import KappaError
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from serving.pin.at_log import Past, log_time
from serving.pin.catalog import Snapshot, pin, pin_at
from serving.query.opened import open_reader
from serving.query.reader import Limits, Reader, Rows
from serving.query.relations import put_relations, relations_of

_Found = TypeVar("_Found")

# A lease is lost only if a reader paused for longer than it lasts; thrice in a row is no accident.
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """A query's rows, and the snapshot that they are true of.

    Every table of a build is at one frontier, `shown_at` since when, and up to which `log_time`.
    """

    columns: tuple[str, ...]
    types: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    generation: int
    serving: Mapping[str, str]
    offsets: Mapping[str, Offsets]
    versions: Mapping[str, Mapping[str, int]]
    shown_at: Mapping[str, str]
    log_time: Mapping[str, datetime | None]


def answer(
    store: Store, sql: str, *, when: Past | None = None, lease_seconds: float = 60.0
) -> Answer:
    """Answers one query from what is served now, or was served at a moment of the past.

    Raises UsageError, with DuckDB's own candidates as a hint, if the query has a mistake; Conflict
    if its snapshot could not be kept long enough, again and again; and the errors of `pin_at`.
    """
    return read(store, lambda reader: reader.rows(sql), when=when, lease_seconds=lease_seconds)


def read(
    store: Store,
    queries: Callable[[Reader], Rows],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> Answer:
    """Returns the rows that `queries` makes of one snapshot, by any number of queries; see `ask`."""
    return ask(
        store,
        lambda reader, snapshot: _true_of(snapshot, queries(reader)),
        when=when,
        lease_seconds=lease_seconds,
    )


def ask(
    store: Store,
    question: Callable[[Reader, Snapshot], _Found],
    *,
    when: Past | None = None,
    lease_seconds: float = 60.0,
) -> _Found:
    """Returns what `question` finds in one pinned snapshot, of now or of a moment of the past.

    Asks again on a newer snapshot if the first was not kept until the end. A relation that cannot
    be made fails the queries that name it, and no others.
    """
    attempt = 0
    while True:
        attempt += 1
        with (
            pin(store, lease_seconds=lease_seconds)
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
    try:
        if reader.shows != relations:
            put_relations(reader, relations)
            reader.shows = relations
    except BaseException:
        reader.close()
        raise
    return reader


def _true_of(snapshot: Snapshot, found: Rows) -> Answer:
    frontiers = snapshot.frontiers
    return Answer(
        found.columns,
        found.types,
        found.rows,
        snapshot.generation,
        snapshot.serving,
        {build: frontier.offsets for build, frontier in frontiers.items()},
        {build: frontier.versions for build, frontier in frontiers.items()},
        {build: frontier.published_at for build, frontier in frontiers.items()},
        {build: log_time(frontier) for build, frontier in frontiers.items()},
    )
