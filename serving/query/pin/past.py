"""Moments of the past: the frontier of each build that readers saw then. Pure.

The sources are the kept frontiers (kappa/state/kept_frontiers.py) and the newest ones. For a time,
the answer is the frontier that readers saw then, or up to `history.every_seconds` before. For a
generation, it is the last one that readers saw before the generation was replaced. A moment that is
not kept any more is refused, and the error names the kept times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kappa.base.errors import KappaError, UsageError
from kappa.state.frontier import Frontier
from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import JournalRecord
from kappa.state.kept_frontiers import Kept, moment, with_newest

# A date alone would be midnight, which hardly anybody means.
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*")


@dataclass(frozen=True, slots=True)
class AtGeneration:
    """A moment given by a generation: its last frontiers, or its newest ones if it serves."""

    generation: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A moment given by the clock: the frontiers shown at that time."""

    time: datetime


Moment = AtGeneration | AtTime


@dataclass(frozen=True, slots=True)
class Generation:
    """A serving map (pipeline -> build) and the time for which it served.

    `end` is None if it still serves.
    """

    number: int
    serving: Mapping[str, str]
    begin: datetime
    end: datetime | None


def parse_time(text: str) -> tuple[datetime, bool]:
    """Parses a time that a user wrote; returns it in UTC, and whether its zone was given.

    Without a zone it is taken for UTC. Raises UsageError if it is no time in ISO 8601.
    """
    try:
        found = datetime.fromisoformat(text.strip()) if _TIME.fullmatch(text.strip()) else None
    except ValueError:
        found = None
    if found is None:
        raise UsageError(
            f"{text!r} is no time",
            hint="write date, time and zone, such as 2026-01-31T14:05:00Z or "
            "2026-01-31T15:05+01:00; without a zone it is UTC",
        )
    return (
        (found.replace(tzinfo=UTC), False)
        if found.tzinfo is None
        else (found.astimezone(UTC), True)
    )


def generations(records: Iterable[JournalRecord]) -> tuple[Generation, ...]:
    """Lists the generations of the journal's records, oldest first."""
    found = [
        (record.event, moment(record.at))
        for record in records
        if isinstance(record.event, GenerationMade)
    ]
    ends = [*(begin for _, begin in found), None][1:]
    return tuple(
        Generation(event.generation, event.serving, begin, end)
        for (event, begin), end in zip(found, ends, strict=True)
    )


def generation_at(when: Moment, known: Sequence[Generation], now: datetime) -> Generation:
    """Returns the generation of a moment.

    Raises UsageError if it has none: nothing served yet, or the time is in the future.
    """
    there = (
        f"there are {known[0].number} to {known[-1].number}, the first since "
        f"{time_text(known[0].begin)}"
        if known
        else "nothing is served yet: kappa deploy"
    )
    match when:
        case AtGeneration(number):
            found = next((each for each in known if each.number == number), None)
            if found is None:
                raise UsageError(f"there is no generation {number}", hint=there)
        case AtTime(time):
            if time > now:
                raise UsageError(
                    f"{time_text(time)} is yet to come: it is {time_text(now)}",
                    hint="times without a zone are UTC; leave --at out for what is served now",
                )
            found = next((each for each in reversed(known) if each.begin <= time), None)
            if found is None:
                raise UsageError(f"nothing was served yet at {time_text(time)}", hint=there)
    return found


