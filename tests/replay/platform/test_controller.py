"""Laws of the controller, of verification and of retiring, on real stores and tables.

Jobs run only as far as a test moves them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from journals import at, staged
from msgspec.structs import replace

from kappa.base.errors import (
    Conflict,
    TimedOut,
    Unreachable,
    UsageError,
    VerificationFailed,
)
from kappa.base.sections import RolloutSettings
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.job.bounded_legs import Aligner
from kappa.engine.job.legs import Legs, tail
from kappa.replay.platform.controller import Controller
from kappa.replay.rollout.operator_requests import (
    abandon_rollout,
    ask_promote,
    ask_undo,
    ask_verify,
    undo_target,
)
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.verify import VerificationMeans, verify_and_append_verdict
from kappa.replay.status.follow import follow_rollout, raise_unless_served
from kappa.state.alignment import Alignments
from kappa.state.build import Birth, TopicBirth, put_birth, read_birth, table_path
from kappa.state.build_status import Stopped
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Abandoned, Served, Staged, SwitchAsked
from kappa.state.journal.journal import Journal
from kappa.state.lease import Lease, Pin, ensure_lease, ensure_released, read_lease
from kappa.state.lock import Lock
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH

HOUR = 3600.0
SCHEMA = pa.schema([("carrier", pa.string()), ("flights", pa.int64())])
REJECTS = arrow_schema(REJECTS_BIRTH.columns)


@dataclass
class Platform:
    """A controller on a real store, whose view of the world the test sets."""

    store: Store
    end_of_log: int = 10
    topic_id: str = "id-of-flights"
    kind: str = "retained"
    broker_is_away: bool = False
    rules: RolloutSettings = field(default_factory=RolloutSettings)

    def __post_init__(self) -> None:
        self.journal = Journal(self.store)
        self.running: set[str] = set()
        self.stopped: dict[str, Stopped] = {}
        self.deaths: dict[str, int] = {}
        self.aligned: list[str] = []
        self.now = time.time()
        self.controller = self.new_controller()

    def new_controller(self) -> Controller:
        return Controller(
            self.store, log=self, processes=self, rules=self.rules, clock=lambda: self.now
        )

    def end(self, topics: Iterable[str]) -> Offsets:
        if self.broker_is_away:
            raise Unreachable("no broker")
        return Offsets({topic: {0: self.end_of_log} for topic in topics})

    def facts(self, _name: str) -> SimpleNamespace:
        if self.broker_is_away:
            raise Unreachable("no broker")
        return SimpleNamespace(id=self.topic_id)

    def job_runs(self, build: str) -> bool:
        return build in self.running

    def job_stopped(self, build: str) -> Stopped | None:
        return self.stopped.get(build)

    def job_deaths(self, build: str) -> int:
        return self.deaths.get(build, 0)

    def ensure_aligned_again(self, build: str) -> None:
        """Aligns as the job does, if the candidate has reached the live build's frontier."""
        self.aligned.append(build)
        candidate = Frontiers(self.store, build).newest()
        aligner = Aligner(
            self.store, read_birth(self.store, build), lease_seconds=60, clock=lambda: self.now
        )
        aim = aligner.take_aim()
        if aim is not None and candidate is not None and candidate.offsets.equals(aim.live.offsets):
            assert aligner.put_alignment(aim, candidate)

    def ensure_verifying(self, rollout: int) -> str | None:
        verify_and_append_verdict(self.store, rollout, VerificationMeans(lease_seconds=60))
        return None

    def stage(
        self,
        build: str,
        *,
        checks: tuple[str, ...] = (),
        views: dict[str, str] | None = None,
        auto_promote: bool = True,
        tables_of: str | None = None,
    ) -> None:
        table = TableBirth(
            "delays",
            (("carrier", "string"), ("flights", "bigint")),
            keys=("carrier",),
            checks=checks,
        )
        topics = (TopicBirth("flights", self.topic_id, self.kind, 1),)
        put_birth(
            self.store,
            Birth(
                build,
                "flights",
                "v",
                {},
                1,
                {"pipelines/flights.py": build},
                "flights",
                topics,
                (table, REJECTS_BIRTH),
                views or {},
                {"flights": {"0": 0}},
                {},
                "then",
                "ada",
                tables_of=tables_of,
            ),
        )
        if tables_of is not None:
            self.append_staged(staged(build, auto_promote=auto_promote, tables_of=tables_of))
            return
        rows = pa.table({"carrier": ["UA", "AA", None], "flights": [3, 0, None]}, schema=SCHEMA)
        write_deltalake(table_path(self.store, build, "delays"), rows)
        write_deltalake(table_path(self.store, build, "rejects"), REJECTS.empty_table())
        self.append_staged(staged(build, auto_promote=auto_promote))
        self.running.add(build)

    def append_staged(self, event: Staged) -> None:
        assert self.journal.append(self.controller.tick().last + 1, event)

    def fold_to(self, build: str, offset: int, *, hold: int | None = None) -> None:
        frontiers = Frontiers(self.store, build)
        last = frontiers.newest() or Frontier(
            0, build, 1, Offsets(), {"delays": 0, "rejects": 0}, "then"
        )
        frontiers.publish(replace(last, number=last.number + 1, offsets=at(offset), hold=hold))

    def begin_tail(self, build: str) -> None:
        Legs(self.store, build).begin(tail(1, at(0)))

    def tick(self, times: int = 1) -> State:
        for _ in range(times):
            self.controller.tick()
        return self.controller.state

    @property
    def last(self) -> Rollout:
        return self.controller.tick().rollouts[-1]

    def serve(self, build: str) -> None:
        """Brings a build to serve, and plays the parts of its own job and of the live job."""
        self.stage(build)
        self.fold_to(build, self.end_of_log)
        self.begin_tail(build)
        self.switch()
        assert self.controller.state.serving["flights"] == build

    def switch(self) -> None:
        for _ in range(12):
            state = self.tick()
            for rollout in state.active_rollouts:
                if rollout.phase is Phase.HOLDING:
                    live = state.serving["flights"]
                    self.fold_to(live, self.end_of_log, hold=rollout.hold)


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform(Store(tmp_path))


