"""Checksums of a build's data files: stored at a commit, compared before a file is first read.

A checksum is a file's size and CRC. A frontier contains the checksums of the files that are new in
this frontier, so storing the checksums needs no further write. Before frontiers are deleted, all
checksums that are still needed are joined into one record. If a build was created before Kappa
stored checksums, its files have no checksums.

A process checks a file once. If a process has checked a large file, other processes do not read the
file again until the machine restarts: `run/whole.json` contains the file's size, time and CRC. If
this document is lost, the files are checked again. `kappa scrub` always reads all files.

A CRC of 32 bits detects each flipped bit and all damage within four bytes. It misses one in four
billion other changes. A person can still construct a file that has a given checksum: checksums
protect against accidental damage, not against forgery.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from kappa.base.errors import Damaged, KappaError, unreadable
from kappa.base.failpoint import failpoint
from kappa.state.build import read_birth, tables_folder
from kappa.state.documents import Documents, NumberedRecords
from kappa.state.files.address import (
    ask_side_by_side,
    bucket_and_name,
    entries_at,
    missing_file_error,
)
from kappa.state.files.bucket import is_bucket
from kappa.state.frontier import Frontier, Sum, Sums, frontier_records
from kappa.state.store import Store

_AT_ONCE = 1 << 20
# Fewer bytes are summed sooner than threads begin.
_ALONE = 4 << 20
# Disks serve several readers sooner than a single reader, and CRCs are computed in parallel.
_THREADS = min(4, os.cpu_count() or 1)
_MOST_PUT = 10_000
_REMEMBERED = "run/whole.json"
# To check a smaller file takes hardly longer than to look it up.
_LARGE = 1 << 20
# Of a server that runs for months, most names are of files that are long gone.
_MOST_CHECKED = 100_000
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class JoinedSums(Struct, frozen=True):
    """The checksums of all files of a build, in one record.

    Before frontiers are deleted, the checksums that they contain are joined into such a record.
    """

    sums: Sums
    format: int = 1


_JOINED = Documents(JoinedSums)


def sums_records(store: Store, build: str) -> NumberedRecords[JoinedSums]:
    """Returns the stored records of the checksums of a build's files (`JoinedSums`).

    Only the newest record is valid.
    """
    return NumberedRecords(
        store,
        f"{tables_folder(store, build)}/sums",
        _JOINED,
        f"record {{}} of the sums of build {build}",
    )


def sum_name(path: str | Path) -> str:
    """Returns the key of a data file in a mapping of checksums: `TABLE/FILE`."""
    table, name = str(path).rsplit("/", 2)[1:]
    return f"{table}/{name}"


def sum_of(address: str | Path, *, from_disk: bool = False) -> Sum:
    """Reads a whole file, and returns its size and CRC.

    With `from_disk`, a local file is read from the disk instead of the page cache, if the operating
    system supports this. Raises OSError if a local file cannot be read. Raises FileNotFoundError if
    a file in a bucket does not exist, and KappaError if a file in a bucket cannot be read.
    """
    if is_bucket(str(address)):
        return _sum_in_bucket(str(address))
    buffer = memoryview(bytearray(_AT_ONCE))
    size = crc = 0
    with Path(address).open("rb", buffering=0) as file:
        if from_disk:
            _drop_cached_pages(file.fileno())
        while count := file.readinto(buffer):
            size, crc = size + count, zlib.crc32(buffer[:count], crc)
    return size, crc


def compute_sums(
    paths: Iterable[Path], take: Callable[[Path], Sum | None]
) -> dict[Path, Sum | None]:
    """Calls `take` for each path, and returns the results by path.

    `take` computes the checksum of a file. If the files have four MiB or more in total, several
    threads call `take` in parallel.
    """
    paths = list(paths)
    if sum(_file_size(path) for path in paths) < _ALONE:
        return {path: take(path) for path in paths}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sums") as threads:
        return dict(zip(paths, threads.map(take, paths), strict=True))


# The sums of files that this process has put to buckets, and has not published yet.
_PUT: dict[str, Sum] = {}


def note_put_file(url: str, path: Path) -> None:
    """Computes the checksum of a local file that will be uploaded to `url`, and caches it.

    So `sums_in_bucket` need not download the file. Does nothing if `url` is not in a bucket. Raises
    OSError if the local file cannot be read.
    """
    if is_bucket(url):
        _PUT[url] = sum_of(path)
        for oldest in list(_PUT)[:-_MOST_PUT]:
            _PUT.pop(oldest, None)


def _sum_in_bucket(url: str) -> Sum:
    bucket, name = bucket_and_name(url)
    found = bucket.read_pieces(name)
    if found is None:
        raise missing_file_error(url)
    size = crc = 0
    for piece in found[1]:
        size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def sums_in_bucket(root: str, urls: Iterable[str]) -> Sums:
    """Returns the checksums of files that a job in this process has just committed to a bucket.

    `root` is the root's URL, and `urls` are the URLs of the files. The checksum of a file that this
    process has uploaded is already known (`note_put_file`). Files that delta-rs and Spark have
    uploaded are downloaded, several at the same time. Raises Damaged if a file is missing.
    """

    def found(url: str) -> tuple[str, Sum]:
        known = _PUT.pop(url, None)
        try:
            return sum_name(url), sum_of(url) if known is None else known
        except FileNotFoundError as error:
            raise Damaged(
                f"file {url} is gone",
                hint="the job is started again, and takes its commit back",
            ) from error

    return dict(ask_side_by_side(root, found, urls))


def new_sums(paths: Iterable[Path]) -> Sums:
    """Returns the checksums of files that were just written to the disk.

    Raises Damaged if a file is missing, and KappaError if a file cannot be read.
    """
    try:
        found = compute_sums(paths, sum_of)
    except OSError as error:
        raise unreadable(
            f"file {error.filename} cannot be read: {error.strerror or error}",
            error,
            hint="the job is started again, and takes its commit back",
        ) from error
    return {sum_name(path): each for path, each in found.items() if each is not None}


class RecordedSums:
    """A cache of the stored checksums of one build's files.

    The checksums are in the build's frontiers and in a record (`JoinedSums`). These are read only
    when a checksum is needed that the cache does not contain.
    """

    def __init__(self, store: Store, build: str) -> None:
        """Creates an empty cache for `build`, without reading anything."""
        self._store = store
        self._frontiers = frontier_records(store, build)
        self._joined = sums_records(store, build)
        # The number of the frontier that was read last.
        self._last_read = 0
        # The newest joined sums that were read or put, and their number.
        self._last_joined: tuple[int, Sums] = (0, {})
        self._known: dict[str, Sum] = {}

    def of(self, names: Iterable[str]) -> Sums:
        """Returns the checksums of the files with these names (`TABLE/FILE`), by name.

        Files without a stored checksum are left out.
        """
        wanted = set(names)
        # Frontiers first: a frontier that is deleted meanwhile was joined before. A reader of
        # each slice finds the next frontier without a list; in a bucket it has the pinned frontier.
        first = (self._read_next,) if self._store.is_on_disk else ()
        for read in (*first, self._read_frontiers, self._read_joined):
            if not self._known.keys() >= wanted:
                read()
        return {name: self._known[name] for name in wanted if name in self._known}

    def all(self) -> Sums:
        """Reads all stored checksums of the build's files, and returns them by file name."""
        self._read_frontiers()
        self._read_joined()
        return self._known

    def take(self, frontier: Frontier) -> None:
        """Adds the checksums in `frontier` to the cache.

        So the cache need not read this frontier later.
        """
        self._known.update(frontier.sums)
        if frontier.number == self._last_read + 1:
            self._last_read = frontier.number

    def join(self, there: Container[str]) -> None:
        """Stores the checksums of all files in `there` as one record (`JoinedSums`).

        `there` contains the names of the files that exist. If the newest record already contains
        exactly these checksums, nothing is stored. Raises Damaged if the newest record is lost.
        """
        noted = self._joined.noted_number()
        known = self.all()
        number, joined = self._last_joined
        self._joined.ensure_newest(number, noted)
        sums = {name: each for name, each in sorted(known.items()) if name in there}
        if sums != joined:
            failpoint("sums.before_join")
            self._joined.put(number + 1, JoinedSums(sums))
            self._joined.delete_below(number + 1)
            self._last_joined, self._known = (number + 1, sums), dict(sums)
            failpoint("sums.after_join")

    def _read_joined(self) -> None:
        numbers = self._joined.numbers()
        last = self._joined.last() if numbers and numbers[-1] > self._last_joined[0] else None
        if last is not None:
            self._last_joined, self._known = (last[0], last[1].sums), dict(last[1].sums)
            self._last_read = 0
            self._read_frontiers()

    def _read_next(self) -> None:
        with suppress(Damaged):
            for number, frontier in self._frontiers.after(self._last_read):
                self._known.update(frontier.sums)
                self._last_read = number

    def _read_frontiers(self) -> None:
        def sums(number: int) -> Sums:
            # A damaged frontier is for `kappa doctor`; a damaged newest frontier refuses readers.
            with suppress(Damaged):
                found = self._frontiers.get(number)
                return {} if found is None else found.sums
            return {}

        numbers = self._frontiers.numbers(after=self._last_read)
        for each in ask_side_by_side(self._store.url, sums, numbers):
            self._known.update(each)
        self._last_read = max((self._last_read, *numbers))


