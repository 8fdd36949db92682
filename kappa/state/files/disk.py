"""The operations on objects below a root: a protocol, and its implementation for a local folder.

The implementation for a bucket is in bucket.py. On a disk, the library obstore reads and lists
objects. But obstore does not sync files, so kappa/base/disk.py writes the objects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore

from kappa.base.disk import folders_between, put_file, sync_files, sync_folders
from kappa.base.errors import KappaError, SettingsError, machine_error

# The name of a document that is known by a number.
_RECORD = re.compile(r"\d+\.json")
# delta-rs 1.6 reads these otherwise in a path: the path breaks off, or names another folder.
_UNUSABLE = re.compile(r"[\[\]^|\\%\x00-\x1f]")


class Files(Protocol):
    """The protocol of the operations on objects, by name. A failed operation raises KappaError."""

    @property
    def url(self) -> str:
        """Returns the root as a URL."""

    def address(self, name: str) -> str:
        """Returns the path or URL of an object or a folder, in the form that Delta uses."""

    def put(self, name: str, content: bytes, *, new: bool, synced: bool) -> bool:
        """Writes a whole object. With `new`, returns False if the object already exists.

        If False is returned, nothing has changed. A written object survives the death of this
        process; with `synced`, it also survives a power loss.
        """

    def get(self, name: str) -> bytes | None:
        """Returns the content of an object, or None if the object does not exist."""

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        """Returns the sorted names of all objects below a folder; () if the folder does not exist.

        With `after`, only names that sort after `after` are returned.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Deletes one or more objects. Missing objects are ignored.

        If the process dies during the deletion, some of the objects are left.
        """

    def move(self, name: str, to: str) -> bool:
        """Renames an object. Returns False if the object does not exist."""

    def sync(self, files: Iterable[Path]) -> None:
        """Waits until the contents and names of files on the root's disk survive a power loss."""

    def ensure_lasting(self, name: str) -> None:
        """Waits until an object's name survives a power loss, even if another process wrote it."""


class DiskFiles:
    """The objects below one folder of a local disk."""

    def __init__(self, folder: Path, *, syncs: bool) -> None:
        """Opens a folder. If the folder does not exist, creates it.

        Without `syncs`, objects survive the death of processes, but not a power loss. Raises
        SettingsError if the folder cannot be used.
        """
        self.folder = folder
        self._syncs = syncs
        # Folders that are on the disk, and all above them.
        self._lasting: set[Path] = set()
        # By folder, the last name that is on the disk, as far as this process knows.
        self._last: dict[Path, str] = {}
        if unusable := _UNUSABLE.search(str(folder)):
            raise SettingsError(
                f"the root {str(folder)!r} has {unusable[0]!r} in its name, which Delta "
                "tables cannot have",
                hint="set root in kappa.toml to a folder of another name",
            )
        try:
            # Nobody but its user may enter a new root, whatever the modes of its files are.
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            self._objects = LocalStore(folder)
        except (BaseError, OSError) as error:
            raise SettingsError(
                f"the root {folder} cannot be opened: {error}",
                hint="set root in kappa.toml to a folder you may write",
            ) from error

    @property
    def url(self) -> str:
        """Returns the folder as a URL."""
        return self.folder.as_uri()

    def address(self, name: str) -> str:
        """Returns the path of an object or a folder."""
        return str(self.folder / name)

    def put(self, name: str, content: bytes, *, new: bool, synced: bool) -> bool:
        """Writes a whole object. With `new`, returns False if the object already exists.

        If False is returned, nothing has changed. With `synced`, the object survives a power loss
        after the function has returned, even if an earlier call wrote the object.
        """
        path, synced = self.folder / name, synced and self._syncs
        try:
            put = put_file(path, content, new=new, synced=synced)
            if synced:
                self._sync_folders(set() if put and path.parent in self._lasting else {path.parent})
                self._last[path.parent] = max(path.name, self._last.get(path.parent, ""))
        except OSError as error:
            raise _object_error("write", name, error) from error
        return put

    def sync(self, files: Iterable[Path]) -> None:
        """Waits until the contents and names of files below the folder survive a power loss."""
        if not self._syncs:
            return
        paths = list(files)
        try:
            sync_files(paths)
            self._sync_folders({path.parent for path in paths})
        except OSError as error:
            raise _object_error("write", str(error.filename or self.folder), error) from error

    def ensure_lasting(self, name: str) -> None:
        """Waits until an object's name survives a power loss, even if another process wrote it.

        Other processes can read an object a moment before the writing process has synced the
        object's name. If the names in a folder are ascending numbers, one wait covers all names
        that exist at that time; later calls for these names need no access to the disk.
        """
        path = self.folder / name
        if not self._syncs or path.name <= self._last.get(path.parent, ""):
            return
        try:
            names = (each.name for each in path.parent.iterdir())
            # Any other name is of a file that is being put, or of a user.
            last = max((each for each in names if _RECORD.fullmatch(each)), default="")
            self._sync_folders({path.parent})
        except FileNotFoundError:
            return
        except OSError as error:
            raise _object_error("read", name, error) from error
        self._last[path.parent] = max(path.name, last)

    def get(self, name: str) -> bytes | None:
        """Returns the content of an object, or None if the object does not exist."""
        try:
            return bytes(self._objects.get(name).bytes())
        except (NotFoundError, FileNotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise _object_error("read", name, error) from error

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        """Returns the sorted names of all objects below a folder.

        With `after`, only names that sort after `after` are returned.
        """
        try:
            return tuple(
                sorted(
                    str(each["path"])
                    for batch in self._objects.list(prefix, offset=after)
                    for each in batch
                )
            )
        except (NotFoundError, FileNotFoundError):
            return ()
        except (BaseError, OSError) as error:
            raise _object_error("list", prefix, error) from error

    def delete(self, names: Sequence[str]) -> None:
        """Deletes objects one after the other. Missing objects are ignored."""
        for name in names:
            try:
                self._objects.delete(name)
            except (NotFoundError, FileNotFoundError):
                continue
            except (BaseError, OSError) as error:
                raise _object_error("delete", name, error) from error

    def move(self, name: str, to: str) -> bool:
        """Renames an object. Returns False if the object does not exist."""
        aside = self.folder / to
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).rename(aside)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _object_error("move", name, error) from error
        return True

    def _sync_folders(self, folders: Iterable[Path]) -> None:
        """Syncs folders, so that the names of the files in them survive a power loss.

        If a folder was not synced before, the folders above it are synced too.
        """
        wanted = set(folders)
        new = wanted - self._lasting
        above = {each for path in new for each in folders_between(self.folder.parent, path / "_")}
        sync_folders(sorted(wanted | above))
        self._lasting |= new


def _object_error(what: str, name: str, error: Exception) -> KappaError:
    # An unfinished file has another name each time.
    return KappaError(
        f"could not {what} {name}: {_error_reason(error)}",
        hint="see whether the disk is full or the folder may be written",
    )


def _error_reason(error: Exception) -> str:
    # obstore's errors are pages: a sentence that ends with the machine's reason, and its structs.
    number = machine_error(error)
    return str(error).partition("\n")[0] if number is None else os.strerror(number)
