"""Laws of the promote: the order of its steps, and that no reader ever moves back.

The simulation drives the platform's own functions on a real store. Only jobs and readers are
written here, as the protocol demands. Each of them gives way to others between two of its reads and
writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

import pytest
from births import make_birth
from journals import at, frontier, held, numbered, open_hold, served, staged, verified
from msgspec.structs import replace
from plans import A_SERVES

from kappa.base.errors import Broken, Conflict, KappaError
from kappa.base.sections import RolloutSettings
from kappa.replay.platform.controller import Controller
from kappa.replay.platform.next_step import next_step
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.operator_requests import abandon_rollout, ask_undo
from kappa.replay.rollout.promote import acknowledge_for_dead_job, next_promote_step
from kappa.replay.rollout.step import Acknowledge, Append, Sight, Wait
from kappa.state.build import Birth, TopicBirth, comparable_topics, put_birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import CaughtUp, Event, Failed, Held, Released, Served
from kappa.state.journal.journal import Journal
from kappa.state.lock import Lock
from kappa.state.store import Store

RULES = RolloutSettings(hold_attempts=3)
BEGUN = (*A_SERVES, staged("b"))
PAIR: tuple[Event, ...] = (*BEGUN, CaughtUp(5, at(0)), verified(5))
TOPICS = frozenset({"flights"})
DELICATE = True


def sight(
    *after: Event, live: Frontier | None = None, candidate: Frontier | None = None, **seen: object
) -> Sight:
    state = fold_records(numbered(*PAIR, *after))
    sides = (candidate or frontier("b", 10), live or frontier("a", 10))
    # `seen` has further fields by name.
    return Sight(state, state.rollout(5), *sides, TOPICS, **{"target": at(5), **seen})  # type: ignore[arg-type]


def step_of(
    *after: Event, live: Frontier | None = None, candidate: Frontier | None = None, **seen: object
) -> object:
    """Returns the next step of a promote, after these events."""
    return next_promote_step(sight(*after, live=live, candidate=candidate, **seen), RULES)


@pytest.mark.parametrize(
    ("events", "candidate", "slow"),
    [
        (BEGUN, None, "its Spark to start"),
        (BEGUN, frontier("b", 4), "its job to reach a"),
        ((staged("b"),), None, "its Spark to start"),
        ((staged("b"),), frontier("b", 4), "its job to read the rest of the log"),
        (PAIR, None, "its first rows"),
        (PAIR, frontier("b", 4), "the last records before build a"),
    ],
)
def test_a_wait_names_the_slow_thing(
    events: tuple[Event, ...], candidate: Frontier | None, slow: str
) -> None:
    """A wait names the slow step; it never says that a rollout waits for its own build."""
    state = fold_records(numbered(*events))
    live = frontier("a", 10) if state.serving else None
    seen = Sight(state, state.rollouts[-1], candidate, live, TOPICS, target=at(5))

    assert next_step(seen, RULES) == Wait(slow)


HELD = held(5, "a")
ANEW = (HELD, Released(5, "a", 8, "too long"), held(5, "a", attempt=2))


def test_a_candidate_is_held_for_once_it_is_near() -> None:
    assert isinstance(step_of(candidate=frontier("b", 4)), Wait)
    assert step_of() == Append(Held(5, "a", 1))


def test_nothing_is_compared_before_the_live_job_has_acknowledged() -> None:
    assert step_of(HELD) == Wait("build a to acknowledge the hold")


def test_an_acknowledgement_of_an_earlier_hold_is_none() -> None:
    step = step_of(*ANEW, live=frontier("a", 10, hold=8))

    assert step == Wait("build a to acknowledge the hold")


def test_a_dead_live_job_is_acknowledged_for() -> None:
    assert step_of(HELD, live_runs=False) == Acknowledge("a", 8)


def test_a_candidate_behind_the_acknowledged_frontier_is_waited_for() -> None:
    assert step_of(HELD, live=frontier("a", 11, hold=8)) == Wait("build b to reach build a")


def test_a_candidate_that_has_reached_it_serves_with_its_receipt() -> None:
    served_by_b = step_of(HELD, live=frontier("a", 10, hold=8)).event

    assert isinstance(served_by_b, Served)
    assert (served_by_b.generation, served_by_b.serving) == (2, {"flights": "b"})
    receipt = served_by_b.receipt
    assert (receipt.live_offsets, receipt.candidate_offsets) == (at(10), at(10))
    assert not receipt.first


def test_topics_that_only_one_side_reads_are_not_compared() -> None:
    live = replace(frontier("a", 10, hold=8), offsets=at(10).highest_with(at(99, topic="gone")))

    assert isinstance(step_of(HELD, live=live), Append)


def test_a_topic_created_anew_is_not_comparable() -> None:
    another = replace(birth("b"), topics=(TopicBirth("flights", "another id", "retained", 1),))

    assert comparable_topics(birth("a"), birth("b")) == TOPICS
    assert comparable_topics(birth("a"), another) == frozenset()


def test_the_first_build_serves_at_once_and_its_receipt_says_so() -> None:
    state = fold_records(numbered(*PAIR[:3]))
    first = next_promote_step(Sight(state, state.rollout(1), frontier("a", 3)), RULES).event

    assert isinstance(first, Served)
    assert (first.receipt.first, first.receipt.live_build) == (True, None)


def test_after_the_last_attempt_the_rollout_fails_and_says_why() -> None:
    attempts = [
        event
        for n in range(3)
        for event in (held(5, "a", attempt=n + 1), Released(5, "a", 8 + 2 * n, "too long"))
    ]
    failed = step_of(*attempts).event

    why = "build b did not reach build a within 10 s, 3 times"
    assert failed == Failed(5, why, failed.hint)


def test_a_topic_created_anew_fails_the_rollout_before_any_hold() -> None:
    assert isinstance(step_of(recreated="flights").event, Failed)


def test_who_acts_for_a_dead_job_is_refused_while_it_lives(any_store: Store) -> None:
    Frontiers(any_store, "a").publish(frontier("a", 10))

    with Lock(any_store.local.path("builds/a/lock"), what="build a"), pytest.raises(Conflict):
        acknowledge_for_dead_job(any_store, "a", 8)

    assert Frontiers(any_store, "a").newest() == frontier("a", 10)


def test_acting_for_a_dead_job_moves_no_offset_and_fences_it(any_store: Store) -> None:
    store = any_store
    Frontiers(store, "a").publish(frontier("a", 10))

    acknowledge_for_dead_job(store, "a", 8)
    acknowledge_for_dead_job(store, "a", 8)

    newest = Frontiers(store, "a").newest()
    moved = {"number": 2, "epoch": 2, "published_at": newest.published_at}
    assert newest == replace(frontier("a", 10, hold=8), **moved)
    with pytest.raises(Broken):
        Frontiers(store, "a").publish(frontier("a", 11, number=2))


def birth(build: str) -> Birth:
    topics = (TopicBirth("flights", "id-of-flights", "retained", 1),)
    version, origin = f"version-of-{build}", {"flights": {"0": 0}}
    return make_birth(build, pipeline="flights", version=version, topics=topics, origin=origin)


class World:
    """Two builds of one pipeline that replace each other, with jobs, readers and operators."""

    def __init__(self, store: Store, chance: random.Random) -> None:
        self.chance = chance
        self.end_of_log = 0
        self.store = store
        self.journal = Journal(self.store)
        for build in ("a", "b"):
            put_birth(self.store, birth(build))
            Frontiers(self.store, build).publish(frontier(build, 0))
        events = (*PAIR, held(5, "a"), served(5, 2, "b", live="a"))
        for number, event in enumerate(events, start=1):
            assert self.journal.append(number, event)
        self.alive: dict[str, Generator[bool | None] | None] = {"a": None, "b": None}
        self.patience = 0
        self.promotes = 0
        self.controller = self.new_controller()
        self.deciding = self.decide()
        self.readers = [self.read(), self.read()]

    def new_controller(self) -> Controller:
        return Controller(self.store, log=self, processes=self, rules=RULES, clock=lambda: 0.0)

    # From here on: the controller's calls to Kafka and to the supervisor.
    def end(self, _topics: object) -> object:
        raise AssertionError("no build is replaying")

    def facts(self, _name: str) -> TopicBirth:
        return birth("a").topics[0]

    def job_runs(self, build: str) -> bool:
        return self.alive[build] is not None

    def job_stopped(self, _build: str) -> None:
        return None

    def job_deaths(self, _build: str) -> int:
        return 0

    def ensure_aligned_again(self, _build: str) -> None:
        raise AssertionError("no build is replaying")

    def ensure_verifying(self, _rollout: int) -> str | None:
        raise AssertionError("no build is verified")

    def decide(self) -> Generator[bool | None]:
        """Runs the controller's ticks, and gives way between its reading and acting."""
        controller = self.controller
        while True:
            known = controller.state
            controller.state = fold_records(self.journal.after(known.last), known)
            yield
            for rollout in controller.state.active_rollouts:
                step = next_step(controller._observe_group(rollout), RULES)
                yield DELICATE
                if isinstance(step, Acknowledge) and self.job_runs(step.build):
                    # A live job would have the lock, which jobs here do not take.
                    continue
                before = controller.state.generation
                controller._take_step(rollout, step)
                self.promotes += controller.state.generation - before
            yield

    def job(self, build: str) -> Generator[bool | None]:
        frontiers, journal = Frontiers(self.store, build), self.journal
        newest = frontiers.newest()
        records = list(journal.after(0))
        epoch = newest.epoch + 1
        yield DELICATE
        newest = self.published(frontiers, newest, epoch=epoch)
        committed = newest.offsets.at("flights", 0)
        while True:
            yield
            records += journal.after(len(records))
            hold = open_hold(records, build)
            if hold is None:
                self.end_of_log += 1
                committed = self.chance.choice(
                    [committed, self.end_of_log, self.chance.randint(committed, self.end_of_log)]
                )
                yield
                records += journal.after(len(records))
                if open_hold(records, build) is not None:
                    continue
                yield DELICATE
                newest = self.published(frontiers, newest, offsets=at(committed), hold=None)
            elif newest.hold != hold.number:
                yield DELICATE
                newest = self.published(frontiers, newest, hold=hold.number)
            elif self.patience <= 0:
                # The candidate is in time for some holds, and too late for others.
                self.patience = self.chance.choice([3, 20])
                released = Released(hold.event.rollout, build, hold.number, "too long")
                yield DELICATE
                journal.append(len(records) + 1, released)
            else:
                self.patience -= 1

    @staticmethod
    def published(frontiers: Frontiers, last: Frontier, **changes: object) -> Frontier:
        """Publishes the frontier that follows `last`, with these changes."""
        frontier = replace(last, number=last.number + 1, **changes)
        frontiers.publish(frontier)
        return frontier

    def read(self) -> Generator[bool | None]:
        seen = (0, 0)
        while True:
            yield
            last, record = self.journal.last_served()
            yield DELICATE
            newest = Frontiers(self.store, record.event.serving["flights"]).newest()
            yield DELICATE
            if any(isinstance(each.event, Served) for each in self.journal.after(last)):
                continue
            answer = (record.event.generation, newest.offsets.at("flights", 0))
            assert answer[0] >= seen[0], "the generation went back"
            assert answer[1] >= seen[1], f"a reader went back: {seen} -> {answer}"
            seen = answer

    def step(self, actor: str) -> bool | None:
        """Takes one step of an actor; returns DELICATE between its reading and its acting."""
        match actor:
            case "job a" | "job b":
                build = actor[-1]
                running = self.alive[build] or self.job(build)
                self.alive[build] = running
                try:
                    return next(running)
                except Broken:
                    # Another job has published in its place: it stops, and is started again.
                    self.alive[build] = None
            case "crash a" | "crash b":
                self.alive[actor[-1]] = None
            case "crash controller":
                self.controller = self.new_controller()
                self.deciding = self.decide()
            case "controller":
                return next(self.deciding)
            case "reader 0" | "reader 1":
                return next(self.readers[int(actor[-1])])
            case "undo":
                asked(lambda: ask_undo(self.store, None))
            case "abandon":
                asked(lambda: abandon_rollout(self.store, None))
        return None


