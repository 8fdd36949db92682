"""The files of a root by path or URL, as Delta names files: for tables, which know no store.

A URL is in a bucket that this process has opened. A path is on the disk, and its file is used by
the calls of the machine.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from kappa.base.disk import delete_file as delete_from_disk
from kappa.base.disk import link_file, put_file
from kappa.base.errors import KappaError
from kappa.base.sections import StorageSettings
from kappa.state.files.bucket import (
    AT_ONCE,
    GIVE_SPACE,
    NOT_LET_IN,
    Bucket,
    RangedFile,
    is_bucket,
    is_full,
    is_plain_http,
    patience_here,
    region_of,
)
from kappa.state.files.credentials import keys_of_environment

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")
# The buckets that this process has opened, by the URL of the root; the last if opened twice.
_OPENED: dict[str, Bucket] = {}
# As delta-rs writes the errors of requests.
_OF_SERVER = "Generic S3 error"
# As delta-rs calls an answer 401 or 403.
_REFUSED = "The operation lacked"
# How many requests wait for their answers at once.
_BESIDE = 8


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file; or a folder of the disk, since only folders of a disk can be empty.

    `size` is in bytes, `changed_at` in seconds since 1970.
    """

    address: str
    size: int
    changed_at: float
    is_folder: bool = False


def open_bucket(url: str, storage: StorageSettings) -> Bucket:
    """Opens the root at a URL for this process, which from now on knows its files by URL."""
    bucket = Bucket(url, storage)
    _OPENED[bucket.url] = bucket
    return bucket


def opened_buckets() -> tuple[Bucket, ...]:
    """Returns the buckets that this process has opened."""
    return tuple(_OPENED.values())


def opened_bucket_settings() -> tuple[tuple[str, StorageSettings], ...]:
    """Returns the URLs and settings with which another process can open the same buckets."""
    return tuple((each.url, each.storage) for each in opened_buckets())


def open_buckets(ways: Iterable[tuple[str, StorageSettings]]) -> None:
    """Opens buckets that another process has opened, unless this process has them open."""
    for url, storage in ways:
        if url not in _OPENED or _OPENED[url].storage != storage:
            open_bucket(url, storage)


def delta_options(address: str) -> dict[str, str] | None:
    """Returns a table's storage options for delta-rs, or None if the table is on the disk.

    Credentials are not among the options: delta-rs takes the credentials of the environment, or
    goes through the usual chain by itself. So a table that is open for long continues with newer
    credentials.
    """
    if not is_bucket(address):
        return None
    bucket, _ = bucket_and_name(address)
    storage, patience = bucket.storage, patience_here()
    return {
        # By default delta-rs gives up after four seconds if a server refuses connections, and waits
        # for three minutes if a server is silent.
        "retry_timeout": f"{patience.again}s",
        "timeout": f"{patience.answer}s",
        "connect_timeout": f"{patience.connection}s",
        "max_retries": "1000",
        "backoff_config.max_backoff": "2s",
        "aws_region": region_of(storage),
        "aws_virtual_hosted_style_request": str(not storage.path_style).lower(),
        "aws_allow_http": str(is_plain_http(storage)).lower(),
        "aws_conditional_put": "etag",
        # Else delta-rs reads no profile, and half of a container's ways, for servers not Amazon's.
        **({} if keys_of_environment() else {"aws_force_credential_load": "true"}),
        **({} if bucket.endpoint is None else {"aws_endpoint_url": bucket.endpoint}),
    }


def hint_of_server(error: Exception) -> str | None:
    """Returns the hint for an error of delta-rs about a request that failed.

    Returns None for any other error: that one is about a file.
    """
    told = str(error)
    if is_full(told):
        return GIVE_SPACE
    if _REFUSED in told:
        return NOT_LET_IN
    return "see whether the S3 server can be reached" if _OF_SERVER in told else None


def read_file(address: str) -> bytes:
    """Reads a file. Raises OSError if the file does not exist, or cannot be read from a disk."""
    if not is_bucket(address):
        return Path(address).read_bytes()
    bucket, name = bucket_and_name(address)
    found = bucket.get(name)
    if found is None:
        raise missing_file_error(address)
    return found


def write_file(address: str, content: bytes) -> None:
    """Writes a file whole, in place of any existing file; the file survives a power loss."""
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        bucket.put(name, content, new=False, synced=True)
    else:
        put_file(Path(address), content)


