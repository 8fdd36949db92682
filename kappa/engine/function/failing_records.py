"""The search for the records on which a function fails: runs on fewer and fewer records.

A function processes each row by itself. So it fails on a set of records exactly if it fails on at
least one record of the set alone, and it does the same with a record in every slice. If a function
fails without any record, the error does not depend on the records. If the function fails on many
records together but on none of them alone, no record is rejected.

The search does not limit the number of failing records. The search takes time, but a producer's
records cannot stop the job. A slice with very many failing records is split into parts, because the
records found are kept in memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from kappa.base.errors import Broken, KappaError
from kappa.base.log_lines import Level, write_log_line
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.reason import Reason
from kappa.engine.function.failure import Failure, failure_of
from kappa.engine.function.refused_records import REFUSED_COLUMNS, Refused, raw_records, refused_of
from kappa.engine.function.spark_errors import SPARK_ERRORS, translated
from kappa.engine.function.trial import Tries
from kappa.engine.read.source import LogSource
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

# A large slice is read once in parts of this size, on one core: the search costs one run of the
# function, as halving the slice at Spark would, and finds all records.
_AT_ONCE = 10_000
# Of more records in a slice, keys, values and errors would take too much memory together.
MOST_FAILING = 50_000
_TOLD_EVERY = 1_000
_SHOWN = 300
# A memory address in Python's text of an object.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_Error = TypeVar("_Error")


class TooManyFail(Exception):
    """A signal that a slice must be split because very many of its records fail."""


class Valid(Protocol):
    """The method of a slice's rows that the search for failing records calls.

    `SliceRows` in engine/slice_rows.py has this method.
    """

    def chunks(
        self, topic: Topic, columns: Sequence[tuple[str, str]], at_most: int
    ) -> Iterator[pa.Table]:
        """Yields tables with the given columns of a topic's valid records.

        Each table has at most `at_most` records.
        """
        ...


@dataclass(frozen=True, slots=True)
class Culprit:
    """A record on which the function fails, with its place and the failure."""

    topic: str
    partition: int
    offset: int
    failure: Failure


class Culprits:
    """The search for the records of a slice on which a function fails."""

    def __init__(
        self, pipeline: Pipeline, tries: Callable[[], Iterable[Tries]], decoded: Valid
    ) -> None:
        """Stores the pipeline and the slice's valid records.

        `tries` returns the ways to run the function on a few records, and is called only if the
        function has failed. The search uses the first way. It uses the next way only if the ways
        before have found no failing record.
        """
        self._pipeline = pipeline
        self._tries = tries
        self._decoded = decoded

    def first(self, error: Exception, read: Callable[[Slice], pa.Table]) -> KappaError:
        """Finds the first record on which the function fails, and returns an error that names it.

        `error` is the function's error on the slice. `read` reads the raw records of a slice. If
        the function fails on a record alone, the returned error contains the key and value of the
        first such record. Otherwise, the returned error is a translation of `error`.
        """
        if failure_of(error, self._pipeline) is None:
            return translated(error, self._pipeline)
        try:
            if self._fails_without_rows():
                return translated(error, self._pipeline)
            culprit = next(self._search())
        except Together:
            return self._together(error)
        except SPARK_ERRORS as trouble:
            return translated(trouble, self._pipeline)
        return self._blamed(culprit, read)

    def all(self, error: Exception) -> list[Culprit]:
        """Returns all records of the slice on which the function fails.

        `error` is the function's error on the slice. Raises TooManyFail if the function fails on
        more than MOST_FAILING records. If the function fails on no record alone, raises a
        translation of `error`.
        """
        if failure_of(error, self._pipeline) is None:
            raise translated(error, self._pipeline) from error
        found: list[Culprit] = []
        try:
            if self._fails_without_rows():
                raise translated(error, self._pipeline) from error
            for culprit in self._search():
                found.append(culprit)
                self._report(found)
                if len(found) > MOST_FAILING:
                    raise TooManyFail
        except Together:
            raise self._together(error) from error
        except SPARK_ERRORS as trouble:
            raise translated(trouble, self._pipeline) from trouble
        return found

    def _search(self) -> Iterator[Culprit]:
        for tries in self._tries():
            found = False
            for topic, rows in self._chunks(_AT_ONCE):
                tries.put(topic.name, rows)
                if tries.failure(0, rows.num_rows) is None:
                    continue
                for place, failure in failing(rows.num_rows, tries.failure):
                    yield _culprit(topic, rows.slice(place, 1), failure)
                found = True
            if found:
                return
        raise Together

    def _chunks(self, at_most: int) -> Iterator[tuple[Topic, pa.Table]]:
        for topic in self._pipeline.input_topics:
            for rows in self._decoded.chunks(topic, self._pipeline.columns_of(topic), at_most):
                yield topic, rows

    def _fails_without_rows(self) -> bool:
        tries, topic = next(iter(self._tries())), self._pipeline.input_topics[0]
        tries.put(topic.name, arrow_schema(self._pipeline.columns_of(topic)).empty_table())
        return tries.failure(0, 0) is not None

    def _report(self, found: list[Culprit]) -> None:
        if len(found) == 1 or len(found) % _TOLD_EVERY == 0:
            last = found[-1]
            write_log_line(
                f"the function {last.failure.error} on {last.topic} partition {last.partition}"
                f" offset {last.offset}; rejected so far: {len(found)}",
                Level.WARN,
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


def only(culprit: Culprit) -> Slice:
    """Returns the slice that contains only the record of `culprit`."""
    start, end = (
        Offsets({culprit.topic: {culprit.partition: culprit.offset + step}}) for step in (0, 1)
    )
    return Slice(0, 0, start, end)


def refused_culprits(culprits: Sequence[Culprit], pipeline: Pipeline, source: LogSource) -> Refused:
    """Returns the rejects for these failing records, by topic and partition.

    If only an archive still contains a record, its reject has no key, value and headers.
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
    """Returns the detail of a failing record in the rejects table: the line and the error.

    The text is the same in each build: paths are relative to the project's folder, and the
    addresses of objects are removed.
    """
    project = Path(pipeline.source.file).parent.parent
    file = Path(culprit.failure.line)
    shown = file.relative_to(project) if file.is_relative_to(project) else file
    return f"{shown}: {without_addresses(culprit.failure.error)}"


