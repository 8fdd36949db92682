"""The progress of a job within one slice: its step, and how many records it has read.

The job puts its step; each task that reads puts a count beside the file that it writes. All of it
is for people, but that a slice whose counts grow makes progress (`engine.slice_seconds`). A job
that begins a slice again counts anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kappa.base.clock import Stopwatch
from kappa.state.build import folder
from kappa.state.documents import Documents
from kappa.state.frontier import Frontier
from kappa.state.slices import Slice
from kappa.state.store import Store

# Below a build's folder; the counts are in the folders of its topics there.
_NAME = "slice/progress.json"
DECODED = "slice/decoded"
_COUNT = ".read"
READING = "read"
_STEPS = {READING: "reading", "function": "folding"}


class SliceProgress(Struct, frozen=True):
    """The slice that a job folds now: the `slice`-th, from 0, of the `of` that its leg has.

    `read` of its `offsets` records are read, so far or all of them; `step` is what the job does.
    """

    leg: int
    slice: int
    of: int
    offsets: int
    step: str
    read: int = 0
    format: int = 1

    @property
    def text(self) -> str:
        """Returns it in a few words."""
        read = (
            f"{self.read:,} of {self.offsets:,} records read"
            if self.step == READING
            else f"{self.offsets:,} records read, {_STEPS.get(self.step, 'committing')}"
        )
        return f"slice {self.slice + 1} of {self.of}: {read}"


_PROGRESS = Documents(SliceProgress, derived=True, synced=False)


def watch_slice(store: Store, build: str, piece: Slice, of: int) -> Stopwatch:
    """Returns a stopwatch for the folding of a slice, which puts each step as it begins."""
    begun = SliceProgress(piece.leg, piece.number, of, piece.distance, READING)
    name = f"{folder(build)}/{_NAME}"
    return Stopwatch(lambda step: _PROGRESS.put(store.local, name, replace(begun, step=step)))


def read_progress(store: Store, build: str, newest: Frontier | None) -> SliceProgress | None:
    """Returns how far a build's job is in a slice that its `newest` frontier does not have yet.

    Returns None if it folds none, or nobody knows.
    """
    found = _PROGRESS.get(store.local, f"{folder(build)}/{_NAME}", "the progress of a slice")
    if found is None or (
        newest is not None and (newest.leg, newest.slice) >= (found.leg, found.slice)
    ):
        return None
    if found.step != READING:
        return replace(found, read=found.offsets)
    return replace(found, read=min(found.offsets, records_read(store, build)))


def records_read(store: Store, build: str) -> int:
    """Returns how many records the tasks of a build's slice have read so far."""
    counts = store.local.path(f"{folder(build)}/{DECODED}").glob(f"*/_*{_COUNT}")
    return sum(map(_count, counts))


def counting(place: Path, name: str) -> Callable[[int], None]:
    """Returns a function that puts how many records a task has read, beside its file."""
    # Spark, Arrow and DuckDB take no file that begins so for data.
    path = place / f"_{name}{_COUNT}"
    return lambda count: _put_count(path, count)


def _put_count(path: Path, count: int) -> None:
    # A count that cannot be written stops no job.
    with contextlib.suppress(OSError):
        path.write_text(str(count), encoding="ascii")


def _count(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        # It is being written, or the slice has just ended.
        return 0
