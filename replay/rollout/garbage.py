"""Finds and deletes garbage: files and folders that are no longer needed.

A record in the journal retires a build. Then the build's job ends. The build's data are deleted
once no lease pins them. A reader that tries to pin the build later finds a newer Served record in
the journal, and starts over. The birth certificate is not deleted, because earlier records in the
journal refer to the build.

`kappa gc` examines the whole root, and the files that Kappa stores on this host outside the root. A
dry run finds the same garbage and deletes nothing. `kappa gc` skips a build whose job is running,
because the job holds the lock and deletes the build's garbage itself. For any other build, `kappa
gc` takes the same steps as the job (kappa/engine/write/maintenance.py takes them): it acquires the
lock, raises the floor, deletes expired kept frontiers, reads the leases, lists the unneeded files,
and deletes the listed files. The floor is raised before the leases are read, so no reader can pin a
file that is then deleted. Afterwards, all files that are left of these builds are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from kappa.base.disk import is_unfinished, not_deleted
from kappa.base.errors import Conflict
from kappa.base.failpoint import failpoint
from kappa.base.temporary_folders import left_behind
from kappa.code.fingerprint import born_rows_version
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.state import State
from kappa.state.build import Birth, folder_of_build, read_birth, table_path
from kappa.state.file_sums import join_sums
from kappa.state.files.address import (
    FileEntry,
    delete_files,
    deletion_parts,
    entries_at,
    folders_in,
)
from kappa.state.frontier import Frontier, Frontiers, frontier_records
from kappa.state.kept_frontiers import (
    ensure_past_gone,
    kept_frontiers_of,
    kept_name,
    past_frontiers,
)
from kappa.state.lease import LEASES, Lease, lease_name, live_leases, put_floor, sorted_leases
from kappa.state.lock import is_held
from kappa.state.root import ensure_no_copy, lock_of
from kappa.state.store import Store

_KEPT = frozenset({"birth.json", "lock"})
# Staging writes the folder and, seconds later, the record: after an hour no staging is under way.
_ORPHAN_SECONDS = 3600.0
# Called before each build, with the build's number, from 1, and the number of builds.
OnBuild = Callable[[int, int], None]
# Folders that a job writes anew at each start.
_SCRATCH = ("spark", "slice", "mirror")
_DESCRIBED = "cache"
# A description that no build has may belong to a plan that an operator is looking at.
_DESCRIBED_SECONDS = 3600.0
# A put takes milliseconds: an older unfinished file was left by a killed process.
_UNFINISHED_SECONDS = 3600.0
_PUT_INTO = ("journal", "builds", "leases", "run", "cache")


class GarbageKind(StrEnum):
    """The kind of garbage, which determines how the garbage is found."""

    RETIRED = "retired build"
    ORPHAN = "build that was never staged"
    KEPT = "kept frontiers past their time"
    FRONTIERS = "frontiers before the newest"
    FILES = "files of tables"
    SCRATCH = "scratch of a job"
    FOLDERS = "empty folders"
    LEASES = "expired leases"
    DESCRIBED = "described pipelines"
    LEFT = "left by commands that died"
    UNFINISHED = "files that were being put"


@dataclass(frozen=True, slots=True)
class Garbage:
    """One kind of garbage of a build, or of no build if `build` is None.

    `files` and `folders` are addresses. There are folders only if the root is on a disk; the
    deepest folders come first. `bytes` is the total size of the files. If a build was skipped,
    `left` is the reason, otherwise "".
    """

    build: str | None
    what: GarbageKind | None
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    bytes: int = 0
    left: str = ""

    @property
    def count(self) -> int:
        """Returns the number of files. If there are no files, returns the number of folders."""
        return len(self.files) or len(self.folders)


def garbage_of(build: str | None, what: GarbageKind, entries: Iterable[FileEntry]) -> Garbage:
    """Creates a `Garbage` object from the files and folders in `entries`.

    `build` is None if the entries belong to no build.
    """
    found = list(entries)
    files = sorted(each.address for each in found if not each.is_folder)
    folders = (each.address for each in found if each.is_folder)
    return Garbage(
        build,
        what,
        tuple(files),
        _deepest_first(folders),
        sum(each.size for each in found),
    )


def emptied_folders(build: str, below: Iterable[FileEntry], doomed: Iterable[Garbage]) -> Garbage:
    """Returns the folders that will contain no files after the `doomed` garbage is deleted.

    `below` are all files and folders of the build.
    """
    going = {address for find in doomed for address in (*find.files, *find.folders)}
    left = [each for each in below if each.address not in going]
    holding = {
        str(parent) for each in left if not each.is_folder for parent in Path(each.address).parents
    }
    folders = (each.address for each in left if each.is_folder and each.address not in holding)
    return Garbage(build, GarbageKind.FOLDERS, folders=_deepest_first(folders))


def _deepest_first(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(folders, key=lambda folder: (-folder.count("/"), folder)))


def ensure_data_deleted(store: Store, build: str, *, now: float) -> bool:
    """Deletes the data of a retired build, unless a reader has pinned the build.

    Returns True if no data are left, and False if a reader has pinned the build. `now` is in
    seconds since 1970. Raises Conflict if the build's job still runs.
    """
    if not any(data_of(store, build)):
        return True
    if any(build in lease.pins for lease in live_leases(store, now)):
        return False
    with lock_of(store, f"{folder_of_build(build)}/lock", what=f"build {build}"):
        _delete_entries(data_of(store, build))
    return True


def ensure_orphans_deleted(store: Store, staged: frozenset[str], *, now: float) -> tuple[str, ...]:
    """Deletes the folders of builds that were never staged, and returns the ids of these builds.

    The folder of a build is kept if any file in it is younger than an hour. `staged` are the builds
    that the journal names. `now` is in seconds since 1970.
    """
    deleted = []
    for build in _orphaned_builds(store, staged, now=now):
        with suppress(Conflict), lock_of(store, f"{folder_of_build(build)}/lock", what=build):
            if _was_never_staged(store, build):
                _delete_entries(_entries_of(store, build))
                deleted.append(build)
    return tuple(deleted)


def _orphaned_builds(store: Store, staged: frozenset[str], *, now: float) -> tuple[str, ...]:
    """Returns the builds that have a folder in the root or on this host but were never staged.

    A build is omitted if any file in its folder is younger than an hour. Clocks can jump, so the
    age alone is not reliable. But a process that stages a build holds the build's lock until the
    record is appended. So check again under the lock (`_was_never_staged`) before you delete.
    """
    builds = {
        build for each in (store.local, store) for build in folders_in(each.address("builds"))
    }
    return tuple(
        build
        for build in sorted(builds)
        if build not in staged
        and now - _newest_change(store, build, otherwise=now) > _ORPHAN_SECONDS
    )


def _was_never_staged(store: Store, build: str) -> bool:
    """Returns True if no journal record names the build at present."""
    return build not in current_state(store).versions


def _entries_of(store: Store, build: str) -> Iterator[FileEntry]:
    """Yields all files and folders of a build: first those on this host, then those in the root.

    The files are deleted in this order. So if a deletion is interrupted, the folder in the root
    still exists, and the next search finds the build.
    """
    for place in _build_folders(store, build):
        yield from entries_at(place)


def data_of(store: Store, build: str) -> Iterator[FileEntry]:
    """Yields the files and folders of a build that are deleted when the build is retired.

    The birth certificate and the lock are not among them.
    """
    for place in _build_folders(store, build):
        for each in entries_at(place):
            below = each.address.removeprefix(place).split("/")
            if len(below) > 1 and below[1] not in _KEPT:
                yield each


def _build_folders(store: Store, build: str) -> tuple[str, ...]:
    """Returns the addresses of a build's folders: two if the root is in a bucket, otherwise one."""
    return tuple(
        dict.fromkeys(each.address(folder_of_build(build)) for each in (store.local, store))
    )


