"""The sample of a topic: records of the topic itself, or the project's sample events.

The sample events of topic T are in the files `events/T.ndjson`, `.jsonl`, `.csv`, `.txt` and
`.parquet`. They are read in the same way as `kappa produce T FILE` reads a file. Each line of
`events/T.envelopes.ndjson` is an envelope: a JSON object with the parts of a record. If the records
of the topic are changes of a database, each line of the text files is an envelope, too. An event
without a timestamp gets the default timestamp of a `kappa.testing.Event`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from kappa.base.errors import KappaError, UsageError
from kappa.base.units import count_of
from kappa.declare.formats.topic_formats import changes_of
from kappa.declare.topic import Topic
from kappa.engine.children.event_generator import Event, partition_of
from kappa.kafka.producer import ProducedRecord
from kappa.records.decode.raw_records import RawRecord
from kappa.records.lines.envelope import envelope_record
from kappa.records.lines.form import Given
from kappa.records.lines.input_events import given_as, parquet_events, placed_lines
from kappa.records.lines.produce import placed_events
from kappa.replay.rollout.plan.log_sample import SampledLog
from kappa.state.offsets import Offsets

FOLDER = "events"
_ENVELOPES = ".envelopes"
_SUFFIXES = frozenset({".ndjson", ".jsonl", ".csv", ".txt", ".parquet"})
# The records of each partition: the first, and the newest.
_FIRST, _NEWEST = 2_000, 200
# A run on more would take longer than a person waits.
_MOST_RECORDS = 20_000
_MOST_BYTES = 16 << 20
_PATIENCE_SECONDS = 5.0


class TopicLog(SampledLog, Protocol):
    """The methods of the broker's client that this module calls."""

    def facts(self, name: str) -> Any | None: ...  # noqa: D102  # as in Log


@dataclass(frozen=True, slots=True)
class Sample:
    """Records of a topic, in order within each partition.

    `source` names the topic or the files from which the records were read.
    """

    topic: str
    records: tuple[RawRecord, ...]
    source: str

    @property
    def text(self) -> str:
        """Describes the sample in words: the number of records, and their topic or files."""
        if not self.records:
            return f"no event of topic {self.topic} ({self.source})"
        return f"{count_of(len(self.records), 'record')} of {self.source}"


class Samples:
    """The samples of all topics of a project.

    Each topic is read only once. The files of sample events are read again when they change.
    """

    def __init__(
        self,
        project: Path,
        open_log: Callable[[], TopicLog | None],
        known: Mapping[str, Sample] | None = None,
    ) -> None:
        """Creates an object that reads the samples of the project in the folder `project`.

        `open_log` returns the broker's log, or None if no broker is up. `known` contains samples
        that were already read, by topic.
        """
        self._folder = project / FOLDER
        self._open_log = open_log
        self._of_files: dict[str, tuple[object, Sample]] = {}
        self._of_topics: dict[str, Sample | None] = {**(known or {})}
        self._log: TopicLog | None = None
        self._has_looked = False

    def forget(self) -> None:
        """Discards all samples, so that the next call reads topics and files again."""
        self._of_files.clear()
        self._of_topics.clear()
        self._has_looked = False

    def sample(self, topic: Topic) -> Sample:
        """Returns the sample of a topic.

        The sample contains records of the topic itself, or the project's sample events if the topic
        contains no records. Raises UsageError, with the line, if a file of events is wrong.
        """
        if topic.name not in self._of_topics:
            self._of_topics[topic.name] = self._topic_sample(topic.name)
        found = self._of_topics[topic.name]
        return self._file_sample(topic) if found is None else found

    def _topic_sample(self, topic: str) -> Sample | None:
        try:
            if not self._has_looked:
                self._has_looked, self._log = True, None
                self._log = self._open_log()
            return None if self._log is None else read_topic(self._log, topic)
        except KappaError:
            # A broker that is away, or does not let this client read, is as no broker.
            self._log = None
            return None

    def _file_sample(self, topic: Topic) -> Sample:
        files = event_files(self._folder, topic.name)
        known_by = (
            topic,
            [(file, (told := file.stat()).st_mtime_ns, told.st_size) for file in files],
        )
        kept = self._of_files.get(topic.name)
        if kept is None or kept[0] != known_by:
            kept = known_by, read_events(files, topic, at_most=_MOST_RECORDS)
            self._of_files[topic.name] = kept
        return kept[1]