def test_a_candidate_has_caught_up_when_its_tail_reaches_the_logs_former_end(
    platform: Platform,
) -> None:
    platform.stage("a")
    platform.fold_to("a", 10)
    platform.tick(3)
    assert platform.last.phase is Phase.REPLAYING

    platform.begin_tail("a")
    platform.end_of_log = 12
    platform.tick()
    assert platform.last.phase is Phase.REPLAYING
    platform.end_of_log = 100
    platform.fold_to("a", 12)

    assert platform.tick().rollouts[-1].phase is Phase.VERIFYING


def test_the_first_build_serves_with_its_checks_in_the_receipt(platform: Platform) -> None:
    platform.stage("a", checks=("carrier is null or flights >= 0",))
    platform.fold_to("a", 10)
    platform.begin_tail("a")

    platform.tick(6)

    (record,) = platform.controller.state.served
    assert isinstance(record.event, Served)
    assert record.event.receipt.first
    assert [(check.rows, check.failing) for check in record.event.receipt.checks] == [(3, 0)]


@pytest.mark.parametrize(
    ("check", "verdict", "reason"),
    [
        ("flights > 0", "failed", "2 of 3 rows of table delays do not satisfy: flights > 0"),
        (
            "flights > 0 -- and why",
            "failed",
            "2 of 3 rows of table delays do not satisfy: flights > 0 -- and why",
        ),
        ("flihgts > 0", "inconclusive", "a check of table delays could not be run"),
        ("flights >= 0) and (flights > 0", "failed", "2 of 3 rows of table delays do not satisfy"),
        ("carrier = 'UA' or true", "passed", ""),
    ],
)
def test_a_check_is_true_of_every_row_or_nothing_is_swapped(
    platform: Platform, check: str, verdict: str, reason: str
) -> None:
    platform.serve("a")
    platform.stage("b", checks=(check,))
    platform.fold_to("b", 10)
    platform.begin_tail("b")

    platform.tick(4)

    rollout = platform.controller.state.rollouts[-1]
    assert rollout.verified is not None
    assert rollout.verified.verdict == verdict
    assert rollout.reason.startswith(reason)
    assert platform.controller.state.serving == {"flights": "a"}
    assert rollout.active == (verdict == "passed")


