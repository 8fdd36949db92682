"""What the supervisor knows of rollouts and jobs and the journal does not: what is waited for, how fast it goes, who died.

The supervisor puts it into one small file whenever it changes, for `kappa status` and whoever follows a rollout. Nothing is
decided by it, and it is as good as gone when the supervisor is. Read next: replay/look/progress.py, replay/look/status.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kappa.state.frontier import Frontiers
from kappa.state.store import Store
from replay.rollout.state import State

_NAME = "run/underway.json"
# Rates change all the time; nobody reads more often.
_TELL_SECONDS = 1.0
# A rate over less than this says more about the moment than about the replay; over more, it says too little about now.
_LEAST_SECONDS = 1.0
_WINDOW_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """Of one rollout: what has to happen before it is brought on ("" for nothing), and how many offsets a second it folds."""

    waits_for: str = ""
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Deaths:
    """How often in a row a build's job has died, and of what it died last."""

    count: int
    last: str

    def told(self, build: str) -> str:
        """It in words, with what to do."""
        return (
            f"its job died {'once' if self.count == 1 else f'{self.count} times'}, last: "
            f"{self.last}; see kappa logs {build}"
        )


@dataclass(frozen=True, slots=True)
class Underway:
    """All of it: by the rollout's number, and by build."""

    rollouts: Mapping[int, Waiting] = field(default_factory=dict)
    deaths: Mapping[str, Deaths] = field(default_factory=dict)

    def trouble(self, build: str) -> str:
        """What is wrong with a build's job; "" for nothing."""
        return self.deaths[build].told(build) if build in self.deaths else ""


def read_underway(store: Store) -> Underway:
    """What the supervisor said last; nothing where it said nothing."""
    document: Any = store.get_json(_NAME)
    if document is None:
        return Underway()
    return Underway(
        {int(number): Waiting(**each) for number, each in document["rollouts"].items()},
        {build: Deaths(**each) for build, each in document["deaths"].items()},
    )


def ensure_nothing_said(store: Store) -> None:
    """Takes back what an earlier supervisor said."""
    store.delete(_NAME)


class Pace:
    """How fast something that is counted goes, by looks at the count."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def rate(self, count: int, at: float) -> float | None:
        """What was added a second, lately; None where it was not looked at for long enough."""
        self._looks.append((at, count))
        while at - self._looks[0][0] > _WINDOW_SECONDS:
            self._looks.popleft()
        since, before = self._looks[0]
        return (count - before) / (at - since) if at - since >= _LEAST_SECONDS else None


class Reporter:
    """The supervisor's side of it."""

    def __init__(
        self, store: Store, deaths: Callable[[str], Deaths | None], *, clock: Callable[[], float]
    ) -> None:
        """`deaths` tells of a build's job; `clock` gives seconds that only go forward."""
        self._store = store
        self._deaths = deaths
        self._clock = clock
        self._paces: dict[int, Pace] = {}
        self._said: Underway | None = None
        self._waits: Mapping[int, str] = {}
        self._due = 0.0

    def report(self, state: State, waits: Mapping[int, str]) -> None:
        """Says how it stands, where that has changed; `waits` is what each active rollout waits for."""
        if waits == self._waits and self._clock() < self._due:
            return
        self._waits, self._due = dict(waits), self._clock() + _TELL_SECONDS
        rollouts = {
            rollout.number: Waiting(
                waits.get(rollout.number, ""), self._rate(rollout.number, rollout.build)
            )
            for rollout in state.active_rollouts
        }
        self._paces = {number: pace for number, pace in self._paces.items() if number in rollouts}
        deaths = {
            build: found
            for build in sorted(state.wanted_builds())
            if (found := self._deaths(build)) is not None
        }
        now = Underway(rollouts, deaths)
        if now != self._said:
            self._store.put_json(_NAME, asdict(now))
            self._said = now

    def _rate(self, rollout: int, build: str) -> float | None:
        newest = Frontiers(self._store, build).newest()
        if newest is None:
            return None
        rate = self._paces.setdefault(rollout, Pace()).rate(
            sum(offset for _, _, offset in newest.offsets.items()), self._clock()
        )
        return None if rate is None else round(rate, 1)
