"""The growth of topics, from looks at the ends of topics."""

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
    """The growth of topics, from looks at the ends of topics. The first look gives no rate yet."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}

    def update_rates(self, ends: Mapping[str, int], at: float) -> dict[str, float | None]:
        """Returns recent offsets a second, by topic; `ends` are sums over a topic's partitions.

        Only one caller at a time may use this function.
        """
        self._paces = {name: self._paces.get(name, Pace()) for name in ends}
        return {name: self._paces[name].rate(end, at) for name, end in ends.items()}


def end_sums(names: Iterable[str], log: Log) -> dict[str, int]:
    """Returns the sum of the ends of a topic's partitions, by topic."""
    sums = dict.fromkeys(names, 0)
    for topic, _, end in log.end(sums).items():
        sums[topic] += end
    return sums


def begin_rates(
    log: Log, topics: Iterable[str], *, clock: Callable[[], float] = time.monotonic
) -> Callable[[], Mapping[str, float | None]]:
    """Begins to measure the growth of topics, for a command that looks once.

    Returns a function that ends the measurement, at the earliest a second later, and returns
    offsets a second by topic. Both raise Unreachable if the broker does not answer.
    """
    names, rates = tuple(topics), TopicRates()
    begun = clock()
    rates.update_rates(end_sums(names, log), begun)

    def end_rates() -> Mapping[str, float | None]:
        time.sleep(max(0.0, begun + _LEAST_SECONDS - clock()))
        return rates.update_rates(end_sums(names, log), clock())

    return end_rates