def read_topic(log: TopicLog, topic: str) -> Sample | None:
    """Reads the first and the newest records of each partition of a topic.

    Returns None if the topic does not exist or has no records. Reading stops after five seconds, or
    when the sample is large enough.
    """
    if log.facts(topic) is None:
        return None
    deadline = time.monotonic() + _PATIENCE_SECONDS
    found = list[RawRecord]()
    size = 0
    for start, stop in first_and_newest(log.beginning([topic]), log.end([topic])):
        for record in log.records([topic], start, stop):
            found.append(
                (
                    *(record.topic, record.partition, record.offset),
                    record.timestamp_ms * 1000,
                    *(record.key, record.value, tuple(record.headers)),
                )
            )
            size += len(record.key or b"") + len(record.value or b"")
            if size > _MOST_BYTES or time.monotonic() > deadline:
                break
    return Sample(topic, tuple(found), f"topic {topic}") if found else None


def first_and_newest(begin: Offsets, end: Offsets) -> Iterator[tuple[Offsets, Offsets]]:
    """Yields ranges of offsets for the first and the newest records of each partition. Pure.

    A range is a pair (start, end). The first pair contains the first offsets of all partitions, and
    the second pair contains the newest offsets. The ranges of a partition do not overlap. Together,
    the ranges contain about as many offsets as a sample may have records, or fewer.
    """
    parts = [each for each in end.items() if each[2] > begin.at(*each[:2])]
    share = _MOST_RECORDS / max(1, len(parts)) / (_FIRST + _NEWEST)
    first, newest = (max(1, int(min(1.0, share) * each)) for each in (_FIRST, _NEWEST))
    bounds = {
        (topic, part): (start, min(start + first, last), max(start + first, last - newest), last)
        for topic, part, last in parts
        if (start := begin.at(topic, part)) < last
    }
    for low, high in ((0, 1), (2, 3)):
        ranges = {at: (found[low], found[high]) for at, found in bounds.items()}
        ranges = {at: (start, stop) for at, (start, stop) in ranges.items() if start < stop}
        if ranges:
            yield (
                Offsets.of_partitions({at: start for at, (start, _) in ranges.items()}),
                Offsets.of_partitions({at: stop for at, (_, stop) in ranges.items()}),
            )


def event_files(folder: Path, topic: str) -> tuple[Path, ...]:
    """Lists the files that contain a topic's events in a folder, ordered by name."""
    if not folder.is_dir():
        return ()
    return tuple(
        sorted(
            file
            for file in folder.iterdir()
            if file.suffix in _SUFFIXES and file.stem.removesuffix(_ENVELOPES) == topic
        )
    )


def read_events(files: Iterable[Path], topic: Topic, *, at_most: int | None = None) -> Sample:
    """Reads the events of a topic from files, in the order of the files, as a sample.

    At most `at_most` events are read; None means all. Raises UsageError, with the file and line, if
    an event cannot be read.
    """
    found = list[RawRecord]()
    ends: Counter[int] = Counter()
    named, untimed = [*files], Event(None).timestamp_ms
    for file in named:
        for record in islice(_file_records(file, topic), at_most and at_most - len(found)):
            partition = (
                partition_of(record.key, topic) if record.partition is None else record.partition
            )
            ms = untimed if record.timestamp_ms is None else record.timestamp_ms
            found.append(
                (
                    *(topic.name, partition, ends[partition], ms * 1000),
                    *(record.key, record.value, tuple(record.headers)),
                )
            )
            ends[partition] += 1
    source = (
        ", ".join(f"{file.parent.name}/{file.name}" for file in named)
        or f"write some to {FOLDER}/{topic.name}.ndjson"
    )
    return Sample(topic.name, tuple(found), source)


def _file_records(file: Path, topic: Topic) -> Iterator[ProducedRecord]:
    named = f"{file.parent.name}/{file.name}"
    try:
        if given_as(file.name, topic) is Given.PARQUET:
            yield from (record for _, record in parquet_events(topic, file))
            return
        with file.open("rb") as lines:
            if file.stem.endswith(_ENVELOPES) or changes_of(topic.format) is not None:
                placed = placed_lines(lines, envelope_record, named)
            else:
                placed = placed_events(given_as(file.name, topic), topic, lines, named)
            yield from (record for _, record in placed)
    except OSError as error:
        raise UsageError(f"{named} cannot be read: {error.strerror}") from None
