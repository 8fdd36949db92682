"""The status of a running build, in files that a job writes and other processes read.

- The beat is a file that a job touches each second while it runs. A suspended process, or a process
  that waits for a disk that does not answer, is still alive and still holds the lock of the build.
  The supervisor notices that the file is no longer touched, and ends such a process.
- The progress of a job within one slice is the current step, and the number of records read. The
  job writes the step. Each task that reads records writes a count next to the file that the task
  writes. The progress is only displayed, with one exception: if the counts of a slice grow, the
  supervisor does not treat the job as stuck (`engine.slice_seconds`). A job that begins a slice
  again counts from zero.
- A turn is one run of the job of a build that rests: the job folds up to the log's present end, and
  then the build rests again. A process requests a turn by a file.
- A job stops for good if a law of docs/design.md did not hold, or if the user made a mistake, so
  that a restart would not help. Such a job writes the error into a file before it exits. While this
  file exists, the supervisor does not start the job again. The next `kappa up` starts the job
  again, once. After a successful start, the job deletes the file. A candidate whose job has stopped
  for good has failed.
- The progress of a verification is text for display. No decision depends on this text.
- A view check compares a serving build's maintained views with their queries. Its result is stored.
- For each maintained view, the cost of the last slice that computed the view is stored.
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
    """The sign of life of a build's job, used as a context manager.

    Within the block, a thread touches a file of the build, the beat, each second.
    """

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
    """Returns the time at which a build's job last showed that it runs, in ns since 1970.

    While a job runs, it touches a file, the beat, each second; the result is the file's
    modification time. Returns None if the file does not exist.
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

    Each time a step of the slice begins, the stopwatch stores the name of that step. `of` is the
    number of slices in the leg.
    """
    begun = SliceProgress(piece.leg, piece.number, of, piece.distance, READING)
    name = f"{folder_of_build(build)}/{_PROGRESS_NAME}"
    return Stopwatch(lambda step: _PROGRESS.put(store.local, name, replace(begun, step=step)))


def read_progress(store: Store, build: str, newest: Frontier | None) -> SliceProgress | None:
    """Returns the stored progress of a build's job in its present slice.

    `newest` is the build's newest frontier, or None if there is none. Returns None if no progress
    is stored, or if the slice of the stored progress is already part of `newest`.
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
    """Returns a function that a task calls to store the number of records it has read so far.

    `place` is the folder of the file that the task writes, and `name` is that file's name. The
    number is stored in a separate file in the same folder.
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

    If such a request is already waiting, a second request has no effect.
    """
    store.local.put_json(f"{_TURNS}/{build}", {}, synced=False)


def turns_asked(store: Store) -> frozenset[str]:
    """Returns the builds for which `ask_turn` has requested one run of their job."""
    return frozenset(name.rsplit("/", 1)[-1] for name in store.local.names(_TURNS))


def end_turn(store: Store, build: str) -> None:
    """Deletes the request of `ask_turn` for a build, because the job runs or need not run."""
    store.local.delete(f"{_TURNS}/{build}")


class Stopped(Struct, frozen=True):
    """The error with which a job has stopped for good, and the time of the stop.

    A job stops for good if a restart would not help. `cut` contains the topics that have lost their
    last records. In these topics, the build's offsets no longer match the records.
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
    """Stores the error because of which a build's job has stopped for good.

    A stored error of an earlier job of the build is replaced.
    """
    failpoint("stopped.before_put")
    _STOPPED.put(store, _stopped_name(build), _stopped_record(error))
    failpoint("stopped.after_put")


def read_stopped(store: Store, build: str) -> Stopped | None:
    """Returns the stored error because of which a build's job has stopped for good, or None."""
    return _STOPPED.get(store, _stopped_name(build), f"what the job of build {build} stopped of")


def ensure_not_stopped(store: Store, build: str) -> None:
    """Deletes the stored error of a build's earlier job, if there is one (`put_stopped`)."""
    failpoint("stopped.before_delete")
    store.delete(_stopped_name(build))
    failpoint("stopped.after_delete")