def join_sums(store: Store, build: str, recorded: RecordedSums | None = None) -> None:
    """Stores the checksums of all existing files of a build as one record.

    After that, frontiers of the build may be deleted, although they contain checksums. The caller
    must hold the build's lock. `recorded` contains checksums that the caller has already read.
    """
    tables = store.address(f"{tables_folder(store, build)}/tables")
    there = {sum_name(each.address) for each in entries_at(tables) if not each.is_folder}
    (recorded or RecordedSums(store, build)).join(there)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _drop_cached_pages(handle: int) -> None:
    with suppress(AttributeError, OSError):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


class RememberedFiles(Struct, frozen=True):
    """The large files that a process has checked since the machine started.

    `boot` identifies the start of the machine. `files` maps the name of each file, relative to the
    root, to the file's size, modification time and CRC.
    """

    boot: str
    files: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)


class _Checked(Struct):
    """The files below one root that this process has checked, and each build's stored checksums."""

    paths: set[str] = field(default_factory=set)
    sums: dict[str, RecordedSums] = field(default_factory=dict)


_DOCUMENT = Documents(RememberedFiles, derived=True, synced=False)
_CHECKED: WeakKeyDictionary[Store, _Checked] = WeakKeyDictionary()


def are_checked(store: Store, paths: Iterable[str]) -> bool:
    """Returns True if this process has already checked all files in `paths`.

    A check compares a file with its stored checksum.
    """
    return _checked_files(store).paths.issuperset(paths)


