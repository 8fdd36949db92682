"""Laws of rollouts that are promoted together: one record switches all of them, or none.

This is so whoever acts or dies meanwhile. Controllers, publishers and the journal are the
platform's own; only the slices that the jobs fold are made up here.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from births import make_birth
from commits import make_commits
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from journals import READY, at, frontier, open_hold

from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.base.sections import RolloutSettings
from kappa.engine.write.publisher import Publisher
from kappa.replay.platform.controller import Controller
from kappa.replay.platform.next_step import next_step
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.generation import (
    BuildCode,
    generation_details,
    show_document,
    show_listing,
    show_text,
)
from kappa.replay.rollout.history import rollout_entries
from kappa.replay.rollout.operator_requests import (
    abandon_rollout,
    ask_promote,
    ask_undo,
    ask_verify,
)
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.state import State
from kappa.state.build import Birth, TopicBirth, put_birth
from kappa.state.build_status import Stopped
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Event, Failed, Held, PromoteAsked, Released, Served, Verified
from kappa.state.journal.journal import Journal
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# Many actors in many orders.
pytestmark = pytest.mark.slow

RULES = RolloutSettings(hold_attempts=3, hold_seconds=10)
PIPELINES = {"a": "flights", "b": "flights", "x": "trains", "y": "trains"}


class World:
    """Two pipelines, each with a live build (a, x) and a ready build (b, y), and their jobs.

    Any number of controllers may act.
    """

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.journal = Journal(self.store)
        self.now = 0.0
        self.ends = dict.fromkeys(PIPELINES, 10)
        self.jobs: dict[str, Publisher] = {}
        self.stopped: dict[str, Stopped] = {}
        self.seen: dict[str, tuple[int, int]] = {}
        for build, pipeline in PIPELINES.items():
            put_birth(self.store, self.birth(build))
            make_commits(self.store, build, "t", 1)
            offsets, at_ = at(10, topic=pipeline), "2026-01-01T00:00:00+00:00"
            Frontiers(self.store, build).publish(Frontier(1, build, 1, offsets, {"t": 1}, at_))
        for number, event in enumerate(READY, start=1):
            assert self.journal.append(number, event)
        for build in PIPELINES:
            self.begin(build)

    @staticmethod
    def birth(build: str) -> Birth:
        pipeline = PIPELINES[build]
        topics = (TopicBirth(pipeline, f"id-of-{pipeline}", "retained", 1),)
        return make_birth(
            build,
            pipeline=pipeline,
            version=f"version-of-{build}",
            topics=topics,
            origin={pipeline: {"0": 0}},
            born_at="2026-01-31T12:00:00.000+00:00",
        )

    # The controller's view of Kafka and of the supervisor.
    def end(self, topics: Iterable[str]) -> Offsets:
        raise AssertionError(f"no build is replaying {topics}")

    def facts(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id=f"id-of-{name}")

    def job_runs(self, build: str) -> bool:
        return build in self.jobs

    def job_stopped(self, build: str) -> Stopped | None:
        return self.stopped.get(build)

    def job_deaths(self, _build: str) -> int:
        return 0

    def ensure_verifying(self, rollout: int) -> str | None:
        raise AssertionError(f"rollout {rollout} is aligned with nothing new")

    def ensure_aligned_again(self, build: str) -> None:
        """Aligns and verifies in one step, because neither matters here."""
        state = self.state
        rollout = next(each for each in state.active_rollouts if each.build == build)
        if rollout.phase is Phase.VERIFYING:
            self.journal.append(state.last + 1, Verified(rollout.id, "passed", Offsets()))

    def controller(self, rules: RolloutSettings = RULES) -> Controller:
        # Of a topic's facts only the id is read.
        return Controller(self.store, log=self, processes=self, rules=rules, clock=lambda: 0.0)  # type: ignore[arg-type]

    @property
    def state(self) -> State:
        return fold_records(self.journal.after(0))

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.journal.after(len(READY))]

    def begin(self, build: str) -> None:
        birth, hold = self.birth(build), RULES.hold_seconds
        job = Publisher(self.store, birth, hold_seconds=hold, clock=lambda: self.now)
        self.jobs[build] = job
        self.jobs[build].begin(frontier(build, 0))

    def kill(self, build: str) -> None:
        self.jobs.pop(build, None)

    def look(self, build: str) -> None:
        """Reads the journal as the job does, and publishes its fold unless a hold forbids it."""
        job = self.jobs.get(build)
        if job is None:
            self.begin(build)
            return
        try:
            job.follow_journal()
            if not job.is_held():
                end, newest = at(self.ends[build], topic=PIPELINES[build]), job.newest
                mark = Mark(build, "t", 1, newest.number, newest.offsets, end)
                job.publish(mark, {"t": 1})
        except KappaError:
            # Somebody has acted for it, and thought it dead: it begins again.
            self.kill(build)

    def read(self) -> None:
        """Asserts that a reader never goes back, in any pipeline."""
        _, record = self.journal.last_served()
        for pipeline, build in record.event.serving.items():
            newest = Frontiers(self.store, build).newest()
            answer = record.event.generation, newest.offsets.at(pipeline, 0)
            before = self.seen.setdefault(pipeline, answer)
            went = f"pipeline {pipeline} went back from {before} to {answer}"
            assert answer[0] >= before[0], went
            assert answer[1] >= before[1], went
            self.seen[pipeline] = answer

    def kinds(self, kind: type[Event]) -> list[Any]:
        """Lists the events of one kind that came after the beginning."""
        return [event for event in self.events if isinstance(event, kind)]

    def go_on(self, controller: Controller, rounds: int = 12) -> State:
        for _ in range(rounds):
            controller.tick()
            for build in PIPELINES:
                self.look(build)
            self.read()
        return controller.tick()

    def hold(self, build: str) -> object:
        return open_hold(self.journal.after(0), build)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def asked_for(world: World) -> World:
    """Returns a world in which one yes was given to both candidates together."""
    ask_promote(world.store, "flights", "trains")
    return world


def test_both_switch_in_one_generation_with_a_receipt_each(asked_for: World) -> None:
    world = asked_for
    state = world.go_on(world.controller())

    assert state.generation == 3
    assert state.serving == {"flights": "b", "trains": "y"}
    assert state.idle == {"flights": "a", "trains": "x"}
    assert [type(event) for event in world.events] == [PromoteAsked, Held, Held, Served]
    first, second = world.events[-1].switched
    assert (first.rollout, second.rollout) == (9, 12)
    receipts = first.receipt, second.receipt
    assert [each.build for each in receipts] == ["b", "y"]
    assert [each.live_build for each in receipts] == ["a", "x"]
    assert not any(each.first for each in receipts)
    assert [each.candidate_offsets for each in receipts] == [at(10), at(10, topic="trains")]
    assert world.hold("a") is world.hold("x") is None


def test_history_and_show_tell_each_ones_receipt(asked_for: World) -> None:
    world = asked_for
    state = world.go_on(world.controller())

    told = {
        chapter.rollout.id: (chapter.generation, chapter.receipt and chapter.receipt.build)
        for chapter in rollout_entries(state)
    }
    assert told == {1: (1, "a"), 5: (2, "x"), 9: (3, "b"), 12: (3, "y")}
    found = generation_details(
        state,
        3,
        {build: world.birth(build) for build in ("b", "y")},
        dict.fromkeys(("b", "y"), BuildCode("there", "0" * 64, there=True)),
        {9: ("2 inserts to carriers",)},
    )
    document = show_document(found)
    switched = [(each["rollout"], each["pipeline"], each["build"]) for each in document["switched"]]
    assert switched == [(3, "flights", "b"), (4, "trains", "y")]
    assert document["builds"]["trains"]["previous_build"] == "x"
    rows = [row[:3] for row in show_listing(found).rows]
    assert rows == [("flights", "flights", 0), ("trains", "trains", 0)]
    assert "flights: build b (version version-of-b) instead of a" in show_text(found)
    assert "trains: build y (version version-of-y) instead of x" in show_text(found)
    assert show_text(found).count("sent: 2 inserts to carriers\n") == 1
    assert [each["sent"] for each in document["switched"]] == [["2 inserts to carriers"], []]


@pytest.mark.parametrize(("id_", "number"), [(9, 3), (12, 4)])
def test_yes_to_served_group_tells_generation(asked_for: World, id_: int, number: int) -> None:
    asked_for.go_on(asked_for.controller())

    told = f"was first: rollout {number} of pipeline .* has served, as generation 3"
    with pytest.raises(Conflict, match=told):
        ask_promote(asked_for.store, seen=[id_])


def test_one_of_them_is_undone_by_itself_and_to_a_generation(asked_for: World) -> None:
    world, controller = asked_for, asked_for.controller()
    world.go_on(controller)

    ask_undo(world.store, "trains")
    assert world.go_on(controller).serving == {"flights": "b", "trains": "x"}
    ask_undo(world.store, "trains", to=3)
    assert world.go_on(controller).serving == {"flights": "b", "trains": "y"}
    ask_undo(world.store, "flights", to=2)
    assert world.go_on(controller).serving == {"flights": "a", "trains": "y"}


def test_nothing_is_held_before_each_of_them_is_near(world: World) -> None:
    world.kill("y")
    world.ends["x"] = 50
    world.look("x")
    ask_promote(world.store, "flights", "trains")
    controller = world.controller()
    for _ in range(10):
        controller.tick()
    assert not world.kinds(Held)
    assert controller.waits == {
        9: "the last records of build y before build x",
        12: "the last records before build x",
    }

    world.ends["y"] = 50
    assert world.go_on(controller).serving == {"flights": "b", "trains": "y"}


def test_one_that_is_not_ready_stops_all_and_nothing_is_appended(world: World) -> None:
    ask_verify(world.store, "trains")
    said = "of pipeline trains, begun by ada@test, is verifying|of pipeline trains"
    with pytest.raises(Conflict, match=said):
        ask_promote(world.store, "flights", "trains")
    with pytest.raises(UsageError, match="pipeline boats has no active rollout"):
        ask_promote(world.store, "flights", "boats")

    assert not world.kinds(PromoteAsked)


def test_without_a_name_several_are_named_and_how_they_go_together_is_said(world: World) -> None:
    with pytest.raises(UsageError, match="flights, trains") as refused:
        ask_promote(world.store)

    assert "kappa promote flights trains" in refused.value.hint
    assert ask_promote(world.store, "flights", "trains", "flights").event == PromoteAsked(9, (12,))


@pytest.mark.parametrize("leave", ["abandon", "stop"])
@pytest.mark.parametrize("ticks", [1, 2])
def test_when_one_ends_the_other_waits_for_new_yes(
    asked_for: World, leave: str, ticks: int
) -> None:
    world, controller = asked_for, asked_for.controller()
    for _ in range(ticks):
        controller.tick()
    assert world.hold("x") is not None
    if leave == "abandon":
        abandon_rollout(world.store, "flights")
    else:
        world.stopped["b"] = Stopped("disk full", "make room", "then")

    state = world.go_on(controller)

    other = state.rollout(12)
    assert (other.waits, state.serving) == (True, {"flights": "a", "trains": "x"})
    assert "rollout 3 of pipeline flights, with which it was to serve" in other.reason
    assert controller.waits[12] == "approval: kappa promote trains"
    assert world.hold("x") is world.hold("a") is None
    ask_promote(world.store, "trains")
    assert world.go_on(controller).serving == {"flights": "a", "trains": "y"}


def test_candidate_behind_for_ever_fails_its_group(asked_for: World) -> None:
    world, controller = asked_for, asked_for.controller()
    for _ in range(RULES.hold_attempts):
        # Build y is near, and build b far. When b is near too, x has moved on, and y has not.
        for build, end in (("a", world.ends["a"] + 5), ("y", world.ends["x"])):
            world.ends[build] = end
            world.look(build)
        controller.tick()
        world.ends["x"] += 5
        world.ends["b"] = world.ends["a"]
        for build in ("x", "b"):
            world.look(build)
        controller.tick()
        assert world.hold("a") is not None
        assert world.hold("x") is not None
        for build in ("a", "x"):
            world.look(build)
        controller.tick()
        world.now += RULES.hold_seconds
        world.look("a")
        assert world.hold("a") is world.hold("x") is None
    controller.tick()

    state = controller.state
    assert {state.rollout(number).phase for number in (9, 12)} == {Phase.FAILED}
    assert [(event.rollout, event.together) for event in world.kinds(Failed)] == [(9, (12,))]
    assert len(world.kinds(Released)) == RULES.hold_attempts
    assert state.serving == {"flights": "a", "trains": "x"}


def test_dead_live_jobs_are_acted_for(asked_for: World) -> None:
    world, controller = asked_for, asked_for.controller()
    world.kill("a")
    world.kill("x")
    for _ in range(8):
        controller.tick()

    assert controller.state.serving == {"flights": "b", "trains": "y"}


def test_damaged_one_fails_and_the_other_loses_its_yes(asked_for: World) -> None:
    world, controller = asked_for, asked_for.controller()
    world.store.put("builds/b/birth.json", b"{}")
    for _ in range(6):
        controller.tick()

    assert controller.state.rollout(9).phase == Phase.FAILED
    assert controller.state.rollout(12).waits


@pytest.mark.parametrize("ticks", range(5))
def test_next_controller_goes_on_from_a_killed_one(asked_for: World, ticks: int) -> None:
    world = asked_for
    first = world.controller()
    for _ in range(ticks):
        first.tick()
        world.look("a")

    assert world.go_on(world.controller()).serving == {"flights": "b", "trains": "y"}


ACTIONS = (
    *("controller 0", "controller 1") * 4,
    *("look a", "look b", "look x", "look y") * 2,
    *("go on a", "go on x", "wait", "kill a", "kill x", "crash 0"),
    *("promote flights trains", "promote trains flights", "promote flights", "promote trains"),
    *("abandon flights", "abandon trains", "verify flights", "verify trains"),
    *("undo flights", "undo trains"),
)


def deciding(world: World, controller: Controller) -> Generator[None]:
    """Runs a controller's ticks, and yields between its reading, deciding and acting."""
    while True:
        known = controller.state
        controller.state = fold_records(world.journal.after(known.last), known)
        yield
        for begun in controller.state.active_rollouts:
            rollout = controller.state.rollout(begun.id)
            if rollout.active:
                step = next_step(controller._observe_group(rollout), RULES)
                yield
                # Both are bound here, by their defaults.
                asked(lambda step=step, rollout=rollout: controller._take_step(rollout, step))  # type: ignore[misc]


