"""Laws of two operators at each phase of a rollout: one wins, and the other exits with 6.

The other operator learns the winner's name and the current state. Both have looked at the same
journal. Then they act one after the other, or both at once, with a journal that lets the other go
first. Timers and readiness belong to a build: nothing of a former build counts for the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from journals import (
    NOWHERE,
    append,
    at,
    frontier,
    held,
    numbered,
    served,
    staged,
    state_of,
    switch_asked,
    verified,
)
from msgspec.structs import replace
from plans import birth, declared, log
from test_controller import Platform

from kappa.base.errors import Conflict, ExitCode, KappaError
from kappa.base.sections import RolloutSettings
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.operator_requests import (
    abandon_rollout,
    ask_promote,
    ask_undo,
    ask_verify,
)
from kappa.replay.rollout.plan.facts import Observed
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.stage import stage_plan
from kappa.replay.rollout.state import soaked_builds
from kappa.replay.status.follow import raise_unless_served
from kappa.state.alignment import Alignments
from kappa.state.build import put_birth, read_birth
from kappa.state.build_status import Stopped
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Event,
    Failed,
    PromoteAsked,
    Released,
    VerifyAsked,
)
from kappa.state.journal.journal import Journal
from kappa.state.lease import read_lease
from kappa.state.store import Store

# Many actors in many orders.
pytestmark = pytest.mark.slow

V1, V2, V3 = declared(), declared(code="2"), declared(code="3")
# Build b serves and a is kept; rollout 3, which record 10 began, is on its way with build c.
SERVING = (
    staged("a"),
    CaughtUp(1, NOWHERE),
    verified(1),
    served(1, 1, "a"),
    staged("b"),
    CaughtUp(5, NOWHERE),
    verified(5),
    held(5, "a"),
    served(5, 2, "b", live="a"),
)
ON_ITS_WAY = (
    staged("c", auto_promote=False),
    CaughtUp(10, NOWHERE),
    verified(10),
    PromoteAsked(10),
    held(10, "b"),
)
PHASES = {
    "nothing on its way": SERVING,
    "replaying": (*SERVING, *ON_ITS_WAY[:1]),
    "verifying": (*SERVING, *ON_ITS_WAY[:2]),
    "ready": (*SERVING, *ON_ITS_WAY[:3]),
    "approved": (*SERVING, *ON_ITS_WAY[:4]),
    "holding": (*SERVING, *ON_ITS_WAY),
}


@dataclass
class Operator:
    """An operator who looks, and acts later on the basis of that look."""

    name: str
    store: Store
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.seen = state_of(self.store)
        births = {build: read_birth(self.store, build) for build in self.seen.versions}
        self.plan = make_plan(
            Observed(frozenset({"flights"}), {"flights": V3}, self.seen, births, log())
        )
        self.kept = make_plan(
            Observed(frozenset({"flights"}), {"flights": V1}, self.seen, births, log())
        )

    def does(self, what: str) -> KappaError | None:
        """Acts, and returns the error, or None on success."""
        self.monkeypatch.setenv("KAPPA_BY", self.name)
        active = self.seen.active("flights")
        acts: dict[str, Callable[[], object]] = {
            "deploys": lambda: stage_plan(self.store, self.plan),
            "deploys what is kept": lambda: stage_plan(self.store, self.kept),
            "undoes": lambda: ask_undo(self.store, "flights", seen=self.seen),
            "promotes": lambda: ask_promote(
                self.store, "flights", seen=[active.id] if active else []
            ),
            "verifies": lambda: ask_verify(self.store, "flights"),
            "abandons": lambda: abandon_rollout(self.store, "flights"),
        }
        try:
            acts[what]()
        except KappaError as error:
            return error
        return None


INTENTS = ("deploys", "deploys what is kept", "undoes", "promotes", "verifies", "abandons")
# The intents that each phase allows one operator.
POSSIBLE = {
    "nothing on its way": {"deploys", "deploys what is kept", "undoes"},
    "replaying": {"abandons"},
    "verifying": {"abandons"},
    "ready": {"promotes", "verifies", "abandons"},
    "approved": {"abandons"},
    "holding": {"abandons"},
}
# Pairs that may follow each other: to give up what the other has just asked for is no race.
# A phase, and what two operators do in it.
ACTS = [
    (phase, first, second)
    for phase in PHASES
    for first, second in product(sorted(POSSIBLE[phase]), repeat=2)
]
NO_CONFLICT = {(first, "abandons") for first in INTENTS if first != "abandons"}


@pytest.fixture
def house(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    for build, version in (("a", V1), ("b", V2), ("c", V3), ("d", V3)):
        put_birth(store, birth(build, version))
    return store


@pytest.mark.parametrize(
    ("phase", "intent"), list(product(PHASES, INTENTS)), ids=lambda each: each.replace(" ", "-")
)
def test_alone_an_operator_gets_what_the_phase_allows_and_else_is_told_what_is_now(
    house: Store, phase: str, intent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(house, *PHASES[phase])
    before = state_of(house)
    error = Operator("bob", house, monkeypatch).does(intent)

    assert (error is None) == (intent in POSSIBLE[phase])
    if error is not None:
        assert state_of(house) == before
        assert "kappa " in error.hint
        # If nothing is on its way, nobody was first: it is a slip.
        assert error.exit_code == (
            ExitCode.USAGE if phase == "nothing on its way" else ExitCode.CONFLICT
        )


@pytest.mark.parametrize(
    ("phase", "first", "second"),
    [each for each in ACTS if each[2] not in {"abandons", "verifies"}],
    ids=lambda each: each.replace(" ", "-"),
)
def test_of_two_operators_one_wins_and_the_other_learns_who_and_what_to_type(
    house: Store, phase: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(house, *PHASES[phase])
    ada, bob = (Operator(name, house, monkeypatch) for name in ("ada@home", "bob@work"))

    assert ada.does(first) is None
    after = state_of(house)
    told = bob.does(second)

    assert isinstance(told, Conflict)
    assert told.exit_code == ExitCode.CONFLICT == 6
    assert "ada@home" in told.message
    assert "kappa " in told.hint
    assert state_of(house) == after


class OtherFirst(Store):
    """A store on which the other operator acts just before our next record is put.

    The other operator acts after we looked, and before our own act.
    """

    other: Callable[[], object] | None = None

    def put_new(self, name: str, content: bytes) -> bool:
        if name.startswith("journal/") and self.other is not None:
            other, self.other = self.other, None
            other()
        return super().put_new(name, content)


@pytest.mark.parametrize(
    ("phase", "first", "second"),
    [each for each in ACTS if each[1:] not in NO_CONFLICT],
    ids=lambda each: each.replace(" ", "-"),
)
def test_who_is_overtaken_between_look_and_record_is_refused_and_told(
    house: Store,
    tmp_path: Path,
    phase: str,
    first: str,
    second: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append(house, *PHASES[phase])
    slow = OtherFirst(tmp_path)
    ada, bob = Operator("ada@home", house, monkeypatch), Operator("bob@work", slow, monkeypatch)
    slow.other = lambda: ada.does(first)

    told = bob.does(second)

    assert isinstance(told, Conflict)
    assert "ada@home" in told.message
    assert "kappa " in told.hint
    # One record, ada's: bob has left nothing.
    assert [record.by for record in Journal(house).after(len(PHASES[phase]))] == ["ada@home"]


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        (
            (PromoteAsked(10), held(10, "b"), served(10, 3, "c", live="b")),
            (
                "ada@home was first: rollout 3 of pipeline flights has served, "
                "as generation 3, with build c"
            ),
        ),
        (
            (Abandoned(10, "not good"),),
            "ada@home was first: rollout 3 of pipeline flights was given up: not good",
        ),
        (
            (Abandoned(10, "no"), staged("d"), CaughtUp(14, NOWHERE), verified(14)),
            "given up: no; rollout 4, begun by ada@home, is ready now, with build d",
        ),
        (
            (Failed(10, "its job stopped"),),
            "rollout 3 of pipeline flights, begun by test, has failed: its job stopped",
        ),
        ((VerifyAsked(10, 1),), "is verifying, and not ready: ada@home asked for that"),
        (
            (PromoteAsked(10), held(10, "b"), Released(10, "b", 14, "too long")),
            (
                "ada@home was first: rollout 3 of pipeline flights, begun by test, "
                "is on its way to serve"
            ),
        ),
    ],
)
def test_a_yes_is_to_the_rollout_that_was_looked_at_and_to_no_other(
    house: Store, ending: tuple[Event, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA_BY", "test")
    append(house, *PHASES["ready"])
    bob = Operator("bob@work", house, monkeypatch)
    monkeypatch.setenv("KAPPA_BY", "ada@home")
    append(house, *ending)
    before = state_of(house)

    told = bob.does("promotes")

    assert isinstance(told, Conflict)
    assert says in told.message
    assert state_of(house) == before


def test_an_undo_of_what_somebody_else_has_undone_is_no_redo(
    house: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(house, *SERVING)
    bob = Operator("bob@work", house, monkeypatch)
    monkeypatch.setenv("KAPPA_BY", "ada@home")
    append(house, switch_asked("a"), held(10, "b"), served(10, 3, "a", live="b"))

    told = bob.does("undoes")

    assert isinstance(told, Conflict)
    assert (
        told.message
        == "ada@home was first: pipeline flights is served by build a now, and not by build b"
    )
    assert state_of(house).active("flights") is None


def test_an_abandon_ends_the_rollout_that_was_there_and_not_the_next(
    house: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(house, *PHASES["ready"])
    slow = OtherFirst(tmp_path)

    def ada() -> None:
        monkeypatch.setenv("KAPPA_BY", "ada@home")
        append(house, Abandoned(10, "no"), staged("d"))

    slow.other = ada

    told = Operator("bob@work", slow, monkeypatch).does("abandons")

    assert isinstance(told, Conflict)
    assert "rollout 4, begun by ada@home, is replaying now, with build d" in told.message
    assert state_of(house).rollout(14).active


def test_a_deploy_after_an_abandon_begins_anew_and_the_follower_learns_by_whom(
    house: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(house, *SERVING)
    ada = Operator("ada@home", house, monkeypatch)
    assert ada.does("deploys") is None
    assert Operator("bob@work", house, monkeypatch).does("abandons") is None

    with pytest.raises(Conflict, match="was given up by bob@work: abandoned by hand") as told:
        raise_unless_served(state_of(house).rollout(10))

    assert told.value.hint == "to start again: kappa deploy flights"
    again = Operator("ada@home", house, monkeypatch)
    assert again.does("deploys") is None
    first, second = state_of(house).rollouts[-2:]
    assert (first.phase, second.phase) == (Phase.ABANDONED, Phase.REPLAYING)
    assert first.build != second.build


def test_of_eight_who_promote_at_once_one_says_yes_and_seven_are_told(house: Store) -> None:
    append(house, *PHASES["ready"])
    begin = threading.Barrier(8)
    outcomes: list[object] = []

    def promote() -> None:
        store = Store(house.folder)
        begin.wait()
        try:
            outcomes.append(ask_promote(store, "flights", seen=[10]))
        except Conflict as error:
            outcomes.append(error.exit_code)

    threads = [threading.Thread(target=promote) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes.count(ExitCode.CONFLICT) == 7
    assert [type(record.event) for record in Journal(house).after(len(PHASES["ready"]))] == [
        PromoteAsked
    ]


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform(Store(tmp_path), rules=RolloutSettings(hold_attempts=2))


def candidate(
    platform: Platform, build: str, *, offset: int = 10, auto_promote: bool = True
) -> None:
    platform.stage(build, auto_promote=auto_promote)
    platform.fold_to(build, offset)
    platform.begin_tail(build)


def come_to_hold(platform: Platform) -> None:
    for _ in range(20):
        if platform.last.phase is Phase.HOLDING:
            return
        platform.tick()
    raise AssertionError(f"it is {platform.last.phase}")


def test_deaths_and_the_end_of_a_former_builds_job_are_not_the_next_ones(
    platform: Platform,
) -> None:
    platform.serve("a")
    candidate(platform, "b")
    platform.deaths["b"], platform.stopped["b"] = (
        100,
        Stopped("its function raised", "mend it", "then"),
    )
    assert platform.last.phase is Phase.FAILED

    platform.serve("c")

    assert platform.controller.state.serving == {"flights": "c"}


def test_an_alignment_of_a_former_build_verifies_no_other(platform: Platform) -> None:
    platform.serve("a")
    candidate(platform, "b", auto_promote=False)
    platform.tick(4)
    alignment = Alignments(platform.store, "b").last()
    assert alignment is not None
    assert platform.last.phase is Phase.READY
    abandon_rollout(platform.store, "flights")

    candidate(platform, "c", offset=3)
    platform.tick(4)

    # Its offsets are not the live build's, and the alignment of b does not matter to it.
    assert platform.last.phase is Phase.REPLAYING
    assert read_lease(platform.store, alignment.lease) is None
    platform.fold_to("c", 10)
    platform.switch()
    assert platform.controller.state.rollouts[-1].verified is not None
    assert platform.controller.state.serving == {"flights": "c"}


def test_what_a_former_build_had_to_reach_is_not_what_the_next_one_has_to(
    platform: Platform,
) -> None:
    platform.stage("a")
    platform.fold_to("a", 10)
    platform.begin_tail("a")
    platform.end_of_log = 10
    platform.tick()
    assert platform.last.phase is Phase.VERIFYING
    abandon_rollout(platform.store, "flights")
    platform.end_of_log = 20

    candidate(platform, "b", offset=15)
    platform.tick(3)

    assert platform.last.phase is Phase.REPLAYING
    platform.fold_to("b", 20)
    assert platform.tick().rollouts[-1].phase is Phase.VERIFYING


def test_a_yes_to_a_former_build_is_none_to_the_next_and_its_holds_are_not_counted(
    platform: Platform,
) -> None:
    platform.serve("a")
    candidate(platform, "b", auto_promote=False)
    platform.tick(4)
    ask_promote(platform.store, "flights")
    platform.tick()
    held_by = platform.last
    assert (held_by.phase, held_by.attempts) == (Phase.HOLDING, 1)
    abandon_rollout(platform.store, "flights")

    candidate(platform, "c", auto_promote=False)
    platform.tick(6)

    assert (
        platform.last.phase,
        platform.last.approved,
        platform.last.attempts,
        platform.last.hold,
    ) == (Phase.READY, False, 0, None)
    assert platform.controller.state.serving == {"flights": "a"}


def test_an_acknowledgement_of_a_former_rollouts_hold_is_none_of_the_next_ones(
    platform: Platform,
) -> None:
    platform.serve("a")
    candidate(platform, "b")
    come_to_hold(platform)
    platform.fold_to("a", 10, hold=platform.last.hold)
    abandon_rollout(platform.store, "flights")

    candidate(platform, "c")
    come_to_hold(platform)
    platform.tick(3)

    assert platform.last.phase is Phase.HOLDING
    assert platform.controller.waits[platform.last.id] == "build a to acknowledge the hold"


def test_the_soak_of_a_former_build_is_not_the_next_ones() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    events = (
        *SERVING,
        staged("c"),
        CaughtUp(10, NOWHERE),
        verified(10),
        held(10, "b"),
        served(10, 3, "c", live="b"),
    )
    # a has been idle since noon, and an hour later, when its soak would be over, b is in its place.
    served_at = {9: noon, 14: noon + timedelta(minutes=59)}
    state = fold_records(
        replace(record, at=served_at.get(record.number, noon).isoformat())
        for record in numbered(*events)
    )

    assert soaked_builds(state, noon + timedelta(minutes=61), 3600) == frozenset()
    assert soaked_builds(state, noon + timedelta(minutes=119), 3600) == {"b"}


def test_a_frontier_of_a_former_build_is_no_frontier_of_the_next(platform: Platform) -> None:
    platform.serve("a")
    candidate(platform, "b")
    abandon_rollout(platform.store, "flights")
    Frontiers(platform.store, "b").publish(replace(frontier("b", 1000), number=2))

    platform.stage("c")
    platform.tick(3)

    assert platform.last.phase is Phase.REPLAYING
    assert platform.controller.waits[platform.last.id] == "its Spark to start"
    assert Frontiers(platform.store, "a").newest().offsets == at(10)
