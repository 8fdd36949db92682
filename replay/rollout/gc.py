"""Collection by hand: finds what nothing needs, in the root and here, and deletes it.

A dry run finds the same and deletes nothing. A build whose job runs is kept in shape by its job,
which holds the lock: it is passed over. For any other the order is the job's own (law 11): lock,
floor, what is kept no longer, then the leases, then files by list. Afterwards the files that are
there are those that are referenced. See also kappa/engine/write/maintenance.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from kappa.base.disk import is_unfinished
from kappa.base.errors import Conflict
from kappa.base.scratch import left_behind
from kappa.code.fingerprint import born_rows_version
from kappa.replay.rollout.current import current_state
from kappa.replay.rollout.garbage import Garbage, What, emptied_folders, garbage_of
from kappa.replay.rollout.hands import Deleting, Hands, Looking
from kappa.replay.rollout.retire import data_of, entries_of, orphans, was_never_staged
from kappa.replay.rollout.state import State
from kappa.state.build import Birth, folder, read_birth, table_path
from kappa.state.files.address import Entry, entries_at
from kappa.state.frontier import Frontier, Frontiers, frontier_records
from kappa.state.kept_frontiers import kept_name, kept_of, past
from kappa.state.lease import LEASES, Lease, lease_name, sorted_leases
from kappa.state.root import ensure_no_copy
from kappa.state.store import Store
from kappa.tables.unneeded import unneeded

# Called before each build, with its number, from 1, and how many there are.
OnBuild = Callable[[int, int], None]
# What a job writes anew each time it begins.
_SCRATCH = ("spark", "slice", "mirror")
_DESCRIBED = "cache"
# A described pipeline of no build may be of a plan that an operator is looking at.
_DESCRIBED_SECONDS = 3600.0
# A put takes milliseconds: what is older was left by a process that was killed at it.
_UNFINISHED_SECONDS = 3600.0
_PUT_INTO = ("journal", "builds", "leases", "run", "cache")


def gc(
    store: Store,
    *,
    keep_seconds: float,
    now: float,
    temp: str = "tmp",
    on_build: OnBuild = lambda _number, _of: None,
) -> tuple[Garbage, ...]:
    """Deletes what nothing needs at `now` (seconds since 1970), and returns what that was.

    `temp` is where commands have folders of their own. `on_build` is called before each build.
    Raises Copied if the root is a copy.
    """
    ensure_no_copy(store)
    return tuple(
        _walk(
            store,
            Deleting(store, keep_seconds, now),
            keep_seconds=keep_seconds,
            now=now,
            temp=temp,
            on_build=on_build,
        )
    )


def look(
    store: Store,
    *,
    keep_seconds: float,
    now: float,
    temp: str = "tmp",
    on_build: OnBuild = lambda _number, _of: None,
) -> tuple[Garbage, ...]:
    """Returns what `gc` would delete, found in the same way; changes nothing."""
    hands = Looking(store)
    return tuple(
        _walk(store, hands, keep_seconds=keep_seconds, now=now, temp=temp, on_build=on_build)
    )


def _walk(
    store: Store, hands: Hands, *, keep_seconds: float, now: float, temp: str, on_build: OnBuild
) -> Iterator[Garbage]:
    state = current_state(store)
    for build in orphans(store, frozenset(state.versions), now=now):
        found = garbage_of(build, What.ORPHAN, entries_of(store, build))
        with suppress(Conflict), hands.hold(build):
            if was_never_staged(store, build):
                yield from _deleted(hands, found)
                # The lock's own file, if it was new.
                hands.delete(garbage_of(build, What.ORPHAN, entries_of(store, build)))
    for number, build in enumerate(sorted(state.versions), 1):
        on_build(number, len(state.versions))
        try:
            yield from (
                _of_retired(store, hands, build, now)
                if build in state.retired
                else _of_build(store, hands, build, keep_seconds=keep_seconds, now=now)
            )
        except Conflict:
            yield Garbage(
                build,
                None,
                left="its job runs, and keeps it in shape"
                if build not in state.retired
                else "its job has not ended yet",
            )
    _, ended = sorted_leases(store, now)
    put = _by_address(entries_at(store.address(LEASES)))
    leases = _among(put, (store.address(lease_name(lease.id)) for lease in ended))
    yield from _deleted(hands, garbage_of(None, What.LEASES, leases))
    yield from _deleted(hands, garbage_of(None, What.DESCRIBED, _described(store, state, now)))
    left = (each for path in left_behind(store.local.path(temp)) for each in entries_at(str(path)))
    yield from _deleted(hands, garbage_of(None, What.LEFT, left))
    yield from _deleted(hands, garbage_of(None, What.UNFINISHED, _unfinished(store, now)))


def _of_retired(store: Store, hands: Hands, build: str, now: float) -> Iterator[Garbage]:
    found = garbage_of(build, What.RETIRED, data_of(store, build))
    if not found.count:
        return
    if any(build in lease.pins for lease in sorted_leases(store, now)[0]):
        yield Garbage(build, None, left="it is retired, and a reader has it pinned")
        return
    with hands.hold(build):
        yield from _deleted(hands, found)


def _of_build(
    store: Store, hands: Hands, build: str, *, keep_seconds: float, now: float
) -> Iterator[Garbage]:
    birth = read_birth(store, build)
    if birth.tables_of is not None:
        # The files of its tables are those of the build below it.
        return
    with hands.hold(build):
        newest = Frontiers(store, build).newest()
        # Looked at before they are let go, so that a dry run finds the same.
        kept = kept_of(store, build)
        going, _ = past(kept, now, keep_seconds)
        there = _by_address(entries_of(store, build))
        kept_files = (store.address(kept_name(build, each.frontier.number)) for each in going)
        found = [
            garbage_of(build, What.KEPT, _among(there, kept_files)),
            garbage_of(build, What.FRONTIERS, _among(there, _passed(store, build, newest))),
        ]
        if newest is not None:
            hands.let_go(build, newest.number)
        leases, _ = sorted_leases(store, now)
        needed = [
            *(each.frontier for each in kept if each not in going),
            *(() if newest is None else (newest,)),
        ]
        unneeded_files = _unneeded(store, birth, newest, needed, leases, there)
        found.append(garbage_of(build, What.FILES, _among(there, unneeded_files)))
        own = store.local.address(folder(build))
        scratch = (each for name in _SCRATCH for each in entries_at(f"{own}/{name}"))
        found.append(garbage_of(build, What.SCRATCH, scratch))
        below = [each for each in there.values() if each.address != own]
        found.append(emptied_folders(build, below, found))
        for each in found:
            yield from _deleted(hands, each)


def _passed(store: Store, build: str, newest: Frontier | None) -> Iterator[str]:
    """Yields the frontiers before the newest."""
    if newest is not None:
        records = frontier_records(store, build)
        numbers = (number for number in records.numbers() if number < newest.number)
        yield from (store.address(records.name(number)) for number in numbers)


def _unneeded(
    store: Store,
    birth: Birth,
    newest: Frontier | None,
    frontiers: Iterable[Frontier],
    leases: Iterable[Lease],
    there: Iterable[str],
) -> Iterator[str]:
    """Yields the files of a build's tables that no frontier and no lease needs.

    The next job takes back what a dead one has committed behind the newest frontier.
    """
    versions = [frontier.versions for frontier in frontiers] + [
        lease.pins[birth.build].versions for lease in leases if birth.build in lease.pins
    ]
    if newest is None:
        return
    for name, version in newest.versions.items():
        path = table_path(store, birth.build, name)
        # A table that is gone is no garbage: kappa doctor tells of it.
        if any(each.startswith(f"{path}/") for each in there):
            pinned = {each[name] for each in versions if name in each}
            yield from unneeded(store, path, version, pinned, vouched=newest.file_lists.get(name))


def _described(store: Store, state: State, now: float) -> Iterator[Entry]:
    births = [read_birth(store, build) for build in state.wanted_builds()]
    wanted = {name for each in births for name in (each.version, born_rows_version(each))}
    for each in entries_at(store.address(_DESCRIBED)):
        is_old = now - each.changed_at > _DESCRIBED_SECONDS
        if is_old and not each.is_folder and Path(each.address).stem not in wanted:
            yield each


def _unfinished(store: Store, now: float) -> Iterator[Entry]:
    """Yields the files of the disk that processes were killed at when they put them."""
    for top in _PUT_INTO:
        for each in entries_at(store.local.address(top)):
            is_old = now - each.changed_at > _UNFINISHED_SECONDS
            if is_old and not each.is_folder and is_unfinished(Path(each.address)):
                yield each


def _by_address(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {each.address: each for each in entries}


def _among(there: Mapping[str, Entry], addresses: Iterable[str]) -> Iterator[Entry]:
    """Yields the entries of files, without those that are gone already."""
    return (there[each] for each in addresses if each in there)


def _deleted(hands: Hands, find: Garbage) -> Iterator[Garbage]:
    if find.count:
        hands.delete(find)
        yield find
