"""Reads the serving builds and their frontiers, now or in the past.

Each such read is called a look. Each look returns a second look: a function that the reader calls
after the reader has written its lease, to check that the snapshot is still valid.

A record in a bucket that never changes is read only once, but each look checks which record is the
newest. A record on a disk is read each time, because reading a file costs almost nothing and
reveals damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from kappa.base.errors import Damaged
from kappa.serving.query.pin.moments import (
    AtEventTime,
    AtOffsets,
    Moment,
    available_times,
    frontier_shown,
    frontiers_at,
    generation_at,
    list_generations,
    not_kept,
)
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.state.build import Birth, folded_by, read_birth
from kappa.state.documents import NumberedRecords
from kappa.state.files.address import ask_side_by_side, ask_together
from kappa.state.frontier import Frontier, Frontiers, frontier_records
from kappa.state.journal.events import GenerationMade, Retired
from kappa.state.journal.journal import Journal, JournalRecord, JournalView, journal_records
from kappa.state.kept_frontiers import kept_frontiers_of, read_kept_frontier
from kappa.state.lease import floor_records
from kappa.state.store import Store

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class LookResult:
    """A snapshot that was read, and a function that checks whether it is still valid.

    The function `overtaken` returns True if a newer generation serves, or if files of the snapshot
    may have been deleted since the snapshot was read. A reader calls it after writing its lease.
    """

    snapshot: Snapshot
    overtaken: Callable[[], bool]


def look_now(store: Store, leased: Snapshot | None = None) -> LookResult:
    """Reads the builds that serve now, and their newest frontiers.

    This function first reads the journal's last generation, as far as this process knows it, and
    then the frontiers. The returned function `overtaken` later finds a newer generation, so the
    reader misses no change. `leased` is a snapshot that an earlier reader has checked, and whose
    lease is still valid. If `leased` still serves, it is returned.
    """
    if leased is not None and store.is_on_disk and _serves_still(store, leased):
        return LookResult(leased, lambda: False)
    generation, serving = _serving_in(JournalView(store).known_served())

    def has_switched() -> bool:
        return served_last(store)[1] != generation

    def newest_frontiers() -> dict[str, Frontier]:
        return _by_build(store, newest_frontier, serving.values())

    def looks_at(snapshot: Snapshot) -> tuple[Callable[[], bool], ...]:
        return (lambda: is_let_go(store, snapshot), has_switched)

    try:
        frontiers, *overtaken = ask_together(
            store.url, newest_frontiers, *(looks_at(leased) if leased else ())
        )
        births = {build: birth_of(store, build) for build in serving.values()}
    except Damaged:
        # A build that no longer serves may be gone by now. Only a serving build is damaged.
        if not has_switched():
            raise
        return look_now(store)
    snapshot = Snapshot(generation, serving, frontiers, births)
    if leased is not None and snapshot == leased:
        return LookResult(leased, lambda: any(overtaken))
    return LookResult(snapshot, lambda: any(ask_together(store.url, *looks_at(snapshot))))


def _serves_still(store: Store, leased: Snapshot) -> bool:
    """Returns True if the snapshot `leased` is the snapshot that serves now.

    The lease of the snapshot must still be valid. The floors need not be read: a floor is never
    above the newest frontier, so all files of the snapshot are kept.
    """
    if not all(
        frontier_records(store, frontier.build).is_newest(frontier.number)
        for frontier in leased.frontiers.values()
    ):
        return False
    known = JournalView(store).known_served()
    return (
        _serving_in(known)[0] == leased.generation
        and known[0] > 0
        and journal_records(store).is_newest(known[0])
    )


def look_at_build(store: Store, build: str) -> LookResult:
    """Reads a build at its newest frontier. The snapshot contains only this build."""
    newest, birth = newest_frontier(store, build), birth_of(store, build)
    snapshot = Snapshot(0, {birth.pipeline: build}, {build: newest}, {build: birth})
    return LookResult(snapshot, lambda: is_let_go(store, snapshot))


def look_back(store: Store, when: Moment, now: float) -> LookResult:
    """Reads the builds that served at a moment of the past, at their kept frontiers.

    `now` is the present time, in seconds since 1970.
    """
    journal = Journal(store)
    records = JournalView(store).records()
    known = list_generations(records)
    generation = generation_at(when, known, datetime.fromtimestamp(now, UTC))
    retired = {record.event.build for record in records if isinstance(record.event, Retired)}
    # The tables of a retired overlay exist for as long as the build below exists.
    builds = {
        build
        for each in known
        for build in each.serving.values()
        if folded_by(store, build) not in retired
    }
    # The newest is read first: a frontier is kept, if at all, before the next is published.
    newest = _by_build(store, lambda store, build: Frontiers(store, build).newest(), builds)
    kept = _by_build(store, kept_frontiers_of, builds)
    shown = {
        build: frontier_shown(
            when, pipeline, generation, known, kept.get(build, ()), newest.get(build)
        )
        for pipeline, build in generation.serving.items()
    }
    frontiers = {build: frontier for build, frontier in shown.items() if frontier is not None}
    if len(frontiers) < len(shown):
        raise not_kept(when, generation, tuple(available_times(known, kept, newest)))

    snapshot = Snapshot(
        generation.number,
        dict(generation.serving),
        frontiers,
        {build: birth_of(store, build) for build in frontiers},
    )
    return LookResult(snapshot, lambda: _is_gone(store, journal, len(records), frontiers))


def look_at_log(store: Store, when: AtOffsets | AtEventTime) -> LookResult:
    """Reads the builds that serve now, at given offsets or at a time of the log."""
    journal = Journal(store)
    last, generation, serving = served_last(store)
    try:
        # The newest frontier is read before the kept frontiers, as in look_back.
        newest = _by_build(store, newest_frontier, serving.values())
        frontiers = frontiers_at(
            when, serving, _by_build(store, kept_frontiers_of, serving.values()), newest
        )
        births = {build: birth_of(store, build) for build in frontiers}
    except Damaged:
        # A build that no longer serves may be gone by now. Only a serving build is damaged.
        if not _is_gone(store, journal, last, {}):
            raise
        return look_at_log(store, when)
    snapshot = Snapshot(
        generation,
        {pipeline: build for pipeline, build in serving.items() if build in frontiers},
        frontiers,
        births,
    )
    return LookResult(snapshot, lambda: _is_gone(store, journal, last, frontiers))


def _is_gone(store: Store, journal: Journal, seen: int, frontiers: Mapping[str, Frontier]) -> bool:
    """Returns True if the snapshot that was read for a past moment may no longer be valid.

    The snapshot is no longer valid if the files of a frontier in `frontiers` may have been deleted,
    or if a journal record after number `seen` makes a generation or retires a build.
    """
    # A switch may follow by now, and a record retires a build before the build is deleted.
    moved = any(isinstance(each.event, GenerationMade | Retired) for each in journal.after(seen))
    return moved or any(is_collected(store, frontier) for frontier in frontiers.values())


def served_last(store: Store) -> tuple[int, int, Mapping[str, str]]:
    """Returns the journal's last record number, the last generation, and its serving map.

    The serving map maps each pipeline to its serving build. If nothing was ever served, the
    generation is 0 and the map is empty.
    """
    found = JournalView(store).last_served()
    return found[0], *_serving_in(found)


def _serving_in(found: tuple[int, JournalRecord | None]) -> tuple[int, Mapping[str, str]]:
    _, record = found
    if record is None or not isinstance(record.event, GenerationMade):
        return 0, {}
    return record.event.generation, record.event.serving


def is_collected(store: Store, frontier: Frontier) -> bool:
    """Returns True if only a lease can still keep the files of a frontier.

    This is the case if the frontier is below its build's floor and is not a kept frontier. Without
    a lease, garbage collection may delete the files.
    """
    return (
        frontier.number < floor_of(store, frontier.build)
        and read_kept_frontier(store, frontier.build, frontier.number) is None
    )


def is_let_go(store: Store, snapshot: Snapshot) -> bool:
    """Returns True if any frontier of a snapshot is below the floor of its build."""
    floors = _by_build(store, floor_of, snapshot.frontiers)
    return any(frontier.number < floors[build] for build, frontier in snapshot.frontiers.items())


def newest_frontier(store: Store, build: str) -> Frontier:
    """Returns the newest frontier of a build that must have published one.

    Raises Damaged if the build has published no frontier, or if all its frontiers are gone.
    """
    newest = last_frontier(store, build)
    if newest is None:
        records = frontier_records(store, build)
        if noted := records.noted_number():
            raise Damaged(
                f"all frontiers of build {build} are gone: {records.address(noted)} was there",
                hint="kappa up: its job makes one of its tables' marks; kappa doctor says more",
            )
        raise Damaged(
            f"build {build} has no frontier", hint=f"see what its job says: kappa logs {build}"
        )
    return newest


def _by_build(
    store: Store, ask: Callable[[Store, str], _Answer], builds: Iterable[str]
) -> dict[str, _Answer]:
    builds = list(builds)
    answers = ask_side_by_side(store.url, lambda build: ask(store, build), builds)
    return dict(zip(builds, answers, strict=True))


_Record = TypeVar("_Record")
# By build.
_BIRTHS: WeakKeyDictionary[Store, dict[str, Birth]] = WeakKeyDictionary()
# By the name of the first record of a kind: the number of the newest, and the newest.
_NEWEST: WeakKeyDictionary[Store, dict[str, tuple[int, Any]]] = WeakKeyDictionary()


def birth_of(store: Store, build: str) -> Birth:
    """Returns the birth certificate of a build that exists.

    If the root is in a bucket, each certificate is read only once. Raises the errors of
    `read_birth`.
    """
    if store.is_on_disk:
        return read_birth(store, build)
    known = _BIRTHS.setdefault(store, {})
    if build not in known:
        known[build] = read_birth(store, build)
    return known[build]


def last_frontier(store: Store, build: str) -> Frontier | None:
    """Returns the newest frontier of a build, or None if it has published no frontier."""
    return _last_record(store, frontier_records(store, build), guesses=True)


def floor_of(store: Store, build: str) -> int:
    """Returns the number of the frontier that is a build's floor, or 0 if there is no floor.

    The result is that of `read_floor`, but if the root is in a bucket, each record of a floor is
    read only once.
    """
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
    """Returns the number of the newest record, and the record.

    `known` is the newest record that the caller knows, with its number. If `guesses` is True, the
    record with the next number is read in parallel with the listing of the numbers, because it is
    probably the newest.
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
