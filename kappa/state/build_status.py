"""The status of a running build, in files by which the processes of a platform inform each other.

- The beat is a file that a job touches each second while it runs. A suspended process, or a process
  that waits for a disk that does not answer, is still alive and still holds the lock of the build.
  The supervisor notices that the beat is no longer touched, and ends such a process.
- The progress of a job within one slice is the current step, and the number of records read. The
  job writes the step. Each task that reads records writes a count next to the file that the task
  writes. The progress is only displayed, with one exception: a slice whose counts grow is not stuck
  (`engine.slice_seconds`). A job that begins a slice again counts from zero.
- A turn is a request to a build that rests: the build must fold up to the log's present end, once.
- A job that stops for good writes the reason before it exits. It stops for good if a law of
  docs/design.md did not hold, or if the user made a mistake, so that a restart would not help.
  While the reason is stored, the supervisor does not start the job again. The next `kappa up`
  starts the job again, once. After a successful start, the job deletes the reason. A candidate
  whose job has stopped for good has failed.
- The progress of a verification is text for display. No decision depends on this text.
- The result of a view check is stored. This check compares a serving build's maintained views with
  their queries.
- The cost of each maintained view is stored, from the last slice that computed the view.
- The mean times of the steps of a job's last slices are stored.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from kappa.base.clock import Stopwatch, now
from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.base.units import count_of
from kappa.state.build import Birth, comparable_topics, folder_of_build
from kappa.state.documents import Documents
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.state.witness import LogCutError

_BEAT_SECONDS = 1.0
# Below a build's folder; the counts are in the folders of its topics there.
_PROGRESS_NAME = "slice/progress.json"
DECODED = "slice/decoded"
_COUNT_SUFFIX = ".read"
READING = "read"
_STEPS = {READING: "reading", "function": "folding"}
_TURNS = "run/turns"


class Beat:
    """The beat of a build's job: within the block, a thread touches the beat's file each second."""

    def __init__(self, store: Store, build: str) -> None:
        self._store = store.local
        self._name = _beat_name(build)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._touch_until_end, name="beat", daemon=True)

    def __enter__(self) -> Self:
        self._store.put(self._name, b"", synced=False)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def _touch_until_end(self) -> None:
        path = self._store.path(self._name)
        while not self._ends.wait(_BEAT_SECONDS):
            # A touch takes no space of a full disk.
            with suppress(OSError):
                os.utime(path)


def last_beat(store: Store, build: str) -> int | None:
    """Returns the time of the last beat of a build's job, in nanoseconds since 1970.

    Returns None if the beat's file does not exist.
    """
    try:
        return Path(store.local.path(_beat_name(build))).stat().st_mtime_ns
    except OSError:
        return None


def _beat_name(build: str) -> str:
    return f"{folder_of_build(build)}/beat"


class SliceProgress(Struct, frozen=True):
    """The progress of a job in its present slice.

    `slice` is the number of the slice in the leg `leg`, counted from 0. `of` is the number of
    slices in the leg. The slice covers `offsets` offsets, and the job has read `read` records of
    the slice so far. `step` is the present step of the job.
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
        """Returns the progress as a short text for display."""
        read = (
            f"{self.read:,} of {count_of(self.offsets, 'record')} read"
            if self.step == READING
            else f"{count_of(self.offsets, 'record')} read, {_STEPS.get(self.step, 'committing')}"
        )
        return f"slice {self.slice + 1} of {self.of}: {read}"


_PROGRESS = Documents(SliceProgress, derived=True, synced=False)


def watch_slice(store: Store, build: str, piece: Slice, of: int) -> Stopwatch:
    """Returns a stopwatch for the slice `piece` that stores the progress of the build's job.

    When a step of the slice begins, the stopwatch stores this step. `of` is the number of slices of
    the leg.
    """
    begun = SliceProgress(piece.leg, piece.number, of, piece.distance, READING)
    name = f"{folder_of_build(build)}/{_PROGRESS_NAME}"
    return Stopwatch(lambda step: _PROGRESS.put(store.local, name, replace(begun, step=step)))


def read_progress(store: Store, build: str, newest: Frontier | None) -> SliceProgress | None:
    """Returns the progress of a build's job in a slice that comes after the `newest` frontier.

    Returns None if the job is not folding a slice, or if its progress is not known.
    """
    found = _PROGRESS.get(
        store.local, f"{folder_of_build(build)}/{_PROGRESS_NAME}", "the progress of a slice"
    )
    if found is None or (
        newest is not None and (newest.leg, newest.slice) >= (found.leg, found.slice)
    ):
        return None
    if found.step != READING:
        return replace(found, read=found.offsets)
    return replace(found, read=min(found.offsets, records_read(store, build)))


