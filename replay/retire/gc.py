"""Collection by hand: what nobody needs below the root, found, and then deleted; a dry run finds the same and deletes nothing.

A build whose job runs is kept in shape by its job alone: it holds the lock, and is passed over. For any other the order is
the job's own (law 11): lock, floor, what is kept no longer, then the leases, then files by list. Afterwards the files on
disk are those that are referenced. Read next: kappa/engine/write/maintenance.py, replay/retire/retire.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from kappa.base.errors import Conflict
from kappa.base.failpoint import failpoint
from kappa.base.lock import Lock, is_held
from kappa.journal.journal import Journal
from kappa.state.build import Birth, folder, read_birth, recent_names, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept import ensure_past_gone, kept_name, kept_of, past
from kappa.state.lease import Lease, lease_name, put_floor, sorted_leases
from kappa.state.store import Store
from kappa.tables.delta import newest_version, unneeded
from replay.retire.retire import data_of, orphans
from replay.rollout.fold import fold
from replay.rollout.state import State
from serving.query.spill import left_behind

# What a job writes anew each time it begins.
_SCRATCH = ("spark", "slice")
_DESCRIBED = "cache"
# Described pipelines that no build is of may be of a plan that somebody looks at right now.
_DESCRIBED_SECONDS = 3600.0


class What(StrEnum):
    """What it is that nobody needs."""

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


@dataclass(frozen=True, slots=True)
class Find:
    """What nobody needs of one build, or (None) of none: files and, deepest first, folders. Or why it is left: `left`."""

    build: str | None
    what: What | None
    files: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    bytes: int = 0
    left: str = ""

    @property
    def count(self) -> int:
        """How many files it is; of empty folders, how many of those."""
        return len(self.files) or len(self.folders)


def gc(store: Store, *, keep_seconds: float, now: float, temp: str = "tmp") -> tuple[Find, ...]:
    """Deletes what nobody needs at `now` (seconds since 1970), and says what that was; `temp` is where commands have folders of their own."""
    return tuple(
        _walk(
            store,
            _Deleting(store, keep_seconds, now),
            keep_seconds=keep_seconds,
            now=now,
            temp=temp,
        )
    )


def look(store: Store, *, keep_seconds: float, now: float, temp: str = "tmp") -> tuple[Find, ...]:
    """What `gc` would delete, found in the same way; nothing is changed."""
    return tuple(_walk(store, _Looking(store), keep_seconds=keep_seconds, now=now, temp=temp))


class _Hands(Protocol):
    """What differs between a look and the deed."""

    def hold(self, build: str) -> AbstractContextManager[object]:
        """Within it no job of the build runs. Raises Conflict where one does."""

    def let_go(self, build: str, newest: int) -> None:
        """Lets go of the build's frontiers before the newest, and of what is kept no longer; before the leases are listed."""

    def delete(self, find: Find) -> None:
        """Deletes what was found."""


