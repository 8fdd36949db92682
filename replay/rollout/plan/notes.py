"""Notes of a plan: what should be known of a step before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kappa.declare.topic import Topic
from kappa.replay.rollout.libraries import changed_libraries
from kappa.replay.rollout.plan.observed import Declared, LogFacts, Observed
from kappa.state.build import Birth, TopicBirth
from kappa.state.offsets import Offsets


def reject_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    """Returns a note of the records that the serving build has rejected, if any."""
    rejected = observed.rejected.get(born.build, 0)
    if not rejected:
        return ()
    note = (
        f"build {born.build} has rejected {rejected:,} records: a replay reads them again, "
        "and takes in what can be read now"
    )
    return (note,)


def view_notes(declared: Declared) -> Iterator[str]:
    """Yields how each maintained view is kept at each slice, and why so."""
    for view, way in declared.ways.items():
        yield f"view {view} is kept {way}"


def archive_notes(
    log: LogFacts, topics: Iterable[Topic | TopicBirth], origin: Offsets
) -> Iterator[str]:
    """Yields which offsets are read from where: an archive and its topic are one log."""
    names = {topic.name for topic in topics}
    for mark in log.archived:
        parts = {
            part: (max(mark.start[part], origin.at(mark.topic, part)), end)
            for part, end in sorted(mark.end.items())
        }
        ranges = [
            f"{start} to {end - 1} of partition {part}"
            for part, (start, end) in parts.items()
            if end > start
        ]
        if mark.topic in names and ranges:
            lost = [
                f"{first} in partition {part}"
                for _, part, first in log.topics_beginning.only({mark.topic}).items()
                if first > origin.at(mark.topic, part)
            ]
            alone = f"; the topic itself begins at {', '.join(lost)}" if lost else ""
            yield (
                f"topic {mark.topic}: offsets {', '.join(ranges)} come from its archive, all "
                f"that follows from the topic{alone}"
            )


def subject_notes(observed: Observed) -> Iterator[str]:
    """Yields which subjects of the schema registry have moved on from their pins."""
    for subject, (pinned, newest) in sorted(observed.subjects.items()):
        if newest is None:
            yield f"subject {subject} is pinned at version {pinned}, and its newest one is unknown"
        elif newest != pinned:
            yield (
                f"subject {subject} is at version {newest}, and version {pinned} is pinned: "
                f"kappa schemas pin {subject}"
            )


def joining_notes(observed: Observed) -> Iterator[str]:
    """Yields which topics match a pattern and have not joined it, so that nothing reads them."""
    for pattern, names in sorted(observed.log.waiting.items()):
        for name in names:
            yield (
                f"topic {name} matches the pattern {pattern} and has not joined it, so it is not "
                f"read: kappa topics join '{pattern}'"
            )


def library_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    """Returns a note of the libraries that are other versions than at a birth, if any."""
    changed = changed_libraries(born.libraries, observed.libraries)
    if not changed:
        return ()
    note = (
        f"other libraries are installed than when build {born.build} was born: "
        f"{', '.join(changed)}; that alone replays nothing"
    )
    return (note,)


def kept_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    """Returns what should be known of a build that serves, or will again, without a replay."""
    return (
        *([] if born.base is None else [f"build {born.build} is {born.base}"]),
        *library_notes(observed, born),
    )
