"""Finds the frontiers of a moment of the past, given by time, generation or the log. Pure.

For a time, the frontiers are those that readers saw at that time, or up to `history.every_seconds`
before. For a generation, the frontiers are the last that readers saw before the generation was
replaced.

For a moment of the log, the frontiers are those of the builds that serve now. Offsets match
exactly: the frontier has these offsets in every named partition. For a time of the log, the
frontier is the newest frontier without a record of a later time; the frontier may be up to
`history.every_seconds` older than that time. A pipeline is left out if no such frontier of the
pipeline is kept, or if the pipeline does not read the topics.

The frontiers come from the kept frontiers (kappa/state/kept_frontiers.py) and the newest frontiers.
If no frontier of a moment is kept, the error names the kept times or the nearest offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kappa.base.errors import KappaError, UsageError
from kappa.state.frontier import Frontier
from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import JournalRecord
from kappa.state.kept_frontiers import KeptFrontierRecord, parse_moment, with_newest
from kappa.state.offsets import Offsets

# A date alone would be midnight, which hardly anybody means.
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
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
class AtGeneration:
    """A moment given by the number of a generation.

    The frontiers of the moment are the last frontiers that readers saw in the generation, or the
    newest frontiers if the generation still serves.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """A moment given by a time: the frontiers that readers saw at that time."""

    time: datetime


Moment = AtGeneration | AtTime


@dataclass(frozen=True, slots=True)
class Generation:
    """A serving map (pipeline -> build), and the time during which the map served.

    `end` is None if the generation still serves.
    """

    number: int
    serving: Mapping[str, str]
    begin: datetime
    end: datetime | None


def ensure_one_moment(asked: Mapping[str, object]) -> None:
    """Raises UsageError if the user gave more than one moment.

    `asked` maps the name of each argument or flag to its value, or to None if the user did not give
    the argument.
    """
    named = [name for name, moment in asked.items() if moment is not None]
    if len(named) > 1:
        raise UsageError(
            f"{' and '.join(named)} were asked for, and an answer is of one moment",
            hint=f"leave {named[-1]} out, or {named[0]}",
        )


def parse_time(text: str) -> tuple[datetime, bool]:
    """Parses a time that a user wrote.

    Returns the time in UTC, and True if the text names a time zone. A time without a zone is read
    as UTC, and a date without a time is read as midnight. Raises UsageError if the text is not a
    time in ISO 8601.
    """
    try:
        found = datetime.fromisoformat(text.strip()) if _TIME.fullmatch(text.strip()) else None
    except ValueError:
        found = None
    if found is None:
        raise UsageError(
            f"{text!r} is not a time",
            hint="write date, time and zone, such as 2026-01-31T14:05:00Z or "
            "2026-01-31T15:05+01:00; without a zone it is UTC",
        )
    return (
        (found.replace(tzinfo=UTC), False)
        if found.tzinfo is None
        else (found.astimezone(UTC), True)
    )


def list_generations(records: Iterable[JournalRecord]) -> tuple[Generation, ...]:
    """Lists the generations in the journal's records, oldest first."""
    found = [
        (record.event, parse_moment(record.at))
        for record in records
        if isinstance(record.event, GenerationMade)
    ]
    ends = [*(begin for _, begin in found), None][1:]
    return tuple(
        Generation(event.generation, event.serving, begin, end)
        for (event, begin), end in zip(found, ends, strict=True)
    )


def generation_at(when: Moment, known: Sequence[Generation], now: datetime) -> Generation:
    """Returns the generation that served at a moment.

    `known` contains all generations, oldest first. Raises UsageError if no generation served at the
    moment: the number of the generation does not exist, nothing was served yet, or the time is in
    the future.
    """
    there = (
        f"generations are numbered {known[0].number} to {known[-1].number}, the first since "
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
    kept: Sequence[KeptFrontierRecord],
    newest: Frontier | None,
) -> Frontier | None:
    """Returns the frontier that readers saw at a moment, or None if it is not kept.

    `generation` served at the moment, and `known` contains all generations, oldest first. `kept`
    contains all kept frontiers of the build that served the pipeline, oldest first. `newest` is the
    frontier that readers of this build see now.
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
    """Creates the error for a moment whose frontiers are no longer kept.

    `available` contains, as text, the periods of time that a reader can still ask for. The error's
    hint lists these periods.
    """
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


def available_times(
    known: Sequence[Generation],
    kept: Mapping[str, Sequence[KeptFrontierRecord]],
    newest: Mapping[str, Frontier | None],
) -> Iterator[str]:
    """Yields the periods of time that a reader can ask for, each as a line of text.

    Each line names a generation, and a period for which the frontiers of all pipelines of the
    generation are kept.
    """
    for generation in known:
        spans: list[tuple[datetime, datetime | None]] = [(generation.begin, generation.end)]
        for pipeline, build in generation.serving.items():
            own = _kept_spans(pipeline, generation, known, kept.get(build, ()), newest.get(build))
            spans = [
                both
                for one in spans
                for other in own
                if (both := _overlap_of(one, other)) is not None
            ]
        for begin, end in spans:
            yield (
                f"generation {generation.number} from {time_text(begin)} "
                f"to {'now' if end is None else time_text(end)}"
            )


def _kept_spans(
    pipeline: str,
    generation: Generation,
    known: Sequence[Generation],
    kept: Sequence[KeptFrontierRecord],
    newest: Frontier | None,
) -> list[tuple[datetime, datetime | None]]:
    """Lists the periods of time in a generation for which a pipeline's frontiers are kept."""
    edges = {
        generation.begin,
        *(each.since for each in kept),
        *(parse_moment(each.until) for each in kept if each.until is not None),
    }
    edges |= set() if newest is None else {parse_moment(newest.published_at)}
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