def _newest_change(store: Store, build: str, *, otherwise: float) -> float:
    return max((each.changed_at for each in _entries_of(store, build)), default=otherwise)


def _delete_entries(entries: Iterable[FileEntry]) -> None:
    found = garbage_of(None, GarbageKind.RETIRED, entries)
    for part in deletion_parts(found.files):
        failpoint("retire.before_delete")
        delete_files(part)
        failpoint("retire.after_delete")
    for each in found.folders:
        try:
            Path(each).rmdir()
        except OSError as error:
            raise not_deleted(Path(each), error) from error


class CollectionEffects(Protocol):
    """The operations by which a garbage collection changes a root.

    A real collection uses `DeletingEffects`, and a dry run uses `DryRunEffects`.
    """

    def hold(self, build: str) -> AbstractContextManager[object]:
        """Returns a context in which no job of the build can run.

        Raises Conflict if a job of the build runs now.
        """

    def let_frontiers_go(self, build: str, newest: int) -> None:
        """Releases the frontiers before number `newest`, and the kept frontiers that have expired.

        Call this method before the leases are listed. After that, no reader can pin a frontier that
        was released.
        """

    def delete(self, find: Garbage) -> None:
        """Deletes the files and the folders that `find` lists."""


class DryRunEffects:
    """The operations of a dry run. None of them changes the root."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, build: str) -> AbstractContextManager[object]:
        """Raises Conflict if a job of the build runs. Does not acquire the lock."""
        if is_held(self._store.local.path(f"{folder_of_build(build)}/lock")):
            raise Conflict(f"the job of build {build} runs")
        return nullcontext()

    def let_frontiers_go(self, build: str, newest: int) -> None:
        """Does nothing: a dry run releases no frontiers."""

    def delete(self, find: Garbage) -> None:
        """Does nothing: a dry run deletes no files."""


class DeletingEffects:
    """The operations of a real garbage collection: they change the root and delete files."""

    def __init__(self, store: Store, keep_seconds: float, now: float) -> None:
        self._store = store
        self._keep_seconds = keep_seconds
        self._now = now

    def hold(self, build: str) -> AbstractContextManager[object]:
        """Returns a context with the build's lock. Raises Conflict if the build's job runs."""
        return lock_of(self._store, f"{folder_of_build(build)}/lock", what=f"build {build}")

    def let_frontiers_go(self, build: str, newest: int) -> None:
        """Writes `newest` as the floor, and deletes kept frontiers that have expired.

        Before that, the checksums of files in the frontiers are joined into one record, so that no
        checksum is lost when its frontier is deleted.
        """
        join_sums(self._store, build)
        put_floor(self._store, build, newest)
        ensure_past_gone(self._store, build, self._now, self._keep_seconds)

    def delete(self, find: Garbage) -> None:
        """Deletes the files in `find`, and then those folders in `find` that are empty."""
        for part in deletion_parts(find.files):
            failpoint("gc.before_delete")
            delete_files(part)
            failpoint("gc.after_delete")
        for folder_on_disk in find.folders:
            # A file may have been put into the folder since.
            failpoint("gc.before_rmdir")
            with suppress(OSError):
                Path(folder_on_disk).rmdir()
            failpoint("gc.after_rmdir")


def collect_garbage(
    store: Store,
    *,
    keep_seconds: float,
    now: float,
    temp: str = "tmp",
    on_build: OnBuild = lambda _number, _of: None,
) -> tuple[Garbage, ...]:
    """Deletes everything in the root that is no longer needed, and returns what was deleted.

    The result also contains an entry for each build that was skipped. `now` is in seconds since
    1970. `keep_seconds` is how long frontiers are kept. `temp` is the folder in which commands
    create their own temporary folders. `on_build` is called before each build with the build's
    number and the number of builds. Raises Copied if the root is a copy.
    """
    ensure_no_copy(store)
    return tuple(
        _collect_from_root(
            store,
            DeletingEffects(store, keep_seconds, now),
            keep_seconds=keep_seconds,
            now=now,
            temp=temp,
            on_build=on_build,
        )
    )


def find_garbage(
    store: Store,
    *,
    keep_seconds: float,
    now: float,
    temp: str = "tmp",
    on_build: OnBuild = lambda _number, _of: None,
) -> tuple[Garbage, ...]:
    """Returns the garbage that `collect_garbage` would delete, without deleting it.

    The search and the parameters are the same as in `collect_garbage`.
    """
    effects = DryRunEffects(store)
    return tuple(
        _collect_from_root(
            store, effects, keep_seconds=keep_seconds, now=now, temp=temp, on_build=on_build
        )
    )


def _collect_from_root(
    store: Store,
    effects: CollectionEffects,
    *,
    keep_seconds: float,
    now: float,
    temp: str,
    on_build: OnBuild,
) -> Iterator[Garbage]:
    state = current_state(store)
    for build in _orphaned_builds(store, frozenset(state.versions), now=now):
        found = garbage_of(build, GarbageKind.ORPHAN, _entries_of(store, build))
        with suppress(Conflict), effects.hold(build):
            if _was_never_staged(store, build):
                yield from _delete_found(effects, found)
                # The lock's own file, if it was new.
                effects.delete(garbage_of(build, GarbageKind.ORPHAN, _entries_of(store, build)))
    for number, build in enumerate(sorted(state.versions), 1):
        on_build(number, len(state.versions))
        try:
            yield from (
                _garbage_of_retired(store, effects, build, now)
                if build in state.retired
                else _garbage_of_build(store, effects, build, keep_seconds=keep_seconds, now=now)
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
    leases = _existing_entries(put, (store.address(lease_name(lease.id)) for lease in ended))
    yield from _delete_found(effects, garbage_of(None, GarbageKind.LEASES, leases))
    yield from _delete_found(
        effects, garbage_of(None, GarbageKind.DESCRIBED, _described_pipelines(store, state, now))
    )
    left = (each for path in left_behind(store.local.path(temp)) for each in entries_at(str(path)))
    yield from _delete_found(effects, garbage_of(None, GarbageKind.LEFT, left))
    yield from _delete_found(
        effects, garbage_of(None, GarbageKind.UNFINISHED, _unfinished_files(store, now))
    )


def _garbage_of_retired(
    store: Store, effects: CollectionEffects, build: str, now: float
) -> Iterator[Garbage]:
    found = garbage_of(build, GarbageKind.RETIRED, data_of(store, build))
    if not found.count:
        return
    if any(build in lease.pins for lease in sorted_leases(store, now)[0]):
        yield Garbage(build, None, left="it is retired, and a reader has it pinned")
        return
    with effects.hold(build):
        yield from _delete_found(effects, found)


def _garbage_of_build(
    store: Store, effects: CollectionEffects, build: str, *, keep_seconds: float, now: float
) -> Iterator[Garbage]:
    birth = read_birth(store, build)
    if birth.tables_of is not None:
        # An overlay's tables are files of the build below.
        return
    with effects.hold(build):
        newest = Frontiers(store, build).newest()
        # Listed before they are let go, so that a dry run finds the same frontiers.
        kept = kept_frontiers_of(store, build)
        going, _ = past_frontiers(kept, now, keep_seconds)
        there = _by_address(_entries_of(store, build))
        kept_files = (store.address(kept_name(build, each.frontier.number)) for each in going)
        found = [
            garbage_of(build, GarbageKind.KEPT, _existing_entries(there, kept_files)),
            garbage_of(
                build,
                GarbageKind.FRONTIERS,
                _existing_entries(there, _passed_frontiers(store, build, newest)),
            ),
        ]
        if newest is not None:
            effects.let_frontiers_go(build, newest.number)
        leases, _ = sorted_leases(store, now)
        needed = [
            *(each.frontier for each in kept if each not in going),
            *(() if newest is None else (newest,)),
        ]
        unneeded_files = _unneeded_files(store, birth, newest, needed, leases, there)
        found.append(garbage_of(build, GarbageKind.FILES, _existing_entries(there, unneeded_files)))
        own = store.local.address(folder_of_build(build))
        scratch = (each for name in _SCRATCH for each in entries_at(f"{own}/{name}"))
        found.append(garbage_of(build, GarbageKind.SCRATCH, scratch))
        below = [each for each in there.values() if each.address != own]
        found.append(emptied_folders(build, below, found))
        for each in found:
            yield from _delete_found(effects, each)


def _passed_frontiers(store: Store, build: str, newest: Frontier | None) -> Iterator[str]:
    """Yields the addresses of the frontier records with lower numbers than `newest`."""
    if newest is not None:
        records = frontier_records(store, build)
        numbers = (number for number in records.numbers() if number < newest.number)
        yield from (store.address(records.name(number)) for number in numbers)


def _unneeded_files(
    store: Store,
    birth: Birth,
    newest: Frontier | None,
    frontiers: Iterable[Frontier],
    leases: Iterable[Lease],
    there: Iterable[str],
) -> Iterator[str]:
    """Yields the files of a build's tables that no frontier and no lease needs.

    A dead job may have made commits after the newest frontier. The files of these commits count as
    unneeded, because the build's next job would revert the commits.
    """
    versions = [frontier.versions for frontier in frontiers] + [
        lease.pins[birth.build].versions for lease in leases if birth.build in lease.pins
    ]
    if newest is None:
        return
    from kappa.tables.vacuum import unneeded  # noqa: PLC0415  # it takes delta-rs

    for name, version in newest.versions.items():
        path = table_path(store, birth.build, name)
        # A missing table is no garbage: kappa doctor reports it.
        if any(each.startswith(f"{path}/") for each in there):
            pinned = {each[name] for each in versions if name in each}
            yield from unneeded(store, path, version, pinned, vouched=newest.file_lists.get(name))


def _described_pipelines(store: Store, state: State, now: float) -> Iterator[FileEntry]:
    """Yields the cached pipeline descriptions that are over an hour old and that no build needs."""
    births = [read_birth(store, build) for build in state.wanted_builds()]
    wanted = {name for each in births for name in (each.version, born_rows_version(each))}
    for each in entries_at(store.address(_DESCRIBED)):
        is_old = now - each.changed_at > _DESCRIBED_SECONDS
        if is_old and not each.is_folder and Path(each.address).stem not in wanted:
            yield each


def _unfinished_files(store: Store, now: float) -> Iterator[FileEntry]:
    """Yields incomplete files on this disk, left by writers that were killed over an hour ago."""
    for top in _PUT_INTO:
        for each in entries_at(store.local.address(top)):
            is_old = now - each.changed_at > _UNFINISHED_SECONDS
            if is_old and not each.is_folder and is_unfinished(Path(each.address)):
                yield each


def _by_address(entries: Iterable[FileEntry]) -> dict[str, FileEntry]:
    return {each.address: each for each in entries}


def _existing_entries(
    there: Mapping[str, FileEntry], addresses: Iterable[str]
) -> Iterator[FileEntry]:
    """Yields the entries in `there` with the given addresses.

    Addresses without an entry are skipped.
    """
    return (there[each] for each in addresses if each in there)


def _delete_found(effects: CollectionEffects, find: Garbage) -> Iterator[Garbage]:
    if find.count:
        effects.delete(find)
        yield find
