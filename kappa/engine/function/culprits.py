"""Records that a function fails on, found by ever smaller runs.

Rows are computed row by row: a function fails on many records exactly if it fails on some record
alone. On a single record the function does the same whatever the slice. A function that fails
without any record has an error of its own. If the function fails on many records together, and on
no record alone, no record is to blame.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from kappa.base.errors import Broken, KappaError
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.reason import Reason
from kappa.engine.function.failure import Failure, failure_of
from kappa.engine.function.narrowing import Together, failing
from kappa.engine.function.prepared import Prepared
from kappa.engine.function.refused import REFUSED_COLUMNS, Refused, raw_records, refused_of
from kappa.engine.function.trouble import SPARK_ERRORS, translated
from kappa.engine.read.source import LogSource
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

# The plan of small slices takes as many easily. A large slice is read once in parts of this size,
# on one core: the search costs one run of the function, as halving the slice at Spark would, and
# finds all records.
_AT_ONCE = 10_000
# Each failing record costs some seconds, since its worker is gone each time. If most records fail,
# or very many, the function of a new build is wrong. A few records are too few to decide that. A
# build that has readers goes on, whatever is sent to it.
_TELLING = 100
_SAMPLED = 8
_MOST, _MOST_SHARE = 1_000, 0.01
_SHOWN = 300
# A memory address in Python's text of an object.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Valid(Protocol):
    """The valid records of a slice (decoded.py)."""

    def chunks(
        self, topic: Topic, columns: Sequence[tuple[str, str]], at_most: int
    ) -> Iterator[pa.Table]:
        """Yields these columns of a topic's valid records, in parts.

        A part has at most `at_most` records.
        """
        ...


@dataclass(frozen=True, slots=True)
class Culprit:
    """A record that the function fails on, its place, and the failure."""

    topic: str
    partition: int
    offset: int
    failure: Failure


class Culprits:
    """Search for the records of a slice that a function fails on."""

    def __init__(
        self, pipeline: Pipeline, prepared: Callable[[], Prepared], decoded: Valid
    ) -> None:
        """Takes the slice's valid records.

        `prepared` gives the plan of small slices, and is called only if the function is to blame.
        """
        self._pipeline = pipeline
        self._prepared = prepared
        self._decoded = decoded

    def first(self, error: Exception, read: Callable[[Slice], pa.Table]) -> KappaError:
        """Returns the error with which a job stops.

        `error` is the function's error on the slice. `read` gives raw records, of which key and
        value are shown.
        """
        if failure_of(error, self._pipeline) is None:
            return translated(error, self._pipeline)
        try:
            if self._failure({}) is not None:
                return translated(error, self._pipeline)
            culprit = next(self._search())
        except Together:
            return self._together(error)
        except SPARK_ERRORS as trouble:
            return translated(trouble, self._pipeline)
        return self._blamed(culprit, read)

    def all(self, error: Exception, *, is_new: bool) -> list[Culprit]:
        """Returns all records of the slice that the function fails on.

        Raises the error with which a job stops if no record is to blame, and also if the function
        fails on most records and the build `is_new`: nobody reads a new build yet.
        """
        if failure_of(error, self._pipeline) is None:
            raise translated(error, self._pipeline) from error
        found: list[Culprit] = []
        try:
            if self._failure({}) is not None:
                raise translated(error, self._pipeline) from error
            most = self._refuse_most() if is_new else math.inf
            for culprit in self._search():
                found.append(culprit)
                self._report(found, most)
        except Together:
            raise self._together(error) from error
        except SPARK_ERRORS as trouble:
            raise translated(trouble, self._pipeline) from trouble
        return found

    def _search(self) -> Iterator[Culprit]:
        chunks = self._chunks(_AT_ONCE)
        first, second = next(chunks, None), next(chunks, None)
        found = False
        for topic, rows in chain(filter(None, (first, second)), chunks):
            # The whole slice is known to fail; and each try that fails costs a worker.
            if second is not None and self._failure({topic.name: rows}) is None:
                continue
            for place, failure in failing(rows.num_rows, partial(self._tried, topic, rows)):
                yield _culprit(topic, rows.slice(place, 1), failure)
            found = True
        if not found:
            raise Together

    def _chunks(self, at_most: int) -> Iterator[tuple[Topic, pa.Table]]:
        for topic in self._pipeline.input_topics:
            for rows in self._decoded.chunks(topic, self._pipeline.columns_of(topic), at_most):
                yield topic, rows

    def _tried(self, topic: Topic, rows: pa.Table, start: int, end: int) -> Failure | None:
        return self._failure({topic.name: rows.slice(start, end - start)}, alone=end - start == 1)

    def _failure(self, rows: Mapping[str, pa.Table], *, alone: bool = False) -> Failure | None:
        """Returns the failure of the function on these rows, or None.

        For a record alone the failure is always the same, though tables are computed in parallel.
        """
        try:
            self._prepared().run_apart(rows) if alone else self._prepared().run(rows)
        except SPARK_ERRORS as error:
            failure = failure_of(error, self._pipeline)
            if failure is None:
                raise
            return failure
        return None

    def _refuse_most(self) -> int:
        """Returns the number of records of this slice that may fail.

        Raises Broken if most records fail.
        """
        count = sum(rows.num_rows for _, rows in self._chunks(_AT_ONCE))
        most = max(_MOST, int(count * _MOST_SHARE))
        if count < _TELLING:
            return most
        every, seen = count // _SAMPLED, 0
        failures: list[Failure] = []
        for topic, rows in self._chunks(_AT_ONCE):
            for place in range(-seen % every, rows.num_rows, every):
                failure = self._tried(topic, rows, place, place + 1)
                failures += [] if failure is None else [failure]
            seen += rows.num_rows
        if len(failures) > _SAMPLED // 2:
            raise self._wrong(
                failures[0],
                f"on {len(failures)} of {-(-count // every)} records that were tried alone,"
                f" of {count} in a slice",
            )
        return most

    def _report(self, found: list[Culprit], most: float) -> None:
        if len(found) > most:
            raise self._wrong(found[0].failure, f"on more than {most} records of one slice")
        if len(found) % 10 == 1:
            last = found[-1]
            print(
                f"the function {last.failure.error} on {last.topic} partition {last.partition}"
                f" offset {last.offset}; rejected so far: {len(found)}",
                file=sys.stderr,
                flush=True,
            )

    def _blamed(self, culprit: Culprit, read: Callable[[Slice], pa.Table]) -> KappaError:
        try:
            raw = read(only(culprit))
            shown = ": key {}, value {}".format(
                *(_content_text(raw.column(name)[0].as_py()) for name in ("key", "value"))
            )
        except Broken:
            # The line alone is enough to mend the function.
            shown = ", which the topic has lost since, and its archive has without key and value"
        failure = culprit.failure
        return Broken(
            f"{failure.line}: pipeline {self._pipeline.name} {failure.error}, on {culprit.topic}"
            f" partition {culprit.partition} offset {culprit.offset}{shown}",
            hint=f'{failure.hint}; without on_error="stop" such records are set aside as rejects',
        )

    def _together(self, error: Exception) -> KappaError:
        own = translated(error, self._pipeline)
        return Broken(
            f"{own.message}, on many records together and on none of them alone",
            hint=f"what a function gives for a row may depend on that row alone; {own.hint}",
        )

    def _wrong(self, failure: Failure, where: str) -> KappaError:
        return Broken(
            f"{failure.line}: pipeline {self._pipeline.name} {failure.error}, {where}:"
            " too many to be set aside one by one",
            hint=f"{failure.hint}; if so many are meant to be rejected, leave them out in the"
            " function, or lower engine.slice_records",
        )


def only(culprit: Culprit) -> Slice:
    """Returns the slice of this record alone."""
    start, end = (
        Offsets({culprit.topic: {culprit.partition: culprit.offset + step}}) for step in (0, 1)
    )
    return Slice(0, 0, start, end)


def refused_culprits(culprits: Sequence[Culprit], pipeline: Pipeline, source: LogSource) -> Refused:
    """Returns the rejects that these records become.

    Records that only an archive still has are rejected without their bytes.
    """
    found = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "detail": reject_detail(each, pipeline),
        }
        for each in sorted(culprits, key=attrgetter("topic", "partition", "offset"))
    ]
    places = pa.Table.from_pylist(found, schema=arrow_schema(REFUSED_COLUMNS))
    return refused_of(places, Reason.FUNCTION_FAILED, raw_records(places, source))


def reject_detail(culprit: Culprit, pipeline: Pipeline) -> str:
    """Returns a failure as rejects keep it, the same in each build.

    Files are named below the project's folder, and objects are named without an address.
    """
    project = Path(pipeline.source.file).parent.parent
    file = Path(culprit.failure.line)
    shown = file.relative_to(project) if file.is_relative_to(project) else file
    return f"{shown}: {without_addresses(culprit.failure.error)}"


def without_addresses(error: str) -> str:
    """Drops the addresses of objects from an error.

    Addresses differ between processes.
    """
    return _ADDRESS.sub("", error)


def _culprit(topic: Topic, row: pa.Table, failure: Failure) -> Culprit:
    return Culprit(
        topic.name, row.column("_partition")[0].as_py(), row.column("_offset")[0].as_py(), failure
    )


def _content_text(text: bytes | None) -> str:
    if text is None:
        return "null"
    shown = text.decode(errors="backslashreplace")
    return shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 3]}..."
