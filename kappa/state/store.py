"""The store of a root: the root's objects, and the files that only the control host needs.

On a local disk and in a bucket, an object is written as a whole or not at all, and writing an
object only if it does not exist is atomic. Reading an object that does not exist returns None; if
the store cannot determine whether the object exists, an error is raised.

`store.local` is on the control host's disk. It contains locks, logs, temporary files, sockets,
checkpoints, and records about processes that are useful only while the processes live. All of these
files may be lost. If the root is a folder, `store.local` is the store itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kappa.base.document_seal import SealBroken, sealed, unsealed
from kappa.base.errors import Damaged, SettingsError
from kappa.base.sections import StorageSettings, without_secrets
from kappa.base.settings import Settings
from kappa.state.files.address import open_bucket
from kappa.state.files.bucket import is_bucket
from kappa.state.files.claim import BucketControl, Control, DiskControl
from kappa.state.files.disk import DiskFiles, Files

# The folder of damaged objects, which are kept.
DAMAGED = "damaged"
_AMAZON = StorageSettings()
_MEND = "kappa doctor --repair tells what follows from it, and mends it"


class Store:
    """The objects below one root. The name of an object is a path with slashes."""

    def __init__(
        self,
        root: str | Path,
        *,
        syncs: bool = True,
        storage: StorageSettings = _AMAZON,
        local: Path | None = None,
    ) -> None:
        """Opens a root: a folder, the URL of a folder, or `s3://...`. A missing folder is created.

        Without `syncs`, objects on a disk survive the death of processes, but not a power loss.
        `storage` contains the settings of a bucket's server. If the root is in a bucket, `local` is
        the folder for the files of this host only.
        """
        self.storage = storage
        self._objects: Files
        self._folder: Path | None = None
        # A store refers not to itself, so caches by store are freed with the store.
        self._local: Store | None = None
        if is_bucket(str(root)):
            assert local is not None, "a root in a bucket has a folder on this host"
            self._objects = bucket = open_bucket(str(root), storage)
            self._local = Store(local, syncs=False)
            self.control: Control = BucketControl(bucket, local)
        else:
            self._folder = _local_folder(root)
            self._objects = DiskFiles(self._folder, syncs=syncs)
            self.control = DiskControl()

    @property
    def local(self) -> Store:
        """Returns the store of the files that only this host needs. These files may be lost."""
        return self if self._local is None else self._local

    @property
    def url(self) -> str:
        """Returns the root as a URL."""
        return self._objects.url

    @property
    def is_on_disk(self) -> bool:
        """Returns True if the root is a folder on this host, and False if it is in a bucket."""
        return self._folder is not None

    @property
    def folder(self) -> Path:
        """Returns the root's folder. The root must be on the local disk."""
        assert self._folder is not None, f"{self.url} is no folder of this host"
        return self._folder

    def path(self, name: str) -> Path:
        """Returns the path of an object, for tools that need a file.

        The root must be on the local disk.
        """
        return self.folder / name

    def news_marker(self, of: str) -> Path | None:
        """Returns the path of the marker file of the kind `of`, or None if the root is on a disk.

        A process that writes such an object to a bucket also changes this file, so that other
        processes on this host notice. For a root on a disk there are no markers, and watchers read
        the root itself.
        """
        return None if self._local is None else self._local.path(f"run/news/{of}")

    def address(self, name: str) -> str:
        """Returns the path or URL of an object or folder, as Delta, Spark and DuckDB need it."""
        return self._objects.address(name)

    def name(self, address: str) -> str:
        """Converts an object's path or URL to the object's name, relative to the root."""
        return address.removeprefix(self.address("x").removesuffix("x"))

    def put_new(self, name: str, content: bytes) -> bool:
        """Writes an object. Returns False, and changes nothing, if the object already exists.

        In both cases, the object survives a power loss after the function returns. In a bucket,
        True is also returned if an existing object has equal bytes: the first attempt of this call
        may have written that object, and the server's answer may have been lost (see `Bucket.put`).
        """
        return self._objects.put(name, content, new=True, synced=True)

    def put(self, name: str, content: bytes, *, synced: bool = True) -> None:
        """Writes a whole object. An existing object of that name is replaced.

        An object that is not `synced` may be lost, empty or incomplete after a power loss.
        """
        self._objects.put(name, content, new=False, synced=synced)

    def sync(self, files: Iterable[Path]) -> None:
        """Waits until the contents and names of files below the root survive a power loss."""
        self._objects.sync(files)

    def ensure_lasting(self, name: str) -> None:
        """Waits until an object's name survives a power loss, even if another process wrote it."""
        self._objects.ensure_lasting(name)

    def get(self, name: str) -> bytes | None:
        """Returns the content of an object, or None if the object does not exist."""
        return self._objects.get(name)

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        """Returns the sorted names of all objects below a folder; () if the folder does not exist.

        With `after`, only names that sort after `after` are returned.
        """
        return self._objects.names(prefix, after=after)

    def delete(self, *names: str) -> None:
        """Deletes objects. Missing objects are ignored.

        If the process dies during the deletion, some of the objects are left.
        """
        if names:
            self._objects.delete(names)

    def put_json(self, name: str, document: Mapping[str, Any], *, synced: bool = True) -> None:
        """Writes a JSON document with a seal, a hash by which a change of the bytes is noticed.

        An existing document of that name is replaced. A document that is not `synced` may be lost,
        empty or incomplete after a power loss.
        """
        self.put(name, sealed(document)[0], synced=synced)

    def put_new_json(self, name: str, document: Mapping[str, Any]) -> bool:
        """Writes a JSON document with a seal. Returns False if the document already exists.

        The seal is a hash by which a change of the bytes is noticed. An existing document is not
        changed.
        """
        return self.put_new(name, sealed(document)[0])

    def get_json(self, name: str) -> Any:
        """Returns a JSON document without its seal (its hash), or None if no document exists.

        Raises Damaged if the object is not JSON, or has changed since it was written.
        """
        return self.get_sealed(name)[0]

    def get_sealed(self, name: str) -> tuple[Any, str]:
        """Returns a JSON document without its seal, and the seal, which is a hash of the document.

        If the document has no seal, the second value is "". If the document does not exist, returns
        None and "". Raises Damaged if the object is not JSON, or has changed since it was written.
        """
        content = self.get(name)
        if content is None:
            return None, ""
        try:
            return unsealed(content)
        except SealBroken as error:
            raise Damaged(f"{self.address(name)} is not as it was written", hint=_MEND) from error
        except ValueError as error:
            why = f"{self.address(name)} is not a JSON document: {error}"
            raise Damaged(why, hint=_MEND) from error

    def set_aside(self, name: str) -> str | None:
        """Moves an object into the folder `damaged/`, where the object is kept.

        Returns the object's new path or URL, or None if the object does not exist. The new name
        contains the time and the object's old name.
        """
        aside = f"{DAMAGED}/{time.time_ns()}/{name}"
        return self.address(aside) if self._objects.move(name, aside) else None


