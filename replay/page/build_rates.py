"""Computes the offsets of a build over time from recorded frontiers, for charts and rates.

Each frontier records the offsets that readers can see, and the time at which the frontier was
published, so no separate measurement is needed. The module uses the newest frontiers, and the kept
frontiers of the last hour. Kappa keeps one frontier per minute.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from kappa.base.units import growth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept_frontiers import (
    kept_folder,
    kept_numbers,
    parse_moment,
    read_kept_frontier,
)
from kappa.state.record_cache import ReadMemory
from kappa.state.store import Store

# Rates and their curves are of the same time, which has one name on a page.
WINDOW = timedelta(minutes=10)
# A point before the window says where the window begins.
_KEPT_FOR = 2 * WINDOW
# More frontiers than this lie between two runs of maintenance only where slices are very small.
_MOST = 300
_POINTS = 120
# With some room: between two frontiers further apart the build stood still.
_KEPT_EVERY = timedelta(seconds=90)


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A point in a build's history: a time, and the sum of the build's offsets at this time."""

    at: datetime
    offset: int


class BuildHistories:
    """The histories of builds, read from their frontiers.

    Each frontier is read once, because a frontier never changes.
    """

    def __init__(self, store: Store, memory: ReadMemory | None = None) -> None:
        self._store = store
        self._memory = ReadMemory(store) if memory is None else memory
        self._lock = threading.Lock()
        self._known: dict[str, dict[int, HistoryPoint]] = {}
        self._kept: dict[str, frozenset[int]] = {}
        # Up to which number all frontiers that there were have been looked at.
        self._walked: dict[str, int] = {}

    def points_of(self, build: str, now: datetime) -> tuple[HistoryPoint, ...]:
        """Returns the known points of a build's history in the last 20 minutes, oldest first.

        Charts and rates cover only the last 10 minutes. An earlier point is needed to compute the
        offset at the beginning of this window.
        """
        with self._lock:
            known = self._known.setdefault(build, {})
            known |= {each.number: _history_point(each) for each in self._newly_kept(build)}
            known |= {each.number: _history_point(each) for each in self._new_frontiers(build)}
            self._known[build] = {
                number: step for number, step in known.items() if now - step.at < _KEPT_FOR
            }
            return tuple(step for _, step in sorted(self._known[build].items()))

    def _newly_kept(self, build: str) -> Iterator[Frontier]:
        numbers = self._memory.recalled(
            kept_folder(build), "kept", lambda: kept_numbers(self._store, build)
        )
        before, self._kept[build] = self._kept.get(build, frozenset()), frozenset(numbers)
        for number in numbers:
            kept = None if number in before else read_kept_frontier(self._store, build, number)
            if kept is not None:
                yield kept.frontier

    def _new_frontiers(self, build: str) -> Iterator[Frontier]:
        walked, found = self._walked.get(build, 0), self._memory.newest_frontier(build)
        frontiers = Frontiers(self._store, build)
        self._walked[build] = 0 if found is None else found.number
        for _ in range(_MOST):
            if found is None or found.number <= walked:
                return
            yield found
            found = frontiers.get(found.number - 1)


def joined_points(
    spans: Sequence[tuple[datetime, Sequence[HistoryPoint]]],
) -> tuple[HistoryPoint, ...]:
    """Joins the histories of builds that served one after the other into one history. Pure.

    `spans` has an element for each build, the oldest build first: the time at which the build began
    to serve, and the build's points. The offsets of a later build are shifted, so that both builds
    have the same offset at the switch. As a result, only records that a build folded while it
    served count as growth.
    """
    found: list[HistoryPoint] = []
    for place, (since, points) in enumerate(spans):
        until = spans[place + 1][0] if place + 1 < len(spans) else None
        before = [each for each in points if each.at < since]
        served = [
            each for each in points if since <= each.at and (until is None or each.at < until)
        ]
        # A candidate follows the log before its switch, and a first build has replayed the log.
        known = before[-1:] or served[:1]
        if not known:
            continue
        (start,) = known
        if not found and before:
            found.append(HistoryPoint(since, start.offset))
        shift = found[-1].offset - start.offset if found else 0
        found += [HistoryPoint(each.at, each.offset + shift) for each in served]
    return tuple(found)


def rate_of(steps: Sequence[HistoryPoint], now: datetime) -> float | None:
    """Returns the mean growth of a build's offsets, per second, over the last ten minutes. Pure.

    If the history `steps` is shorter than ten minutes, the mean covers the time since the first
    point. Returns None if the history is empty, or shorter than a second.
    """
    if not steps:
        return None
    recent = [step for step in steps if now - step.at <= WINDOW]
    before = [step for step in steps if now - step.at > WINDOW]
    if not recent:
        return 0.0
    # The offset at the beginning of the window is that of the last frontier before.
    since, start = (now - WINDOW, before[-1].offset) if before else (recent[0].at, recent[0].offset)
    seconds = (now - since).total_seconds()
    return growth(start, recent[-1].offset, seconds) if seconds >= 1 else None


def rates_over_time(steps: Sequence[HistoryPoint], now: datetime) -> tuple[list[int], list[float]]:
    """Returns times in seconds since 1970, and the rate in the interval before each time. Pure.

    A rate is in offsets per second. The times are evenly spaced. The last time is not later than
    the newest frontier, because the growth after that frontier is unknown until the next frontier.
    But if the newest frontier is older than 90 seconds, the build is assumed to stand still, and
    the times continue until `now`.
    """
    if not steps:
        return [], []
    begin = max(steps[0].at, now - WINDOW)
    end = steps[-1].at if now - steps[-1].at < _KEPT_EVERY else now
    piece = max(5.0, max(60.0, (end - begin).total_seconds()) / _POINTS)
    edges = [
        begin + timedelta(seconds=piece * place)
        for place in range(int((end - begin).total_seconds() / piece) + 1)
    ]
    offsets = list(_offsets_at(edges, steps))
    return [int(edge.timestamp()) for edge in edges[1:]], [
        round(growth(before, after, piece), 5) for before, after in pairwise(offsets)
    ]


def _offsets_at(edges: Sequence[datetime], steps: Sequence[HistoryPoint]) -> Iterator[float]:
    """Yields the sum of a build's offsets at each of the times `edges`, which must be ascending.

    Between two frontiers, the offsets are interpolated linearly, because only one past frontier per
    minute is kept. But if the frontiers are more than 90 seconds apart, the build is assumed to
    stand still until 90 seconds before the later frontier.
    """
    place = 0
    for edge in edges:
        while place < len(steps) and steps[place].at <= edge:
            place += 1
        before = steps[max(0, place - 1)]
        if place == 0 or place == len(steps):
            yield before.offset
            continue
        after = steps[place]
        since = max(before.at, after.at - _KEPT_EVERY)
        share = max(0.0, (edge - since).total_seconds()) / max(
            1e-9, (after.at - since).total_seconds()
        )
        yield before.offset + share * (after.offset - before.offset)


def _history_point(frontier: Frontier) -> HistoryPoint:
    return HistoryPoint(
        parse_moment(frontier.published_at),
        sum(offset for _, _, offset in frontier.offsets.items()),
    )