def comparable_now(store: Store, build: Birth, other: Birth) -> frozenset[str]:
    """Returns the topics whose offsets can be compared between two builds.

    These are the topics that both builds read and that have the same topic id for both. A topic is
    left out if it has lost its last records, and the job of one of the builds has stopped because
    of this loss: then that build has folded records that the topic no longer contains.
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
    """The step of a verification that has begun last, as text for display."""

    text: str
    format: int = 1


_VERIFICATIONS = Documents(VerificationProgress, derived=True, synced=False)


def table_step(doing: str, table: str, number: int, of: int) -> str:
    """Returns the text for a step of a verification, as in `checking table hits (2 of 5)`."""
    return f"{doing} table {table} ({number} of {of})"


def putting_progress(store: Store, build: str) -> Callable[[str], None]:
    """Returns a function that stores its argument as the current step of a verification.

    The verification is that of the candidate `build`. The step is text for display.
    """

    def put(text: str) -> None:
        # A verification continues if its progress cannot be written.
        with contextlib.suppress(KappaError, OSError):
            _VERIFICATIONS.put(store.local, _verification_name(build), VerificationProgress(text))

    return put


def verification_progress(store: Store, build: str) -> str:
    """Returns the step of a candidate's verification that has begun last, as text for display.

    Returns "" if the step is not known.
    """
    found = _VERIFICATIONS.get(
        store.local, _verification_name(build), "the progress of a verification"
    )
    return "" if found is None else found.text


def _verification_name(build: str) -> str:
    return f"{folder_of_build(build)}/verification.json"


class ViewCheck(Struct, frozen=True):
    """The result of comparing a build's maintained views with their queries, at `offsets`.

    `unlike` contains one sentence for each view whose stored rows differ from the result of its
    query, or could not be compared with that result. `at` is the time of the comparison.
    """

    offsets: Offsets
    unlike: tuple[str, ...]
    at: str
    format: int = 1


_CHECKS = Documents(ViewCheck, derived=True)


def put_view_check(store: Store, build: str, check: ViewCheck) -> None:
    """Stores the result of comparing a build's maintained views with their queries.

    An earlier result is replaced.
    """
    _CHECKS.put(store, _view_check_name(build), check)


def read_view_check(store: Store, build: str) -> ViewCheck | None:
    """Returns the last result of comparing a build's maintained views with their queries.

    Returns None if no result is stored.
    """
    return _CHECKS.get(store, _view_check_name(build), f"the check of the views of build {build}")


def _view_check_name(build: str) -> str:
    return f"{folder_of_build(build)}/views-checked.json"


class ViewCost(Struct, frozen=True):
    """The cost of updating a maintained view in the last slice that computed rows of the view.

    `at` is the time of the computation, and `way` is the view's way. The slice covered `records`
    offsets, and changed `rows` rows of the view. Computing and committing the rows took `seconds`.
    `touched` is the number of keys whose rows were computed, or None if all rows of the view were
    computed.
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
    """Stores the costs of a build's maintained views on this host, by view name.

    The costs that were stored before are replaced.
    """
    _COSTS.put(store.local, _view_costs_name(build), ViewCosts({**costs}))


def read_view_costs(store: Store, build: str) -> Mapping[str, ViewCost]:
    """Returns the costs of a build's maintained views, by view name.

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
    """The mean time of each step of a slice, in seconds, over the last `slices` slices of a job.

    `seconds` maps the names of the steps to the times. The step `wait` is the time from the log
    time of a slice's newest record until the slice begins. During this time, the record waits in
    the broker, in the process that reads the topics, or for the previous slice to end. `at` is the
    time of the last slice.
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
    """Stores the mean times of the steps of a job's last slices, on this host.

    The times that were stored before are replaced.
    """
    _STEP_TIMES.put(store.local, _step_times_name(build), times)


def read_step_times(store: Store, build: str) -> StepTimes | None:
    """Returns the mean times of the steps of a job's last slices.

    Returns None if the build's job has stored no times on this host.
    """
    what = f"the times of the slices of build {build}"
    return _STEP_TIMES.get(store.local, _step_times_name(build), what)


def _step_times_name(build: str) -> str:
    return f"{folder_of_build(build)}/steps.json"