def asked(what: Callable[[], object]) -> None:
    try:
        what()
    except KappaError:
        return


OFTEN = ["job a", "job b", "controller", "reader 0", "reader 1"]
SELDOM = ["crash a", "crash b", "crash controller", "abandon"]
# For each seed; docs/design.md has the total.
SWITCHES = 3


def run(world: World, chance: random.Random) -> None:
    """Runs all actors in turns of any length, which end at each delicate moment.

    If the protocol is weak, it breaks if an actor stops at a delicate moment.
    """
    # Most seeds need a few hundred turns.
    for _ in range(5_000):
        if world.promotes == SWITCHES:
            break
        actor = chance.choice(OFTEN)
        for _ in range(chance.choice([1, 4, 12])):
            if world.step(actor) is DELICATE:
                break
        if chance.random() < 0.2:
            world.step("undo")
        if chance.random() < 0.04:
            world.step(chance.choice(SELDOM))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("any_store", "seed"),
    [
        *(("disk", seed) for seed in range(12)),
        *(("bucket", seed) for seed in range(1, 3)),
        *(pytest.param("disk", seed, marks=pytest.mark.sweep) for seed in range(12, 40)),
        *(pytest.param("bucket", seed, marks=pytest.mark.sweep) for seed in range(3, 13)),
    ],
    indirect=["any_store"],
)
def test_no_reader_goes_back_between_any_two_steps(any_store: Store, seed: int) -> None:
    chance = random.Random(seed)
    world = World(any_store, chance)
    run(world, chance)
    assert world.promotes == SWITCHES
    # Once all actors run in turn, the last rollout ends and a new one serves.
    before = world.controller.state.generation
    asked(lambda: abandon_rollout(world.store, None))
    ask_undo(world.store, "flights")
    for _ in range(60):
        for actor in OFTEN:
            world.step(actor)

    assert world.controller.state.generation > before
    assert not world.controller.state.active_rollouts
