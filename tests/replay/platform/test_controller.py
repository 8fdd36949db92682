"""Laws of the controller, of verification and of retiring: over real stores and tables.

Jobs run only as far as a test moves them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from births import make_birth
from deltalake import write_deltalake
from journals import at, staged
from msgspec.structs import replace

from kappa.base.errors import Conflict, TimedOut, Unreachable, UsageError, VerificationFailed
from kappa.base.sections import RolloutSettings
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.job.align import Aligner
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
from kappa.replay.rollout.verify.verify import VerificationMeans, ensure_verified
from kappa.replay.status.follow import follow_rollout, raise_unless_served
from kappa.state.alignment import Alignments
from kappa.state.build import TopicBirth, put_birth, read_birth, table_path
from kappa.state.build_status import Stopped
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Abandoned, SwitchAsked
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
    """A controller over a real store, and its view of the world, set by hand."""

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
        """Aligns as the job does, if the candidate is at the live build's frontier already."""
        self.aligned.append(build)
        candidate = Frontiers(self.store, build).newest()
        aligner = Aligner(
            self.store, read_birth(self.store, build), lease_seconds=60, clock=lambda: self.now
        )
        aim = aligner.take_aim()
        if aim is not None and candidate is not None and candidate.offsets.equals(aim.live.offsets):
            assert aligner.put(aim, candidate)

    def ensure_verifying(self, rollout: int) -> str | None:
        ensure_verified(self.store, rollout, VerificationMeans(lease_seconds=60))
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
        columns = (("carrier", "string"), ("flights", "bigint"))
        table = TableBirth("delays", columns, keys=("carrier",), checks=checks)
        topics = (TopicBirth("flights", self.topic_id, self.kind, 1),)
        born = make_birth(
            build,
            sources={"pipelines/flights.py": build},
            topics=topics,
            tables=(table, REJECTS_BIRTH),
            views=views or {},
            origin={"flights": {"0": 0}},
            tables_of=tables_of,
        )
        put_birth(self.store, born)
        event = staged(build, auto_promote=auto_promote, tables_of=tables_of)
        assert self.journal.append(self.controller.tick().last + 1, event)
        if tables_of is not None:
            return
        rows = pa.table({"carrier": ["UA", "AA", None], "flights": [3, 0, None]}, schema=SCHEMA)
        write_deltalake(table_path(self.store, build, "delays"), rows)
        write_deltalake(table_path(self.store, build, "rejects"), REJECTS.empty_table())
        self.running.add(build)

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

    @property
    def state(self) -> State:
        return self.controller.state

    @property
    def serving(self) -> str:
        (build,) = self.state.serving.values()
        return build

    def catch_up(self, build: str, *, offset: int | None = None, **staged: Any) -> None:
        """Stages a build whose job reads up to an offset, by default the log's end."""
        self.stage(build, **staged)
        self.fold_to(build, self.end_of_log if offset is None else offset)
        self.begin_tail(build)

    def serve(self, *builds: str) -> None:
        """Brings each build to serve: its own job and the live one do their part."""
        for build in builds:
            self.catch_up(build)
            self.switch()
            assert self.serving == build

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


def test_caught_up_is_tail_at_the_logs_former_end(platform: Platform) -> None:
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
    platform.catch_up("a", checks=("carrier is null or flights >= 0",))

    platform.tick(6)

    (record,) = platform.state.served
    assert record.event.receipt.first
    assert [(check.rows, check.failing) for check in record.event.receipt.checks] == [(3, 0)]


@pytest.mark.parametrize(
    ("check", "verdict", "reason"),
    [
        ("flights > 0", "failed", "2 of 3 rows of table delays do not satisfy: flights > 0"),
        ("flights > 0 -- and why", "failed", "2 of 3 rows of table delays do not satisfy: fl"),
        ("flihgts > 0", "inconclusive", "a check of table delays could not be run"),
        ("flights >= 0) and (flights > 0", "failed", "2 of 3 rows of table delays do not satisfy"),
        ("carrier = 'UA' or true", "passed", ""),
    ],
)
def test_a_check_is_true_of_every_row_or_nothing_is_swapped(
    platform: Platform, check: str, verdict: str, reason: str
) -> None:
    platform.serve("a")
    platform.catch_up("b", checks=(check,))

    platform.tick(4)

    rollout = platform.last
    assert rollout.verified.verdict == verdict
    assert rollout.reason.startswith(reason)
    assert platform.serving == "a"
    assert rollout.active == (verdict == "passed")


def test_a_view_that_its_tables_do_not_bear_is_not_promoted(platform: Platform) -> None:
    platform.catch_up("a", views={"busy": "select nothing from delays"})

    platform.tick(4)

    assert platform.last.phase is Phase.FAILED
    assert "view busy" in platform.last.reason


