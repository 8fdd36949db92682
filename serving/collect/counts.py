"""Counts the events and requests of a collector, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from kappa.serving.http.exposition import family


class CollectorCounts:
    """The counts of events by topic, way of arrival and outcome, and of requests by status.

    All counts start at zero when the process starts.
    """

    def __init__(self) -> None:
        self._events: Counter[tuple[str, str, str]] = Counter()
        self._requests: Counter[tuple[str, int]] = Counter()

    def events(self, topic: str, way: str, tally: Mapping[str, int]) -> None:
        """Adds events to the counts. `tally` maps each outcome to a number of events."""
        for outcome, count in tally.items():
            if count:
                self._events[topic, way, outcome] += count

    def request(self, way: str, status: int) -> None:
        """Counts an answered request by its way of arrival and the HTTP status of the answer."""
        self._requests[way, status] += 1

    def text(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """Formats all counts as metrics.

        `gauges` contains the name, the help text and the value of each further metric.
        """
        return "".join(self._families(gauges))

    def _families(self, gauges: Iterable[tuple[str, str, float]]) -> Iterator[str]:
        yield family(
            "kappa_collect_events_total",
            "counter",
            "Events by what became of them, since the collector began.",
            [
                ({"topic": topic, "way": way, "outcome": outcome}, float(count))
                for (topic, way, outcome), count in sorted(self._events.items())
            ],
        )
        yield family(
            "kappa_collect_requests_total",
            "counter",
            "Requests by the status of their answer, since the collector began.",
            [
                ({"way": way, "status": str(status)}, float(count))
                for (way, status), count in sorted(self._requests.items())
            ],
        )
        for name, what, value in gauges:
            yield family(name, "gauge", what, [({}, value)])
