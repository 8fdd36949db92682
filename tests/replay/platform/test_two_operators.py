"""Laws of two operators at each phase of a rollout: one wins, and the other exits 6.

The other learns the winner's name, and the state of now. Both have looked at the same journal. Then
they act one after the other, or both at once, with a journal that lets the other go first. Timers
and readiness belong to a build: nothing of a former one counts for the next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from journals import NOWHERE, at, frontier, held, numbered, served, staged, switch_asked, verified
from msgspec.structs import replace
from plans import B_SERVES, birth, declared, log
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
from kappa.replay.rollout.plan.facts import Declared, Observed
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.stage import stage_plan
from kappa.replay.rollout.state import State, soaked_builds
from kappa.replay.status.follow import raise_unless_served
from kappa.state.alignment import Alignments
from kappa.state.build import Birth, put_birth, read_birth
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
SERVING = B_SERVES
ON_ITS_WAY = (
    *(staged("c", auto_promote=False), CaughtUp(10, NOWHERE), verified(10)),
    *(PromoteAsked(10), held(10, "b")),
)
PHASES = {
    "nothing on its way": SERVING,
    "replaying": (*SERVING, *ON_ITS_WAY[:1]),
    "verifying": (*SERVING, *ON_ITS_WAY[:2]),
    "ready": (*SERVING, *ON_ITS_WAY[:3]),
    "approved": (*SERVING, *ON_ITS_WAY[:4]),
    "holding": (*SERVING, *ON_ITS_WAY),
}


def state(store: Store) -> State:
    return fold_records(Journal(store).after(0))


def put(store: Store, *events: Event) -> None:
    for event in events:
        assert Journal(store).append(state(store).last + 1, event)


@dataclass
class Operator:
    """An operator who looks, thinks, and then acts on what was looked at."""

    name: str
    store: Store
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.seen = state(self.store)
        births = {build: read_birth(self.store, build) for build in self.seen.versions}
        self.plan, self.kept = (
            make_plan(observed(births, self.seen, version)) for version in (V3, V1)
        )

    def does(self, what: str) -> KappaError | None:
        """Acts, and returns the error; None if it is done."""
        self.monkeypatch.setenv("KAPPA_BY", self.name)
        seen, store = self.seen, self.store
        active = seen.active("flights")
        ids = [active.id] if active else []
        acts: dict[str, Callable[[], object]] = {
            "deploys": lambda: stage_plan(store, self.plan),
            "deploys what is kept": lambda: stage_plan(store, self.kept),
            "undoes": lambda: ask_undo(store, "flights", seen=seen),
            "promotes": lambda: ask_promote(store, "flights", seen=ids),
            "verifies": lambda: ask_verify(store, "flights"),
            "abandons": lambda: abandon_rollout(store, "flights"),
        }
        try:
            acts[what]()
        except KappaError as error:
            return error
        return None


def observed(births: dict[str, Birth], seen: State, version: Declared) -> Observed:
    return Observed(frozenset({"flights"}), {"flights": version}, seen, births, log())


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
def test_alone_an_operator_gets_what_the_phase_allows(
    house: Store, phase: str, intent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the operator is told what is now."""
    put(house, *PHASES[phase])
    before = state(house)
    error = Operator("bob", house, monkeypatch).does(intent)

    assert (error is None) == (intent in POSSIBLE[phase])
    if error is not None:
        assert state(house) == before
        assert "kappa " in error.hint
        # If nothing is on its way, nobody was first: it is a slip.
        slip = phase == "nothing on its way"
        assert error.exit_code == (ExitCode.USAGE if slip else ExitCode.CONFLICT)


def pairs(*, none_of: Callable[[str, str], bool]) -> list[tuple[str, str, str]]:
    """Lists each phase with two intents that it allows, without those that are no race."""
    both = [(phase, *two) for phase in PHASES for two in product(sorted(POSSIBLE[phase]), repeat=2)]
    return [(phase, first, second) for phase, first, second in both if not none_of(first, second)]


