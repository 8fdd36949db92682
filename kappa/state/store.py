"""The only door to obstore: small objects under one root, put whole or not at all.

"Looked, and nothing there" is `None`; "could not look" raises. Put-if-absent is atomic on a local disk and on S3, GCS
and Azure alike; local roots are all that is accepted for now.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore

from kappa.base.errors import Damaged, KappaError, SettingsError

# Wide enough for a record a microsecond over centuries, so that names sort as numbers do.
_DIGITS = 20
# Delta's library (delta-rs 1.6) takes these in a path for something else, and breaks off or looks in another folder.
_UNUSABLE = re.compile(r"[\[\]^|\\%\x00-\x1f]")


class Store:
    """Objects below one root, by slash-separated paths."""

    def __init__(self, root: str | Path) -> None:
        """Opens the root (a folder or a `file://` URL), making the folder if it is not there."""
        self.folder = _local_folder(root)
        if unusable := _UNUSABLE.search(str(self.folder)):
            raise SettingsError(
                f"the root {str(self.folder)!r} has {unusable[0]!r} in its name, which Delta tables cannot have",
                hint="set root in kappa.toml to a folder of another name",
            )
        try:
            self._objects = LocalStore(self.folder, mkdir=True)
        except (BaseError, OSError) as error:
            raise SettingsError(
                f"the root {self.folder} cannot be opened: {error}",
                hint="set root in kappa.toml to a folder you may write",
            ) from error

    @property
    def url(self) -> str:
        """The root as a URL."""
        return self.folder.as_uri()

    def path(self, name: str) -> Path:
        """Where an object lies on the local disk, for tools that want a file."""
        return self.folder / name

    def put_new(self, name: str, content: bytes) -> bool:
        """Puts an object if none of that name is there; False, and nothing changed, if one is."""
        try:
            self._objects.put(name, content, mode="create")
        except AlreadyExistsError:
            return False
        except (BaseError, OSError) as error:
            raise _cannot("write", name, error) from error
        return True

    def put(self, name: str, content: bytes) -> None:
        """Puts an object whole, in place of any that was there."""
        try:
            self._objects.put(name, content)
        except (BaseError, OSError) as error:
            raise _cannot("write", name, error) from error

    def get(self, name: str) -> bytes | None:
        """An object's content, or None where there is none."""
        try:
            return bytes(self._objects.get(name).bytes())
        except (NotFoundError, FileNotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise _cannot("read", name, error) from error

    def names(self, prefix: str) -> tuple[str, ...]:
        """The names of all objects below a folder, sorted; empty where the folder is not there."""
        try:
            return tuple(
                sorted(str(each["path"]) for batch in self._objects.list(prefix) for each in batch)
            )
        except (NotFoundError, FileNotFoundError):
            return ()
        except (BaseError, OSError) as error:
            raise _cannot("list", prefix, error) from error

    def delete(self, name: str) -> None:
        """Deletes an object; one that is not there is deleted already."""
        try:
            self._objects.delete(name)
        except (NotFoundError, FileNotFoundError):
            return
        except (BaseError, OSError) as error:
            raise _cannot("delete", name, error) from error

    def put_json(self, name: str, document: object) -> None:
        """Puts a document as JSON, in place of any that was there."""
        self.put(name, _encode(document))

    def put_new_json(self, name: str, document: object) -> bool:
        """Puts a document as JSON if none of that name is there."""
        return self.put_new(name, _encode(document))

    def get_json(self, name: str) -> Any:
        """A document, or None where there is none. Raises Damaged where it is no JSON."""
        content = self.get(name)
        if content is None:
            return None
        try:
            return json.loads(content)
        except ValueError as error:
            raise Damaged(f"{self.path(name)} is no JSON document: {error}") from error


class NumberedRecords:
    """An append-only row of JSON documents, numbered from 1 without gaps at its newer end, each put if absent.

    Older ones may be deleted; the newest never is.
    """

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder

    def put(self, number: int, document: object) -> bool:
        """Puts document `number`; False where that number is taken."""
        return self._store.put_new_json(self._name(number), document)

    def get(self, number: int) -> Any:
        """Document `number`, or None where there is none (yet, or any more)."""
        return self._store.get_json(self._name(number))

    def numbers(self) -> tuple[int, ...]:
        """The numbers that are there, ascending."""
        found = (
            name.rsplit("/", 1)[-1].removesuffix(".json")
            for name in self._store.names(self._folder)
        )
        return tuple(int(number) for number in found if number.isdigit())

    def last(self) -> tuple[int, Any] | None:
        """The newest number and its document, or None where there is none at all."""
        numbers = self.numbers()
        while numbers:
            newest = numbers[-1]
            document = self.get(newest)
            if document is not None:
                while (following := self.get(newest + 1)) is not None:
                    newest, document = newest + 1, following
                return newest, document
            # It was deleted between the list and the look: newer ones must be there by now.
            numbers = self.numbers()
        return None

    def after(self, number: int) -> Iterator[tuple[int, Any]]:
        """The documents that follow `number`, in order, up to the newest."""
        while (document := self.get(number + 1)) is not None:
            number += 1
            yield number, document

    def delete_below(self, number: int) -> None:
        """Deletes all documents with a lesser number."""
        for each in self.numbers():
            if each < number:
                self._store.delete(self._name(each))

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:0{_DIGITS}d}.json"


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
