"""Samples a log, and checks that the sampled records can be read as declared now.

A sample contains records from the beginning, the middle and the end of each partition. No row
depends on a sample. Samples are small, because the operator waits for the plan. If records cannot
be read in time, the plan says so. replay/rollout/law.py uses samples to test the law of slices.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Protocol

from kappa.base.errors import KappaError
from kappa.base.units import count_of
from kappa.declare.topic import Topic
from kappa.declare.values.reason import Rejected
from kappa.kafka.reader import Record
from kappa.records.record import RecordReader
from kappa.replay.rollout.plan.finding import Finding
from kappa.state.offsets import Offsets

# If a topic has more partitions, this many are sampled, evenly spread.
_MOST_PARTITIONS = 64
_MOST_BYTES = 16 << 20
_PATIENCE_SECONDS = 5.0
_SHOWN = 3
# With fewer records at a place, a single broken record would be too large a share.
_FEW = 5


class SamplePlace(StrEnum):
    """The place in a partition from which a sampled record was read."""

    BEGINNING = "beginning"
    MIDDLE = "middle"
    END = "end"


class SampledLog(Protocol):
    """The methods of the Kafka client (`Log`) that a sample needs."""

    def beginning(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def end(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]: ...  # noqa: D102  # as in Log


def sample_records(
    log: SampledLog, begin: Offsets, end: Offsets, at_most: int
) -> Iterator[tuple[SamplePlace, Record]]:
    """Yields about `at_most` records between `begin` and `end`, each with its place.

    Within each partition, the records are in order of offsets. If compaction or transactions have
    left no record at a place, the next records after the place are read instead.
    """
    found = list(sample_ranges(begin, end, at_most))
    for where, (start, stop), upto in zip(
        SamplePlace, found, [*(start for start, _ in found[1:]), end], strict=True
    ):
        met: Counter[tuple[str, int]] = Counter()
        for record in log.records(stop.next, start, stop):
            met[record.topic, record.partition] += 1
            yield where, record
        for topic, partition, last in stop.items():
            width = last - start.at(topic, partition)
            if width > 0 and not met[topic, partition]:
                behind = log.records(
                    [topic],
                    Offsets({topic: {partition: last}}),
                    Offsets({topic: {partition: upto.at(topic, partition)}}),
                )
                yield from ((where, record) for record in islice(behind, width))


def sample_ranges(begin: Offsets, end: Offsets, at_most: int) -> Iterator[tuple[Offsets, Offsets]]:
    """Yields three ranges of offsets, in order, with about `at_most` offsets in total. Pure.

    The first range covers the beginning of all partitions, the second the middle, the third the
    end.
    """
    parts = [
        (topic, partition, begin.at(topic, partition), stop)
        for topic, partition, stop in end.items()
    ]
    width = max(1, at_most // (3 * max(1, len(parts))))
    reached = begin
    for third in range(3):
        start: dict[str, dict[int, int]] = {}
        stop: dict[str, dict[int, int]] = {}
        for topic, partition, first, last in parts:
            here = max(reached.at(topic, partition), first + (last - first - width) * third // 2)
            start.setdefault(topic, {})[partition] = min(here, last)
            stop.setdefault(topic, {})[partition] = min(here + width, last)
        reached = Offsets(stop)
        yield Offsets(start), reached


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The records of a sample that would be rejected for the same reason, with an example.

    `partition`, `offset` and `detail` describe the example.
    """

    reason: str
    count: int
    partition: int
    offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class TopicSample:
    """The sample of a topic.

    `read` and `rejected` map a place (beginning, middle or end) to a number of records.
    `unreadable` has an entry for each reason to reject records. `partitions` is the number of
    sampled partitions, and `of_partitions` is the number of partitions that have records. `unknown`
    is the reason why no record, or not every record, could be sampled.
    """

    topic: str
    read: Mapping[SamplePlace, int]
    rejected: Mapping[SamplePlace, int]
    unreadable: tuple[Unreadable, ...]
    partitions: int
    of_partitions: int
    unknown: str = ""

    @property
    def text(self) -> str:
        """Describes in one line the size of the sample, and how many of its records can be read."""
        read, rejected = sum(self.read.values()), sum(self.rejected.values())
        where = (
            "1 partition"
            if self.of_partitions == 1
            else f"{self.partitions} partitions"
            if self.partitions == self.of_partitions
            else f"{self.partitions} of {self.of_partitions} partitions"
        )
        if not read:
            why = f": {self.unknown}" if self.unknown else ", in which no record was found"
            return f"nothing of topic {self.topic}{why}"
        verdict = f"{rejected} of them would be rejected" if rejected else "all can be read"
        return (
            f"{count_of(read, 'record')} of topic {self.topic}, at the beginning, in the middle "
            f"and at the end of {where}: "
            f"{verdict}{f' (not all that was meant: {self.unknown})' if self.unknown else ''}"
        )