def records_read(store: Store, build: str) -> int:
    """Returns the number of records that the tasks of a build's present slice have read so far."""
    counts = store.local.path(f"{folder_of_build(build)}/{DECODED}").glob(f"*/_*{_COUNT_SUFFIX}")
    return sum(map(_read_count, counts))


def read_counter(place: Path, name: str) -> Callable[[int], None]:
    """Returns a function that stores the number of records that a task has read so far.

    `place` is the folder of the file that the task writes, and `name` is that file's name.
    """
    # Spark, Arrow and DuckDB take no file that begins so for data.
    path = place / f"_{name}{_COUNT_SUFFIX}"
    return lambda count: _put_count(path, count)


def _put_count(path: Path, count: int) -> None:
    # A count that cannot be written stops no job.
    with contextlib.suppress(OSError):
        path.write_text(str(count), encoding="ascii")


def _read_count(path: Path) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        # The count is being written, or the slice has just ended.
        return 0


def ask_turn(store: Store, build: str) -> None:
    """Asks the supervisor to run the job of a resting build once, up to the log's present end.

    A second request before the turn begins has no effect.
    """
    store.local.put_json(f"{_TURNS}/{build}", {}, synced=False)


def turns_asked(store: Store) -> frozenset[str]:
    """Returns the builds for which a turn is requested."""
    return frozenset(name.rsplit("/", 1)[-1] for name in store.local.names(_TURNS))


def end_turn(store: Store, build: str) -> None:
    """Deletes the request for a turn of a build, because the turn has begun or is not needed."""
    store.local.delete(f"{_TURNS}/{build}")


class Stopped(Struct, frozen=True):
    """The error with which a job has stopped for good, and the time of the stop.

    `cut` contains the topics that have lost their last records. In these topics, the build's
    offsets no longer match the records.
    """

    message: str
    hint: str
    at: str
    cut: tuple[str, ...] = ()
    format: int = 1

    @property
    def text(self) -> str:
        """Returns the error's message and hint as one text."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


_STOPPED = Documents(Stopped, derived=True)


def put_stopped(store: Store, build: str, error: KappaError) -> None:
    """Stores the error with which a build's job has stopped for good.

    The new error replaces the stored error of an earlier job.
    """
    failpoint("stopped.before_put")
    _STOPPED.put(store, _stopped_name(build), _stopped_record(error))
    failpoint("stopped.after_put")


def read_stopped(store: Store, build: str) -> Stopped | None:
    """Returns the stored error with which a build's job has stopped for good, or None."""
    return _STOPPED.get(store, _stopped_name(build), f"what the job of build {build} stopped of")


def ensure_not_stopped(store: Store, build: str) -> None:
    """Deletes the stored error with which an earlier job of the build has stopped."""
    failpoint("stopped.before_delete")
    store.delete(_stopped_name(build))
    failpoint("stopped.after_delete")


def comparable_now(store: Store, build: Birth, other: Birth) -> frozenset[str]:
    """Returns the topics whose offsets can be compared between two builds.

    These are the topics that both builds read under the same topic id. A topic is left out if it
    has lost its last records and the job of one of the two builds has stopped for this reason: that
    build has folded records that the topic no longer contains.
    """
    stopped = (read_stopped(store, each.folded_by) for each in (build, other))
    return comparable_topics(build, other) - {
        topic for each in stopped if each is not None for topic in each.cut
    }


def _stopped_record(error: KappaError) -> Stopped:
    cut = error.topics if isinstance(error, LogCutError) else ()
    return Stopped(error.message, error.hint, now(), cut)


def _stopped_name(build: str) -> str:
    return f"{folder_of_build(build)}/stopped.json"


class VerificationProgress(Struct, frozen=True):
    """The step that a verification has begun last, as text for display."""

    text: str
    format: int = 1


_VERIFICATIONS = Documents(VerificationProgress, derived=True, synced=False)


def table_step(doing: str, table: str, number: int, of: int) -> str:
    """Returns the text for a step of a verification, as in `checking table hits (2 of 5)`."""
    return f"{doing} table {table} ({number} of {of})"


def putting_progress(store: Store, build: str) -> Callable[[str], None]:
    """Returns a function that stores the text of the current step of a candidate's verification."""

    def put(text: str) -> None:
        # A verification continues if its progress cannot be written.
        with contextlib.suppress(KappaError, OSError):
            _VERIFICATIONS.put(store.local, _verification_name(build), VerificationProgress(text))

    return put


