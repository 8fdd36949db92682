"""The files of a root by path or URL, as Delta names them: for tables, which know no store.

A URL is of a bucket that this process has opened. A path is of the disk, whose files are used by
the calls of the machine.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kappa.base.disk import delete_file as delete_from_disk
from kappa.base.disk import put_file
from kappa.base.errors import KappaError
from kappa.base.section.storage import StorageSettings
from kappa.state.files.bucket import (
    AT_ONCE,
    Bucket,
    is_bucket,
    is_plain,
    patience_here,
    region_of,
)
from kappa.state.files.credentials import keys_of_environment
from kappa.state.files.ranged_file import RangedFile
from kappa.state.files.refused import NOT_LET_IN

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
# By the URL of a root: what this process has opened, last if twice.
_OPENED: dict[str, Bucket] = {}
# As delta-rs writes the errors of requests.
_OF_SERVER = "Generic S3 error"
# As delta-rs calls an answer 401 or 403.
_REFUSED = "The operation lacked"
# How many requests wait for their answers at once.
_BESIDE = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or a folder of the disk, which alone has folders that can be empty.

    `size` is in bytes, `changed_at` in seconds since 1970.
    """

    address: str
    size: int
    changed_at: float
    is_folder: bool = False


def open_bucket(url: str, storage: StorageSettings) -> Bucket:
    """Opens the root at a URL for this process: its files are known by their URLs from now on."""
    bucket = Bucket(url, storage)
    _OPENED[bucket.url] = bucket
    return bucket


def opened_buckets() -> tuple[Bucket, ...]:
    """Returns the buckets that this process has opened."""
    return tuple(_OPENED.values())


def ways_to_buckets() -> tuple[tuple[str, StorageSettings], ...]:
    """Returns the buckets that this process has opened, for another to open them."""
    return tuple((each.url, each.storage) for each in opened_buckets())


def open_buckets(ways: Iterable[tuple[str, StorageSettings]]) -> None:
    """Opens buckets for this process that another has opened, unless it has them already."""
    for url, storage in ways:
        if url not in _OPENED or _OPENED[url].storage != storage:
            open_bucket(url, storage)


def delta_options(address: str) -> dict[str, str] | None:
    """Returns the storage options of a table as delta-rs takes them; None: it is on the disk.

    The credentials are not among them: delta-rs takes those of the environment, or goes through
    the usual chain itself. So a table that is open for long goes on with newer ones.
    """
    if not is_bucket(address):
        return None
    bucket, _ = split(address)
    storage, patience = bucket.storage, patience_here()
    return {
        # By itself it gives up a server that refuses connections after four seconds, and waits for
        # three minutes for one that is silent.
        "retry_timeout": f"{patience.again}s",
        "timeout": f"{patience.answer}s",
        "connect_timeout": f"{patience.connection}s",
        "max_retries": "1000",
        "backoff_config.max_backoff": "2s",
        "aws_region": region_of(storage),
        "aws_virtual_hosted_style_request": str(not storage.path_style).lower(),
        "aws_allow_http": str(is_plain(storage)).lower(),
        "aws_conditional_put": "etag",
        # Else of a server that is not Amazon's it knows no profile, and half of a container's ways.
        **({} if keys_of_environment() else {"aws_force_credential_load": "true"}),
        **({} if bucket.endpoint is None else {"aws_endpoint_url": bucket.endpoint}),
    }


def hint_of_server(error: Exception) -> str | None:
    """Returns the hint for an error of delta-rs about a request that failed.

    Returns None for any other error: that one is about a file.
    """
    told = str(error)
    if _REFUSED in told:
        return NOT_LET_IN
    return "see whether the S3 server can be reached" if _OF_SERVER in told else None


def read_file(address: str) -> bytes:
    """Reads a file. Raises OSError if it does not exist, or cannot be read from a disk."""
    if not is_bucket(address):
        return Path(address).read_bytes()
    bucket, name = split(address)
    found = bucket.get(name)
    if found is None:
        raise gone(address)
    return found


def write_file(address: str, content: bytes) -> None:
    """Writes a file whole, in place of any that exists; it survives a power loss."""
    if is_bucket(address):
        bucket, name = split(address)
        bucket.put(name, content, new=False, synced=True)
    else:
        put_file(Path(address), content)


def put_new_file(address: str, content: bytes) -> bool:
    """Writes a file whole. Returns False, and changes nothing, if there is one.

    No claim is looked at, and on a disk it is not synced: as files that delta-rs writes. Raises
    OSError, or KappaError of a bucket.
    """
    if is_bucket(address):
        bucket, name = split(address)
        return bucket.put_over(name, content, None)
    return put_file(Path(address), content, new=True, synced=False)


def exists(address: str) -> bool:
    """Returns True if there is a file at an address."""
    if not is_bucket(address):
        return Path(address).exists()
    bucket, name = split(address)
    return bucket.meta(name) is not None


