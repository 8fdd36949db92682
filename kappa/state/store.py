"""The only door to obstore: small objects under one root, put whole or not at all.

An object that does not exist is `None`; a failure to look raises. Put-if-absent is atomic on a
local disk and on S3, GCS and Azure alike. Only local roots are accepted for now.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore

from kappa.base.errors import Damaged, KappaError, SettingsError

# Delta's library (delta-rs 1.6) gives these another meaning in a path: it breaks off, or looks in
# another folder.
_UNUSABLE = re.compile(r"[\[\]^|\\%\x00-\x1f]")


class Store:
    """Objects below one root, by slash-separated paths."""

    def __init__(self, root: str | Path) -> None:
        """Opens the root (a folder or a `file://` URL), making the folder if it does not exist."""
        self.folder = _local_folder(root)
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
        """Puts an object. Returns False, and changes nothing, if one of that name exists."""
        try:
            self._objects.put(name, content, mode="create")
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise _cannot("write", name, error) from error
        return True

    def put(self, name: str, content: bytes) -> None:
        """Puts an object whole, in place of any that existed."""
        try:
            self._objects.put(name, content)
        except (BaseError, OSError) as error:
            raise _cannot("write", name, error) from error

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

    def put_json(self, name: str, document: object) -> None:
        """Puts a document as JSON, in place of any that existed."""
        self.put(name, _encode(document))

    def put_new_json(self, name: str, document: object) -> bool:
        """Puts a document as JSON. Returns False, changing nothing, if one of that name exists."""
        return self.put_new(name, _encode(document))

    def get_json(self, name: str) -> Any:
        """Returns a document, or None if it does not exist. Raises Damaged if it is no JSON."""
        content = self.get(name)
        if content is None:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise Damaged(f"{self.path(name)} is no JSON document: {error}") from error


def _encode(document: object) -> bytes:
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
    return KappaError(
        f"could not {what} {name}: {error}",
        hint="see whether the disk is full or the folder may be written",
    )