class _Looking:
    """Changes nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, build: str) -> AbstractContextManager[object]:
        if is_held(self._store.path(f"{folder(build)}/lock")):
            raise Conflict(f"the job of build {build} runs")
        return contextlib.nullcontext()

    def let_go(self, build: str, newest: int) -> None:
        pass

    def delete(self, find: Find) -> None:
        pass


class _Deleting:
    """Deletes."""

    def __init__(self, store: Store, keep_seconds: float, now: float) -> None:
        self._store = store
        self._keep_seconds = keep_seconds
        self._now = now

    def hold(self, build: str) -> AbstractContextManager[object]:
        return Lock(self._store.path(f"{folder(build)}/lock"), what=f"build {build}")

    def let_go(self, build: str, newest: int) -> None:
        put_floor(self._store, build, newest)
        ensure_past_gone(self._store, build, self._now, self._keep_seconds)

    def delete(self, find: Find) -> None:
        for file in find.files:
            failpoint("gc.before_delete")
            file.unlink(missing_ok=True)
            failpoint("gc.after_delete")
        for path in find.folders:
            # Somebody may have put something into it since.
            failpoint("gc.before_rmdir")
            with contextlib.suppress(OSError):
                path.rmdir()
            failpoint("gc.after_rmdir")


def _walk(
    store: Store, hands: _Hands, *, keep_seconds: float, now: float, temp: str
) -> Iterator[Find]:
    state = fold(Journal(store).after(0))
    for path in orphans(store, frozenset(state.versions), now=now):
        yield from _deleted(hands, _whole_tree(path.name, What.ORPHAN, [path]))
    for build in sorted(state.versions):
        try:
            yield from (
                _of_retired(store, hands, build, now)
                if build in state.retired
                else _of_build(store, hands, build, keep_seconds=keep_seconds, now=now)
            )
        except Conflict:
            yield Find(
                build,
                None,
                left="its job runs, and keeps it in shape"
                if build not in state.retired
                else "its job has not ended yet",
            )
    _, ended = sorted_leases(store, now)
    yield from _deleted(
        hands, _files(None, What.LEASES, (store.path(lease_name(lease.id)) for lease in ended))
    )
    yield from _deleted(hands, _files(None, What.DESCRIBED, _described(store, state, now)))
    yield from _deleted(hands, _whole_tree(None, What.LEFT, list(left_behind(store.path(temp)))))


def _of_retired(store: Store, hands: _Hands, build: str, now: float) -> Iterator[Find]:
    found = _whole_tree(build, What.RETIRED, list(data_of(store, build)))
    if not found.count:
        return
    if any(build in lease.pins for lease in sorted_leases(store, now)[0]):
        yield Find(build, None, left="it is retired, and a reader has it pinned")
        return
    with hands.hold(build):
        yield from _deleted(hands, found)


def _of_build(
    store: Store, hands: _Hands, build: str, *, keep_seconds: float, now: float
) -> Iterator[Find]:
    birth = read_birth(store, build)
    with hands.hold(build):
        newest = Frontiers(store, build).newest()
        # Looked at before they are let go, so that a dry run finds the same.
        kept = kept_of(store, build)
        going, _ = past(kept, now, keep_seconds)
        records = store.names(f"{folder(build)}/frontier") if newest is not None else ()
        found = [
            _files(
                build,
                What.KEPT,
                (store.path(kept_name(build, each.frontier.number)) for each in going),
            ),
            _files(
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
        found.append(_files(build, What.FILES, _unneeded(store, birth, needed, leases)))
        found.append(
            _whole_tree(
                build,
                What.SCRATCH,
                [
                    path
                    for name in _SCRATCH
                    if (path := store.path(f"{folder(build)}/{name}")).exists()
                ],
            )
        )
        found.append(_emptied(store.path(folder(build)), found))
        for each in found:
            yield from _deleted(hands, each)


def _unneeded(
    store: Store, birth: Birth, frontiers: Iterable[Frontier], leases: Iterable[Lease]
) -> Iterator[Path]:
    """The files of a build's tables that neither a frontier nor a lease needs, nor the job where it goes on: at the newest version."""
    versions = [frontier.versions for frontier in frontiers] + [
        lease.pins[birth.build].versions for lease in leases if birth.build in lease.pins
    ]
    for name in (
        name for table in birth.tables for name in (table.name, *recent_names(table.name))
    ):
        path = table_path(store, birth.build, name)
        newest = newest_version(path)
        if newest is not None:
            yield from unneeded(path, newest, {each[name] for each in versions if name in each})


def _described(store: Store, state: State, now: float) -> Iterator[Path]:
    wanted = {state.versions[build] for build in state.wanted_builds()}
    for name in store.names(_DESCRIBED):
        path = store.path(name)
        if path.stem not in wanted and now - path.stat().st_mtime > _DESCRIBED_SECONDS:
            yield path


def _deleted(hands: _Hands, find: Find) -> Iterator[Find]:
    if find.count:
        hands.delete(find)
        yield find


def _files(build: str | None, what: What, paths: Iterable[Path]) -> Find:
    files = tuple(sorted(paths))
    return Find(build, what, files, bytes=_bytes(files))


def _whole_tree(build: str | None, what: What, tops: list[Path]) -> Find:
    every = [path for top in tops for path in (top, *top.rglob("*"))]
    files = tuple(sorted(path for path in every if not _is_folder(path)))
    return Find(
        build,
        what,
        files,
        _deepest_first(path for path in every if _is_folder(path)),
        _bytes(files),
    )


def _emptied(top: Path, doomed: Iterable[Find]) -> Find:
    """The folders that will hold no file once what is doomed is deleted."""
    going = {path for find in doomed for path in (*find.files, *find.folders)}
    every = [path for path in top.rglob("*") if path not in going]
    holding = {parent for path in every if not _is_folder(path) for parent in path.parents}
    return Find(
        top.name,
        What.FOLDERS,
        folders=_deepest_first(path for path in every if _is_folder(path) and path not in holding),
    )


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _deepest_first(folders: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(sorted(folders, key=lambda path: (-len(path.parts), path)))


def _bytes(files: Iterable[Path]) -> int:
    return sum(file.lstat().st_size for file in files if file.exists())
