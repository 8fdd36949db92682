"""The tail, which folds one slice for each micro-batch of a Spark stream.

Spark Structured Streaming plans the micro-batches. The job uses two threads: Spark's callback folds
the slices; the main thread reads the journal and maintains the tables between slices.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from kappa.base.clock import Stopwatch, now
from kappa.base.errors import Broken, KappaError, Unreachable, UsageError
from kappa.base.log_lines import Level, write_log_line
from kappa.base.units import count_of
from kappa.engine.function.spark_errors import SPARK_ERRORS, translated
from kappa.engine.job.legs import Leg
from kappa.engine.read.source import KafkaAccess, batch_bounds, read_tail
from kappa.engine.spark.session_control import hush_streams
from kappa.engine.write.publisher import Stopping
from kappa.state.build import folder_of_build
from kappa.state.build_status import StepTimes, ensure_not_stopped, put_step_times
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

if TYPE_CHECKING:
    from kappa.engine.job.job_run import Job

# How often the journal is looked at: a hold is acknowledged within this time.
_LOOK_SECONDS = 0.05
# After a slice the job rests for this share of the slice's time, unless many records wait: fewer
# slices of more records cost little freshness, and leave the machine to others. A slice into a
# bucket leaves the machine to others anyway, while the slice waits for answers.
_REST, _REST_IN_BUCKET = 0.5, 0.25
_LONGEST_REST_SECONDS = 0.25
# The pause between a tail's looks for a stop at the log's end, and the pause between its questions
# to the broker for all ends: a topic may have more partitions. A broker that is away is asked as
# seldom.
_STOP_SECONDS = 0.25
_ASK_SECONDS = 2.0
# The time between two lines in the log; a line per slice would fill a disk.
_REPORT_SECONDS = 10.0
# A record that is older as it is read was written with a time of the past.
_PAST_SECONDS = 600.0
# The steps of a slice, as people are shown them; the tables of topics are committed by themselves.
_STEP_NAMES = {
    "read": "read",
    "function": "function",
    "topics": "commit",
    "commit": "commit",
    "view": "views",
    "frontier": "publish",
}


class Tail:
    """The unbounded leg of a build, which folds micro-batches until the job is asked to stop.

    A lock ensures that slices and maintenance do not change the tables at the same time.
    """

    def __init__(self, job: Job, leg: Leg) -> None:
        self._job = job
        self._leg = leg
        folder = folder_of_build(job.birth.build)
        self._checkpoint = job.store.local.path(f"{folder}/checkpoint")
        # The start of the stream, and the number of its first slice.
        self._start, self._first = leg.start, 0
        # The lock's holder may touch the tables.
        self._turn = threading.Lock()
        self._ended = False
        self._failure: BaseException | None = None
        self._report = _Report(partial(put_step_times, job.store, job.birth.build))
        self._began = time.time()

    def run(self, kafka: KafkaAccess) -> None:
        """Folds micro-batches until the job is asked to stop.

        If the stream ends before that, raises the error that ended the stream.
        """
        job, at_most = self._job, self._job.engine.tail_records
        spark = job.session()
        job.slices.prepare(lambda: spark)
        rest = _REST if job.store.is_on_disk else _REST_IN_BUCKET
        topics = tuple(topic.name for topic in job.pipeline.topics)
        # The frontier alone decides what is folded: Spark plans batches, and remembers nothing.
        shutil.rmtree(self._checkpoint, ignore_errors=True)
        # Spark wants every partition; new partitions begin at 0 (law 12).
        newest = job.publisher.newest
        self._start = newest.offsets.highest_with(
            Offsets(
                {
                    topic: dict.fromkeys(parts, 0)
                    for topic, parts in job.log.end(topics).next.items()
                }
            )
        )
        self._first = newest.slice + 1 if newest.leg == self._leg.number else 0
        frame = read_tail(spark, kafka, self._start, topics, at_most=at_most)

        def fold_and_rest(rows: DataFrame, batch: int) -> None:
            piece, seconds = self._fold(rows, batch)
            if 2 * piece.distance < at_most:
                job.stop.wait(min(rest * seconds, _LONGEST_REST_SECONDS))
                self._wait_for_more(piece.end, topics)

        query = (
            frame.writeStream.foreachBatch(fold_and_rest)
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )
        ended = _end_of(query)
        ensure_not_stopped(job.store, job.birth.build)
        try:
            while not ended.is_set() and not job.stop.wait(_LOOK_SECONDS):
                job.publisher.follow_journal()
                self._upkeep()
        finally:
            self._end(query)
        if not job.stop.is_set():
            reason = self._reason(query)
            if isinstance(reason, Broken):
                # Spark names no offsets.
                self._check_end()
            raise reason

    def _fold(self, frame: DataFrame, batch: int) -> tuple[Slice, float]:
        """Folds the micro-batch `batch`, and returns its slice and the fold's duration in seconds.

        Raises Stopping if the tail has ended. Any other error is stored as the reason why the
        stream ended.
        """
        with self._turn:
            if self._ended:
                # A batch that returned would count as folded.
                raise Stopping
            try:
                watch = Stopwatch()
                start, end = batch_bounds(self._checkpoint, batch, self._start)
                piece = Slice(self._leg.number, self._first + batch, start, end)
                self._job.slices.guard.check_still_heard(
                    self._job.publisher.newest, datetime.now(UTC)
                )
                heard_at = self._job.slices.guard.heard_with(self._job.publisher.newest, end)
                self._job.slices.run_slice(
                    piece,
                    lambda: frame.sparkSession,
                    self._job.source,
                    self._job.publisher,
                    watch,
                    heard_at=heard_at,
                )
                waited = _waited_seconds(
                    self._job.publisher.newest, start, watch.total, since=self._began
                )
                self._report.add(piece, watch, waited)
            except BaseException as error:
                self._failure = error
                if isinstance(error, Broken | UsageError):
                    # The job's own sentence reports the whole error.
                    hush_streams(frame.sparkSession)
                raise
            return piece, watch.total

    def _wait_for_more(self, end: Offsets, topics: Sequence[str]) -> None:
        """Waits until the log has records after `end`, or until the job is asked to stop.

        During the wait Spark plans no micro-batch. Otherwise Spark would ask the broker a hundred
        times a second, which costs Spark a tenth of a core and the broker another tenth.
        """
        asked, stop = time.monotonic(), self._job.stop
        while not stop.is_set():
            try:
                if self._job.source.wait_beyond(end, _STOP_SECONDS):
                    return
                if time.monotonic() - asked >= _ASK_SECONDS:
                    if not self._job.log.end(topics).equals(end):
                        return
                    asked = time.monotonic()
            except Unreachable:
                stop.wait(_ASK_SECONDS)
            except KappaError as error:
                # The stream meets the error too, and reports it, except for a lost end.
                if isinstance(error, Broken):
                    self._check_end()
                return

    def _check_end(self) -> None:
        """Raises LogCutError if the log has lost records that the build has folded.

        The error is also stored as `_failure`. Spark's stream does not check leader epochs, so it
        would continue as soon as the log has grown past the old end.
        """
        try:
            self._job.slices.guard.check_end(self._job.publisher.newest)
        except KappaError as error:
            self._failure = error
            raise

    def _upkeep(self) -> None:
        if self._job.maintenance.is_due():
            # Beside a slice.
            self._job.maintenance.prepare()
        if self._turn.acquire(blocking=False):
            try:
                self._job.maintenance.run_if_due()
                self._job.slices.rest()
                self._hear()
            finally:
                self._turn.release()

    def _hear(self) -> None:
        """Publishes the newest known time up to which the build has read all deletions.

        Without this, the published time would stay the same in a build that gets no new records.
        """
        if self._job.publisher.is_held():
            return
        # The stream waits for a broker that is away.
        with suppress(Unreachable):
            heard_at = self._job.slices.guard.heard_with(
                self._job.publisher.newest, self._job.publisher.newest.offsets
            )
            if heard_at is not None:
                self._job.publisher.publish_heard_at(heard_at)

    def _end(self, query: StreamingQuery) -> None:
        """Waits for the current slice to end, and stops the stream."""
        with self._turn:
            self._ended = True
        try:
            query.stop()
        except SPARK_ERRORS as error:
            write_log_line(f"the stream did not stop: {error}", Level.WARN)

    def _reason(self, query: StreamingQuery) -> BaseException:
        if self._failure is not None:
            return self._failure
        error = query.exception()
        return (
            KappaError("the stream ended", hint="the job is started again by itself")
            if error is None
            else translated(error, self._job.pipeline)
        )


def _end_of(query: StreamingQuery) -> threading.Event:
    """Returns an event that is set after the stream has ended.

    A thread waits for the stream's end, since it would cost more to ask the stream repeatedly.
    """
    ended = threading.Event()

    def wait() -> None:
        # The reason is asked for later.
        with suppress(Exception):
            query.awaitTermination()
        ended.set()

    threading.Thread(target=wait, name="stream", daemon=True).start()
    return ended


def _waited_seconds(
    newest: Frontier, start: Offsets, folding: float, *, since: float
) -> float | None:
    """Returns how many seconds a slice's newest record waited before the slice began.

    `newest` is the slice's frontier, and `folding` is the number of seconds since the slice began.
    Returns None in three cases. The slice has no record; or the newest record's time is more than
    ten minutes before the slice began, so the record was written with a time in the past; or the
    record is older than `since`, the time at which the tail began. In the last case the record has
    waited for a replay or a stop, and its waiting time would be displayed until new records arrive.
    """
    last = max(
        (
            newest.log_time.get(topic, {}).get(partition, 0)
            for topic, partition, offset in newest.offsets.items()
            if offset > start.at(topic, partition)
        ),
        default=0,
    )
    waited = time.time() - last / 1000 - folding
    return max(0.0, waited) if last / 1000 > since and waited < _PAST_SECONDS else None


class _Report:
    """A reporter that logs how many slices and offsets were folded, and the mean time of each step.

    The first line covers the first slice. Each further line is written at least ten seconds after
    the line before, and covers all slices since that line.
    """

    def __init__(self, put_times: Callable[[StepTimes], None]) -> None:
        """Stores the function `put_times`, which gets the mean times of the slices of a log line.

        `put_times` is called only if the waiting time of at least one of these slices is known.
        """
        self._put_times = put_times
        self._waited: list[float] = []
        self._due = 0.0
        self._slices = self._offsets = 0
        self._seconds: dict[str, float] = {}

    def add(self, piece: Slice, watch: Stopwatch, waited: float | None) -> None:
        """Counts a slice, and writes a line to the job's log if a line is due.

        `waited` is the number of seconds that the slice's newest record waited, or None if unknown.
        """
        self._slices += 1
        self._waited += [] if waited is None else [waited]
        self._offsets += piece.distance
        for name, seconds in {**watch.seconds, "all": watch.total}.items():
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        if time.monotonic() < self._due:
            return
        means = ", ".join(
            f"{name} {seconds * 1000 / self._slices:.0f}" for name, seconds in self._seconds.items()
        )
        write_log_line(
            f"{count_of(self._slices, 'slice')} up to {piece.leg}/{piece.number}, "
            f"{count_of(self._offsets, 'offset')} (mean ms: {means})"
        )
        if self._waited:
            steps = {"wait": sum(self._waited) / len(self._waited)}
            for name, seconds in self._seconds.items():
                shown = _STEP_NAMES.get(name.partition(" ")[0])
                if shown is not None:
                    steps[shown] = steps.get(shown, 0.0) + seconds / self._slices
            # The times are for people: a full disk stops no slice.
            with suppress(KappaError, OSError):
                self._put_times(StepTimes(steps, self._slices, now()))
        self._waited = []
        self._slices = self._offsets = 0
        self._seconds = {}
        self._due = time.monotonic() + _REPORT_SECONDS
