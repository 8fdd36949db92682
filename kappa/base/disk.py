"""Files on the local disk that are either whole or absent, also after a power loss.

The content and the name of a file reach the disk separately and in any order; only a sync
guarantees that both are on the disk. So a file is written under a temporary name, synced and
renamed, and then its folder is synced. The guarantees of file systems on which the platform relies,
and the reasons, are in "All File Systems Are Not Created Equal" (Pillai et al., OSDI 2014).
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

# The names of unfinished files. obstore gives its own the same names, and leaves them out of lists.
_UNFINISHED = "{}#{}"
# Up to _FEW files are synced one after the other; more files are synced by _AT_ONCE threads.
_FEW, _AT_ONCE = 8, 8


def put_file(
    path: Path, content: bytes, *, new: bool = False, synced: bool = True, private: bool = False
) -> bool:
    """Writes a file that is either whole or absent. Returns True if the file was written.

    If `new` is True and the file exists, nothing changes, and the result is False. Missing folders
    are created. If `synced`, the file survives a power loss after the function returns, provided
    that its folder survives. A `private` file can be read only by the user, whatever the umask is.
    Raises OSError if the file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(_UNFINISHED.format(path.name, secrets.randbits(63)))
    try:
        if private:
            unfinished.touch(0o600, exist_ok=False)
        with unfinished.open("wb" if private else "xb") as file:
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
    """Creates a hard link to an immutable file. If that is not possible, copies the file.

    If `link` already exists, does nothing. Raises FileNotFoundError if `file` does not exist, and
    OSError if the copy fails.
    """
    try:
        os.link(file, link)
    except FileExistsError:
        return
    except FileNotFoundError:
        raise
    except OSError:
        # The link is on another disk, or the disk has no links.
        shutil.copyfile(file, link)


def delete_file(path: Path) -> None:
    """Deletes a file. A missing file is ignored. Raises KappaError if the deletion fails."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise not_deleted(path, error) from error


def not_deleted(path: Path, error: OSError) -> KappaError:
    """Returns the error for a file or folder that could not be deleted."""
    return KappaError(
        f"could not delete {path}: {error.strerror or error}",
        hint="see whether the folder may be written, and whether its disk is well",
    )


def is_unfinished(path: Path) -> bool:
    """Returns True if `path` has the name of an unfinished file of `put_file`.

    Such a file is still being written, or was left by a process that died.
    """
    return re.fullmatch(r".+#\d+", path.name) is not None


def sync_files(paths: Iterable[Path]) -> None:
    """Waits until the contents of files are on the disk. Raises OSError if a sync fails.

    If there are more than eight files, threads sync them in parallel, which is faster.
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
    """Waits until the names of all files in the given folders are on the disk.

    Raises OSError if a sync fails.
    """
    for path in paths:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sync_tree(top: Path) -> None:
    """Waits until a folder and all files and folders in it are on the disk.

    Raises OSError if a sync fails.
    """
    below = list(top.rglob("*"))
    sync_files(path for path in below if path.is_file())
    sync_folders([top.parent, top, *(path for path in below if path.is_dir())])


def folders_between(top: Path, path: Path) -> Iterator[Path]:
    """Yields the folders from the parent of `path` up to `top`, both included."""
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