def test_a_view_that_its_tables_do_not_bear_is_not_promoted(platform: Platform) -> None:
    platform.stage("a", views={"busy": "select nothing from delays"})
    platform.fold_to("a", 10)
    platform.begin_tail("a")

    platform.tick(4)

    assert platform.last.phase is Phase.FAILED
    assert "view busy" in platform.last.reason


def test_a_second_build_takes_over_and_the_first_is_kept(platform: Platform) -> None:
    platform.serve("a")
    platform.serve("b")

    state = platform.tick()
    assert (state.serving, state.idle, state.generation) == ({"flights": "b"}, {"flights": "a"}, 2)
    # The record itself names the generation before, and the codes that were compared.
    event = state.served[-1].event
    assert isinstance(event, Served)
    assert (event.previous_generation, event.receipt.code, event.receipt.live_code) == (
        1,
        *(read_birth(platform.store, build).code_sha256 for build in "ba"),
    )
    assert platform.store.path("builds/a/tables").exists()


def test_a_candidate_is_verified_at_a_frontier_of_the_live_build(platform: Platform) -> None:
    platform.serve("a")
    platform.stage("b")
    platform.fold_to("b", 10)
    assert platform.tick(2).rollouts[-1].phase is Phase.REPLAYING
    platform.begin_tail("b")

    platform.tick(2)

    alignment = Alignments(platform.store, "b").last()
    assert alignment is not None
    assert (alignment.live.build, alignment.live.offsets, alignment.candidate.offsets) == (
        "a",
        at(10),
        at(10),
    )
    assert platform.controller.state.rollouts[-1].caught_up == at(10)


def test_a_candidate_that_shares_no_topic_with_the_live_build_is_checked_and_serves(
    platform: Platform,
) -> None:
    platform.serve("a")
    platform.topic_id = "id-of-the-new-one"
    platform.serve("b")

    assert platform.aligned == []
    verified = platform.controller.state.rollouts[-1].verified
    assert verified is not None
    assert (verified.verdict, verified.live_build, verified.incomparable_topics) == (
        "passed",
        "a",
        ("flights",),
    )


def test_an_alignment_that_was_lost_is_made_again_before_anything_is_verified(
    platform: Platform,
) -> None:
    platform.serve("a")
    platform.stage("b")
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.tick(2)
    first = Alignments(platform.store, "b").last()
    assert first is not None
    assert platform.controller.state.rollouts[-1].phase is Phase.VERIFYING
    ensure_released(platform.store, first.lease)

    platform.tick(3)

    second = Alignments(platform.store, "b").last()
    assert second is not None
    assert second.number == 2
    assert platform.controller.state.rollouts[-1].verified is not None


def test_an_alignment_is_kept_as_long_as_its_rollout_is_on_its_way(platform: Platform) -> None:
    platform.serve("a")
    platform.stage("b", auto_promote=False)
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.tick(4)
    alignment = Alignments(platform.store, "b").last()
    assert alignment is not None
    for _ in range(10):
        platform.now += 30
        platform.tick()
    assert read_lease(platform.store, alignment.lease) is not None

    abandon_rollout(platform.store, "flights")
    platform.tick()

    assert read_lease(platform.store, alignment.lease) is None
    assert platform.aligned == ["b"]


def test_without_a_yes_a_candidate_that_passed_waits(platform: Platform) -> None:
    platform.serve("a")
    platform.stage("b", auto_promote=False)
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.tick(8)
    assert (platform.last.phase, platform.controller.state.serving) == (
        Phase.READY,
        {"flights": "a"},
    )

    ask_promote(platform.store, "flights")
    platform.switch()

    assert platform.controller.state.serving == {"flights": "b"}


