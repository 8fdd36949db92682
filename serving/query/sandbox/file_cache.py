"""A cache of a bucket's files on this host's disk, for queries.

Queries run in confined processes, which cannot connect to the bucket. A data file never changes, so
a fetched file remains valid while it is cached. A file is stored under the digest of its URL. Files
that no query reads are deleted to make room for others, the least recently used first. The cache
folder may be lost at any time. Each query has a separate folder, with links to the files that the
query reads, under their names in the root: the process of the query may read no other files.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

from kappa.base.disk import link_file
from kappa.base.errors import KappaError
from kappa.base.process import boot
from kappa.base.temporary_folders import QUERY, make_folder
from kappa.base.units import parse_memory, size
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.errors import TooMuch
from kappa.state.files.address import fetch_file
from kappa.state.store import Store

_FOLDER = "fetched"
_NAME = re.compile("[0-9a-f]{64}")
# Requests take longer than the transfer of their bytes.
_AT_ONCE = 8


class FilesInPlace:
    """The files of a root on this host's disk, which queries read in the root itself."""

    # If given, the query's process may read all files below this folder, and no others.
    folder: Path | None = None

    def local_path(self, address: str) -> str:
        """Returns the path at which a query's process reads a file.

        `address` is the path or URL of the file in the root.
        """
        return address

    def fetch_files(self, addresses: Iterable[str], client: Client) -> None:
        """Does nothing, because all files of the root are on this host already.

        A subclass fetches the files from a bucket. It skips a file that no longer exists, because
        the query itself reports the missing file. It raises KappaError if a file cannot be fetched,
        and ClientLeft if the client leaves before all files have been fetched.
        """

    def drop_files(self, addresses: Iterable[str]) -> None:
        """Makes the next query fetch these files again.

        Does nothing if the files are not in a cache.
        """


class FileCache:
    """The files of a root in a bucket that this host keeps. Any thread may use the cache."""

    def __init__(self, store: Store) -> None:
        """Lists the files in the cache's folder, and deletes files from before a reboot."""
        self.root = f"{store.url}/"
        every = store.local.path(_FOLDER)
        # Fetched files are not synced: after a power loss a file may be torn.
        self.folder = every / boot()
        for path in every.glob("*"):
            if path != self.folder:
                shutil.rmtree(path, ignore_errors=True)
        self._most = parse_memory(store.storage.cache)
        # The file that was used last is the last. A file on its way has its room already.
        self._sizes: dict[str, int] = {}
        self._users = Counter[str]()
        self._coming: set[str] = set()
        self._changes = threading.Condition()
        there = [each for each in self.folder.glob("*") if _NAME.fullmatch(each.name)]
        for each in sorted(there, key=lambda path: path.stat().st_mtime_ns):
            self._sizes[each.name] = each.stat().st_size
        self._bytes = sum(self._sizes.values())

    def bring_file(self, url: str, place: Path, client: Client) -> str:
        """Makes a file of the bucket available at the path `place`.

        Returns the file's name in the cache. The file stays in use until this name is passed to
        `release_files`. Raises ClientLeft as soon as the client leaves.
        """
        name = hashlib.sha256(url.encode()).hexdigest()
        kept = self.folder / name
        with self._changes:
            self._changes.wait_for(lambda: name not in self._coming)
            if self._link_kept_file(name, kept, place):
                return name
            self._coming.add(name)
            self._users[name] += 1
        try:
            fetch_file(url, place, partial(self._take_room, name), client.ensure_here)
            link_file(place, kept)
        except BaseException:
            with self._changes:
                self._bytes -= self._sizes.pop(name, 0)
            self.release_files([name])
            raise
        finally:
            with self._changes:
                self._coming.remove(name)
                self._changes.notify_all()
        return name

    def drop_file(self, url: str) -> None:
        """Deletes a file from the cache, so that the next query fetches the file again."""
        name = hashlib.sha256(url.encode()).hexdigest()
        with self._changes:
            (self.folder / name).unlink(missing_ok=True)
            self._bytes -= self._sizes.pop(name, 0)

    def release_files(self, names: Iterable[str]) -> None:
        """Records that a query which has ended no longer uses the named files."""
        with self._changes:
            self._users.subtract(names)
            self._users = +self._users

    def _link_kept_file(self, name: str, kept: Path, place: Path) -> bool:
        if name not in self._sizes:
            return False
        try:
            link_file(kept, place)
        except FileNotFoundError:
            # Somebody has deleted the file.
            self._bytes -= self._sizes.pop(name)
            return False
        self._sizes[name] = self._sizes.pop(name)
        self._users[name] += 1
        return True

    def _take_room(self, name: str, wanted: int) -> None:
        with self._changes:
            for each in [each for each in self._sizes if not self._users[each]]:
                if self._bytes + wanted <= self._most:
                    break
                (self.folder / each).unlink(missing_ok=True)
                self._bytes -= self._sizes.pop(each)
            if self._bytes + wanted > self._most:
                raise TooMuch(
                    f"the files that queries read now have more than {size(self._most)}",
                    hint="storage.cache in kappa.toml lets this host keep more; kappa query reads "
                    "parts of files, where they are",
                )
            self._sizes[name] = wanted
            self._bytes += wanted


class QueryFiles(FilesInPlace):
    """The files of a root in a bucket, linked into a separate folder for one query."""

    def __init__(self, fetched: FileCache) -> None:
        """Creates the folder of the query."""
        self.folder: Path = make_folder(fetched.folder, QUERY)
        self._fetched = fetched
        self._used: list[str] = []

    def local_path(self, address: str) -> str:
        """Returns the path of a fetched file in the query's folder.

        `address` is the URL of the file in the bucket.
        """
        return str(self.folder / address.removeprefix(self._fetched.root))

    def fetch_files(self, addresses: Iterable[str], client: Client) -> None:
        """Fetches the files that this host lacks, and links all files into the query's folder."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="fetch") as threads:
            asked = [threads.submit(self._fetch_file, each, client) for each in {*addresses}]
            try:
                for each in asked:
                    each.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def drop_files(self, addresses: Iterable[str]) -> None:
        """Makes the next query fetch these files again.

        Does nothing if the files are not in a cache.
        """
        for each in addresses:
            self._fetched.drop_file(each)

    def _fetch_file(self, address: str, client: Client) -> None:
        client.ensure_here()
        place = Path(self.local_path(address))
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._used.append(self._fetched.bring_file(address, place, client))
        except FileNotFoundError:
            return
        except OSError as error:
            raise KappaError(
                f"no file can be kept in {self.folder}: {error.strerror or error}",
                hint="see whether the disk is full; local in kappa.toml is another folder",
            ) from error

    def delete_folder(self) -> None:
        """Deletes the folder of the query, and marks its files as no longer used."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._fetched.release_files(self._used)


_FETCHED: WeakKeyDictionary[Store, FileCache] = WeakKeyDictionary()
_changes = threading.Lock()


@contextmanager
def files_for_query(store: Store) -> Iterator[FilesInPlace]:
    """Yields the files of a root for one query, which runs within the block."""
    if store.is_on_disk:
        yield FilesInPlace()
        return
    with _changes:
        if store not in _FETCHED:
            _FETCHED[store] = FileCache(store)
    lent = QueryFiles(_FETCHED[store])
    try:
        yield lent
    finally:
        lent.delete_folder()