def verification_progress(store: Store, build: str) -> str:
    """Returns the step that a candidate's verification began last, or "" if it is not known."""
    found = _VERIFICATIONS.get(
        store.local, _verification_name(build), "the progress of a verification"
    )
    return "" if found is None else found.text


def _verification_name(build: str) -> str:
    return f"{folder_of_build(build)}/verification.json"


class ViewCheck(Struct, frozen=True):
    """The result of comparing a build's maintained views with their queries, at `offsets`.

    `unlike` contains one sentence for each view whose rows differ from the result of its query, or
    could not be compared with that result.
    """

    offsets: Offsets
    unlike: tuple[str, ...]
    at: str
    format: int = 1


_CHECKS = Documents(ViewCheck, derived=True)


def put_view_check(store: Store, build: str, check: ViewCheck) -> None:
    """Stores the result of the newest check of a build's views."""
    _CHECKS.put(store, _view_check_name(build), check)


def read_view_check(store: Store, build: str) -> ViewCheck | None:
    """Returns the result of the newest check of a build's views, or None if there was no check."""
    return _CHECKS.get(store, _view_check_name(build), f"the check of the views of build {build}")


def _view_check_name(build: str) -> str:
    return f"{folder_of_build(build)}/views-checked.json"


class ViewCost(Struct, frozen=True):
    """The cost of a maintained view in the last slice that computed the view.

    `at` is the time of the computation. `way` is the method by which the view was computed. The
    slice covered `records` offsets, and changed `rows` rows of the view. Computing and committing
    the rows lasted `seconds`. `touched` is the number of keys whose rows were computed, or None if
    all rows of the view were computed.
    """

    way: str
    records: int
    rows: int
    seconds: float
    at: str
    touched: int | None = None

    @property
    def text(self) -> str:
        """Returns the cost as a text for display."""
        changed, records = count_of(self.rows, "row"), count_of(self.records, "record")
        touched = "" if self.touched is None else f"{count_of(self.touched, 'key')} computed, "
        return (
            f"computed {self.way} in {self.seconds * 1000:,.0f} ms: {touched}{changed} changed, "
            f"by a slice of {records}"
        )


class ViewCosts(Struct, frozen=True):
    """The costs of the maintained views of a build, by the view's name."""

    views: dict[str, ViewCost]
    format: int = 1


_COSTS = Documents(ViewCosts, derived=True, synced=False)


def put_view_costs(store: Store, build: str, costs: Mapping[str, ViewCost]) -> None:
    """Stores the costs of a build's views, by view name, and replaces the stored costs."""
    _COSTS.put(store.local, _view_costs_name(build), ViewCosts({**costs}))


def read_view_costs(store: Store, build: str) -> Mapping[str, ViewCost]:
    """Returns the costs of a build's views, by view name, if a job on this host has stored them.

    If no costs are stored on this host, returns an empty mapping.
    """
    what = f"the costs of the views of build {build}"
    found = _COSTS.get(store.local, _view_costs_name(build), what)
    return {} if found is None else found.views


def _view_costs_name(build: str) -> str:
    return f"{folder_of_build(build)}/view-costs.json"


# The steps of a slice that people are shown, in their order.
_SHOWN_STEPS = ("wait", "read", "function", "commit", "views", "publish")


class StepTimes(Struct, frozen=True):
    """The mean seconds of each step of a slice, over the last `slices` slices of a job.

    The step `wait` is the time from the log time of a slice's newest record until the slice begins.
    The record spends this time in the broker, in the reader, and between slices. `at` is the time
    of the last slice.
    """

    seconds: dict[str, float]
    slices: int
    at: str
    format: int = 1

    @property
    def text(self) -> str:
        """Returns the times as a text for display: `wait 120 ms, read 4 ms, ...`."""
        return ", ".join(
            f"{name} {self.seconds[name] * 1000:,.0f} ms"
            for name in _SHOWN_STEPS
            if name in self.seconds
        )


_STEP_TIMES = Documents(StepTimes, derived=True, synced=False)


def put_step_times(store: Store, build: str, times: StepTimes) -> None:
    """Stores the mean step times of a job's last slices, and replaces the stored times."""
    _STEP_TIMES.put(store.local, _step_times_name(build), times)


def read_step_times(store: Store, build: str) -> StepTimes | None:
    """Returns the mean step times that a build's job has stored on this host, or None."""
    what = f"the times of the slices of build {build}"
    return _STEP_TIMES.get(store.local, _step_times_name(build), what)


def _step_times_name(build: str) -> str:
    return f"{folder_of_build(build)}/steps.json"