@pytest.mark.parametrize("kind", ["retained", "compacted"])
def test_a_candidate_of_a_compacted_topic_serves_past_all_that_may_hide_a_key(
    platform: Platform, kind: str
) -> None:
    platform.kind = kind
    platform.serve("a")
    platform.stage("b", auto_promote=False)
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.tick(6)
    assert platform.last.waits

    # The live build is behind the log, and stays so.
    platform.end_of_log = 20
    ask_promote(platform.store, "flights")
    platform.tick(3)
    assert platform.last.phase is (Phase.READY if kind == "compacted" else Phase.HOLDING)

    platform.fold_to("b", 20)
    assert platform.tick(2).rollouts[-1].phase is Phase.HOLDING


def test_what_is_verified_once_more_is_aligned_once_more_and_waits_for_a_new_yes(
    platform: Platform,
) -> None:
    platform.serve("a")
    platform.stage("b", auto_promote=False)
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.tick(5)
    platform.end_of_log = 12
    for build in ("a", "b"):
        platform.fold_to(build, 12)

    ask_verify(platform.store, "flights")
    platform.tick(4)

    assert platform.last.phase is Phase.READY
    assert platform.last.verified is not None
    assert platform.last.verified.offsets == at(12)
    assert not platform.last.approved


@pytest.mark.parametrize(("reached", "phase"), [(12, Phase.FAILED), (10, Phase.READY)])
def test_an_alignment_with_a_build_that_has_stopped_behind_it_is_not_waited_for(
    platform: Platform, reached: int, phase: Phase
) -> None:
    """Law 13: the alignment ends, and a new build is brought to the live build's end.

    The live build has stopped before it reached the candidate, so the new build must end exactly at
    the live build's frontier.
    """
    platform.serve("a")
    platform.stage("b", auto_promote=False)
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.tick(5)
    platform.fold_to("b", reached)
    platform.stopped["a"] = Stopped("the sum of n does not fit", "", "then")

    ask_verify(platform.store, "flights")
    platform.tick(4)

    assert platform.last.phase is phase
    if phase is Phase.FAILED:
        assert platform.last.reason.endswith(
            "it is past where that one stopped: the sum of n does not fit"
        )
        assert platform.last.hint.startswith("kappa retry flights")


def test_a_verification_that_dies_again_and_again_has_concluded_nothing(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        platform, "ensure_verifying", lambda _rollout: "the verification died 3 times"
    )
    platform.stage("a")
    platform.fold_to("a", 10)
    platform.begin_tail("a")

    platform.tick(3)

    assert platform.last.verified is not None
    assert (platform.last.phase, platform.last.verified.verdict) == (Phase.FAILED, "inconclusive")
    with pytest.raises(
        VerificationFailed, match="the verification died 3 times; see kappa logs verification"
    ) as told:
        raise_unless_served(platform.last)
    assert "kappa retry flights" in told.value.hint


def test_a_yes_to_what_is_not_ready_is_refused(platform: Platform) -> None:
    platform.serve("a")
    with pytest.raises(UsageError, match="no rollout is active"):
        ask_promote(platform.store)
    platform.stage("b")

    with pytest.raises(Conflict, match="is replaying, and not ready"):
        ask_promote(platform.store, "flights")
    with pytest.raises(Conflict, match="is replaying, and not ready"):
        ask_verify(platform.store, "flights")


def test_an_undo_and_a_redo_need_no_replay(platform: Platform) -> None:
    platform.serve("a")
    platform.serve("b")

    ask_undo(platform.store, None)
    platform.switch()
    assert platform.controller.state.serving == {"flights": "a"}
    ask_undo(platform.store, "flights")
    platform.switch()

    assert (platform.controller.state.serving, platform.controller.state.generation) == (
        {"flights": "b"},
        4,
    )


def test_an_undo_goes_to_a_generation_whose_build_is_kept(platform: Platform) -> None:
    for build in ("a", "b", "c"):
        platform.serve(build)
    state = platform.controller.state

    assert undo_target(state, None, 2) == undo_target(state, "flights") == ("flights", "b")
    for to, what in (
        (1, "build a, which served pipeline flights in generation 1, is retired"),
        (3, "what generation 3 served serves now"),
        (4, "there is no generation 4"),
    ):
        with pytest.raises(UsageError, match=what):
            undo_target(state, None, to)
    with pytest.raises(UsageError, match="nothing to undo"):
        undo_target(state, "flights", 3)
    assert isinstance(ask_undo(platform.store, None, to=2).event, SwitchAsked)


