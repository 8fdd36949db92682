"""The check of data files against their sums, before a process first reads them.

A process checks a file once. A large file that one process has checked is not read again by others
until the machine starts anew: `run/whole.json` has its size, its time and its sum. That document is
derived: without it files are checked again. `kappa scrub` relies on neither.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from kappa.base.errors import Damaged, KappaError, unreadable
from kappa.state.build import read_birth
from kappa.state.documents import Documents
from kappa.state.files.address import side_by_side
from kappa.state.frontier import Frontier, Sum, Sums
from kappa.state.recorded import RecordedSums, name_of, sum_of, sum_of_object, summed
from kappa.state.store import Store

_REMEMBERED = "run/whole.json"
# To check a smaller file takes hardly longer than to look it up.
_LARGE = 1 << 20
# Of a server that runs for months, most names are of files that are long gone.
_MOST = 100_000
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class RememberedFiles(Struct, frozen=True):
    """The large files that were checked since the machine was started: size, time and CRC."""

    boot: str
    files: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)


class _Checked(Struct):
    """The paths that this process has checked below one root, and the sums of each build."""

    paths: set[str] = field(default_factory=set)
    sums: dict[str, RecordedSums] = field(default_factory=dict)


_DOCUMENT = Documents(RememberedFiles, derived=True, synced=False)
_CHECKED: WeakKeyDictionary[Store, _Checked] = WeakKeyDictionary()


def are_checked(store: Store, paths: Iterable[str]) -> bool:
    """Returns True if this process has checked all of these files."""
    return _checked(store).paths.issuperset(paths)


def note_whole(store: Store, paths: Iterable[str]) -> None:
    """Notes that this process has read these files as they were written."""
    found = _checked(store).paths
    if len(found) > _MOST:
        found.clear()
    found.update(paths)


def ensure_whole(
    store: Store,
    build: str,
    paths: Iterable[str],
    *,
    copies: Callable[[str], str] | None = None,
    pinned: Frontier | None = None,
) -> None:
    """Checks the files of a build that this process has not checked yet.

    Raises Damaged, naming it, if one is not as it was written. Files without a sum pass; one that
    is gone is for its reader to notice. Files of a bucket are checked where they are read whole: in
    their `copies` on this host, once they are fetched. What reads parts of them checks none. The
    sums of the frontier that is `pinned` need not be read again.
    """
    if copies is None and not store.is_on_disk:
        return
    known = _checked(store)
    new = [path for path in paths if not are_checked(store, (path,))]
    if not new:
        return
    if build not in known.sums:
        known.sums[build] = RecordedSums(store, build)
    if pinned is not None:
        known.sums[build].take(pinned)
    sums = known.sums[build].of(map(name_of, new))
    found = _different(store, sums, new, copies)
    if found is not None:
        path, why = found
        pipeline = read_birth(store, build).pipeline
        raise Damaged(
            f"file {store.name(path)} of pipeline {pipeline} {why}",
            hint=f"kappa replay {pipeline} makes a new build from the log; "
            f"kappa undo {pipeline} lets the build before serve meanwhile",
        )


def ensure_archived_whole(
    store: Store,
    sums: Sums,
    paths: Iterable[str],
    *,
    copies: Callable[[str], str] | None = None,
    hint: str,
) -> None:
    """Checks the files of an archive, which has these sums, as `ensure_whole` does.

    Files of a bucket without copies on this host are fetched for it.
    """
    new = [path for path in paths if not are_checked(store, (path,))]
    found = _different(store, sums, new, copies)
    if found is not None:
        path, why = found
        raise Damaged(f"file {store.name(path)} of an archive {why}", hint=hint)


def _different(
    store: Store, sums: Sums, paths: Sequence[str], copies: Callable[[str], str] | None
) -> tuple[str, str] | None:
    """Returns the first file that is not as it was written, and why; notes the others as whole."""
    recorded = {path: sums[name] for path in paths if (name := name_of(path)) in sums}
    remembered = _remembered(store, recorded) if store.is_on_disk else set()
    new = recorded.keys() - remembered
    if copies is None and not store.is_on_disk:
        found = dict(zip(new, side_by_side(store.url, _sum_of_object_if_there, new), strict=True))
    else:
        places = {Path(path if copies is None else copies(path)): path for path in new}
        found = {places[place]: each for place, each in summed(places, _sum_if_there).items()}
    for path, each in sorted(found.items()):
        if each is not None and each != recorded[path]:
            return path, difference(recorded[path], each)
    if store.is_on_disk:
        _remember(store, {path: each for path, each in found.items() if each is not None})
    note_whole(store, paths)
    return None


def difference(recorded: Sum, found: Sum | None) -> str:
    """Returns what is wrong with a file, in words."""
    if found is None:
        return "is gone"
    (size, crc), (size_now, crc_now) = recorded, found
    return (
        f"is not as it was written: it had {size} bytes, and has {size_now}"
        if size != size_now
        else f"is not as it was written: its CRC was {crc:08x}, and is {crc_now:08x}"
    )


def _checked(store: Store) -> _Checked:
    return _CHECKED.setdefault(store, _Checked())


def _sum_if_there(path: Path) -> Sum | None:
    try:
        return sum_of(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(
            f"file {path} cannot be read: {error.strerror or error}",
            error,
            hint="the disk may be failing: kappa scrub reads all files",
        ) from error


def _sum_of_object_if_there(url: str) -> Sum | None:
    try:
        return sum_of_object(url)
    except FileNotFoundError:
        return None


def _remembered(store: Store, recorded: Mapping[str, Sum]) -> set[str]:
    """Returns the files that another process has checked since the machine was started."""
    large = {path: each for path, each in recorded.items() if each[0] >= _LARGE}
    known = _read(store).files if large else {}
    return {
        path
        for path, (size, crc) in large.items()
        if (name := store.name(path)) in known and known[name] == (size, _time(path), crc)
    }


def _remember(store: Store, found: Mapping[str, Sum]) -> None:
    large = {path: each for path, each in found.items() if each[0] >= _LARGE}
    if not large:
        return
    files = {
        name: each for name, each in _read(store).files.items() if store.path(name).exists()
    } | {store.name(path): (size, _time(path), crc) for path, (size, crc) in large.items()}
    # A full disk makes the next process check again, and nothing worse.
    with contextlib.suppress(KappaError):
        _DOCUMENT.put(store.local, _REMEMBERED, RememberedFiles(_boot(), files))


def _read(store: Store) -> RememberedFiles:
    found = _DOCUMENT.get(store.local, _REMEMBERED, "the list of checked files")
    return found if found is not None and found.boot == _boot() else RememberedFiles(_boot())


def _time(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return -1


@cache
def _boot() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
