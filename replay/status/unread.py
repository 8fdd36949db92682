"""The topics that match a pattern of what serves, and have not joined it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kappa.declare.topic_patterns import matching
from kappa.state.build import Birth


class Named(Protocol):
    """The part of the broker's client that is asked."""

    def topics(self) -> Mapping[str, object]: ...  # noqa: D102  # as in Log


@dataclass(frozen=True, slots=True)
class Unread:
    """A topic that matches a pattern of a pipeline, which does not read it."""

    pipeline: str
    pattern: str
    topic: str

    @property
    def text(self) -> str:
        """Returns a sentence for people, without the command that mends it."""
        return (
            f"topic {self.topic} matches the pattern {self.pattern} of pipeline {self.pipeline}, "
            "and is not read"
        )

    @property
    def mended_by(self) -> str:
        """Returns the command after which a deploy reads the topic."""
        return f"kappa topics join '{self.pattern}'"


def unread_topics(births: Iterable[Birth], log: Named) -> tuple[Unread, ...]:
    """Lists the topics that match a pattern of a build, and that none of its pipeline reads.

    `births` are those of all builds that are wanted. The broker is asked if there is a pattern.
    """
    known = tuple(births)
    patterns = {
        (birth.pipeline, topic.pattern)
        for birth in known
        for topic in birth.topics
        if topic.pattern is not None
    }
    if not patterns:
        return ()
    there = tuple(log.topics())
    sinks = {sink.topic for birth in known for sink in birth.sinks}
    read = {(birth.pipeline, name) for birth in known for name in birth.topic_ids}
    return tuple(
        Unread(pipeline, pattern, name)
        for pipeline, pattern in sorted(patterns)
        for name in matching(pattern, there, sinks)
        if (pipeline, name) not in read
    )
