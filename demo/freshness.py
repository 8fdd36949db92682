"""Freshness: how long after it was sent an event was first in an answer. Pure.

Computed at the end from two accounts that know nothing of each other: when the producer sent which offset, and when the
reader's answers came, up to which offsets. So the reader's own pause counts, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from kappa.state.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Freshness:
    """Over so many events: half were visible within `p50` seconds, 19 of 20 within `p95`, 99 of 100 within `p99`."""

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
    """The freshness of events sent between `since` and `until`; None where no such event was ever visible.

    `sent` gives (offset, when) per partition; `answers` (when, offsets) in the order they came.
    """
    seen = list(answers)
    times = [at for at, _ in seen]
    waits: list[float] = []
    for partition, events in sent.items():
        upto = [offsets.at(topic, partition) for _, offsets in seen]
        for offset, at in events:
            if since <= at < until:
                # The first answer whose next offset lies behind this one.
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
