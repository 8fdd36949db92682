"""Moments of the past by the log: at offsets, or at a time of the log. Pure.

The answer is given by the builds that serve now: from the kept frontiers of each
(kappa/state/kept_frontiers.py), and from its newest frontier. Offsets match exactly: the frontier
has these offsets in every partition that is named. If no frontier has, the error names the nearest
ones. A time of the log finds the newest frontier without a record of a later time. That one is up
to `history.every_seconds` before the time. A pipeline is left out if such a frontier of it is not
kept, or if it does not read the topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kappa.base.errors import KappaError, UsageError
from kappa.serving.query.pin.past import Moment, time_text
from kappa.state.frontier import Frontier
from kappa.state.kept_frontiers import Kept, with_newest
from kappa.state.offsets import Offsets

# A topic's name has neither colons nor commas. A partition is an int32, an offset an int64.
_PART = re.compile(r"(?P<topic>[A-Za-z0-9._-]+):(?P<partition>[0-9]{1,10})=(?P<offset>[0-9]{1,19})")
_EPOCH, _FIRST, _LAST = (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime.min.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=UTC),
)
# Beyond the last time by far, and no more than Python can count.
_FAR_MS = 10**15
_WRITE = "write topic:partition=offset, and commas between: orders:0=120,orders:1=80"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A moment given by offsets: of each partition that is named, the next one to be read."""

    offsets: Offsets

    def __str__(self) -> str:
        return f"at {self.offsets}"


@dataclass(frozen=True, slots=True)
class AtEventTime:
    """A moment of the log: everything up to a time, and no record whose log time is later."""

    time: datetime

    def __str__(self) -> str:
        return f"at the event time {time_text(self.time)}"


# The moments of the past that a query can ask for.
Past = Moment | AtOffsets | AtEventTime


def parse_offsets(text: str) -> Offsets:
    """Parses the offsets that a user wrote: in Kappa's own form, or with commas between.

    Raises UsageError if the text has no offsets.
    """
    found: dict[str, dict[int, int]] = {}
    for part in filter(None, re.split(r"[,\s]+", text)):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(f"{part!r} is no offset of a partition", hint=_WRITE)
        topic, partition = match["topic"], int(match["partition"])
        if partition in found.setdefault(topic, {}):
            raise UsageError(f"{topic}:{partition} is given twice", hint=_WRITE)
        found[topic][partition] = int(match["offset"])
    if not found:
        raise UsageError("no offsets are given", hint=_WRITE)
    return Offsets(found)


def written_offsets(offsets: Offsets) -> str:
    """Writes offsets as `parse_offsets` reads them, without a space: a write token."""
    return str(offsets).replace(" ", ",")


def frontiers_at(
    when: AtOffsets | AtEventTime,
    serving: Mapping[str, str],
    kept: Mapping[str, Sequence[Kept]],
    newest: Mapping[str, Frontier],
) -> dict[str, Frontier]:
    """Returns by build the frontier of that moment, of the builds that have one.

    `kept` has all kept frontiers of each build, oldest first; `newest` the ones they show now.
    Raises UsageError if no build has read the topics and partitions that are named. Raises
    KappaError with the nearest kept frontiers if no build has such a frontier.
    """
    shown = {build: with_newest(kept.get(build, ()), newest[build]) for build in serving.values()}
    if not shown:
        raise UsageError("nothing is served yet", hint="kappa deploy")
    if isinstance(when, AtOffsets):
        readers = {
            build: each
            for build, each in shown.items()
            if newest[build].offsets.only(set(when.offsets.next)).next
        }
        _refuse_unknown(when.offsets, [newest[build].offsets for build in readers])
        found = {
            build: _at_offsets(_read_of(when.offsets, newest[build]), each)
            for build, each in readers.items()
        }
    else:
        readers = shown
        found = {build: _at_event_time(when.time, each) for build, each in shown.items()}
    there = {build: frontier for build, frontier in found.items() if frontier is not None}
    if not there:
        nearest = "; ".join(
            _nearest(when, pipeline, readers[build], newest[build])
            for pipeline, build in sorted(serving.items())
            if build in readers
        )
        raise KappaError(f"nothing is kept {when}", hint=f"{nearest}; see [history] in kappa.toml")
    return there


def _refuse_unknown(offsets: Offsets, known: Sequence[Offsets]) -> None:
    for topic, partition, _ in offsets.items():
        if not any(partition in each.next.get(topic, {}) for each in known):
            raise UsageError(
                f"nothing that serves reads {topic} partition {partition}",
                hint=f"the live builds are at {'; '.join(map(str, known))}"
                if known
                else "kappa status shows what serves",
            )


def _at_offsets(offsets: Offsets, shown: Iterable[Kept]) -> Frontier | None:
    exact = [
        each.frontier
        for each in shown
        if all(
            each.frontier.offsets.at(topic, partition) == offset
            for topic, partition, offset in offsets.items()
        )
    ]
    return exact[-1] if exact else None


def _read_of(offsets: Offsets, newest: Frontier) -> Offsets:
    """Returns the offsets of the topics that a build reads; the others are for other builds."""
    return offsets.only(set(newest.offsets.next))


def _at_event_time(time: datetime, shown: Sequence[Kept]) -> Frontier | None:
    before = [each for each in shown if _log_time(each.frontier) <= time]
    # The one after a frontier with an end (`until`) is gone, and may have been nearer.
    return before[-1].frontier if before and before[-1].until is None else None


def log_time(frontier: Frontier) -> datetime | None:
    """Returns the latest log time in any partition, within a calendar's range.

    Returns None if nothing was read.
    """
    latest = max(
        (ms for parts in frontier.log_time.values() for ms in parts.values()), default=None
    )
    return (
        None
        if latest is None
        else _EPOCH
        + min(max(timedelta(milliseconds=min(latest, _FAR_MS)), _FIRST - _EPOCH), _LAST - _EPOCH)
    )


def _log_time(frontier: Frontier) -> datetime:
    # A frontier that has read nothing is before every time.
    return log_time(frontier) or _FIRST


def _nearest(
    when: AtOffsets | AtEventTime, pipeline: str, shown: Sequence[Kept], newest: Frontier
) -> str:
    """Names the nearest kept frontiers of one build, before and after the moment."""
    match when:
        case AtOffsets():
            offsets = _read_of(when.offsets, newest)
            topics = set(offsets.next)
            before = [
                each
                for each in shown
                if all(
                    each.frontier.offsets.at(topic, partition) <= offset
                    for topic, partition, offset in offsets.items()
                )
            ]
            after = [each for each in shown if each.frontier.offsets.covers(offsets)]
            places = [
                str(each.frontier.offsets.only(topics)) for each in (*before[-1:], *after[:1])
            ]
        case AtEventTime(time):
            before = [each for each in shown if _log_time(each.frontier) <= time]
            after = [each for each in shown if _log_time(each.frontier) > time]
            places = [time_text(_log_time(each.frontier)) for each in (*before[-1:], *after[:1])]
    sides = [*(["before"] if before else []), *(["after"] if after else [])]
    return f"{pipeline} is kept " + " and ".join(
        f"{side} at {place}" for side, place in zip(sides, places, strict=True)
    )