def _overlap_of(
    one: tuple[datetime, datetime | None], other: tuple[datetime, datetime | None]
) -> tuple[datetime, datetime | None] | None:
    begin = max(one[0], other[0])
    ends = [end for end in (one[1], other[1]) if end is not None]
    end = min(ends) if ends else None
    return (begin, end) if end is None or begin < end else None


def _began_to_serve(
    pipeline: str, build: str, generation: Generation, known: Sequence[Generation]
) -> int:
    """Returns the number of the generation in which a build began to serve a pipeline.

    All generations from this generation up to `generation` map the pipeline to the build.
    """
    before = [
        each.number
        for each in known
        if each.number < generation.number and each.serving.get(pipeline) != build
    ]
    # Generations are numbered without gaps, from 1.
    return before[-1] + 1 if before else 1


def _at_generation(kept: Sequence[KeptFrontierRecord], number: int) -> KeptFrontierRecord | None:
    return next((each for each in kept if number in each.generations), None)


def time_text(time: datetime) -> str:
    """Formats a time for display, in UTC and to the millisecond: `2026-01-31T14:05:00.000Z`."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """A moment given by offsets: the next offset to read in each named partition."""

    offsets: Offsets

    def __str__(self) -> str:
        return f"at {self.offsets}"


@dataclass(frozen=True, slots=True)
class AtEventTime:
    """Selects the earlier snapshot whose records were all logged at `time` or before.

    The time of a record is its timestamp on the broker.
    """

    time: datetime

    def __str__(self) -> str:
        return f"at the event time {time_text(self.time)}"


# The moments of the past that a query can ask for.
Past = Moment | AtOffsets | AtEventTime


def past_moment(
    generation: int | None,
    time: datetime | None,
    offsets: str | None,
    event_time: datetime | None,
) -> Past | None:
    """Returns the moment that one of the arguments gives, or None if all of them are None."""
    if generation is not None:
        return AtGeneration(generation)
    if offsets is not None:
        return AtOffsets(parse_offsets(offsets))
    if event_time is not None:
        return AtEventTime(event_time)
    return None if time is None else AtTime(time)


def parse_offsets(text: str) -> Offsets:
    """Parses offsets that a user wrote.

    Each offset is written as `topic:partition=offset`, with spaces or commas between two offsets.
    Raises UsageError if the text contains anything else, names a partition twice, or contains no
    offset.
    """
    found: dict[str, dict[int, int]] = {}
    for part in filter(None, re.split(r"[,\s]+", text)):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(f"{part!r} is not an offset of a partition", hint=_WRITE)
        topic, partition = match["topic"], int(match["partition"])
        if partition in found.setdefault(topic, {}):
            raise UsageError(f"{topic}:{partition} is given twice", hint=_WRITE)
        found[topic][partition] = int(match["offset"])
    if not found:
        raise UsageError("no offsets are given", hint=_WRITE)
    return Offsets(found)


def written_offsets(offsets: Offsets) -> str:
    """Formats offsets as a write token, without spaces.

    `parse_offsets` parses the token.
    """
    return str(offsets).replace(" ", ",")


def frontiers_at(
    when: AtOffsets | AtEventTime,
    serving: Mapping[str, str],
    kept: Mapping[str, Sequence[KeptFrontierRecord]],
    newest: Mapping[str, Frontier],
) -> dict[str, Frontier]:
    """Returns the frontiers of a moment of the log, by build.

    `serving` maps each pipeline to its build. `kept` contains all kept frontiers of each build,
    oldest first, and `newest` the frontier of each build that readers see now. A build is left out
    if it has no frontier of the moment. Raises UsageError if nothing is served, or if no build
    reads a topic and partition that the moment names. Raises KappaError if no build has a frontier
    of the moment; the error names the nearest kept frontiers.
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
            _nearest_kept(when, pipeline, readers[build], newest[build])
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


def _at_offsets(offsets: Offsets, shown: Iterable[KeptFrontierRecord]) -> Frontier | None:
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
    """Returns only those offsets that belong to the topics of a build.

    `newest` is a frontier of the build. A write token may also contain offsets of topics that only
    other builds read.
    """
    return offsets.only(set(newest.offsets.next))


def _at_event_time(time: datetime, shown: Sequence[KeptFrontierRecord]) -> Frontier | None:
    before = [each for each in shown if _log_time_or_first(each.frontier) <= time]
    # A frontier with an end (`until`) had a successor, which is gone and may have been nearer.
    return before[-1].frontier if before and before[-1].until is None else None


def log_time(frontier: Frontier) -> datetime | None:
    """Returns the latest log time of all partitions at a frontier.

    Returns None if the build has read nothing. If Python's `datetime` cannot represent the log
    time, returns the nearest time that `datetime` can represent.
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


def _log_time_or_first(frontier: Frontier) -> datetime:
    # A frontier that has read nothing is before every time.
    return log_time(frontier) or _FIRST


def _nearest_kept(
    when: AtOffsets | AtEventTime,
    pipeline: str,
    shown: Sequence[KeptFrontierRecord],
    newest: Frontier,
) -> str:
    """Describes in words the nearest kept frontiers of a build, before and after a moment."""
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
            before = [each for each in shown if _log_time_or_first(each.frontier) <= time]
            after = [each for each in shown if _log_time_or_first(each.frontier) > time]
            places = [
                time_text(_log_time_or_first(each.frontier)) for each in (*before[-1:], *after[:1])
            ]
    sides = [*(["before"] if before else []), *(["after"] if after else [])]
    return f"{pipeline} is kept " + " and ".join(
        f"{side} at {place}" for side, place in zip(sides, places, strict=True)
    )