@pytest.mark.parametrize(
    ("phase", "first", "second"),
    pairs(none_of=lambda _first, second: second in {"abandons", "verifies"}),
    ids=lambda each: each.replace(" ", "-"),
)
def test_of_two_operators_one_wins_and_the_other_is_told(
    house: Store, phase: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other learns who won, and what to type."""
    put(house, *PHASES[phase])
    ada, bob = (Operator(name, house, monkeypatch) for name in ("ada@home", "bob@work"))

    assert ada.does(first) is None
    after = state(house)
    told = bob.does(second)

    assert isinstance(told, Conflict)
    assert told.exit_code == ExitCode.CONFLICT == 6
    assert "ada@home" in told.message
    assert "kappa " in told.hint
    assert state(house) == after


class OtherFirst(Store):
    """A store on which the other acts just before our next record is put.

    That is after we looked, and before we act.
    """

    other: Callable[[], object] | None = None

    def put_new(self, name: str, content: bytes) -> bool:
        if name.startswith("journal/") and self.other is not None:
            other, self.other = self.other, None
            other()
        return super().put_new(name, content)


@pytest.mark.parametrize(
    ("phase", "first", "second"),
    pairs(none_of=lambda first, second: (first, second) in NO_CONFLICT),
    ids=lambda each: each.replace(" ", "-"),
)
def test_who_is_overtaken_between_look_and_record_is_told(
    house: Store, phase: str, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(house, *PHASES[phase])
    slow = OtherFirst(house.folder)
    ada, bob = Operator("ada@home", house, monkeypatch), Operator("bob@work", slow, monkeypatch)
    slow.other = lambda: ada.does(first)

    told = bob.does(second)

    assert isinstance(told, Conflict)
    assert "ada@home" in told.message
    assert "kappa " in told.hint
    # One record, ada's: bob has left nothing.
    assert [record.by for record in Journal(house).after(len(PHASES[phase]))] == ["ada@home"]


SWITCH = (PromoteAsked(10), held(10, "b"))


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        (
            (*SWITCH, served(10, 3, "c", live="b")),
            "ada@home was first: {} has served, as generation 3, with build c",
        ),
        ((Abandoned(10, "not good"),), "ada@home was first: {} was given up: not good"),
        (
            (Abandoned(10, "no"), staged("d"), CaughtUp(14, NOWHERE), verified(14)),
            "given up: no; rollout 4, begun by ada@home, is ready now, with build d",
        ),
        ((Failed(10, "its job stopped"),), "{}, begun by test, has failed: its job stopped"),
        ((VerifyAsked(10, 1),), "is verifying, and not ready: ada@home asked for that"),
        (
            (*SWITCH, Released(10, "b", 14, "too long")),
            "ada@home was first: {}, begun by test, is on its way to serve",
        ),
    ],
)
def test_a_yes_is_to_the_rollout_that_was_looked_at_and_to_no_other(
    house: Store, ending: tuple[Event, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAPPA_BY", "test")
    put(house, *PHASES["ready"])
    bob = Operator("bob@work", house, monkeypatch)
    monkeypatch.setenv("KAPPA_BY", "ada@home")
    put(house, *ending)
    before = state(house)

    told = bob.does("promotes")

    assert isinstance(told, Conflict)
    assert says.format("rollout 3 of pipeline flights") in told.message
    assert state(house) == before


def test_undo_of_an_undone_is_no_redo(house: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(house, *SERVING)
    bob = Operator("bob@work", house, monkeypatch)
    monkeypatch.setenv("KAPPA_BY", "ada@home")
    put(house, switch_asked("a"), held(10, "b"), served(10, 3, "a", live="b"))

    told = bob.does("undoes")

    assert isinstance(told, Conflict)
    served_by = "pipeline flights is served by build a now, and not by build b"
    assert told.message == f"ada@home was first: {served_by}"
    assert state(house).active("flights") is None


def test_abandon_ends_the_rollout_that_was_there(
    house: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the next one."""
    put(house, *PHASES["ready"])
    slow = OtherFirst(house.folder)

    def ada() -> None:
        monkeypatch.setenv("KAPPA_BY", "ada@home")
        put(house, Abandoned(10, "no"), staged("d"))

    slow.other = ada

    told = Operator("bob@work", slow, monkeypatch).does("abandons")

    assert isinstance(told, Conflict)
    assert "rollout 4, begun by ada@home, is replaying now, with build d" in told.message
    assert state(house).rollout(14).active


def test_deploy_after_abandon_begins_anew(house: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower learns who abandoned."""
    put(house, *SERVING)
    ada = Operator("ada@home", house, monkeypatch)
    assert ada.does("deploys") is None
    assert Operator("bob@work", house, monkeypatch).does("abandons") is None

    with pytest.raises(Conflict, match="was given up by bob@work: abandoned by hand") as told:
        raise_unless_served(state(house).rollout(10))

    assert told.value.hint == "to start again: kappa deploy flights"
    again = Operator("ada@home", house, monkeypatch)
    assert again.does("deploys") is None
    first, second = state(house).rollouts[-2:]
    assert (first.phase, second.phase) == (Phase.ABANDONED, Phase.REPLAYING)
    assert first.build != second.build


def test_of_eight_who_promote_at_once_one_says_yes_and_seven_are_told(house: Store) -> None:
    put(house, *PHASES["ready"])
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
    records = Journal(house).after(len(PHASES["ready"]))
    assert [type(record.event) for record in records] == [PromoteAsked]


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return Platform(Store(tmp_path), rules=RolloutSettings(hold_attempts=2))


def come_to_hold(platform: Platform) -> None:
    for _ in range(20):
        if platform.last.phase is Phase.HOLDING:
            return
        platform.tick()
    raise AssertionError(f"it is {platform.last.phase}")


def test_former_jobs_deaths_and_end_are_its_own(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b")
    platform.deaths["b"] = 100
    platform.stopped["b"] = Stopped("its function raised", "mend it", "then")
    assert platform.last.phase is Phase.FAILED

    platform.serve("c")

    assert platform.serving == "c"


def test_an_alignment_of_a_former_build_verifies_no_other(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b", auto_promote=False)
    platform.tick(4)
    alignment = Alignments(platform.store, "b").last()
    assert platform.last.phase is Phase.READY
    abandon_rollout(platform.store, "flights")

    platform.catch_up("c", offset=3)
    platform.tick(4)

    # Its offsets are not the live build's, and the alignment of b does not matter to it.
    assert platform.last.phase is Phase.REPLAYING
    assert read_lease(platform.store, alignment.lease) is None
    platform.fold_to("c", 10)
    platform.switch()
    assert platform.last.verified is not None
    assert platform.serving == "c"


def test_former_builds_aim_is_not_the_next_ones(platform: Platform) -> None:
    platform.catch_up("a")
    platform.tick()
    assert platform.last.phase is Phase.VERIFYING
    abandon_rollout(platform.store, "flights")
    platform.end_of_log = 20

    platform.catch_up("b", offset=15)
    platform.tick(3)

    assert platform.last.phase is Phase.REPLAYING
    platform.fold_to("b", 20)
    assert platform.tick().rollouts[-1].phase is Phase.VERIFYING


def test_former_builds_yes_and_holds_are_its_own(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b", auto_promote=False)
    platform.tick(4)
    ask_promote(platform.store, "flights")
    platform.tick()
    held_by = platform.last
    assert (held_by.phase, held_by.attempts) == (Phase.HOLDING, 1)
    abandon_rollout(platform.store, "flights")

    platform.catch_up("c", auto_promote=False)
    platform.tick(6)

    last = platform.last
    assert (last.phase, last.approved) == (Phase.READY, False)
    assert (last.attempts, last.hold) == (0, None)
    assert platform.serving == "a"


def test_an_acknowledgement_of_a_former_rollouts_hold_is_none_of_the_next_ones(
    platform: Platform,
) -> None:
    platform.serve("a")
    platform.catch_up("b")
    come_to_hold(platform)
    platform.fold_to("a", 10, hold=platform.last.hold)
    abandon_rollout(platform.store, "flights")

    platform.catch_up("c")
    come_to_hold(platform)
    platform.tick(3)

    assert platform.last.phase is Phase.HOLDING
    assert platform.controller.waits[platform.last.id] == "build a to acknowledge the hold"


def test_the_soak_of_a_former_build_is_not_the_next_ones() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    events = (*SERVING, *ON_ITS_WAY, served(10, 3, "c", live="b"))
    # a has been idle since noon, and an hour later, when its soak would be over, b is in its place.
    served_at = {9: noon, 15: noon + timedelta(minutes=59)}
    state = fold_records(
        replace(record, at=served_at.get(record.number, noon).isoformat())
        for record in numbered(*events)
    )

    assert soaked_builds(state, noon + timedelta(minutes=61), 3600) == frozenset()
    assert soaked_builds(state, noon + timedelta(minutes=119), 3600) == {"b"}


def test_a_frontier_of_a_former_build_is_no_frontier_of_the_next(platform: Platform) -> None:
    platform.serve("a")
    platform.catch_up("b")
    abandon_rollout(platform.store, "flights")
    Frontiers(platform.store, "b").publish(replace(frontier("b", 1000), number=2))

    platform.stage("c")
    platform.tick(3)

    assert platform.last.phase is Phase.REPLAYING
    assert platform.controller.waits[platform.last.id] == "its Spark to start"
    assert Frontiers(platform.store, "a").newest().offsets == at(10)