def note_whole(store: Store, paths: Iterable[str]) -> None:
    """Records that the files in `paths` are intact.

    This process does not compare these files with their checksums again.
    """
    found = _checked_files(store).paths
    if len(found) > _MOST_CHECKED:
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
    """Compares files of a build with their stored checksums. Raises Damaged if a file differs.

    The error names the first file whose size or CRC differs. Files that this process has already
    checked are skipped. A file without a stored checksum counts as intact. A missing file is
    ignored here; reading the file fails later.

    If the root is in a bucket, only files that were downloaded completely are checked: `copies`
    returns the local path for a URL. Without `copies`, no file in a bucket is checked. If the
    caller has already read a frontier, it passes the frontier as `pinned`, so that this function
    need not read that frontier again.
    """
    if copies is None and not store.is_on_disk:
        return
    known = _checked_files(store)
    new = [path for path in paths if not are_checked(store, (path,))]
    if not new:
        return
    if build not in known.sums:
        known.sums[build] = RecordedSums(store, build)
    if pinned is not None:
        known.sums[build].take(pinned)
    sums = known.sums[build].of(map(sum_name, new))
    found = _first_damaged(store, sums, new, copies)
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
    """Compares files of an archive with `sums`, their checksums. Raises Damaged if a file differs.

    The error is about the first file that differs, and has the hint `hint`. Files that this process
    has already checked are skipped. If the root is in a bucket, `copies` returns the local path for
    a URL. Without `copies`, the files are downloaded for the check.
    """
    new = [path for path in paths if not are_checked(store, (path,))]
    found = _first_damaged(store, sums, new, copies)
    if found is not None:
        path, why = found
        raise Damaged(f"file {store.name(path)} of an archive {why}", hint=hint)