def put_new_file(address: str, content: bytes) -> bool:
    """Writes a file whole. Returns False, and changes nothing, if the file exists.

    No claim is checked, and on a disk the file is not synced: the same holds for files that
    delta-rs writes. Raises OSError, or KappaError of a bucket.
    """
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        return bucket.put_if_tag(name, content, None)
    return put_file(Path(address), content, new=True, synced=False)


def file_exists(address: str) -> bool:
    """Returns True if there is a file at an address."""
    if not is_bucket(address):
        return Path(address).exists()
    bucket, name = bucket_and_name(address)
    return bucket.object_meta(name) is not None


def changed_at(address: str) -> float | None:
    """Returns when a file was written, in seconds since 1970, or None if no file exists."""
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        meta = bucket.object_meta(name)
        return None if meta is None else meta["last_modified"].timestamp()
    with suppress(FileNotFoundError):
        return Path(address).stat().st_mtime
    return None


def arrow_source(address: str) -> str | RangedFile:
    """Returns a file as Arrow reads files: a path, or an object of a bucket that is read in parts.

    Raises OSError if the object does not exist.
    """
    if not is_bucket(address):
        return address
    bucket, name = bucket_and_name(address)
    meta = bucket.object_meta(name)
    if meta is None:
        raise missing_file_error(address)
    return RangedFile(bucket, name, meta["size"])


def files_in(folder: str) -> list[str]:
    """Lists the names of the files that are directly in a folder; [] if no folder exists."""
    if is_bucket(folder):
        bucket, name = bucket_and_name(folder)
        return bucket.names_in(name)
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]
    except FileNotFoundError:
        return []


def folders_in(folder: str) -> list[str]:
    """Lists the names of the folders that are directly in a folder; [] if no folder exists."""
    if is_bucket(folder):
        bucket, name = bucket_and_name(folder)
        return bucket.folders_in(name)
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def entries_at(folder: str) -> Iterator[FileEntry]:
    """Yields a folder and all entries at any depth below, or nothing if the folder does not exist.

    An entry that is deleted meanwhile may be left out.
    """
    if is_bucket(folder):
        bucket, name = bucket_and_name(folder)
        for each in bucket.list_metas(name):
            changed_at = each["last_modified"].timestamp()
            yield FileEntry(bucket.address(each["path"]), each["size"], changed_at)
        return
    with suppress(FileNotFoundError):
        yield FileEntry(folder, 0, Path(folder).stat().st_mtime, is_folder=True)
        yield from _entries_below(folder)


def _entries_below(folder: str) -> Iterator[FileEntry]:
    with os.scandir(folder) as entries:
        for each in entries:
            with suppress(FileNotFoundError):
                is_folder = each.is_dir(follow_symlinks=False)
                found = each.stat(follow_symlinks=False)
                yield FileEntry(
                    each.path, 0 if is_folder else found.st_size, found.st_mtime, is_folder
                )
                if is_folder:
                    yield from _entries_below(each.path)


def ask_side_by_side(
    root: str, ask: Callable[[_Asked], _Answer], each: Iterable[_Asked]
) -> list[_Answer]:
    """Returns the answer of `ask` for each item below a root, in order.

    A bucket is asked for several items at the same time, a disk for one item after the other.
    """
    each = list(each)
    if len(each) < 2 or not is_bucket(root):
        return [ask(one) for one in each]
    # This thread asks for the first item, so one thread less is needed.
    with ThreadPoolExecutor(_BESIDE, thread_name_prefix="requests") as threads:
        others = threads.map(ask, each[1:])
        try:
            return [ask(each[0]), *others]
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def ask_together(root: str, *asks: Callable[[], Any]) -> list[Any]:
    """Returns the answers of several calls about a root, made as by `side_by_side`."""
    return ask_side_by_side(root, lambda ask: ask(), asks)


def delete_file(address: str) -> None:
    """Deletes a file; a missing file counts as deleted. Raises KappaError."""
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        bucket.delete([name])
    else:
        delete_from_disk(Path(address))