def test_a_second_build_takes_over_and_the_first_is_kept(platform: Platform) -> None:
    platform.serve("a", "b")

    state = platform.tick()
    assert (state.serving, state.idle, state.generation) == ({"flights": "b"}, {"flights": "a"}, 2)
    # The record itself names the generation before, and the codes that were compared.
    event = state.served[-1].event
    codes = [read_birth(platform.store, build).code_sha256 for build in "ba"]
    assert event.previous_generation == 1
    assert [event.receipt.code, event.receipt.live_code] == codes
    assert platform.store.path("builds/a/tables").exists()


def test_a_candidate_is_verified_at_a_frontier_of_the_live_build(platform: Platform) -> None:
    platform.serve("a")
    platform.stage("b")
    platform.fold_to("b", 10)
    assert platform.tick(2).rollouts[-1].phase is Phase.REPLAYING
    platform.begin_tail("b")

    platform.tick(2)

    alignment = Alignments(platform.store, "b").last()
    assert alignment.live.build == "a"
    assert alignment.live.offsets == alignment.candidate.offsets == at(10)
    assert platform.last.caught_up == at(10)


def test_candidate_of_other_topics_is_checked_and_serves(platform: Platform) -> None:
    """A candidate that shares no topic with the live build cannot be aligned with it."""
    platform.serve("a")
    platform.topic_id = "id-of-the-new-one"
    platform.serve("b")

    assert platform.aligned == []
    verified = platform.last.verified
    assert (verified.verdict, verified.live_build) == ("passed", "a")
    assert verified.incomparable_topics == ("flights",)