def test_of_two_who_ask_at_once_the_second_is_told_who_and_what_now(platform: Platform) -> None:
    platform.serve("a")
    platform.serve("b")
    ask_undo(platform.store, None)

    with pytest.raises(Conflict, match="rollout 3 of pipeline flights has not ended"):
        ask_undo(platform.store, None)


def test_what_cannot_be_undone_or_abandoned_is_said(platform: Platform) -> None:
    platform.serve("a")

    with pytest.raises(UsageError, match="no build has served before"):
        ask_undo(platform.store, None)
    with pytest.raises(UsageError, match="pipeline flights has no build"):
        ask_undo(platform.store, "flights")
    with pytest.raises(UsageError, match="no rollout is active"):
        abandon_rollout(platform.store, None)
    with pytest.raises(UsageError, match="pipeline flights has no active rollout"):
        abandon_rollout(platform.store, "flights")


def test_an_abandon_ends_a_rollout_and_the_hold_with_it(platform: Platform) -> None:
    platform.serve("a")
    platform.serve("b")
    ask_undo(platform.store, None)
    platform.tick(2)
    assert platform.last.phase is Phase.HOLDING

    assert isinstance(abandon_rollout(platform.store, None).event, Abandoned)
    platform.fold_to("b", 99)

    assert platform.last.phase is Phase.ABANDONED
    assert platform.controller.state.serving == {"flights": "b"}


def test_a_candidate_whose_job_stopped_has_failed_with_its_words(platform: Platform) -> None:
    platform.stage("a")
    platform.stopped["a"] = Stopped("topic flights was created again", "kappa deploy", "then")

    platform.tick()

    assert (platform.last.phase, platform.last.reason) == (
        Phase.FAILED,
        "the job of build a stopped: topic flights was created again",
    )
    assert platform.last.hint == "kappa deploy"


def test_a_candidate_whose_job_dies_again_and_again_fails_in_the_end(platform: Platform) -> None:
    platform.stage("a")
    platform.deaths["a"] = 14
    assert platform.tick(3).rollouts[-1].phase is Phase.REPLAYING
    platform.deaths["a"] = 15

    assert platform.tick().rollouts[-1].phase is Phase.FAILED


def test_a_live_job_that_is_dead_is_acted_for(platform: Platform) -> None:
    platform.serve("a")
    platform.stage("b")
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.running.discard("a")

    platform.tick(8)

    assert platform.controller.state.serving == {"flights": "b"}


def test_while_its_lock_is_held_nobody_acts_for_a_job(platform: Platform) -> None:
    platform.serve("a")
    platform.stage("b")
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.running.discard("a")

    with Lock(platform.store.path("builds/a/lock"), what="build a"), pytest.raises(Conflict):
        platform.tick(8)

    assert platform.controller.state.serving == {"flights": "a"}


def test_without_the_broker_nothing_is_decided_and_nothing_is_lost(platform: Platform) -> None:
    platform.stage("a")
    platform.fold_to("a", 10)
    platform.begin_tail("a")
    platform.broker_is_away = True
    with pytest.raises(Unreachable):
        platform.tick()
    platform.broker_is_away = False

    assert platform.tick(6).serving == {"flights": "a"}