def asked(what: Callable[[], object]) -> None:
    try:
        what()
    except KappaError:
        return


@pytest.mark.law
@examples(10)
@given(st.lists(st.sampled_from(ACTIONS), max_size=40), st.booleans(), st.integers())
def test_two_controllers_promote_no_half(actions: list[str], together: bool, seed: int) -> None:
    """Two controllers never promote a part of a group, in any order of their steps."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        if together:
            ask_promote(world.store, "flights", "trains")
        controllers = [deciding(world, world.controller()) for _ in range(2)]
        for action in actions:
            act(world, controllers, action)
            world.read()
        ensure_never_half(world)
        # Heal, then converge: each rollout on its way reaches an end, and no hold stays open.
        chance = random.Random(seed)
        controller = world.controller()
        for _ in range(40):
            for name in chance.sample(["tick", *PIPELINES], k=5):
                asked(controller.tick) if name == "tick" else world.look(name)
            world.ends.update(dict.fromkeys(PIPELINES, max(world.ends.values())))
            for rollout in world.state.active_rollouts:
                if rollout.waits:
                    # The rollout is bound here, by its default.
                    asked(lambda rollout=rollout: ask_promote(world.store, rollout.pipeline))  # type: ignore[misc]
        ensure_never_half(world)
        assert not world.state.active_rollouts
        assert all(world.hold(build) is None for build in PIPELINES)


def act(world: World, controllers: list[Generator[None]], action: str) -> None:
    verb, *names = action.split()
    asks = {"abandon": abandon_rollout, "verify": ask_verify, "undo": ask_undo}
    match verb:
        case "controller":
            next(controllers[int(names[0])])
        case "crash":
            controllers[int(names[0])] = deciding(world, world.controller())
        case "look":
            world.look(names[0])
        case "go":
            world.ends[names[1]] += 3
        case "wait":
            world.now += RULES.hold_seconds
        case "kill":
            world.kill(names[0])
        case "promote":
            asked(lambda: ask_promote(world.store, *names))
        case _:
            asked(lambda: asks[verb](world.store, names[0]))


def ensure_never_half(world: World) -> None:
    """Asserts that the journal is legal, and that each yes switched all of its builds or none."""
    yes: dict[int, set[int]] = {}
    records = list(world.journal.after(0))
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    fold_records(records)
    for record in records:
        match record.event:
            case PromoteAsked() as event:
                group = {event.rollout, *event.together}
                yes.update(dict.fromkeys(group, group))
            case Served() as event:
                switched = {each.rollout for each in event.switched}
                assert all(yes.get(number, {number}) == switched for number in switched)
