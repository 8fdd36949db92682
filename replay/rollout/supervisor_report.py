"""The supervisor's report about waits, rates and deaths, which the journal does not contain.

The supervisor writes the report to one small file whenever the report changes. `kappa status` and
commands that follow a rollout read the file. No decision uses the report, and the report is
meaningless after the supervisor has exited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec import Struct, field

from kappa.base.units import growth
from kappa.replay.rollout.state import State
from kappa.state.build_status import read_progress
from kappa.state.documents import Documents
from kappa.state.frontier import Frontiers
from kappa.state.store import Store

_NAME = "run/underway.json"
# Rates change all the time, and nobody reads the report more often.
_REPORT_SECONDS = 1.0
_NONE: Mapping[str, str] = {}
# A rate over a shorter time is a momentary one, and a rate over a longer time is out of date.
_LEAST_SECONDS = 1.0
_WINDOW_SECONDS = 15.0


class RolloutWait(Struct, frozen=True):
    """The event for which a rollout waits, and the rate at which the rollout's build reads.

    `waits_for` is "" if the rollout waits for nothing. `rate` is in offsets per second, or None if
    unknown. `phase` is the rollout's phase at the time of the report, or "" if unknown.
    """

    waits_for: str = ""
    rate: float | None = None
    phase: str = ""

    def cause_in(self, phase: str) -> str:
        """Returns the awaited event, or "" if the rollout is no longer in the reported phase.

        `phase` is the present phase of the rollout.
        """
        return self.waits_for if self.phase in {"", phase} else ""


class Deaths(Struct, frozen=True):
    """The number of times in a row that a build's job died, and the reason of its last death.

    If the running job shows no sign of life, `silent_seconds` is the time since its last sign;
    otherwise it is 0.
    """

    count: int
    last: str
    silent_seconds: int = 0

    def text(self, build: str) -> str:
        """Describes in one line the deaths or the silence of a build's job.

        The line about deaths names the command that shows the job's log.
        """
        if self.silent_seconds:
            return (
                f"its job shows no sign of life for {self.silent_seconds} s, and is ended soon "
                "(engine.hung_seconds)"
            )
        return (
            f"its job died {'once' if self.count == 1 else f'{self.count} times'}, last: "
            f"{self.last}; see kappa logs {build}"
        )


class SupervisorReport(Struct, frozen=True):
    """The whole report of the supervisor.

    `rollouts` maps the id of a rollout to its wait, and `deaths` maps a build to the deaths of its
    job. `resting` are the builds that rest. `woken` maps a build to the time at which the build was
    last woken.
    """

    rollouts: Mapping[int, RolloutWait] = field(default_factory=dict)
    deaths: Mapping[str, Deaths] = field(default_factory=dict)
    resting: tuple[str, ...] = ()
    woken: Mapping[str, str] = field(default_factory=dict)

    def trouble(self, build: str) -> str:
        """Describes in one line the deaths or the silence of a build's job, or returns ""."""
        return self.deaths[build].text(build) if build in self.deaths else ""

    def fresh_at(self, build: str, published: datetime | None) -> datetime | None:
        """Returns the last time at which a build's rows included all records, or None if unknown.

        `published` is the time of the build's newest frontier. For a build that rests, the result
        is the current time, because the supervisor would have woken the build if there were new
        records.
        """
        if published is None or build in self.resting:
            return None if published is None else datetime.now(UTC)
        woken = self.woken.get(build)
        return published if woken is None else max(published, datetime.fromisoformat(woken))


_UNDERWAY = Documents(SupervisorReport, derived=True, synced=False)


def read_supervisor_report(store: Store) -> SupervisorReport:
    """Returns the supervisor's last report, or an empty report if there is none."""
    return (
        _UNDERWAY.get(store.local, _NAME, "what the supervisor wrote of its rollouts")
        or SupervisorReport()
    )


def ensure_no_report(store: Store) -> None:
    """Deletes the report of an earlier supervisor, if there is one."""
    store.local.delete(_NAME)


class Pace:
    """Measures the rate at which a count grows, by repeated observations."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def rate(self, count: int, at: float) -> float | None:
        """Returns the growth per second over at most the last 15 seconds.

        `at` is the time of this observation, in seconds. Returns None if the observations span less
        than a second. If the count has fallen, the work has begun again, and earlier observations
        are discarded.
        """
        if self._looks and count < self._looks[-1][1]:
            self._looks.clear()
        self._looks.append((at, count))
        while at - self._looks[0][0] > _WINDOW_SECONDS:
            self._looks.popleft()
        since, before = self._looks[0]
        return growth(before, count, at - since) if at - since >= _LEAST_SECONDS else None


class ReportWriter:
    """Writes the supervisor's report, and measures the rates in it."""

    def __init__(
        self, store: Store, deaths: Callable[[str], Deaths | None], *, clock: Callable[[], float]
    ) -> None:
        """Creates a writer.

        `deaths` returns the deaths of a build's job, or None if the job runs well. `clock` returns
        seconds, and never moves back.
        """
        self._store = store
        self._deaths = deaths
        self._clock = clock
        self._paces: dict[int, Pace] = {}
        self._reported: SupervisorReport | None = None
        self._waits: Mapping[int, str] = {}
        self._woken: Mapping[str, str] = {}
        self._due = 0.0

    def report(
        self,
        state: State,
        waits: Mapping[int, str],
        resting: frozenset[str] = frozenset(),
        woken: Mapping[str, str] = _NONE,
    ) -> None:
        """Writes the report if it has changed.

        `waits` maps the id of each active rollout to the event for which the rollout waits.
        `resting` are the builds that rest. `woken` maps a build to the time at which the build was
        last woken.
        """
        if (waits, woken) == (self._waits, self._woken) and self._clock() < self._due:
            return
        self._waits, self._due = dict(waits), self._clock() + _REPORT_SECONDS
        self._woken = dict(woken)
        rollouts = {
            rollout.id: RolloutWait(
                waits.get(rollout.id, ""),
                self._rollout_rate(rollout.id, rollout.build),
                rollout.phase,
            )
            for rollout in state.active_rollouts
        }
        self._paces = {number: pace for number, pace in self._paces.items() if number in rollouts}
        jobs = state.wanted_jobs()
        deaths = {
            build: found
            for build in sorted(state.wanted_builds())
            if state.folded_by(build) in jobs
            and (found := self._deaths(state.folded_by(build))) is not None
        }
        at_rest = tuple(
            build for build in sorted(state.wanted_builds()) if state.folded_by(build) in resting
        )
        at = {build: woken[of] for build in jobs if (of := state.folded_by(build)) in woken}
        now = SupervisorReport(rollouts, deaths, at_rest, at)
        if now != self._reported:
            _UNDERWAY.put(self._store.local, _NAME, now)
            self._reported = now

    def _rollout_rate(self, rollout: int, build: str) -> float | None:
        newest = Frontiers(self._store, build).newest()
        if newest is None:
            return None
        within = read_progress(self._store, build, newest)
        rate = self._paces.setdefault(rollout, Pace()).rate(
            sum(offset for _, _, offset in newest.offsets.items())
            + (0 if within is None else within.read),
            self._clock(),
        )
        return None if rate is None else round(rate, 1)