def test_lost_alignment_is_made_again_before_verification(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b")
    platform.tick(2)
    first = Alignments(platform.store, "b").last()
    assert platform.last.phase is Phase.VERIFYING
    ensure_released(platform.store, first.lease)

    platform.tick(3)

    assert Alignments(platform.store, "b").last().number == 2
    assert platform.last.verified is not None


def test_an_alignment_is_kept_as_long_as_its_rollout_is_on_its_way(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b", auto_promote=False)
    platform.tick(4)
    alignment = Alignments(platform.store, "b").last()
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
    platform.catch_up("b", auto_promote=False)
    platform.tick(8)
    assert (platform.last.phase, platform.serving) == (Phase.READY, "a")

    ask_promote(platform.store, "flights")
    platform.switch()

    assert platform.serving == "b"


@pytest.mark.parametrize("kind", ["retained", "compacted"])
def test_a_candidate_of_a_compacted_topic_serves_past_all_that_may_hide_a_key(
    platform: Platform, kind: str
) -> None:
    platform.kind = kind
    platform.serve("a")
    platform.catch_up("b", auto_promote=False)
    platform.tick(6)
    assert platform.last.waits

    # The live build is behind the log, and stays so.
    platform.end_of_log = 20
    ask_promote(platform.store, "flights")
    platform.tick(3)
    assert platform.last.phase is (Phase.READY if kind == "compacted" else Phase.HOLDING)

    platform.fold_to("b", 20)
    assert platform.tick(2).rollouts[-1].phase is Phase.HOLDING


def test_verified_once_more_it_waits_for_a_new_yes(platform: Platform) -> None:
    """It is aligned once more, too."""
    platform.serve("a")
    platform.catch_up("b", auto_promote=False)
    platform.tick(5)
    platform.end_of_log = 12
    for build in ("a", "b"):
        platform.fold_to(build, 12)

    ask_verify(platform.store, "flights")
    platform.tick(4)

    assert platform.last.phase is Phase.READY
    assert platform.last.verified.offsets == at(12)
    assert not platform.last.approved


@pytest.mark.parametrize(("reached", "phase"), [(12, Phase.FAILED), (10, Phase.READY)])
def test_stopped_build_is_not_waited_for(platform: Platform, reached: int, phase: Phase) -> None:
    """Law 13: the alignment ends, and a new build is brought to the live one's end.

    The live one has stopped behind the candidate, so the new build ends exactly at its frontier.
    """
    platform.serve("a")
    platform.catch_up("b", auto_promote=False)
    platform.tick(5)
    platform.fold_to("b", reached)
    platform.stopped["a"] = Stopped("the sum of n does not fit", "", "then")

    ask_verify(platform.store, "flights")
    platform.tick(4)

    assert platform.last.phase is phase
    if phase is Phase.FAILED:
        past = "it is past where that one stopped: the sum of n does not fit"
        assert platform.last.reason.endswith(past)
        assert platform.last.hint.startswith("kappa retry flights")


def test_verification_that_keeps_dying_is_inconclusive(platform: Platform) -> None:
    died = "the verification died 3 times"
    platform.ensure_verifying = lambda _rollout: died
    platform.catch_up("a")

    platform.tick(3)

    assert (platform.last.phase, platform.last.verified.verdict) == (Phase.FAILED, "inconclusive")
    with pytest.raises(VerificationFailed, match=f"{died}; see kappa logs verification") as told:
        raise_unless_served(platform.last)
    assert "kappa retry flights" in told.value.hint


def test_a_yes_to_what_is_not_ready_is_refused(platform: Platform) -> None:
    platform.serve("a")
    with pytest.raises(UsageError, match="no rollout is active"):
        ask_promote(platform.store)
    platform.stage("b")

    for ask in (ask_promote, ask_verify):
        with pytest.raises(Conflict, match="is replaying, and not ready"):
            ask(platform.store, "flights")


def test_an_undo_and_a_redo_need_no_replay(platform: Platform) -> None:
    platform.serve("a", "b")

    ask_undo(platform.store, None)
    platform.switch()
    assert platform.serving == "a"
    ask_undo(platform.store, "flights")
    platform.switch()

    assert (platform.serving, platform.state.generation) == ("b", 4)


def test_an_undo_goes_to_a_generation_whose_build_is_kept(platform: Platform) -> None:
    platform.serve("a", "b", "c")
    state = platform.state

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
    platform.serve("a", "b")
    ask_undo(platform.store, None)

    with pytest.raises(Conflict, match="rollout 3 of pipeline flights has not ended"):
        ask_undo(platform.store, None)


def test_what_cannot_be_undone_or_abandoned_is_said(platform: Platform) -> None:
    platform.serve("a")

    for ask, pipeline, what in (
        (ask_undo, None, "no build has served before"),
        (ask_undo, "flights", "pipeline flights has no build"),
        (abandon_rollout, None, "no rollout is active"),
        (abandon_rollout, "flights", "pipeline flights has no active rollout"),
    ):
        with pytest.raises(UsageError, match=what):
            ask(platform.store, pipeline)


def test_an_abandon_ends_a_rollout_and_the_hold_with_it(platform: Platform) -> None:
    platform.serve("a", "b")
    ask_undo(platform.store, None)
    platform.tick(2)
    assert platform.last.phase is Phase.HOLDING

    assert isinstance(abandon_rollout(platform.store, None).event, Abandoned)
    platform.fold_to("b", 99)

    assert platform.last.phase is Phase.ABANDONED
    assert platform.serving == "b"


def test_a_candidate_whose_job_stopped_has_failed_with_its_words(platform: Platform) -> None:
    platform.stage("a")
    platform.stopped["a"] = Stopped("topic flights was created again", "kappa deploy", "then")

    platform.tick()

    last = platform.last
    assert (last.phase, last.hint) == (Phase.FAILED, "kappa deploy")
    assert last.reason == "the job of build a stopped: topic flights was created again"


def test_a_candidate_whose_job_dies_again_and_again_fails_in_the_end(platform: Platform) -> None:
    platform.stage("a")
    platform.deaths["a"] = 14
    assert platform.tick(3).rollouts[-1].phase is Phase.REPLAYING
    platform.deaths["a"] = 15

    assert platform.tick().rollouts[-1].phase is Phase.FAILED


def test_a_live_job_that_is_dead_is_acted_for(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b")
    platform.running.discard("a")

    platform.tick(8)

    assert platform.serving == "b"


def test_while_its_lock_is_held_nobody_acts_for_a_job(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b")
    platform.running.discard("a")

    with Lock(platform.store.path("builds/a/lock"), what="build a"), pytest.raises(Conflict):
        platform.tick(8)

    assert platform.serving == "a"


def test_without_the_broker_nothing_is_decided_and_nothing_is_lost(platform: Platform) -> None:
    platform.catch_up("a")
    platform.broker_is_away = True
    with pytest.raises(Unreachable):
        platform.tick()
    platform.broker_is_away = False

    assert platform.tick(6).serving == {"flights": "a"}


def test_failed_fork_keeps_back_nothing_else_of_the_tick(platform: Platform) -> None:
    platform.serve("a", "b", "c")
    no_fork = OSError(11, "Resource temporarily unavailable")
    platform.ensure_verifying = mock.Mock(side_effect=no_fork)
    platform.catch_up("d")
    with pytest.raises(OSError, match="Resource"):
        platform.tick(9)
    platform.running.discard("a")

    with pytest.raises(OSError, match="Resource"):
        platform.tick()

    assert not platform.store.path("builds/a/tables").exists()


def test_a_topic_created_anew_fails_the_rollout(platform: Platform) -> None:
    platform.catch_up("a")
    platform.tick(2)
    platform.topic_id = "another"

    platform.tick(2)

    assert platform.last.phase is Phase.FAILED
    assert "created again" in platform.last.reason


@pytest.mark.parametrize("ticks", range(8))
def test_next_controller_goes_on_from_a_killed_one(platform: Platform, ticks: int) -> None:
    platform.serve("a")
    platform.catch_up("b")
    platform.tick(ticks)

    platform.controller = platform.new_controller()
    platform.switch()

    assert platform.serving == "b"


def test_retired_build_goes_when_nobody_is_on_it(platform: Platform) -> None:
    """It is deleted when its job is gone, and no reader is on it."""
    platform.serve("a", "b")
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
    platform.catch_up("b", checks=("false",))
    platform.running.discard("b")

    platform.tick(5)

    assert platform.state.retired == {"b"}
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
        seen.append((progress.rollout.phase, progress.done_and_total(at(10))))
        if progress.rollout.phase is Phase.REPLAYING and progress.folded is None:
            platform.fold_to("a", 4)
        elif progress.rollout.phase is Phase.REPLAYING:
            platform.fold_to("a", 10)
            platform.begin_tail("a")
            platform.tick(6)

    replaying = [(Phase.REPLAYING, (0, 10)), (Phase.REPLAYING, (4, 10))]
    assert seen == [*replaying, (Phase.SERVED, (4, 10))]


def test_who_follows_is_told_when_time_is_over_and_the_rollout_goes_on(platform: Platform) -> None:
    platform.stage("a")

    with pytest.raises(TimedOut, match="rollout 1 is still replaying"):
        list(follow_rollout(platform.store, 1, timeout=0, supervised=lambda: True))

    assert platform.last.active


def test_follower_is_told_when_nobody_is_there(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.stage("a")
    monkeypatch.setattr("kappa.replay.status.follow._PATIENCE_SECONDS", 0.0)

    with pytest.raises(Unreachable, match="the platform is not running"):
        list(follow_rollout(platform.store, 1, timeout=60, supervised=lambda: False))


def test_after_the_soak_the_idle_build_is_retired_and_an_undo_says_so(platform: Platform) -> None:
    platform.serve("a", "b")
    platform.running.discard("a")
    platform.now += HOUR - 60
    assert platform.tick().idle == {"flights": "a"}

    platform.now += 120
    platform.tick(2)

    assert (platform.state.idle, platform.state.retired) == ({}, {"a"})
    left = sorted(path.name for path in platform.store.path("builds/a").iterdir())
    assert left == ["birth.json", "lock"]
    retired = "build a, which served pipeline flights before, is retired"
    for name in (None, "flights"):
        with pytest.raises(UsageError, match=retired):
            ask_undo(platform.store, name)


def test_an_undo_under_way_outlives_the_soak(platform: Platform) -> None:
    platform.serve("a", "b")
    ask_undo(platform.store, None)
    platform.now += 2 * HOUR
    platform.tick()
    assert platform.state.retired == frozenset()

    platform.switch()

    assert platform.serving == "a"


def test_a_soak_of_no_seconds_retires_at_once(platform: Platform) -> None:
    platform.rules = RolloutSettings(soak="0s")
    platform.controller = platform.new_controller()
    platform.serve("a")
    platform.now += 60
    platform.serve("b")

    assert platform.tick().retired == {"a"}


def test_a_deploy_of_the_kept_version_is_a_switch(platform: Platform) -> None:
    platform.serve("a", "b")
    asked = SwitchAsked("flights", "a", "its version was deployed")
    assert platform.journal.append(platform.tick().last + 1, asked)

    platform.switch()

    assert platform.serving == "a"


def test_overlay_needs_no_job_and_no_broker(platform: Platform) -> None:
    """It serves and is undone while neither runs."""
    platform.serve("a")
    platform.running.clear()
    platform.broker_is_away = True
    platform.stopped["a"] = Stopped("the topic is gone", "", "then")
    shown = Frontiers(platform.store, "a").newest()

    platform.stage("b", checks=("carrier is null or flights >= 0",), tables_of="a")
    state = platform.tick(6)

    assert state.serving == {"flights": "b"}
    receipt = state.served[-1].event.receipt
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
    assert platform.last.verified.verdict == verdict
    assert platform.serving == "a"
    assert platform.state.retired == {"b"}


def test_replay_replaces_an_overlay_by_a_hold_below(platform: Platform) -> None:
    """The hold is of the build whose tables the overlay shows."""
    platform.serve("a")
    platform.stage("b", tables_of="a")
    platform.tick(6)
    platform.serve("c")

    assert platform.serving == "c"
    assert platform.state.idle == {"flights": "b"}
    assert Frontiers(platform.store, "b").newest() == Frontiers(platform.store, "a").newest()
    assert Frontiers(platform.store, "a").newest().hold is not None
    platform.running.clear()
    platform.now += 2 * HOUR
    platform.tick(3)
    assert platform.state.retired == {"a", "b"}
    assert not platform.store.path("builds/a/tables").exists()
