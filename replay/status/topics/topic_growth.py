"""Measures the growth rates of topics, by repeated observations of the topics' ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kappa.replay.rollout.supervisor_report import Pace

if TYPE_CHECKING:
    from kappa.kafka.client import Log

# A growth over a shorter time is chance.
_LEAST_SECONDS = 1.0


class TopicRates:
    """Computes the growth rates of topics from repeated observations of their end offsets.

    After the first observation of a topic, its rate is still unknown. After a pause, the last known
    rate stays until a new rate is measured.
    """

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}
        # The last end of each topic, and the last known rate.
        self._known: dict[str, tuple[int, float | None]] = {}

    def update_rates(self, ends: Mapping[str, int], at: float) -> dict[str, float | None]:
        """Returns the recent growth of each topic in offsets per second, or None if unknown.

        `ends` maps each topic to the sum of the end offsets of its partitions, and `at` is the time
        of the observation in seconds. Only one thread at a time may call this method.
        """
        self._paces = {name: self._paces.get(name, Pace()) for name in ends}
        self._known = {name: (end, self._rate(name, end, at)) for name, end in ends.items()}
        return {name: rate for name, (_, rate) in self._known.items()}

    def _rate(self, name: str, end: int, at: float) -> float | None:
        found = self._paces[name].rate(end, at)
        last_end, last_rate = self._known.get(name, (end, None))
        # A topic with a lower end was deleted and made again.
        return last_rate if found is None and end >= last_end else found


def end_sums(names: Iterable[str], log: Log) -> dict[str, int]:
    """Returns, for each topic, the sum of the end offsets of its partitions."""
    sums = dict.fromkeys(names, 0)
    for topic, _, end in log.end(sums).items():
        sums[topic] += end
    return sums


def begin_rates(
    log: Log, topics: Iterable[str], *, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Mapping[str, float | None]]:
    """Begins to measure the growth of topics, for a command that observes only once.

    Returns a function that ends the measurement and returns the growth in offsets per second, by
    topic. The returned function first waits until at least a second has passed since the beginning.
    Both functions raise Unreachable if the broker does not answer.
    """
    names, rates = tuple(topics), TopicRates()
    begun = clock()
    rates.update_rates(end_sums(names, log), begun)

    def end_rates() -> Mapping[str, float | None]:
        time.sleep(max(0.0, begun + _LEAST_SECONDS - clock()))
        return rates.update_rates(end_sums(names, log), clock())

    return end_rates
