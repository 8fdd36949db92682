"""The examination of a root: its records are read, and its builds' files looked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from kappa.base.errors import Damaged, KappaError
from kappa.engine.legs.legs import leg_records
from kappa.journal.journal import JournalRecord, journal_records
from kappa.state.build import Birth, read_birth, table_path
from kappa.state.documents import NumberedRecords
from kappa.state.frontier import Frontier, frontier_records
from kappa.state.job.alignment import alignment_records
from kappa.state.kept import kept_of
from kappa.state.lease import floor_records, live_leases
from kappa.state.store import DAMAGED, Store
from kappa.sums.recorded import sums_records
from kappa.tables.file_list import missing_in
from kappa.tables.versions import list_of
from replay.doctor.damage import Damage
from replay.rollout.fold import advance
from replay.rollout.rollout import IllegalTransition
from replay.rollout.state import State

_REPLAY = "kappa undo PIPELINE serves the build before; kappa replay PIPELINE makes a new one"
# What a build's records are for: what follows if one cannot be read, and what happens without it.
_RECORDS: tuple[tuple[Callable[[Store, str], NumberedRecords[Any]], str, str], ...] = (
    (
        frontier_records,
        "no query is answered from the build, and its job does not start",
        "the job goes on from the frontier before, or makes one of its tables' marks",
    ),
    (
        leg_records,
        "the job does not start",
        "the job plans its way anew from its frontier",
    ),
    (
        floor_records,
        "no query is answered from the build, and its job does not start",
        "the job puts another floor with its next upkeep",
    ),
    (
        sums_records,
        "no query is answered from the build, and its job does not start",
        "files that were written before are not checked any more, and serve as they are",
    ),
    (
        alignment_records,
        "a candidate's rollout fails",
        "the candidate is aligned again",
    ),
)


def examine(store: Store, *, now: float) -> tuple[Damage, ...]:
    """Returns all that is damaged; what is derived from other files is moved aside at once."""
    state, found = _journal(store)
    builds = sorted({name.split("/")[1] for name in store.names("builds") if name.count("/") > 1})
    live_leases(store, now)
    for build in builds:
        if build not in state.retired:
            found += _build(store, build, serves=build in state.serving.values())
    return tuple(found)


def unvouched(store: Store) -> tuple[str, ...]:
    """Lists the builds whose newest frontier is of an older Kappa, and vouches for no file list."""
    found = list[str]()
    state, _ = _journal(store)
    for build in sorted({state.folded_by(build) for build in state.wanted_builds()}):
        # What is damaged is named before.
        with suppress(KappaError):
            last = frontier_records(store, build).last()
            if last is not None and not last[1].file_lists.keys() >= last[1].versions.keys():
                found.append(build)
    return tuple(found)


def set_aside(store: Store) -> int:
    """Counts the objects that were moved aside and are kept."""
    return len(store.names(DAMAGED))


def _journal(store: Store) -> tuple[State, list[Damage]]:
    """Returns the state up to the first record that is damaged, and that record."""
    records, state = journal_records(store), State()
    numbers = records.numbers()
    for number in range(1, (numbers[-1] if numbers else 0) + 1):
        try:
            record = records.get(number)
            why = f"journal record {number} is missing, and record {numbers[-1]} is there"
            if record is not None:
                state = advance(state, record)
                continue
        except (Damaged, IllegalTransition) as error:
            why = error.message
        later = [each for each in numbers if each >= number]
        return state, [
            _cut(state, why, [records.name(each) for each in later], _read(records, later))
        ]
    return state, []


def _cut(state: State, why: str, names: list[str], lost: Counter[str]) -> Damage:
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(lost.items())) or "none"
    return Damage(
        why,
        f"nothing is decided any more: the records behind it ({counted}) cannot be trusted",
        tuple(names),
        f"all goes on from record {state.last}, with generation {state.generation}: what the later "
        "records decided is forgotten, readers may go back to it, and kappa gc deletes the builds "
        "that only they name",
        "a copy of the journal folder is better: put it back in its place, if there is one",
    )


def _read(records: NumberedRecords[JournalRecord], numbers: list[int]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for number in numbers:
        with suppress(Damaged):
            record = records.get(number)
            if record is not None:
                kinds[str(record.event.kind)] += 1
    return kinds


def _build(store: Store, build: str, *, serves: bool) -> Iterator[Damage]:
    try:
        birth = read_birth(store, build)
    except KappaError as error:
        yield Damage(
            error.message,
            f"build {build} can neither run nor serve",
            hint=_REPLAY,
        )
        return
    if birth.folded_by != build:
        # What it serves is another's.
        return
    for records_of, follows, then in _RECORDS:
        yield from _numbered(records_of(store, build), follows, then)
    kept_of(store, build)
    with suppress(Damaged):
        found = frontier_records(store, build).last()
        if found is not None:
            yield from _tables(store, birth, found[1], serves=serves)


def _numbered(records: NumberedRecords[Any], follows: str, then: str) -> Iterator[Damage]:
    for number in records.numbers():
        try:
            records.get(number)
        except Damaged as error:
            yield Damage(error.message, follows, (records.name(number),), then)


def _tables(store: Store, birth: Birth, newest: Frontier, *, serves: bool) -> Iterator[Damage]:
    follows = f"queries of build {birth.build} fail" if serves else "it cannot go on"
    for name, version in newest.versions.items():
        path = table_path(store, birth.build, name)
        try:
            why = missing_in(path, list_of(path, version, newest.file_lists.get(name)))
        except KappaError as error:
            why = error.message
        if why is not None:
            yield Damage(
                f"table {name} of build {birth.build} is damaged: {why}", follows, hint=_REPLAY
            )
