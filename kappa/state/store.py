"""The only door to obstore: small objects under one root, put whole or not at all.

An object that does not exist is `None`; a failure to look raises. Put-if-absent is atomic on a
local disk and on S3, GCS and Azure alike. Only local roots are accepted for now. obstore syncs
nothing on them, so objects are put by kappa/base/disk.py.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore

from kappa.base.disk import folders_between, put_file, sync_files, sync_folders
from kappa.base.errors import Damaged, KappaError, SettingsError, machine_error
from kappa.base.settings import Settings

# The name of a document that is known by a number.
_RECORD = re.compile(r"\d+\.json")
# The folder of what was damaged and is kept.
DAMAGED = "damaged"
# delta-rs 1.6 gives these another meaning in a path: it breaks off, or looks in another folder.
_UNUSABLE = re.compile(r"[\[\]^|\\%\x00-\x1f]")


class Store:
    """Objects below one root, by slash-separated paths."""

    def __init__(self, root: str | Path, *, syncs: bool = True) -> None:
        """Opens the root (a folder or a `file://` URL), making the folder if it does not exist.

        Unless it `syncs`, what is put survives the death of processes, and no power loss.
        """
        self.folder = _local_folder(root)
        self._syncs = syncs
        # Folders that are on the disk, and all above them.
        self._lasting: set[Path] = set()
        # By folder, the last name that is on the disk, as far as this process knows.
        self._last: dict[Path, str] = {}
        if unusable := _UNUSABLE.search(str(self.folder)):
            raise SettingsError(
                f"the root {str(self.folder)!r} has {unusable[0]!r} in its name, which Delta "
                "tables cannot have",
                hint="set root in kappa.toml to a folder of another name",
            )
        try:
            # Nobody but its user may enter a new root, whatever the modes of its files are.
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._objects = LocalStore(self.folder)
        except (BaseError, OSError) as error:
            raise SettingsError(
                f"the root {self.folder} cannot be opened: {error}",
                hint="set root in kappa.toml to a folder you may write",
            ) from error

    @property
    def url(self) -> str:
        """Returns the root as a URL."""
        return self.folder.as_uri()

    def path(self, name: str) -> Path:
        """Returns the path of an object on the local disk, for tools that want a file."""
        return self.folder / name

    def put_new(self, name: str, content: bytes) -> bool:
        """Puts an object. Returns False, and changes nothing, if one of that name exists.

        Put or not, an object of that name then survives a power loss.
        """
        return self._put(name, content, new=True, synced=True)

    def put(self, name: str, content: bytes, *, synced: bool = True) -> None:
        """Puts an object whole, in place of any that existed.

        One that is not `synced` may be lost, empty or torn after a power loss.
        """
        self._put(name, content, new=False, synced=synced)

    def sync(self, files: Iterable[Path]) -> None:
        """Waits until files below the root, with their names, survive a power loss."""
        if not self._syncs:
            return
        paths = list(files)
        try:
            sync_files(paths)
            self._sync_folders({path.parent for path in paths})
        except OSError as error:
            raise _cannot("write", str(error.filename or self.folder), error) from error

    def ensure_lasting(self, name: str) -> None:
        """Waits until an object's name survives a power loss, whoever has put the object.

        Who puts an object syncs its name a moment after others can read it. For folders whose names
        are numbers, put in their order: all that are there last with it, and then cost one look in
        memory.
        """
        path = self.path(name)
        if not self._syncs or path.name <= self._last.get(path.parent, ""):
            return
        try:
            names = (each.name for each in path.parent.iterdir())
            # Any other is of a file that is being put, or of a user.
            last = max((each for each in names if _RECORD.fullmatch(each)), default="")
            self._sync_folders({path.parent})
        except FileNotFoundError:
            return
        except OSError as error:
            raise _cannot("read", name, error) from error
        self._last[path.parent] = max(path.name, last)

    def get(self, name: str) -> bytes | None:
        """Returns an object's content, or None if it does not exist."""
        try:
            return bytes(self._objects.get(name).bytes())
        except (NotFoundError, FileNotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise _cannot("read", name, error) from error

    def names(self, prefix: str) -> tuple[str, ...]:
        """Returns the names of all objects below a folder, sorted; () if it does not exist."""
        try:
            return tuple(
                sorted(str(each["path"]) for batch in self._objects.list(prefix) for each in batch)
            )
        except (NotFoundError, FileNotFoundError):
            return ()
        except (BaseError, OSError) as error:
            raise _cannot("list", prefix, error) from error

    def delete(self, name: str) -> None:
        """Deletes an object; one that does not exist is deleted already."""
        try:
            self._objects.delete(name)
        except (NotFoundError, FileNotFoundError):
            return
        except (BaseError, OSError) as error:
            raise _cannot("delete", name, error) from error

    def put_json(self, name: str, document: object, *, synced: bool = True) -> None:
        """Puts a document as JSON, in place of any that existed; `synced`: as in `put`."""
        self.put(name, encoded(document), synced=synced)

    def put_new_json(self, name: str, document: object) -> bool:
        """Puts a document as JSON. Returns False, changing nothing, if one of that name exists."""
        return self.put_new(name, encoded(document))

    def get_json(self, name: str) -> Any:
        """Returns a document, or None if it does not exist. Raises Damaged if it is no JSON."""
        content = self.get(name)
        if content is None:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise Damaged(f"{self.path(name)} is no JSON document: {error}") from error

    def set_aside(self, name: str) -> Path | None:
        """Moves an object out of the way and keeps it; returns its new path, or None if it is gone.

        It is then below `damaged/`, by the time and its name.
        """
        aside = self.path(f"{DAMAGED}/{time.time_ns()}/{name}")
        try:
            aside.parent.mkdir(parents=True, exist_ok=True)
            self.path(name).rename(aside)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _cannot("move", name, error) from error
        return aside

    def _put(self, name: str, content: bytes, *, new: bool, synced: bool) -> bool:
        path, synced = self.path(name), synced and self._syncs
        try:
            put = put_file(path, content, new=new, synced=synced)
            if synced:
                self._sync_folders(set() if put and path.parent in self._lasting else {path.parent})
                self._last[path.parent] = max(path.name, self._last.get(path.parent, ""))
        except OSError as error:
            raise _cannot("write", name, error) from error
        return put

    def _sync_folders(self, folders: Iterable[Path]) -> None:
        """Syncs folders, and those above one that no object was put into yet."""
        wanted = set(folders)
        new = wanted - self._lasting
        above = {each for path in new for each in folders_between(self.folder.parent, path / "_")}
        sync_folders(sorted(wanted | above))
        self._lasting |= new


def open_store(settings: Settings) -> Store:
    """Opens the root of a project."""
    return Store(settings.root_url, syncs=settings.syncs)


def encoded(document: object) -> bytes:
    """Returns a document as JSON: equal documents are equal bytes."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()


def _local_folder(root: str | Path) -> Path:
    text = str(root)
    if "://" not in text:
        return Path(text).absolute()
    parts = urlsplit(text)
    if parts.scheme != "file":
        raise SettingsError(
            f"the root {text} is not on a local disk: {parts.scheme} roots are not supported yet",
            hint="set root in kappa.toml to a folder, such as .kappa",
        )
    return Path(unquote(parts.path))


def _cannot(what: str, name: str, error: Exception) -> KappaError:
    # An unfinished file's name is another one each time.
    return KappaError(
        f"could not {what} {name}: {_reason(error)}",
        hint="see whether the disk is full or the folder may be written",
    )


def _reason(error: Exception) -> str:
    # obstore's errors are pages: a sentence that ends with the machine's reason, and its structs.
    number = machine_error(error)
    return str(error).partition("\n")[0] if number is None else os.strerror(number)
