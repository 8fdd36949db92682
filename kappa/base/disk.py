"""Files on the local disk that are whole, or not there, also after a power loss.

A file's bytes and its name reach the disk apart from each other, in any order, and not before they
are synced. So a file is written under another name, synced and renamed, and then its folder is
synced. What the platform relies on, and why: "All File Systems Are Not Created Equal" (Pillai et
al., OSDI 2014).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kappa.base.errors import KappaError

# Names of unfinished files: obstore's own are the same, and its lists leave them out.
_UNFINISHED = "{}#{}"
# So many files are synced one after the other; more by so many threads.
_FEW, _AT_ONCE = 8, 8


def put_file(path: Path, content: bytes, *, new: bool = False, synced: bool = True) -> bool:
    """Puts a file whole. Returns False, and changes nothing, if it is to be `new` and exists.

    Folders that do not exist are made. If `synced`, the file survives a power loss from the return
    on, as far as its folder does. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(_UNFINISHED.format(path.name, secrets.randbits(63)))
    try:
        with unfinished.open("xb") as file:
            file.write(content)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        if new:
            try:
                os.link(unfinished, path)
            except FileExistsError:
                return False
        else:
            unfinished.replace(path)
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    if synced:
        sync_folders([path.parent])
    return True


def link_file(file: Path, link: Path) -> None:
    """Links a file that never changes to another name, or copies it if the disk has no links.

    Raises FileNotFoundError if the file does not exist any more, and OSError.
    """
    try:
        os.link(file, link)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:
        # Another disk, or one without links.
        shutil.copyfile(file, link)


def delete_file(path: Path) -> None:
    """Deletes a file; one that is not there is deleted already. Raises KappaError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise not_deleted(path, error) from error


def not_deleted(path: Path, error: OSError) -> KappaError:
    """Returns the error of a file or folder that could not be deleted."""
    return KappaError(
        f"could not delete {path}: {error.strerror or error}",
        hint="see whether the folder may be written, and whether its disk is well",
    )


def is_unfinished(path: Path) -> bool:
    """Returns True if a path is of a file that was being put, by its name."""
    return re.fullmatch(r".+#\d+", path.name) is not None


def sync_files(paths: Iterable[Path]) -> None:
    """Waits until the bytes of files are on the disk. Raises OSError.

    Many are synced beside each other: a disk writes them together.
    """
    every = list(paths)
    if len(every) <= _FEW:
        for path in every:
            _sync(path, os.O_RDONLY)
        return
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sync") as threads:
        for _ in threads.map(lambda path: _sync(path, os.O_RDONLY), every):
            pass


def sync_folders(paths: Iterable[Path]) -> None:
    """Waits until the names in folders are on the disk. Raises OSError."""
    for path in paths:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_tree(top: Path) -> None:
    """Waits until a folder, with all that it contains, is on the disk. Raises OSError."""
    below = list(top.rglob("*"))
    sync_files(path for path in below if path.is_file())
    sync_folders([top.parent, top, *(path for path in below if path.is_dir())])


def folders_between(top: Path, path: Path) -> Iterator[Path]:
    """Yields the folders from that of `path` up to `top`, both included."""
    for folder in path.parents:
        yield folder
        if folder == top:
            return


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
