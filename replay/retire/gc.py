"""Collection by hand: finds what nothing needs below the root, and deletes it.

A dry run finds the same and deletes nothing. A build whose job runs is kept in shape by its job,
which holds the lock: it is passed over. For any other the order is the job's own (law 11): lock,
floor, what is kept no longer, then the leases, then files by list. Afterwards the files on disk are
those that are referenced. See also kappa/engine/write/maintenance.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kappa.base.disk import is_unfinished
from kappa.base.errors import Conflict
from kappa.base.scratch import left_behind
from kappa.code.rows_version import born_rows_version
from kappa.state.build import Birth, folder, read_birth, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept import kept_name, kept_of, past
from kappa.state.lease import Lease, lease_name, sorted_leases
from kappa.state.store import Store
from kappa.tables.unneeded import unneeded
from replay.retire.garbage import Garbage, What, emptied_folders, garbage_files, garbage_trees
from replay.retire.hands import Deleting, Hands, Looking
from replay.retire.retire import data_of, orphans, was_never_staged
from replay.rollout.current import current_state
from replay.rollout.state import State

# Called before each build, with its number, from 1, and how many there are.
OnBuild = Callable[[int, int], None]
# What a job writes anew each time it begins.
_SCRATCH = ("spark", "slice")
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
    """
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
    for path in orphans(store, frozenset(state.versions), now=now):
        found = garbage_trees(path.name, What.ORPHAN, [path])
        with suppress(Conflict), hands.hold(path.name):
            if was_never_staged(store, path.name):
                yield from _deleted(hands, found)
                # The lock's own file, if it was new.
                hands.delete(garbage_trees(path.name, What.ORPHAN, [path]))
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
    yield from _deleted(
        hands,
        garbage_files(None, What.LEASES, (store.path(lease_name(lease.id)) for lease in ended)),
    )
    yield from _deleted(hands, garbage_files(None, What.DESCRIBED, _described(store, state, now)))
    yield from _deleted(
        hands, garbage_trees(None, What.LEFT, list(left_behind(store.local.path(temp))))
    )
    yield from _deleted(hands, garbage_files(None, What.UNFINISHED, _unfinished(store, now)))


def _of_retired(store: Store, hands: Hands, build: str, now: float) -> Iterator[Garbage]:
    found = garbage_trees(build, What.RETIRED, list(data_of(store, build)))
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
        records = store.names(f"{folder(build)}/frontier") if newest is not None else ()
        found = [
            garbage_files(
                build,
                What.KEPT,
                (store.path(kept_name(build, each.frontier.number)) for each in going),
            ),
            garbage_files(
                build,
                What.FRONTIERS,
                (
                    store.path(name)
                    for name in records
                    if newest is not None
                    and int(name.rsplit("/", 1)[-1].removesuffix(".json")) < newest.number
                ),
            ),
        ]
        if newest is not None:
            hands.let_go(build, newest.number)
        leases, _ = sorted_leases(store, now)
        needed = [
            *(each.frontier for each in kept if each not in going),
            *(() if newest is None else (newest,)),
        ]
        found.append(
            garbage_files(build, What.FILES, _unneeded(store, birth, newest, needed, leases))
        )
        found.append(
            garbage_trees(
                build,
                What.SCRATCH,
                [
                    path
                    for name in _SCRATCH
                    if (path := store.path(f"{folder(build)}/{name}")).exists()
                ],
            )
        )
        found.append(emptied_folders(store.path(folder(build)), found))
        for each in found:
            yield from _deleted(hands, each)


def _unneeded(
    store: Store,
    birth: Birth,
    newest: Frontier | None,
    frontiers: Iterable[Frontier],
    leases: Iterable[Lease],
) -> Iterator[Path]:
    """Yields the files of a build's tables that no frontier and no lease needs.

    The next job takes back what a dead one has committed behind the newest frontier.
    """
    versions = [frontier.versions for frontier in frontiers] + [
        lease.pins[birth.build].versions for lease in leases if birth.build in lease.pins
    ]
    for name, version in ({} if newest is None else newest.versions).items():
        path = table_path(store, birth.build, name)
        # A table that is gone is no garbage: kappa doctor tells of it.
        if Path(path).exists():
            pinned = {each[name] for each in versions if name in each}
            yield from map(Path, unneeded(store, path, version, pinned))


def _described(store: Store, state: State, now: float) -> Iterator[Path]:
    births = [read_birth(store, build) for build in state.wanted_builds()]
    wanted = {name for each in births for name in (each.version, born_rows_version(each))}
    for name in store.names(_DESCRIBED):
        path = store.path(name)
        if path.stem not in wanted and now - path.stat().st_mtime > _DESCRIBED_SECONDS:
            yield path


def _unfinished(store: Store, now: float) -> Iterator[Path]:
    """Yields the files that processes were killed at when they put them."""
    for top in _PUT_INTO:
        for path in store.path(top).rglob("*#*"):
            if is_unfinished(path) and now - path.stat().st_mtime > _UNFINISHED_SECONDS:
                yield path


def _deleted(hands: Hands, find: Garbage) -> Iterator[Garbage]:
    if find.count:
        hands.delete(find)
        yield find
