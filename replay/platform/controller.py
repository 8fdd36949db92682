"""The controller: at each tick, reads the journal and takes a step of each active rollout.

The controller computes its state from the journal. So only the journal must survive a crash: the
next tick computes the state again and continues. The controller itself starts no process (the
protocol `Workers` does) and reads no records of topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, assert_never

from kappa.base.errors import Broken, Conflict, KappaError, UsageError
from kappa.base.failpoint import failpoint
from kappa.base.sections import RolloutSettings
from kappa.declare.topic_options import TopicKind
from kappa.engine.job.legs import has_tail
from kappa.replay.platform.next_step import next_step
from kappa.replay.rollout.fold import advance_state, check_may_follow, fold_records
from kappa.replay.rollout.garbage import ensure_data_deleted, ensure_orphans_deleted
from kappa.replay.rollout.promote import acknowledge_for_dead_job
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State, soaked_builds
from kappa.replay.rollout.step import (
    Acknowledge,
    AlignAgain,
    Append,
    RolloutStep,
    Sight,
    StartVerification,
    Wait,
    waits_for,
)
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build import read_birth
from kappa.state.build_status import Stopped, comparable_now
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import Event, Failed, Held, Retired, Served, Verified
from kappa.state.journal.journal import Journal
from kappa.state.lease import ensure_released, ensure_renewed
from kappa.state.offsets import Offsets
from kappa.state.store import Store

if TYPE_CHECKING:
    from kappa.kafka.client import TopicFacts


class LogView(Protocol):
    """The part of the Kafka client that the controller needs (implemented in kappa/kafka)."""

    def end(self, topics: Iterable[str]) -> Offsets:
        """Returns the end offsets of these topics, for readers of committed records."""

    def facts(self, name: str) -> TopicFacts | None:
        """Returns the facts about a topic, or None if the broker has no topic of that name."""


class Workers(Protocol):
    """The operations on child processes that the controller needs (implemented in processes.py)."""

    def job_runs(self, build: str) -> bool:
        """Returns True while a process of the build's job exists."""

    def job_stopped(self, build: str) -> Stopped | None:
        """Returns the reason why the build's job is not started again, or None if it may start."""

    def job_deaths(self, build: str) -> int:
        """Returns how many times in a row the build's job has died."""

    def ensure_aligned_again(self, build: str) -> None:
        """Requests a new alignment of a build whose tail runs. Afterwards, the tail continues."""

    def ensure_verifying(self, rollout: int) -> str | None:
        """Starts the verification of a rollout, unless it runs already.

        Returns None in both cases. If the verification has died too often to be started again,
        returns the reason instead.
        """


