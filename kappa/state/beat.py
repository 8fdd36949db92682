"""The beat of a job: a file that it touches each second, unless it is stopped or dead.

A process that was stopped, or waits for a disk that does not answer, is no dead one: its lock is
held. The supervisor sees that its beat has ended, and ends it.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from kappa.state.build import folder
from kappa.state.store import Store

_BEAT_SECONDS = 1.0


class Beat:
    """The beat of one build's job, within a block, by a thread of its own."""

    def __init__(self, store: Store, build: str) -> None:
        self._store = store.local
        self._name = _name(build)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def __enter__(self) -> Self:
        self._store.put(self._name, b"", synced=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def _run(self) -> None:
        path = self._store.path(self._name)
        while not self._ends.wait(_BEAT_SECONDS):
            # It takes no space of a full disk.
            with suppress(OSError):
                os.utime(path)


def last_beat(store: Store, build: str) -> int | None:
    """Returns when the job of a build has beaten last, in nanoseconds. None: it never did."""
    try:
        return Path(store.local.path(_name(build))).stat().st_mtime_ns
    except OSError:
        return None


def _name(build: str) -> str:
    return f"{folder(build)}/beat"