def open_store(settings: Settings) -> Store:
    """Opens the root that a project's settings name.

    Raises SettingsError if the root cannot be used.
    """
    if is_bucket(settings.root) and settings.runs_broker:
        raise SettingsError(
            f"the root {without_secrets(settings.root)} is in a bucket, and the log of Kappa's own "
            "broker is not",
            hint="set kafka.bootstrap_servers to a cluster whose log outlives this host",
        )
    local = (settings.project / settings.local).absolute()
    if is_bucket(settings.root) and (local / "journal").is_dir():
        # Files that no record of the other root names would be deleted here.
        raise SettingsError(
            f"{local} is a root itself, and cannot be what this host keeps for "
            f"{without_secrets(settings.root)}",
            hint="set local in kappa.toml to another folder, such as .kappa-local",
        )
    return Store(
        settings.root_url,
        syncs=settings.syncs,
        storage=settings.storage,
        local=local,
    )


def _local_folder(root: str | Path) -> Path:
    text = str(root)
    if "://" not in text:
        return Path(text).resolve()  # As delta-rs names the files of tables.
    parts = urlsplit(text)
    if parts.scheme != "file":
        raise _not_local(text)
    return Path(unquote(parts.path)).resolve()


def _not_local(root: str) -> SettingsError:
    scheme = urlsplit(root).scheme
    return SettingsError(
        f"the root {without_secrets(root)} is neither a folder nor in a bucket: {scheme} roots are "
        "not supported",
        hint="set root in kappa.toml to a folder, such as .kappa, or to s3://BUCKET/PREFIX",
    )