class Controller:
    """Takes the steps of active rollouts, and deletes the data of retired builds."""

    def __init__(
        self,
        store: Store,
        *,
        log: LogView,
        processes: Workers,
        rules: RolloutSettings,
        clock: Callable[[], float],
    ) -> None:
        """Creates a controller with an empty state. The first tick computes the state.

        `clock` returns seconds since 1970, and is used for leases and soaks.
        """
        self.state = State()
        # The reason for which each active rollout waited at the last tick, for people alone.
        self.waits: dict[int, str] = {}
        self._store = store
        self._journal = Journal(store)
        self._news = Journal.news(store)
        self._log = log
        self._processes = processes
        self._rules = rules
        self._clock = clock
        # The target of a candidate: sampled once per phase and attempt, again after a crash.
        self._targets: dict[tuple[int, Phase, int], Offsets] = {}
        self._let_go_of: set[int] = set()
        self._deleted: set[str] = set()
        self._orphans_looked_for = False

    def tick(self) -> State:
        """Observes all rollouts, takes at most one step of each, and returns the state.

        If an observation or a step fails with a KappaError or an OSError, the tick continues with
        the other rollouts, and then raises the first such error. The error is Unreachable if the
        broker did not answer. A rollout that could not be observed gets no step.
        """
        with self._news.looking_for_news() as due:
            if due:
                self.state = fold_records(self._journal.after(self.state.last), self.state)
        unseen: list[KappaError | OSError] = []
        self.waits = {}
        for begun in self.state.active_rollouts:
            rollout = self.state.rollout(begun.id)
            if not rollout.active:
                # The rollout ended with another rollout of its group.
                continue
            try:
                step = next_step(self._observe_group(rollout), self._rules)
                self.waits[rollout.id] = waits_for(step)
                self._take_step(rollout, step)
            except (Broken, UsageError) as error:
                self._append_event(Failed(rollout.id, error.message, error.hint))
            except (KappaError, OSError) as error:
                why = error.message if isinstance(error, KappaError) else str(error)
                self.waits[rollout.id] = f"what could not be looked at: {why}"
                unseen.append(error)
        self._release_leases()
        self._retire_builds()
        if unseen:
            raise unseen[0]
        return self.state

    def _observe_group(self, rollout: Rollout) -> Sight:
        """Returns an observation of a rollout and of the other rollouts in its group."""
        seen = self._observe_rollout(rollout)
        try:
            return replace(
                seen,
                others=tuple(
                    self._observe_rollout(self.state.rollout(number)) for number in rollout.together
                ),
            )
        except (Broken, UsageError) as error:
            # The other rollout fails at its own turn; this rollout waits for a new yes.
            return replace(seen, unseen=error.message)

    def _observe_rollout(self, rollout: Rollout) -> Sight:
        live_build = self.state.serving.get(rollout.pipeline)
        birth, live = (
            read_birth(self._store, rollout.build),
            read_birth(self._store, live_build) if live_build else None,
        )
        frontier = Frontiers(self._store, rollout.build).newest()
        if live is not None and self.state.serves_the_same(rollout.build, live_build):
            # Both builds have the same tables: neither a job nor the log has a part in the switch.
            return Sight(
                self.state,
                rollout,
                candidate=frontier,
                live=frontier,
                comparable=frozenset(birth.topic_ids),
                code=birth.code_sha256,
                base=birth.base,
                live_code=live.code_sha256,
            )
        seen = Sight(
            state=self.state,
            rollout=rollout,
            candidate=frontier,
            live=Frontiers(self._store, live_build).newest() if live_build else None,
            comparable=comparable_now(self._store, birth, live) if live else frozenset(),
            tails=rollout.phase is Phase.REPLAYING and has_tail(self._store, rollout.build),
            alignment=None if rollout.switch else self._current_alignment(rollout),
            live_runs=live is not None and self._processes.job_runs(live.folded_by),
            live_stopped=None if live is None else self._processes.job_stopped(live.folded_by),
            code=birth.code_sha256,
            base=birth.base,
            live_code=None if live is None else live.code_sha256,
            stopped=self._processes.job_stopped(birth.folded_by),
            deaths=self._processes.job_deaths(birth.folded_by),
        )
        match rollout.phase:
            case Phase.REPLAYING if seen.tails and not seen.aligns:
                others = frozenset(birth.topic_ids) - seen.comparable
                return replace(
                    seen,
                    target=self._sampled_target(
                        rollout,
                        lambda: self._log.end(sorted(others)).highest_with(_visible_offsets(seen)),
                    ),
                )
            case Phase.READY if rollout.waits:
                # The target is sampled after the yes: until then the live build goes on.
                self._targets = {
                    key: target for key, target in self._targets.items() if key[0] != rollout.id
                }
                return seen
            case Phase.READY:
                # A bounded read of a compacted topic lacks the keys that were written again after
                # its end: all of that is read first (law 5).
                compacted = sorted(
                    topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED
                )
                return replace(
                    seen,
                    target=self._sampled_target(
                        rollout,
                        lambda: _visible_offsets(seen).highest_with(
                            self._log.end(compacted) if compacted else Offsets()
                        ),
                    ),
                    recreated=self._recreated_topic(birth.topic_ids),
                )
            case _:
                return seen

    def _current_alignment(self, rollout: Rollout) -> Alignment | None:
        """Returns the candidate's newest alignment, or None if it is too old or its lease is gone.

        The lease is renewed until the rollout ends.
        """
        last = Alignments(self._store, rollout.build).last()
        if last is None or last.number <= rollout.alignment_after:
            return None
        return (
            last
            if ensure_renewed(
                self._store, last.lease, now=self._clock(), seconds=self._rules.lease_seconds
            )
            else None
        )

    def _sampled_target(self, rollout: Rollout, sample: Callable[[], Offsets]) -> Offsets:
        key = (rollout.id, rollout.phase, rollout.attempts)
        if key not in self._targets:
            self._targets[key] = sample()
        return self._targets[key]

    def _recreated_topic(self, topic_ids: dict[str, str]) -> str | None:
        for name, topic_id in topic_ids.items():
            facts = self._log.facts(name)
            if facts is None or facts.id != topic_id:
                return name
        return None

    def _take_step(self, rollout: Rollout, step: RolloutStep) -> None:
        match step:
            case Wait():
                return
            case Append(event):
                self._append_event(event)
            case StartVerification():
                why_not = self._processes.ensure_verifying(rollout.id)
                if why_not is not None:
                    live = self.state.serving.get(rollout.pipeline)
                    self._append_event(
                        Verified(
                            rollout.id,
                            "inconclusive",
                            rollout.caught_up or Offsets(),
                            reason=f"{why_not}; see kappa logs verification",
                            live_build=live,
                        )
                    )
            case AlignAgain(build):
                self._processes.ensure_aligned_again(build)
            case Acknowledge(build, hold):
                acknowledge_for_dead_job(self._store, build, hold)
            case _:
                assert_never(step)

    def _append_event(self, event: Event) -> None:
        """Appends an event to the journal as the record after the last known record.

        If another writer has used the number of this record, nothing is appended. Then the next
        tick observes the rollout again, and chooses the next step again.
        """
        check_may_follow(self.state, event)
        if isinstance(event, Held | Served):
            failpoint("promote.before_append")
        record = self._journal.append(self.state.last + 1, event)
        if record is not None:
            self.state = advance_state(self.state, record)

    def _release_leases(self) -> None:
        """Releases the leases of alignments whose rollouts have ended.

        If a lease is not released here, for example because of a crash, the lease expires by
        itself.
        """
        for rollout in self.state.rollouts:
            if not rollout.active and rollout.id not in self._let_go_of:
                last = Alignments(self._store, rollout.build).last()
                if last is not None:
                    ensure_released(self._store, last.lease)
                self._let_go_of.add(rollout.id)

    def _retire_builds(self) -> None:
        now = datetime.fromtimestamp(self._clock(), UTC)
        for build in sorted(
            self.state.unneeded_builds() | soaked_builds(self.state, now, self._rules.soak_seconds)
        ):
            # If an undo was first, the undo's record has this number, and the next tick looks
            # again.
            self._append_event(Retired(build))
        for build in sorted(self.state.retired - self._deleted):
            if self._processes.job_runs(build):
                continue
            try:
                if ensure_data_deleted(self._store, build, now=self._clock()):
                    self._deleted.add(build)
            except Conflict:
                # The job has outlived its supervisor for a moment, and is being killed.
                continue
        if not self._orphans_looked_for:
            ensure_orphans_deleted(self._store, frozenset(self.state.versions), now=self._clock())
            self._orphans_looked_for = True


def _visible_offsets(sight: Sight) -> Offsets:
    """Returns the offsets that readers of the live build see, in topics that both builds read."""
    return Offsets() if sight.live is None else sight.live.offsets.only(sight.comparable)