def deletion_parts(addresses: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields files in parts that `delete_files` takes; a process may die between two parts.

    A part is the files of one request to a bucket, or one file of the disk. Parts of the disk come
    first.
    """
    every = list(addresses)
    yield from ((each,) for each in every if not is_bucket(each))
    in_bucket = [each for each in every if is_bucket(each)]
    for start in range(0, len(in_bucket), AT_ONCE):
        yield tuple(in_bucket[start : start + AT_ONCE])


def delete_files(addresses: Sequence[str]) -> None:
    """Deletes one part of the files, as `deletion_parts` yields them. Raises KappaError."""
    if len(addresses) == 1:
        delete_file(addresses[0])
        return
    places = [bucket_and_name(each) for each in addresses]
    places[0][0].delete([name for _, name in places])


def delete_scratch(address: str) -> None:
    """Deletes a folder of temporary files, if possible: the next owner tries again."""
    with suppress(KappaError):
        delete_folder(address)


def delete_folder(address: str) -> None:
    """Deletes a folder with its content.

    On a disk, files stay that the machine does not let this process delete.
    """
    if is_bucket(address):
        for part in deletion_parts(each.address for each in entries_at(address)):
            delete_files(part)
    else:
        shutil.rmtree(address, ignore_errors=True)


def missing_file_error(address: str) -> FileNotFoundError:
    """Returns the error of a file that does not exist (any more)."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), address)


def bucket_and_name(address: str) -> tuple[Bucket, str]:
    """Returns the opened bucket that an address is in, and the object's name there.

    The name is "" for the whole of an opened prefix.
    """
    root = max(root for root in _OPENED if f"{address}/".startswith(f"{root}/"))
    return _OPENED[root], address.removeprefix(root).removeprefix("/")


@contextmanager
def writing_file(address: str) -> Iterator[Path]:
    """Gives a local path to write to; after the block the file is at the address.

    The file is there whole, or not at all if the block fails.
    """
    path = Path(address)
    if not is_bucket(address):
        # Spark, Arrow and DuckDB take no file that begins so for data; a lost task writes on.
        hidden = path.with_name(f"_{secrets.token_hex(4)}-{path.name}")
        hidden.parent.mkdir(parents=True, exist_ok=True)
        yield hidden
        hidden.replace(path)
        return
    with tempfile.TemporaryDirectory(prefix="kappa-") as folder:
        written = Path(folder) / path.name
        yield written
        place_file(written, address)


def copy_file(address: str, to: str) -> None:
    """Copies a file, whole, to another root. Raises OSError if the file does not exist."""
    with writing_file(to) as path:
        if is_bucket(address):
            fetch_file(address, path)
        else:
            shutil.copyfile(address, path)


def place_file(path: Path, address: str) -> None:
    """Moves a file that this host has written to an address, which may be its own path."""
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        bucket.put_file(name, path)
        delete_from_disk(path)
    else:
        path.replace(address)


def put_data_file(path: Path, url: str) -> None:
    """Copies a table's file, whose name is random, to a bucket, without a check of the claim."""
    bucket, name = bucket_and_name(url)
    bucket.put_file(name, path, claimed=False)


def share_file(address: str, to: str) -> None:
    """Gives a file that never changes a second name; each name is deleted by itself.

    On a disk the second name is a link, or a copy if the disk has no links. In a bucket the server
    copies the file, and from a bucket to the disk the file is fetched. Raises FileNotFoundError if
    the file does not exist (any more), and OSError if the disk has no room.
    """
    if not is_bucket(to):
        Path(to).parent.mkdir(parents=True, exist_ok=True)
        if is_bucket(address):
            fetch_file(address, Path(to))
        else:
            link_file(Path(address), Path(to))
        return
    bucket, name = bucket_and_name(address)
    into, copy_name = bucket_and_name(to)
    assert into is bucket, f"{to} is below another root than {address}"
    if not bucket.copy(name, copy_name):
        raise missing_file_error(address)


def _any_room(_: int) -> None:
    """Accepts any size."""


def _is_wanted() -> None:
    """Allows the rest of a file to be fetched."""


def fetch_file(
    url: str,
    to: Path,
    take_room: Callable[[int], None] = _any_room,
    go_on: Callable[[], None] = _is_wanted,
) -> None:
    """Copies a file of a bucket to the disk, after `take_room` has accepted its size in bytes.

    `go_on` is called before each piece, and an error that `go_on` raises ends the transfer. Raises
    FileNotFoundError if the file does not exist (any more), OSError if the copy cannot be written,
    and KappaError if the file cannot be read.
    """
    bucket, name = bucket_and_name(url)
    found = bucket.read_pieces(name)
    if found is None:
        raise missing_file_error(url)
    size, pieces = found
    take_room(size)
    with to.open("wb") as file:
        for piece in pieces:
            go_on()
            file.write(piece)