def test_a_failed_fork_keeps_nothing_else_of_the_tick_back(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    for build in "abc":
        platform.serve(build)

    def fail_to_fork(_rollout: int) -> str | None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(platform, "ensure_verifying", fail_to_fork)
    platform.stage("d")
    platform.fold_to("d", 10)
    platform.begin_tail("d")
    with pytest.raises(OSError, match="Resource"):
        platform.tick(9)
    platform.running.discard("a")

    with pytest.raises(OSError, match="Resource"):
        platform.tick()

    assert not platform.store.path("builds/a/tables").exists()


def test_a_topic_created_anew_fails_the_rollout(platform: Platform) -> None:
    platform.stage("a")
    platform.fold_to("a", 10)
    platform.begin_tail("a")
    platform.tick(2)
    platform.topic_id = "another"

    platform.tick(2)

    assert platform.last.phase is Phase.FAILED
    assert "created again" in platform.last.reason


@pytest.mark.parametrize("ticks", range(8))
def test_a_controller_that_was_killed_is_gone_on_from_by_the_next(
    platform: Platform, ticks: int
) -> None:
    platform.serve("a")
    platform.stage("b")
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.tick(ticks)

    platform.controller = platform.new_controller()
    platform.switch()

    assert platform.controller.state.serving == {"flights": "b"}


def test_a_retired_build_is_deleted_when_its_job_is_gone_and_no_reader_is_on_it(
    platform: Platform,
) -> None:
    platform.serve("a")
    platform.serve("b")
    lease = Lease(os.getpid(), "ada", platform.now + 60, {"a": Pin(1, {"delays": 0})})
    ensure_lease(platform.store, lease)
    platform.serve("c")
    folder = platform.store.path("builds/a")

    assert platform.tick().retired == {"a"}
    assert (folder / "tables").exists(), "its job runs"
    platform.running.discard("a")
    platform.tick()
    assert (folder / "tables").exists(), "a reader is on it"
    ensure_released(platform.store, lease.id)
    platform.tick()

    assert sorted(path.name for path in folder.iterdir()) == ["birth.json", "lock"]
    assert platform.store.path("builds/b/tables").exists()


def test_a_rejected_candidate_is_retired_and_nothing_else_is(platform: Platform) -> None:
    platform.serve("a")
    platform.stage("b", checks=("false",))
    platform.fold_to("b", 10)
    platform.begin_tail("b")
    platform.running.discard("b")

    platform.tick(5)

    assert platform.controller.state.retired == {"b"}
    assert platform.store.path("builds/a/tables/delays").exists()
    assert not platform.store.path("builds/b/tables").exists()


def test_a_folder_that_nobody_staged_goes_only_when_it_is_old(platform: Platform) -> None:
    platform.serve("a")
    for build, age in (("old", 2 * HOUR), ("new", 0.0)):
        folder = platform.store.path(f"builds/{build}/code")
        folder.mkdir(parents=True)
        for path in (folder, folder.parent):
            os.utime(path, (platform.now - age, platform.now - age))

    platform.controller = platform.new_controller()
    platform.tick()

    assert sorted(path.name for path in platform.store.path("builds").iterdir()) == ["a", "new"]


def test_who_follows_sees_each_phase_and_the_end(platform: Platform) -> None:
    platform.stage("a")
    seen = []
    for progress in follow_rollout(platform.store, 1, timeout=60, supervised=lambda: True):
        seen.append(progress)
        if progress.rollout.phase is Phase.REPLAYING and progress.folded is None:
            platform.fold_to("a", 4)
        elif progress.rollout.phase is Phase.REPLAYING:
            platform.fold_to("a", 10)
            platform.begin_tail("a")
            platform.tick(6)

    assert [(progress.rollout.phase, progress.done_and_total(at(10))) for progress in seen] == [
        (Phase.REPLAYING, (0, 10)),
        (Phase.REPLAYING, (4, 10)),
        (Phase.SERVED, (4, 10)),
    ]


def test_who_follows_is_told_when_time_is_over_and_the_rollout_goes_on(platform: Platform) -> None:
    platform.stage("a")

    with pytest.raises(TimedOut, match="rollout 1 is still replaying"):
        list(follow_rollout(platform.store, 1, timeout=0, supervised=lambda: True))

    assert platform.last.active


def test_who_follows_is_told_when_nobody_is_there(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.stage("a")
    monkeypatch.setattr("kappa.replay.status.follow._PATIENCE_SECONDS", 0.0)

    with pytest.raises(Unreachable, match="the platform is not running"):
        list(follow_rollout(platform.store, 1, timeout=60, supervised=lambda: False))


def test_after_the_soak_the_idle_build_is_retired_and_an_undo_says_so(platform: Platform) -> None:
    platform.serve("a")
    platform.serve("b")
    platform.running.discard("a")
    platform.now += HOUR - 60
    assert platform.tick().idle == {"flights": "a"}

    platform.now += 120
    platform.tick(2)

    assert (platform.controller.state.idle, platform.controller.state.retired) == ({}, {"a"})
    assert sorted(path.name for path in platform.store.path("builds/a").iterdir()) == [
        "birth.json",
        "lock",
    ]
    for name in (None, "flights"):
        with pytest.raises(
            UsageError, match="build a, which served pipeline flights before, is retired"
        ):
            ask_undo(platform.store, name)


def test_an_undo_under_way_outlives_the_soak(platform: Platform) -> None:
    platform.serve("a")
    platform.serve("b")
    ask_undo(platform.store, None)
    platform.now += 2 * HOUR
    platform.tick()
    assert platform.controller.state.retired == frozenset()

    platform.switch()

    assert platform.controller.state.serving == {"flights": "a"}


def test_a_soak_of_no_seconds_retires_at_once(platform: Platform) -> None:
    platform.rules = RolloutSettings(soak="0s")
    platform.controller = platform.new_controller()
    platform.serve("a")
    platform.now += 60
    platform.serve("b")

    assert platform.tick().retired == {"a"}


def test_a_deploy_of_the_kept_version_is_a_switch(platform: Platform) -> None:
    platform.serve("a")
    platform.serve("b")
    assert platform.journal.append(
        platform.tick().last + 1, SwitchAsked("flights", "a", "its version was deployed")
    )

    platform.switch()

    assert platform.controller.state.serving == {"flights": "a"}


def test_an_overlay_serves_and_is_undone_while_no_job_and_no_broker_runs(
    platform: Platform,
) -> None:
    platform.serve("a")
    platform.running.clear()
    platform.broker_is_away = True
    platform.stopped["a"] = Stopped("the topic is gone", "", "then")
    shown = Frontiers(platform.store, "a").newest()

    platform.stage("b", checks=("carrier is null or flights >= 0",), tables_of="a")
    state = platform.tick(6)

    assert state.serving == {"flights": "b"}
    served = state.served[-1].event
    assert isinstance(served, Served)
    receipt = served.receipt
    assert (receipt.tables_of, receipt.live_build, receipt.differences) == ("a", "a", ())
    assert [(check.rows, check.failing) for check in receipt.checks] == [(3, 0)]
    assert not platform.aligned
    ask_undo(platform.store, "flights")
    assert platform.tick(4).serving == {"flights": "a"}
    # Nothing was held, so no frontier acknowledges anything.
    assert Frontiers(platform.store, "b").newest() == shown


@pytest.mark.parametrize(
    ("checks", "views", "verdict"),
    [
        (("flights > 0",), {}, "failed"),
        ((), {"v": "select flihgts from delays"}, "inconclusive"),
        ((), {"v": "select * from read_text('/etc/hostname')"}, "inconclusive"),
        ((), {"v": "select random() as x from delays"}, "inconclusive"),
    ],
    ids=["a check", "a column", "a file", "chance"],
)
def test_an_overlay_that_is_not_verified_leaves_what_serves(
    platform: Platform, checks: tuple[str, ...], views: dict[str, str], verdict: str
) -> None:
    platform.serve("a")

    platform.stage("b", checks=checks, views=views, tables_of="a")
    platform.tick(6)

    assert platform.last.phase is Phase.FAILED
    assert platform.last.verified is not None
    assert platform.last.verified.verdict == verdict
    assert platform.controller.state.serving == {"flights": "a"}
    assert platform.controller.state.retired == {"b"}


def test_a_replay_takes_the_place_of_an_overlay_by_a_hold_of_the_build_below(
    platform: Platform,
) -> None:
    platform.serve("a")
    platform.stage("b", tables_of="a")
    platform.tick(6)
    platform.serve("c")

    assert platform.controller.state.serving == {"flights": "c"}
    assert platform.controller.state.idle == {"flights": "b"}
    assert Frontiers(platform.store, "b").newest() == Frontiers(platform.store, "a").newest()
    acknowledged = Frontiers(platform.store, "a").newest()
    assert acknowledged is not None
    assert acknowledged.hold is not None
    platform.running.clear()
    platform.now += 2 * HOUR
    platform.tick(3)
    assert platform.controller.state.retired == {"a", "b"}
    assert not platform.store.path("builds/a/tables").exists()