def without_addresses(error: str) -> str:
    """Returns an error's text without the addresses of objects, which differ between processes."""
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


class Together(Exception):
    """An error: many items fail together, but no item fails alone."""


def failing(count: int, tried: Callable[[int, int], _Error | None]) -> Iterator[tuple[int, _Error]]:
    """Yields the indexes of the items that fail alone, each with its error.

    All `count` items must be known to fail together. `tried(start, end)` tries the items of that
    half-open range, and returns an error or None. Items are tried only when the caller asks for the
    next result. Finding the first index takes log2(count) tries, and finding each further index at
    most about twice as many. Raises Together if no item fails alone.
    """
    return _within(0, count, None, tried)


def _within(
    start: int, end: int, error: _Error | None, tried: Callable[[int, int], _Error | None]
) -> Iterator[tuple[int, _Error]]:
    """Yields the index and the error of each item in `[start, end)` that fails alone.

    The items of the range are known to fail together. `error` is the error of trying exactly this
    range, or None if the range was not tried yet.
    """
    if end - start == 1:
        error = error or tried(start, end)
        if error is None:
            raise Together
        yield start, error
        return
    middle = (start + end) // 2
    first = tried(start, middle)
    if first is None:
        yield from _within(middle, end, None, tried)
        return
    yield from _within(start, middle, first, tried)
    second = tried(middle, end)
    if second is not None:
        yield from _within(middle, end, second, tried)
