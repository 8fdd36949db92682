"""Freshness: the time from sending an event to the first answer that contains the event. Pure.

Freshness is computed after the run from two independent records: the times and offsets of the
producer's events, and the times and offsets of the reader's answers. Therefore freshness includes
the reader's pause between two queries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from kappa.state.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Freshness:
    """The freshness of a number of events.

    `events` is the number. 50, 95 and 99 % of the events were visible within `p50`, `p95` and `p99`
    seconds.
    """

    events: int
    p50: float
    p95: float
    p99: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f} s, p95 {self.p95:.2f} s over {self.events:,} events"


def measure(
    sent: Mapping[int, Sequence[tuple[int, float]]],
    answers: Iterable[tuple[float, Offsets]],
    *,
    topic: str,
    since: float,
    until: float,
) -> Freshness | None:
    """Measures the freshness of the events that were sent between `since` and `until`.

    `sent` contains (offset, time) pairs per partition. `answers` contains (time, offsets) pairs in
    the order of time. Times are in seconds. Returns None if none of the events was ever visible.
    """
    seen = list(answers)
    times = [at for at, _ in seen]
    waits: list[float] = []
    for partition, events in sent.items():
        upto = [offsets.at(topic, partition) for _, offsets in seen]
        for offset, at in events:
            if since <= at < until:
                # The first answer whose next offset is behind this one.
                first = bisect_right(upto, offset)
                if first < len(times):
                    waits.append(times[first] - at)
    waits.sort()
    return (
        Freshness(len(waits), *(_quantile(waits, share) for share in (0.5, 0.95, 0.99)))
        if waits
        else None
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
