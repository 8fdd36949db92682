"""A folder of this host that outlives it: what it has is in the root, too.

Spark's tasks and Arrow read and write files of it by their paths. If the root is a folder, it is
the same one, and nothing is done.
"""

from __future__ import annotations

from pathlib import Path

from kappa.state.store import Store


class KeptFolder:
    """A folder whose files are whole from when they have their names, and never change."""

    def __init__(self, store: Store, name: str) -> None:
        """Fetches what the root has of the folder `name`, as an earlier host has kept it."""
        self.path: Path = store.local.path(name)
        self._store = store
        self._name = name
        self._kept: set[str] = set()
        if not store.is_on_disk:
            self._kept = {*store.names(name)}
            for each in self._kept - {*store.local.names(name)}:
                content = store.get(each)
                if content is not None:
                    store.local.put(each, content)

    def keep(self) -> None:
        """Keeps in the root what the folder has, and nothing else."""
        if self._store.is_on_disk:
            return
        there = {*self._store.local.names(self._name)}
        for each in sorted(there - self._kept):
            content = self._store.local.get(each)
            if content is not None:
                self._store.put(each, content)
        for each in sorted(self._kept - there):
            self._store.delete(each)
        self._kept = there
