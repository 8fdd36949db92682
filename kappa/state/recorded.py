"""The sums of a build's data files: their sizes and CRCs, recorded when they are committed.

A frontier carries the sums of the files that are new with it, so they are on the disk with it, at
no cost of its own. Before frontiers are deleted, all sums that are still of use are joined into one
record. Files of builds that were born before sums were recorded have none.

A CRC of 32 bits finds each flipped bit and all damage within four bytes, and misses one in four
billion of others. Nobody is kept from writing a file that fits: this is against rot, not malice.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Container, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from kappa.base.errors import Damaged, unreadable
from kappa.base.failpoint import failpoint
from kappa.state.build import tables_folder
from kappa.state.documents import Documents, NumberedRecords
from kappa.state.files.address import entries_at, gone, side_by_side, split
from kappa.state.files.bucket import is_bucket
from kappa.state.frontier import Frontier, Sum, Sums, frontier_records
from kappa.state.store import Store

_AT_ONCE = 1 << 20
# Less is summed sooner than threads begin.
_ALONE = 4 << 20
# Disks answer several readers sooner than one, and CRCs are taken beside each other.
_THREADS = min(4, os.cpu_count() or 1)


class JoinedSums(Struct, frozen=True):
    """The sums of all files of a build that were on the disk when they were joined."""

    sums: Sums
    format: int = 1


_JOINED = Documents(JoinedSums)


def sums_records(store: Store, build: str) -> NumberedRecords[JoinedSums]:
    """Returns the records of a build's joined sums: the newest counts."""
    return NumberedRecords(
        store,
        f"{tables_folder(store, build)}/sums",
        _JOINED,
        f"record {{}} of the sums of build {build}",
    )


def name_of(path: str | Path) -> str:
    """Returns the name of a data file in sums: its table's and its own."""
    table, name = str(path).rsplit("/", 2)[1:]
    return f"{table}/{name}"


def sum_of(path: str | Path, *, from_disk: bool = False) -> Sum:
    """Reads a file and returns its sum. Raises OSError.

    `from_disk`: what the machine has in its memory of the file is left alone, if it can be.
    """
    buffer = memoryview(bytearray(_AT_ONCE))
    size = crc = 0
    with Path(path).open("rb", buffering=0) as file:
        if from_disk:
            _forget(file.fileno())
        while count := file.readinto(buffer):
            size, crc = size + count, zlib.crc32(buffer[:count], crc)
    return size, crc


def summed(paths: Iterable[Path], take: Callable[[Path], Sum | None]) -> dict[Path, Sum | None]:
    """Returns what `take` returns for each path, beside each other if the files are large."""
    paths = list(paths)
    if sum(_size(path) for path in paths) < _ALONE:
        return {path: take(path) for path in paths}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="sums") as threads:
        return dict(zip(paths, threads.map(take, paths), strict=True))


# The sums of files that this process has put to buckets, and has not published yet.
_PUT: dict[str, Sum] = {}
_MOST_PUT = 10_000


def note_put_file(url: str, path: Path) -> None:
    """Notes the sum of a file that is put to a bucket next. Raises OSError."""
    if is_bucket(url):
        _PUT[url] = sum_of(path)
        for oldest in list(_PUT)[:-_MOST_PUT]:
            _PUT.pop(oldest, None)


def sum_of_object(url: str) -> Sum:
    """Reads an object of a bucket whole. Raises OSError if it is gone, or KappaError."""
    bucket, name = split(url)
    found = bucket.pieces(name)
    if found is None:
        raise gone(url)
    size = crc = 0
    for piece in found[1]:
        size, crc = size + len(piece), zlib.crc32(piece, crc)
    return size, crc


def sums_in_bucket(root: str, urls: Iterable[str]) -> Sums:
    """Returns the sums of files that this build's job has just committed to a bucket.

    Those that this host has put are known; what delta-rs and Spark have put is read back, beside
    each other. Raises Damaged if one is gone.
    """

    def found(url: str) -> tuple[str, Sum]:
        known = _PUT.pop(url, None)
        try:
            return name_of(url), sum_of_object(url) if known is None else known
        except FileNotFoundError as error:
            raise Damaged(
                f"file {url} is gone",
                hint="the job is started again, and takes its commit back",
            ) from error

    return dict(side_by_side(root, found, urls))


def new_sums(paths: Iterable[Path]) -> Sums:
    """Returns the sums of files that were just written. Raises Damaged if one is gone."""
    try:
        found = summed(paths, sum_of)
    except OSError as error:
        raise unreadable(
            f"file {error.filename} cannot be read: {error.strerror or error}",
            error,
            hint="the job is started again, and takes its commit back",
        ) from error
    return {name_of(path): each for path, each in found.items() if each is not None}


class RecordedSums:
    """The sums of one build's files, as far as they were read."""

    def __init__(self, store: Store, build: str) -> None:
        """Reads nothing yet."""
        self._store = store
        self._frontiers = frontier_records(store, build)
        self._joined = sums_records(store, build)
        # The number of the frontier that was read last.
        self._last_read = 0
        # The newest joined sums that were read or put, and their number.
        self._last_joined: tuple[int, Sums] = (0, {})
        self._known: dict[str, Sum] = {}

    def of(self, names: Iterable[str]) -> Sums:
        """Returns the sums of these files, without those that have none."""
        wanted = set(names)
        # Frontiers first: those that are deleted meanwhile have been joined by then. A reader of
        # each slice finds the next one without a list of all; in a bucket it has the one pinned.
        first = (self._read_next,) if self._store.is_on_disk else ()
        for read in (*first, self._read_frontiers, self._read_joined):
            if not self._known.keys() >= wanted:
                read()
        return {name: self._known[name] for name in wanted if name in self._known}

    def all(self) -> Sums:
        """Returns all sums."""
        self._read_frontiers()
        self._read_joined()
        return self._known

    def take(self, frontier: Frontier) -> None:
        """Takes the sums of a frontier that was read already."""
        self._known.update(frontier.sums)
        if frontier.number == self._last_read + 1:
            self._last_read = frontier.number

    def join(self, there: Container[str]) -> None:
        """Joins the sums of the files that are there into a record, if the last one has others.

        Raises Damaged if a record that was newer is gone.
        """
        noted = self._joined.noted()
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
            # One that is damaged is for `kappa doctor`; the newest one refuses its readers.
            with suppress(Damaged):
                found = self._frontiers.get(number)
                return {} if found is None else found.sums
            return {}

        numbers = self._frontiers.numbers(after=self._last_read)
        for each in side_by_side(self._store.url, sums, numbers):
            self._known.update(each)
        self._last_read = max((self._last_read, *numbers))


def join_sums(store: Store, build: str, recorded: RecordedSums | None = None) -> None:
    """Joins the sums of the files that are there, so that frontiers may be deleted.

    The caller holds the build's lock, and may have read the sums that are `recorded`.
    """
    tables = store.address(f"{tables_folder(store, build)}/tables")
    there = {name_of(each.address) for each in entries_at(tables) if not each.is_folder}
    (recorded or RecordedSums(store, build)).join(there)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _forget(handle: int) -> None:
    with suppress(AttributeError, OSError):
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