def _first_damaged(
    store: Store, sums: Sums, paths: Sequence[str], copies: Callable[[str], str] | None
) -> tuple[str, str] | None:
    """Returns the path of the first damaged file and a description of the damage, or None.

    A file is damaged if it differs from its checksum in `sums`. If no file is damaged, this
    function records that all files are intact.
    """
    recorded = {path: sums[name] for path in paths if (name := sum_name(path)) in sums}
    remembered = _remembered_files(store, recorded) if store.is_on_disk else set()
    new = recorded.keys() - remembered
    if copies is None and not store.is_on_disk:
        found = dict(zip(new, ask_side_by_side(store.url, _sum_if_there, new), strict=True))
    else:
        places = {Path(path if copies is None else copies(path)): path for path in new}
        found = {places[place]: each for place, each in compute_sums(places, _sum_if_there).items()}
    for path, each in sorted(found.items()):
        if each is not None and each != recorded[path]:
            return path, describe_damage(recorded[path], each)
    if store.is_on_disk:
        _remember_files(store, {path: each for path, each in found.items() if each is not None})
    note_whole(store, paths)
    return None


def describe_damage(recorded: Sum, found: Sum | None) -> str:
    """Describes how a file differs from its stored checksum, for an error message.

    `recorded` is the stored checksum, and `found` is the checksum of the present file, or None if
    the file does not exist.
    """
    if found is None:
        return "is gone"
    (size, crc), (size_now, crc_now) = recorded, found
    return (
        f"is not as it was written: it had {size} bytes, and has {size_now}"
        if size != size_now
        else f"is not as it was written: its CRC was {crc:08x}, and is {crc_now:08x}"
    )


def _checked_files(store: Store) -> _Checked:
    return _CHECKED.setdefault(store, _Checked())


def _sum_if_there(address: str | Path) -> Sum | None:
    try:
        return sum_of(address)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(
            f"file {address} cannot be read: {error.strerror or error}",
            error,
            hint="the disk may be failing: kappa scrub reads all files",
        ) from error


def _remembered_files(store: Store, recorded: Mapping[str, Sum]) -> set[str]:
    """Returns those large files in `recorded` that need no check, because they were checked before.

    A process has checked each of these files since the machine started, and the file has the same
    size and time as at that check.
    """
    large = {path: each for path, each in recorded.items() if each[0] >= _LARGE}
    known = _read_remembered(store).files if large else {}
    return {
        path
        for path, (size, crc) in large.items()
        if (name := store.name(path)) in known and known[name] == (size, _modified_ns(path), crc)
    }


def _remember_files(store: Store, found: Mapping[str, Sum]) -> None:
    large = {path: each for path, each in found.items() if each[0] >= _LARGE}
    if not large:
        return
    files = {
        name: each
        for name, each in _read_remembered(store).files.items()
        if store.path(name).exists()
    } | {store.name(path): (size, _modified_ns(path), crc) for path, (size, crc) in large.items()}
    # A full disk makes the next process check again, and nothing worse.
    with contextlib.suppress(KappaError):
        _DOCUMENT.put(store.local, _REMEMBERED, RememberedFiles(_boot_id(), files))


def _read_remembered(store: Store) -> RememberedFiles:
    found = _DOCUMENT.get(store.local, _REMEMBERED, "the list of checked files")
    return found if found is not None and found.boot == _boot_id() else RememberedFiles(_boot_id())


def _modified_ns(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return -1


@cache
def _boot_id() -> str:
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
