"""The objects below one root, whatever the root is on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol


class Objects(Protocol):
    """Objects by name. One that does not exist is None; a failure to look raises KappaError."""

    @property
    def url(self) -> str:
        """Returns the root as a URL."""

    def address(self, name: str) -> str:
        """Returns the path or URL of an object or a folder, as Delta takes it."""

    def put(self, name: str, content: bytes, *, new: bool, synced: bool) -> bool:
        """Puts an object whole. Returns False, changing nothing, if it is to be `new` and is not.

        It survives the death of this process, and a power loss if it is `synced`.
        """

    def get(self, name: str) -> bytes | None:
        """Returns an object's content, or None if it does not exist."""

    def names(self, prefix: str, *, after: str | None = None) -> tuple[str, ...]:
        """Returns the names of all objects below a folder, sorted; () if it does not exist.

        Or of those that are sorted `after` a name.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Deletes objects, one or more; what does not exist is deleted already.

        If the process dies meanwhile, some of them are left.
        """

    def move(self, name: str, to: str) -> bool:
        """Gives an object another name. Returns False if it does not exist."""

    def sync(self, files: Iterable[Path]) -> None:
        """Waits until files of the root's disk, with their names, survive a power loss."""

    def ensure_lasting(self, name: str) -> None:
        """Waits until an object's name survives a power loss, whoever has put the object."""
