"""The cost of a replay: records and bytes per partition, disk, and time. Pure.

An unknown fact is None. The time is estimated from the pipeline's last replay that caught up. The
duration of that replay is the time from its staging until it had caught up, as recorded in the
journal; this includes the start of the job, but not the preceding test of the law of slices. A very
short replay is not used for the estimate, because most of its time is the start of Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kappa.base.units import count_of, duration, size
from kappa.replay.rollout.plan.facts import DiskFacts, LogFacts, Replayed
from kappa.state.journal.events import CaughtUp, Staged
from kappa.state.journal.journal import JournalRecord
from kappa.state.offsets import Offsets

# A shorter replay is mostly the start of JVMs, half a minute on a busy machine: the rate of such a
# replay predicts nothing.
_TELLING_SECONDS = 60.0
_TELLING_RECORDS = 100_000
# After a replay of fewer records, a log with up to this many times the records takes about as long.
_ALIKE = 2
_HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """The part of one partition that a replay reads.

    `records` is the number of offsets. `bytes` is the partition's size on the broker's disk.
    """

    topic: str
    partition: int
    records: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a replay.

    `disk_needed` and `disk_free` are in bytes. `rate` is the speed of the last replay, and `ingest`
    is the rate at which records arrived in the last hour; both are in records per second. `seconds`
    is the estimated time of the replay, including the start of its job. Before the replay, the test
    of the law of slices takes at most `law_seconds`. `cores` is the number of cores that the replay
    may use, or 0 if unknown.
    """

    partitions: tuple[PartitionCost, ...]
    disk_needed: int | None = None
    disk_free: int | None = None
    rate: float | None = None
    ingest: float | None = None
    seconds: float | None = None
    cores: int = 0
    law_seconds: float = 0.0

    @property
    def records(self) -> int:
        """Returns the number of offsets that the replay reads.

        The number of records may be lower, because compaction and transactions leave gaps.
        """
        return sum(each.records for each in self.partitions)

    @property
    def bytes(self) -> int | None:
        """Returns the number of bytes that the replay reads.

        Returns None if the size of a partition is unknown.
        """
        known = [each.bytes for each in self.partitions if each.bytes is not None]
        return sum(known) if len(known) == len(self.partitions) else None

    @property
    def text(self) -> str:
        """Formats the cost as one line for display: records, bytes, disk and time."""
        read = (
            f"{count_of(self.records, 'record')} in "
            f"{count_of(len(self.partitions), 'partition')}, "
            f"{'size unknown' if self.bytes is None else size(self.bytes)}"
        )
        needed = "unknown" if self.disk_needed is None else f"about {size(self.disk_needed)}"
        free = "" if self.disk_free is None else f" ({size(self.disk_free)} free)"
        return f"{read}; disk {needed}{free}{self._time_text()}"

    def _time_text(self) -> str:
        if self.seconds is None:
            return "; time unknown" if self.records >= _TELLING_RECORDS else ""
        rate = f" at {self.rate:,.0f} records/s" if self.rate else ""
        law = (
            f", after at most {duration(self.law_seconds)} for the law of slices"
            if self.law_seconds
            else ""
        )
        return f"; about {duration(self.seconds)}{rate}{law}"


def cost_of(
    topics: Iterable[str],
    origin: Offsets,
    log: LogFacts,
    *,
    serving: str | None,
    disk: DiskFacts | None,
    replayed: Replayed | None,
    cores: int = 0,
    law_seconds: float = 0.0,
) -> Cost:
    """Returns the cost of a replay of these topics, from `origin` to the end of the log.

    The disk space is estimated from the size of the build `serving`. The time is estimated from
    `replayed`, the last replay of the pipeline.
    """
    names = frozenset(topics)
    partitions = tuple(
        PartitionCost(
            topic,
            partition,
            end - origin.at(topic, partition),
            log.bytes.get(topic, {}).get(partition),
        )
        for topic, partition, end in log.end.only(names).items()
    )
    records = sum(each.records for each in partitions)
    telling = (
        replayed is not None
        and replayed.seconds >= _TELLING_SECONDS
        and replayed.records >= _TELLING_RECORDS
    )
    rate = replayed.records / replayed.seconds if replayed is not None and telling else None
    ingest = (
        None
        if log.hour_ago is None
        else log.end.only(names).distance(log.hour_ago.only(names).highest_with(origin))
        / _HOUR_SECONDS
    )
    return Cost(
        partitions=partitions,
        disk_needed=_disk_needed(records, disk, serving),
        disk_free=None if disk is None else disk.free,
        rate=rate,
        ingest=ingest,
        seconds=_replay_seconds(records, replayed, rate, ingest or 0.0),
        cores=cores,
        law_seconds=law_seconds,
    )


def last_replays(
    records: Iterable[JournalRecord], origin_of: Callable[[str], Offsets | None]
) -> Mapping[str, Replayed]:
    """Maps each pipeline to its last replay that caught up.

    `origin_of` returns the offsets at which a build began to read, or None if they are unknown. The
    rollouts of branches and overlays are ignored.
    """
    staged: dict[int, JournalRecord] = {}
    found: dict[str, Replayed] = {}
    for record in records:
        match record.event:
            # A branch folds little, by two codes in turn, and an overlay nothing: they predict
            # nothing for the next replay.
            case Staged(base=None, tables_of=None):
                staged[record.number] = record
            case CaughtUp(rollout=number, offsets=offsets) if number in staged:
                begun = staged[number]
                assert isinstance(begun.event, Staged), "only those are kept"
                origin, seconds = (
                    origin_of(begun.event.build),
                    _seconds_between(begun.at, record.at),
                )
                if origin is not None and seconds is not None:
                    found[begun.event.pipeline] = Replayed(offsets.distance(origin), seconds)
            case _:
                pass
    return found


def _disk_needed(records: int, disk: DiskFacts | None, serving: str | None) -> int | None:
    known = None if disk is None or serving is None else disk.builds.get(serving)
    if known is None or known[1] <= 0:
        return None
    taken, folded = known
    return round(taken * records / folded)


def _replay_seconds(
    records: int, replayed: Replayed | None, rate: float | None, ingest: float
) -> float | None:
    if replayed is None or replayed.seconds < _TELLING_SECONDS:
        return None
    if rate is None:
        return replayed.seconds if records <= _ALIKE * replayed.records else None
    # Records that arrive meanwhile have to be folded, too.
    return records / (rate - ingest) if rate > ingest else None


def _seconds_between(begun: str, ended: str) -> float | None:
    try:
        seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()
    except ValueError:
        return None
    return seconds if seconds > 0 else None