def changed_at(address: str) -> float | None:
    """Returns when a file was written, in seconds since 1970, or None if there is none."""
    if is_bucket(address):
        bucket, name = split(address)
        meta = bucket.meta(name)
        return None if meta is None else meta["last_modified"].timestamp()
    with suppress(FileNotFoundError):
        return Path(address).stat().st_mtime
    return None


def readable(address: str) -> str | RangedFile:
    """Returns a file as Arrow reads it: a path, or an object of a bucket by its parts.

    Raises OSError if the object does not exist.
    """
    if not is_bucket(address):
        return address
    bucket, name = split(address)
    meta = bucket.meta(name)
    if meta is None:
        raise gone(address)
    return RangedFile(bucket, name, meta["size"])


def files_in(folder: str) -> list[str]:
    """Lists the names of the files that are directly in a folder; none if it does not exist."""
    if is_bucket(folder):
        bucket, name = split(folder)
        return bucket.names_in(name)
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]
    except FileNotFoundError:
        return []


def folders_in(folder: str) -> list[str]:
    """Lists the names of the folders that are directly in a folder; none if it does not exist."""
    if is_bucket(folder):
        bucket, name = split(folder)
        return bucket.folders_in(name)
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def entries_at(folder: str) -> Iterator[Entry]:
    """Yields a folder and all at any depth below it; nothing if it does not exist.

    What is deleted meanwhile may be left out.
    """
    if is_bucket(folder):
        bucket, name = split(folder)
        for each in bucket.metas(name):
            changed_at = each["last_modified"].timestamp()
            yield Entry(bucket.address(each["path"]), each["size"], changed_at)
        return
    with suppress(FileNotFoundError):
        yield Entry(folder, 0, Path(folder).stat().st_mtime, is_folder=True)
        yield from _below(folder)


def _below(folder: str) -> Iterator[Entry]:
    with os.scandir(folder) as entries:
        for each in entries:
            with suppress(FileNotFoundError):
                is_folder = each.is_dir(follow_symlinks=False)
                found = each.stat(follow_symlinks=False)
                yield Entry(each.path, 0 if is_folder else found.st_size, found.st_mtime, is_folder)
                if is_folder:
                    yield from _below(each.path)


def side_by_side(
    root: str, ask: Callable[[_Asked], _Answer], each: Iterable[_Asked]
) -> list[_Answer]:
    """Returns the answers about what is below a root, in order; a bucket is asked side by side."""
    each = list(each)
    if len(each) < 2 or not is_bucket(root):
        return [ask(one) for one in each]
    # The first is asked here: that is a thread less.
    with ThreadPoolExecutor(_BESIDE, thread_name_prefix="requests") as threads:
        others = threads.map(ask, each[1:])
        try:
            return [ask(each[0]), *others]
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def together(root: str, *asks: Callable[[], Any]) -> list[Any]:
    """Returns what each of several calls about what is below a root answers, as above."""
    return side_by_side(root, lambda ask: ask(), asks)


def delete_file(address: str) -> None:
    """Deletes a file; one that is not there is deleted already. Raises KappaError."""
    if is_bucket(address):
        bucket, name = split(address)
        bucket.delete([name])
    else:
        delete_from_disk(Path(address))


def deleted_at_once(addresses: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields files in parts that `delete_files` takes: a process may die between any two.

    A part is a request to a bucket, or one file of the disk. Those of the disk are first.
    """
    every = list(addresses)
    yield from ((each,) for each in every if not is_bucket(each))
    in_bucket = [each for each in every if is_bucket(each)]
    for start in range(0, len(in_bucket), AT_ONCE):
        yield tuple(in_bucket[start : start + AT_ONCE])


def delete_files(addresses: Sequence[str]) -> None:
    """Deletes a part of files as `deleted_at_once` yields it. Raises KappaError."""
    if len(addresses) == 1:
        delete_file(addresses[0])
        return
    places = [split(each) for each in addresses]
    places[0][0].delete([name for _, name in places])


def delete_scratch(address: str) -> None:
    """Deletes a folder of what is needed no more, if it can: who comes next deletes it, too."""
    with suppress(KappaError):
        delete_folder(address)


def delete_folder(address: str) -> None:
    """Deletes a folder with all that is in it: of a disk, as far as it can be deleted."""
    if is_bucket(address):
        for part in deleted_at_once(each.address for each in entries_at(address)):
            delete_files(part)
    else:
        shutil.rmtree(address, ignore_errors=True)


def gone(address: str) -> FileNotFoundError:
    """Returns the error of a file that does not exist (any more)."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), address)


def split(address: str) -> tuple[Bucket, str]:
    """Returns the opened bucket that an address is in, and the name there."""
    root = max(root for root in _OPENED if address.startswith(f"{root}/"))
    return _OPENED[root], address.removeprefix(f"{root}/")
