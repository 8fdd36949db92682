"""Access to the files of a root by path or URL, for modules that have no Store object.

Delta tables identify files in the same form. A URL must be in a bucket that this process has
opened. A path is on the local disk.
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
    """A file, or a folder on a disk (a bucket has no folders).

    `size` is in bytes, and `changed_at` in seconds since 1970.
    """

    address: str
    size: int
    changed_at: float
    is_folder: bool = False


def open_bucket(url: str, storage: StorageSettings) -> Bucket:
    """Opens the root at a URL of a bucket.

    After that, the functions of this module accept the URLs of the root's files.
    """
    bucket = Bucket(url, storage)
    _OPENED[bucket.url] = bucket
    return bucket


def opened_buckets() -> tuple[Bucket, ...]:
    """Returns the buckets that this process has opened."""
    return tuple(_OPENED.values())


def opened_bucket_settings() -> tuple[tuple[str, StorageSettings], ...]:
    """Returns (URL, settings) for each bucket that this process has opened.

    With these pairs, another process can open the same buckets (`open_buckets`).
    """
    return tuple((each.url, each.storage) for each in opened_buckets())


def open_buckets(ways: Iterable[tuple[str, StorageSettings]]) -> None:
    """Opens buckets, each given by the URL of a root and the settings of the bucket's server.

    Another process got `ways` from `opened_bucket_settings`. Buckets that are already open with
    these settings are skipped.
    """
    for url, storage in ways:
        if url not in _OPENED or _OPENED[url].storage != storage:
            open_bucket(url, storage)


def delta_options(address: str) -> dict[str, str] | None:
    """Returns a table's storage options for delta-rs, or None if the table is on the disk.

    The options contain no credentials: delta-rs itself reads them from the environment, or from
    Amazon's credential chain. So a table that stays open for a long time can use renewed
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
    """Returns a hint for an error of delta-rs if the error is due to a failed request to a server.

    Returns None for any other error.
    """
    told = str(error)
    if is_full(told):
        return GIVE_SPACE
    if _REFUSED in told:
        return NOT_LET_IN
    return "see whether the S3 server can be reached" if _OF_SERVER in told else None


def read_file(address: str) -> bytes:
    """Returns the content of a file.

    Raises OSError if the file does not exist or cannot be read from a disk, and KappaError if it
    cannot be read from a bucket.
    """
    if not is_bucket(address):
        return Path(address).read_bytes()
    bucket, name = bucket_and_name(address)
    found = bucket.get(name)
    if found is None:
        raise missing_file_error(address)
    return found


def write_file(address: str, content: bytes) -> None:
    """Writes a file as a whole or not at all. An existing file is replaced.

    After the function returns, the file survives a power loss.
    """
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        bucket.put(name, content, new=False, synced=True)
    else:
        put_file(Path(address), content)


def put_new_file(address: str, content: bytes) -> bool:
    """Creates a file as a whole or not at all. Returns False if the file already exists.

    If False is returned, nothing has changed. Two precautions are left out here, as for files that
    delta-rs writes: the claim is not checked, and a file on a disk is not synced. Raises OSError if
    a file on a disk cannot be written, and KappaError if a file in a bucket cannot be written.
    """
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        return bucket.put_if_tag(name, content, None)
    return put_file(Path(address), content, new=True, synced=False)


def file_exists(address: str) -> bool:
    """Returns True if a file exists at a path or URL."""
    if not is_bucket(address):
        return Path(address).exists()
    bucket, name = bucket_and_name(address)
    return bucket.object_meta(name) is not None


def changed_at(address: str) -> float | None:
    """Returns the time when a file was written, in seconds since 1970.

    Returns None if the file does not exist.
    """
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        meta = bucket.object_meta(name)
        return None if meta is None else meta["last_modified"].timestamp()
    with suppress(FileNotFoundError):
        return Path(address).stat().st_mtime
    return None


def arrow_source(address: str) -> str | RangedFile:
    """Returns a file in a form that Arrow can open: a path, or an object that is read in parts.

    Raises OSError if the object does not exist in its bucket.
    """
    if not is_bucket(address):
        return address
    bucket, name = bucket_and_name(address)
    meta = bucket.object_meta(name)
    if meta is None:
        raise missing_file_error(address)
    return RangedFile(bucket, name, meta["size"])


def files_in(folder: str) -> list[str]:
    """Returns the names of the files directly in a folder, or [] if the folder does not exist."""
    if is_bucket(folder):
        bucket, name = bucket_and_name(folder)
        return bucket.names_in(name)
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]
    except FileNotFoundError:
        return []


def folders_in(folder: str) -> list[str]:
    """Returns the names of a folder's direct subfolders, or [] if the folder does not exist."""
    if is_bucket(folder):
        bucket, name = bucket_and_name(folder)
        return bucket.folders_in(name)
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []


def entries_at(folder: str) -> Iterator[FileEntry]:
    """Yields a folder and all files and folders below it, at any depth.

    Yields nothing if the folder does not exist. For a bucket, only files are yielded. A file that
    is deleted in the meantime may be left out.
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
    """Calls `ask` for each item in `each`, and returns the results in the order of the items.

    If `root` is the URL of a bucket, several calls run at the same time. If `root` is on a disk,
    the calls run one after the other.
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
    """Calls the functions `asks`, and returns their results in the same order.

    The calls run at the same time if `root` is in a bucket, and one after the other otherwise.
    """
    return ask_side_by_side(root, lambda ask: ask(), asks)


def delete_file(address: str) -> None:
    """Deletes a file. A missing file is ignored. Raises KappaError if the deletion fails."""
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        bucket.delete([name])
    else:
        delete_from_disk(Path(address))


def deletion_parts(addresses: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yields groups of files, each of which a caller can pass to `delete_files`.

    A group contains the files that one request to a bucket deletes, or one file on the disk. Files
    on the disk come first.
    """
    every = list(addresses)
    yield from ((each,) for each in every if not is_bucket(each))
    in_bucket = [each for each in every if is_bucket(each)]
    for start in range(0, len(in_bucket), AT_ONCE):
        yield tuple(in_bucket[start : start + AT_ONCE])


def delete_files(addresses: Sequence[str]) -> None:
    """Deletes the files of one group that `deletion_parts` has yielded.

    Raises KappaError if the deletion fails.
    """
    if len(addresses) == 1:
        delete_file(addresses[0])
        return
    places = [bucket_and_name(each) for each in addresses]
    places[0][0].delete([name for _, name in places])


def delete_scratch(address: str) -> None:
    """Deletes a folder of temporary files, if possible.

    Errors are ignored, since the next process that uses the folder tries again.
    """
    with suppress(KappaError):
        delete_folder(address)


def delete_folder(address: str) -> None:
    """Deletes a folder and everything in it.

    On a disk, files that cannot be deleted are left. In a bucket, KappaError is raised if a file
    cannot be deleted.
    """
    if is_bucket(address):
        for part in deletion_parts(each.address for each in entries_at(address)):
            delete_files(part)
    else:
        shutil.rmtree(address, ignore_errors=True)


def missing_file_error(address: str) -> FileNotFoundError:
    """Returns the error for a file that does not exist."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), address)


def bucket_and_name(address: str) -> tuple[Bucket, str]:
    """Returns the opened bucket that contains the URL `address`, and the object's name in it.

    The name is "" for the URL of the root itself.
    """
    root = max(root for root in _OPENED if f"{address}/".startswith(f"{root}/"))
    return _OPENED[root], address.removeprefix(root).removeprefix("/")


@contextmanager
def writing_file(address: str) -> Iterator[Path]:
    """Yields a local path to which the block writes a file for `address`.

    After the block, the file appears at `address` as a whole. If the block fails, no file appears.
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
    """Copies the file at `address` to `to`, a path or URL in another root.

    Raises OSError if the file does not exist.
    """
    with writing_file(to) as path:
        if is_bucket(address):
            fetch_file(address, path)
        else:
            shutil.copyfile(address, path)


def place_file(path: Path, address: str) -> None:
    """Moves a local file to `address`, a path on the same disk or a URL in a bucket."""
    if is_bucket(address):
        bucket, name = bucket_and_name(address)
        bucket.put_file(name, path)
        delete_from_disk(path)
    else:
        path.replace(address)


def put_data_file(path: Path, url: str) -> None:
    """Uploads a table's data file to a bucket, without checking that this host has the claim.

    The check is not needed, because the name of the file is random.
    """
    bucket, name = bucket_and_name(url)
    bucket.put_file(name, path, claimed=False)


def share_file(address: str, to: str) -> None:
    """Creates the file `to` with the content of `address`, a file that never changes.

    Each of the two files can be deleted without the other. On a disk, `to` is a hard link, or a
    copy if a link is not possible. In a bucket the server copies the file. From a bucket to the
    disk, the file is downloaded. Raises FileNotFoundError if `address` does not exist, and OSError
    if the disk has no space.
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
    """Does nothing: the default of the parameter `take_room` of `fetch_file`.

    So a file of any size is downloaded.
    """


def _is_wanted() -> None:
    """Does nothing: the default of the parameter `go_on` of `fetch_file`.

    So a download is never interrupted.
    """


def fetch_file(
    url: str,
    to: Path,
    take_room: Callable[[int], None] = _any_room,
    go_on: Callable[[], None] = _is_wanted,
) -> None:
    """Downloads a file from a bucket to the disk.

    Calls `take_room` with the size in bytes before the download, and `go_on` before each piece is
    written. If either function raises an error, the download ends, and the error is raised. Raises
    FileNotFoundError if the file does not exist, OSError if the local file cannot be written, and
    KappaError if the file in the bucket cannot be read.
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