def frontier_shown(
    when: Moment,
    pipeline: str,
    generation: Generation,
    known: Sequence[Generation],
    kept: Sequence[Kept],
    newest: Frontier | None,
) -> Frontier | None:
    """Returns the frontier of a pipeline's build at a moment, or None if it is not kept.

    `kept` has all kept frontiers of that build, oldest first; `newest` is the one it shows now.
    """
    build = generation.serving[pipeline]
    shown = with_newest(kept, newest)
    at_first = _at_generation(shown, _began_to_serve(pipeline, build, generation, known))
    # Frontiers from before the build began to serve this time do not count, however late its job
    # read of the switch.
    meant = [
        each
        for each in shown
        if at_first is None or each.frontier.number >= at_first.frontier.number
    ]
    match when:
        case AtGeneration(number):
            exact = _at_generation(meant, number + 1)
            if exact is not None:
                return exact.frontier
            if generation.end is None:
                return newest
            time = generation.end
        case AtTime(time):
            pass
    before = [each for each in meant if each.since <= time]
    if not before:
        # Published in the moment between the switch and the job's hearing of it.
        return None if at_first is None else at_first.frontier
    return before[-1].frontier if before[-1].shown_at(time) else None


def not_kept(when: Moment, generation: Generation, available: Sequence[str]) -> KappaError:
    """Makes the error for a moment whose frontiers are not kept any more."""
    what = (
        f"what generation {generation.number} showed last"
        if isinstance(when, AtGeneration)
        else f"what was served at {time_text(when.time)} (generation {generation.number})"
    )
    return KappaError(
        f"{what} is not kept any more",
        hint=f"there is: {'; '.join(available)}"
        if available
        else "nothing of the past is kept; see history.keep_seconds",
    )


def available(
    known: Sequence[Generation],
    kept: Mapping[str, Sequence[Kept]],
    newest: Mapping[str, Frontier | None],
) -> Iterator[str]:
    """Lists the times that can be asked for, a line each.

    These are moments of switches, and stretches of time that are kept whole.
    """
    for generation in known:
        spans: list[tuple[datetime, datetime | None]] = [(generation.begin, generation.end)]
        for pipeline, build in generation.serving.items():
            own = _spans(pipeline, generation, known, kept.get(build, ()), newest.get(build))
            spans = [
                both for one in spans for other in own if (both := _overlap(one, other)) is not None
            ]
        for begin, end in spans:
            yield (
                f"generation {generation.number} from {time_text(begin)} "
                f"to {'now' if end is None else time_text(end)}"
            )


def _spans(
    pipeline: str,
    generation: Generation,
    known: Sequence[Generation],
    kept: Sequence[Kept],
    newest: Frontier | None,
) -> list[tuple[datetime, datetime | None]]:
    """Lists the stretches of time in this generation for which the answer is kept."""
    edges = {
        generation.begin,
        *(each.since for each in kept),
        *(moment(each.until) for each in kept if each.until is not None),
    }
    edges |= set() if newest is None else {moment(newest.published_at)}
    inside = sorted(
        edge
        for edge in edges
        if generation.begin <= edge and (generation.end is None or edge < generation.end)
    )
    spans: list[tuple[datetime, datetime | None]] = []
    for begin, end in zip(inside, [*inside, generation.end][1:], strict=True):
        if frontier_shown(AtTime(begin), pipeline, generation, known, kept, newest) is None:
            continue
        if spans and spans[-1][1] == begin:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((begin, end))
    return spans


def _overlap(
    one: tuple[datetime, datetime | None], other: tuple[datetime, datetime | None]
) -> tuple[datetime, datetime | None] | None:
    begin = max(one[0], other[0])
    ends = [end for end in (one[1], other[1]) if end is not None]
    end = min(ends) if ends else None
    return (begin, end) if end is None or begin < end else None


def _began_to_serve(
    pipeline: str, build: str, generation: Generation, known: Sequence[Generation]
) -> int:
    """Returns the generation since which the build has served the pipeline, up to this one."""
    before = [
        each.number
        for each in known
        if each.number < generation.number and each.serving.get(pipeline) != build
    ]
    # Generations are numbered without gaps, from 1.
    return before[-1] + 1 if before else 1


def _at_generation(kept: Sequence[Kept], number: int) -> Kept | None:
    return next((each for each in kept if number in each.generations), None)


def time_text(time: datetime) -> str:
    """Formats a time for people, in UTC."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