def read_samples(
    log: SampledLog, topics: Iterable[Topic], begin: Offsets, end: Offsets, *, at_each_place: int
) -> Mapping[str, TopicSample]:
    """Reads some records at the beginning, middle and end of each partition of each topic.

    `at_each_place` is the number of records per place and partition. Topics without records are
    omitted. Reading stops after five seconds; the field `unknown` of a sample then contains the
    reason.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    samples = (_sample_of(log, topic, begin, end, at_each_place, deadline) for topic in topics)
    return {each.topic: each for each in samples if each is not None}


def _sample_of(
    log: SampledLog, topic: Topic, begin: Offsets, end: Offsets, at_each_place: int, deadline: float
) -> TopicSample | None:
    begin, full = (
        begin.only({topic.name}),
        [
            (partition, last)
            for _, partition, last in end.only({topic.name}).items()
            if last > begin.at(topic.name, partition)
        ],
    )
    if not full:
        return None
    chosen = full[:: -(-len(full) // _MOST_PARTITIONS)]
    reading = _SampleBuilder(topic, deadline)
    try:
        # A broker that is away was waited for already.
        if reading.has_enough():
            return reading.sample(len(full))
        for where, record in sample_records(
            log, begin, Offsets({topic.name: dict(chosen)}), 3 * at_each_place * len(chosen)
        ):
            reading.take(where, record)
            if reading.has_enough():
                break
    except KappaError as error:
        reading.unknown = error.message
    return reading.sample(len(full))


def unreadable_findings(
    found: TopicSample, *, most: float, is_read_as_before: bool
) -> Iterator[Finding]:
    """Yields a finding if records of a sample would be rejected.

    The finding refuses the step if the share of rejected records is above `most`, in the whole
    sample or at one place. If `is_read_as_before` is True, the finding never refuses the step: the
    serving build then reads the topic by the same declaration, and has rejected the same records.
    """
    if not found.unreadable:
        return
    shown = [
        f"{each.count} {each.reason}, such as partition {each.partition} offset "
        f"{each.offset}: {each.detail}"
        for each in found.unreadable[:_SHOWN]
    ]
    others = len(found.unreadable) - len(shown)
    more = f"and {others} more reason{'' if others == 1 else 's'}"
    examples = "; ".join([*shown, more] if others else shown)
    # Without figures, which change as the log grows: an allowance is for exactly this text.
    beyond = [
        f"{'in' if where is SamplePlace.MIDDLE else 'at'} the {where}"
        for where in SamplePlace
        if found.read.get(where, 0) >= _FEW
        and found.rejected.get(where, 0) > most * found.read[where]
    ]
    if not is_read_as_before and (
        sum(found.rejected.values()) > most * sum(found.read.values()) or beyond
    ):
        message = (
            f"topic {found.topic}: more than {most:.0%} of the records that were sampled "
            f"{beyond[0] if beyond else 'in all'} would be rejected"
        )
        yield Finding(
            message,
            f"{examples}; fix the declaration: a default, was=, a wider type "
            "(docs/reference/events.md)",
            f"unreadable:{found.topic}",
        )
    else:
        yield Finding(
            f"of topic {found.topic} {sum(found.rejected.values())} of "
            f"{sum(found.read.values())} sampled records would be rejected: {examples}",
            refuses=False,
        )


class _SampleBuilder:
    """Builds the sample of a topic: decodes records, and counts records that would be rejected."""

    def __init__(self, topic: Topic, deadline: float) -> None:
        self._topic = topic
        self._reader = RecordReader(topic)
        self._read: Counter[SamplePlace] = Counter()
        self._rejected: Counter[SamplePlace] = Counter()
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, tuple[Record, str]] = {}
        self._partitions: set[int] = set()
        self._bytes = 0
        self._deadline = deadline
        self.unknown = ""

    def take(self, where: SamplePlace, record: Record) -> None:
        """Decodes a record as the topic is declared, and counts the record as readable or rejected.

        `where` is the place in the partition from which the record was read.
        """
        self._read[where] += 1
        self._partitions.add(record.partition)
        self._bytes += len(record.key or b"") + len(record.value or b"")
        try:
            self._reader.read(record.key, record.value)
        except Rejected as verdict:
            self._rejected[where] += 1
            self._reasons[verdict.reason] += 1
            self._examples.setdefault(verdict.reason, (record, verdict.detail))

    def has_enough(self) -> bool:
        """Returns True if no further records should be read, and sets `unknown` to the reason.

        The reason is the size of the records that were read, or the deadline.
        """
        if self._bytes > _MOST_BYTES:
            self.unknown = "the records are large"
        elif time.monotonic() > self._deadline:
            self.unknown = f"not read within {_PATIENCE_SECONDS:g} s; plan again to sample it"
        return bool(self.unknown)

    def sample(self, of_partitions: int) -> TopicSample:
        """Returns the sample of the records that were decoded so far.

        `of_partitions` is the number of partitions that have records.
        """
        unreadable = tuple(
            Unreadable(
                reason,
                count,
                self._examples[reason][0].partition,
                self._examples[reason][0].offset,
                self._examples[reason][1],
            )
            for reason, count in self._reasons.most_common()
        )
        return TopicSample(
            self._topic.name,
            dict(self._read),
            dict(self._rejected),
            unreadable,
            len(self._partitions),
            of_partitions,
            self.unknown,
        )
