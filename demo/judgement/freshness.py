"""Freshness: the time from sending an event to the first answer with it. Pure.

It is computed at the end from two independent accounts: the producer's times and offsets, and the
times and offsets of the reader's answers. So the reader's own pause counts, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from kappa.state.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Freshness:
    """The freshness of so many events: 50, 95 and 99 % were visible within so many seconds."""

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
    """Measures events sent between `since` and `until`. Returns None if none was ever visible.

    `sent` has (offset, time) per partition; `answers` are (time, offsets) in their order.
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
