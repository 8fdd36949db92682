"""The users of a topic: the builds that read it, and the sinks that send it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kappa.base.errors import Conflict
from kappa.replay.rollout.state import State
from kappa.state.build import Birth


@dataclass(frozen=True, slots=True)
class TopicUser:
    """A build that uses a topic; `sends`: by a sink. `role` is live, idle or candidate."""

    pipeline: str
    build: str
    role: str
    sends: bool = False

    def __str__(self) -> str:
        return (
            f"pipeline {self.pipeline} {'sends' if self.sends else 'reads'} it "
            f"({self.role} build {self.build})"
        )


def users_of(topic: str, state: State, births: Mapping[str, Birth]) -> tuple[TopicUser, ...]:
    """Lists the users of a topic among the builds that are wanted, by pipeline."""
    return tuple(sorted(_users(topic, state, births), key=lambda each: (each.pipeline, each.build)))


def refuse_used(topic: str, users: Iterable[TopicUser], allowed: Iterable[str]) -> None:
    """Raises Conflict if a pipeline uses a topic and is not allowed by its name."""
    names = {each.pipeline for each in users}
    using = [each for each in users if each.pipeline not in set(allowed)]
    if using:
        raise Conflict(
            f"topic {topic} is used: {'; '.join(map(str, using))}",
            hint=f"first retire what uses it: kappa retire {using[0].pipeline}; or: kappa topics "
            f"delete {topic} {' '.join(f'--allow {name}' for name in sorted(names))}",
        )


def _users(topic: str, state: State, births: Mapping[str, Birth]) -> Iterator[TopicUser]:
    roles = {
        **dict.fromkeys((each.build for each in state.active_rollouts), "candidate"),
        **dict.fromkeys(state.idle.values(), "idle"),
        **dict.fromkeys(state.serving.values(), "live"),
    }
    for build, role in roles.items():
        birth = births[build]
        if any(each.name == topic for each in birth.topics):
            yield TopicUser(birth.pipeline, build, role)
        if any(each.topic == topic for each in birth.sinks):
            yield TopicUser(birth.pipeline, build, role, sends=True)
