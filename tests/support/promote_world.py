"""A small world in which every order of steps is searched, with puts that land late.

It has jobs, controllers, a reader and operators. The platform's own functions decide: the next step
of a rollout (replay/rollout/promote.py), the state after a record (replay/rollout/fold.py), the
hold of a build (kappa/state/journal/projections.py), operators' requests
(replay/rollout/operator_requests.py).

Only the reads and writes of processes are written here, one per step. They are those of
kappa/engine/write/publisher.py, engine/write/maintenance.py, replay/rollout/garbage.py and
serving/query/pin/catalog.py. A controller that stops for ever has died, so its record lands late.
If a job dies, its put remains, and may land at any later moment. `Without` takes one ingredient of
the protocol away. explored.py searches; test_promote_model.py has the assertions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from itertools import chain
from typing import NamedTuple

from journals import at, frontier, numbered, served, staged, verified
from parts import Parts, Seeing, Values, moves_of

from kappa.base.errors import Conflict, UsageError
from kappa.base.sections import RolloutSettings
from kappa.replay.rollout.fold import advance_state, check_may_follow
from kappa.replay.rollout.operator_requests import may_pause, undo_target
from kappa.replay.rollout.pipeline_retirement import may_retire
from kappa.replay.rollout.promote import next_promote_step
from kappa.replay.rollout.state import State
from kappa.replay.rollout.step import Acknowledge, Append, Sight
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Event,
    Held,
    Paused,
    PipelineRetired,
    Released,
    Resumed,
    Retired,
    Served,
    SwitchAsked,
)
from kappa.state.journal.journal import JournalRecord
from kappa.state.journal.projections import hold_after

TOPICS = frozenset({"flights"})
PAIRS = {"flights": ("a", "b"), "trains": ("c", "d")}
BUILDS = ("a", "b", "c", "d")


class Without(StrEnum):
    """The ingredient of the protocol that is taken away."""

    NOTHING = "nothing"
    ACKNOWLEDGEMENT = "waiting for the live job to acknowledge the hold"
    SECOND_LOOK = "the reader's second look at the journal"
    EXACT_NUMBER = "putting a record at exactly the number after the last one looked at"
    EPOCH = "the first frontier of a process, which repeats the last one"
    FRONTIER_NUMBER = "putting a frontier at exactly the number after the one before"
    ONE_RECORD = "the generation and its serving map in one record"
    PIN = "one pinned frontier for all tables of an answer"
    LEASE_FIRST = "the reader's lease before it looks at the floor and the journal"
    FLOOR_FIRST = "the floor before the leases are listed"
    CONFIRM = "the reader's look at its lease before it answers"
    SAME_FRONTIERS = "the look at the frontiers of a pin that was left"


@dataclass(frozen=True)
class Bounds:
    """The size of the world: the largest offset is `offsets`, and each failure has a maximum count.

    With `caught_up`, the candidates are at the last offset from the start, and their jobs only
    answer holds. So are both builds of a second pipeline, which only switches in parallel with the
    first. With `overlay`, the candidate of the first pipeline serves the tables of the serving
    build. With `leaves`, a reader may leave its pin for a later one, whoever answered in between.
    """

    offsets: int = 2
    pipelines: int = 1
    controllers: int = 1
    attempts: int = 1
    deaths: int = 0
    undos: int = 0
    abandons: int = 0
    collects: bool = False
    expiries: int = 0
    caught_up: bool = False
    overlay: bool = False
    retires: int = 0
    pauses: int = 0
    leaves: bool = False


class Violation(Exception):
    """Raised at a state that must never be."""


class Front(NamedTuple):
    """A published frontier, whose offset is also the version of its tables.

    Its epoch names the job that put it, and has no effect.
    """

    number: int
    offset: int
    hold: int


# Read in place of the frontier of a pipeline that is retired.
NOTHING = Front(0, 0, 0)


class Job(NamedTuple):
    """A living process: the frontier that it last published or found, and its next step."""

    known: Front
    doing: tuple[object, ...] | None


class Build(NamedTuple):
    """The puts and locks of a build.

    `late` contains puts of dead processes that may still land. `gone` contains the deleted
    versions, as bits. `locked` is True if a controller has the lock.
    """

    front: Front
    job: Job | None
    late: tuple[Front, ...] = ()
    floor: int = 0
    gone: int = 0
    locked: bool = False


class Controller(NamedTuple):
    """A controller.

    `looked` is the journal as the controller read it; `candidate` is the candidate's frontier;
    `act` is the next step.
    """

    looked: int = -1
    rollout: int = 0
    candidate: Front | None = None
    act: tuple[object, ...] | None = None


LOOKS = frozenset({"frontiers", "floor", "journal"})


class Left(NamedTuple):
    """A pin that a reader has left."""

    generation: int
    builds: tuple[int, ...]
    fronts: tuple[Front, ...]
    lease: int


class Reader(NamedTuple):
    """One reader: its place, generation, builds, lease, and answers.

    The lease is 0 (none), 1 (good) or 2 (over). If the reader has `left` a pin, it checks
    everything of that pin at once, in any order: `looked` contains the checks that are done.
    """

    at: str
    generation: int
    served: tuple[int, ...]
    builds: tuple[int, ...]
    fronts: tuple[Front, ...]
    lease: int
    tables: tuple[int, ...]
    last: tuple[int, ...]
    looked: frozenset[str] = frozenset()
    left: Left | None = None


class World(NamedTuple):
    """The whole world. Readers get the map of `shown`, if map and generation are separate."""

    builds: tuple[Build, ...]
    controllers: tuple[Controller, ...]
    journal: int
    reader: Reader
    retiring: int = -1
    shown: int = 0
    deaths: int = 0
    undos: int = 0
    abandons: int = 0
    expiries: int = 0
    retires: int = 0
    pauses: int = 0


Moves = Iterator[tuple[str, World]]


class Sees(NamedTuple):
    """The parts of a world on which something depends: fields, fields of builds, controllers."""

    fields: tuple[str, ...] = ()
    builds: Mapping[int, tuple[str, ...]] = {}
    controllers: tuple[int, ...] = ()


class Shape:
    """The order of the parts of a world: its own fields, those of builds, then controllers."""

    def __init__(self, world: World) -> None:
        """Takes in a world; the number of its builds and controllers never changes."""
        self._own = len(World._fields) - 2
        self._ends = tuple(
            self._own + len(Build._fields) * (number + 1) for number in range(len(world.builds))
        )

    def parts(self, world: World) -> tuple[object, ...]:
        """Returns the parts of a world."""
        return (*world[2:], *chain.from_iterable(world.builds), *world.controllers)

    def world(self, parts: tuple[object, ...]) -> World:
        """Returns the world that has these parts."""
        size = len(Build._fields)
        return World(
            tuple(Build(*parts[end - size : end]) for end in self._ends),
            parts[self._ends[-1] :],
            *parts[: self._own],
        )

    def seen(self, sees: Sees) -> Iterator[int]:
        """Yields the positions of the parts that are seen."""
        for name in sees.fields:
            yield World._fields.index(name) - 2
        for number, names in sees.builds.items():
            for name in names:
                yield self._own + len(Build._fields) * number + Build._fields.index(name)
        for number in sees.controllers:
            yield self._ends[-1] + number


@dataclass
class Page:
    """The journal up to one record. The journal with one more record is another page."""

    last: int
    state: State
    holds: dict[str, JournalRecord | None]
    following: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.active = self.state.active_rollouts
        self.wanted = self.state.wanted_jobs()


class Pages:
    """All journals that were reached. Two orders with the same records share a page."""

    def __init__(self, events: tuple[Event, ...]) -> None:
        self.pages = [Page(0, State(), dict.fromkeys(BUILDS))]
        page = 0
        for event in events:
            page = self.after(page, event)
        self.first = page

    def after(self, page: int, event: Event) -> int:
        """Returns the journal with one more record, or raises IllegalTransition."""
        before, key = self.pages[page], repr(event)
        if key not in before.following:
            (record,) = numbered(event, after=before.last)
            holds = {build: hold_after(hold, record, build) for build, hold in before.holds.items()}
            self.pages.append(Page(record.number, advance_state(before.state, record), holds))
            before.following[key] = len(self.pages) - 1
        return before.following[key]


class Protocol:
    """The steps that are possible in a world."""

    def __init__(self, bounds: Bounds, without: Without = Without.NOTHING) -> None:
        self.bounds = bounds
        self.without = without
        self._rules = RolloutSettings(hold_attempts=bounds.attempts)
        self._pipelines = tuple(PAIRS)[: bounds.pipelines]
        self._journal = Pages(tuple(_ready(self._pipelines, overlay=bounds.overlay)))
        self._decided = cache(self._decide)
        self._events: dict[str, Event] = {}
        self._build_of = {name: number for number, name in enumerate(BUILDS)}

    def first(self) -> World:
        """Returns a world in which each pipeline has a serving build and a verified build."""
        last = self.bounds.offsets
        starts = ((0, last, last, last) if self.bounds.caught_up else (0, 0, 0, 0))[
            : 2 * self.bounds.pipelines
        ]
        builds = tuple(Build(Front(1, start, 0), Job(Front(1, start, 0), None)) for start in starts)
        page = self._journal.first
        return World(
            builds,
            (Controller(),) * self.bounds.controllers,
            page,
            self._reader((0,) * (1 + self.bounds.pipelines)),
            shown=page,
        )

    def ended(self, world: World) -> bool:
        """Returns True if no rollout is active. The function sees the journal only."""
        return not self._journal.pages[world.journal].active

    def actors(self) -> Iterator[tuple[Sees, Callable[[World], Moves]]]:
        """Yields each actor with the parts that it sees; an actor yields its single steps.

        An actor raises Violation, or the errors of the platform itself.
        """
        builds, collects = range(2 * self.bounds.pipelines), self.bounds.collects
        for number in builds:
            yield Sees(builds={number: ("front", "late", "job")}), partial(self._late, number)
            yield (
                Sees(
                    ("journal", "deaths", *(("reader",) if collects else ())),
                    {number: ("front", "job", "late", "gone", "locked")},
                ),
                partial(self._job, number),
            )
        for number in range(self.bounds.controllers):
            yield (
                Sees(
                    ("journal", "deaths"),
                    dict.fromkeys(builds, ("front", "job", "late", "locked")),
                    (number,),
                ),
                partial(self._controller, number),
            )
        yield (
            Sees(
                ("journal", "shown", "reader", "expiries"),
                dict.fromkeys(builds, ("front", "floor", "gone") if collects else ("front",)),
            ),
            self._read,
        )
        yield Sees(("journal", "undos", "abandons", "retires", "pauses")), self._operator
        if collects:
            yield (
                Sees(("journal", "retiring", "reader"), dict.fromkeys(builds, ("job", "gone"))),
                self._retire,
            )

    # Jobs: engine/write/publisher.py, engine/write/maintenance.py.

    def _late(self, number: int, world: World) -> Moves:
        build, name = world.builds[number], BUILDS[number]
        for late in build.late:
            if not self._free(build, late):
                continue
            if build.job is not None and (build.job.doing is None or build.job.doing[0] != "begin"):
                raise Violation(
                    f"a late put of a dead job of {name} has landed after the next one had begun"
                )
            rest = tuple(each for each in build.late if each != late)
            yield (
                f"a late put of {name} lands",
                _with(world, number, self._landed(build._replace(late=rest), late)),
            )

    def _job(self, number: int, world: World) -> Moves:
        build, name = world.builds[number], BUILDS[number]
        if build.job is None:
            if not build.locked and name in self._journal.pages[world.journal].wanted:
                yield (
                    f"the job of {name} begins",
                    _with(world, number, build._replace(job=self._beginning(world, number))),
                )
            return
        known, doing = build.job
        quiet = self.bounds.caught_up and number > 0
        if world.deaths < self.bounds.deaths and not quiet:
            late = build.late
            if doing is not None and doing[0] in {"put", "begin"}:
                late = tuple(sorted({*late, doing[1]}))
            yield (
                f"the job of {name} dies",
                _with(world, number, build._replace(job=None, late=late))._replace(
                    deaths=world.deaths + 1
                ),
            )
        match doing:
            case None:
                if name not in self._journal.pages[world.journal].wanted:
                    yield f"the job of {name} ends", _with(world, number, build._replace(job=None))
                    return
                yield from self._look(world, number, known)
                if self.bounds.collects and not quiet:
                    if self.without is Without.FLOOR_FIRST:
                        yield (
                            f"{name} lists the leases",
                            self._doing(
                                world, number, known, ("floor", self._pinned(world, number))
                            ),
                        )
                    else:
                        yield (
                            f"{name} puts its floor",
                            _with(
                                world,
                                number,
                                build._replace(floor=known.number, job=Job(known, ("list",))),
                            ),
                        )
            case ("begin", Front() as put):
                if self._free(build, put):
                    yield (
                        f"{name} repeats its frontier",
                        _with(world, number, self._landed(build, put)._replace(job=Job(put, None))),
                    )
                else:
                    yield (
                        f"{name} finds a late put",
                        _with(world, number, build._replace(job=self._beginning(world, number))),
                    )
            case ("put", Front() as put):
                if not self._free(build, put):
                    raise Violation(f"the job of {name} is refused its own next frontier")
                landed = self._landed(build, put)
                yield (
                    f"{name} publishes",
                    _with(world, number, landed._replace(job=Job(landed.front, None))),
                )
            case ("release", int(looked), Released() as event):
                page = self._put(world, looked, event)
                yield (
                    f"{name} releases",
                    self._doing(
                        world if page is None else world._replace(journal=page), number, known, None
                    ),
                )
            case ("list",):
                yield (
                    f"{name} lists the leases",
                    self._doing(world, number, known, ("delete", self._pinned(world, number))),
                )
            case ("floor", frozenset() as pinned):
                yield (
                    f"{name} puts its floor",
                    _with(
                        world,
                        number,
                        build._replace(floor=known.number, job=Job(known, ("delete", pinned))),
                    ),
                )
            case ("delete", frozenset() as pinned):
                gone = build.gone
                for version in range(known.offset):
                    if version not in pinned:
                        gone |= 1 << version
                yield (
                    f"{name} deletes",
                    _with(world, number, build._replace(gone=gone, job=Job(known, None))),
                )
            case _:
                raise AssertionError(doing)

    def _look(self, world: World, number: int, known: Front) -> Moves:
        name = BUILDS[number]
        hold = self._journal.pages[world.journal].holds[name]
        if hold is None:
            if known.offset < self.bounds.offsets:
                yield (
                    f"{name} will publish",
                    self._doing(
                        world, number, known, ("put", Front(known.number + 1, known.offset + 1, 0))
                    ),
                )
            return
        if known.hold != hold.number:
            yield (
                f"{name} will acknowledge",
                self._doing(
                    world,
                    number,
                    known,
                    ("put", Front(known.number + 1, known.offset, hold.number)),
                ),
            )
        else:
            assert isinstance(hold.event, Held)
            released = Released(hold.event.rollout, name, hold.number, "too long")
            yield (
                f"{name} has waited too long",
                self._doing(world, number, known, ("release", world.journal, released)),
            )

    def _beginning(self, world: World, number: int) -> Job:
        found = world.builds[number].front
        hold = self._journal.pages[world.journal].holds[BUILDS[number]]
        put = Front(found.number + 1, found.offset, 0 if hold is None else hold.number)
        if self.without is Without.EPOCH:
            return Job(found, None)
        return Job(found, ("begin", put))

    def _free(self, build: Build, put: Front) -> bool:
        return self.without is Without.FRONTIER_NUMBER or put.number == build.front.number + 1

    def _landed(self, build: Build, put: Front) -> Build:
        if self.without is Without.FRONTIER_NUMBER:
            return build._replace(front=put._replace(number=build.front.number + 1))
        # A put that is left behind can never land once its number is taken.
        late = tuple(each for each in build.late if each.number > put.number) if build.late else ()
        return build._replace(front=put, late=late)

    @staticmethod
    def _doing(world: World, number: int, known: Front, doing: tuple[object, ...] | None) -> World:
        return _with(world, number, world.builds[number]._replace(job=Job(known, doing)))

    # Controllers: replay/platform/controller.py, replay/rollout/promote.py.

    def _controller(self, number: int, world: World) -> Moves:
        me, who = world.controllers[number], f"controller {number}"

        def now(changed: Controller, other: World = world) -> World:
            return other._replace(
                controllers=(*other.controllers[:number], changed, *other.controllers[number + 1 :])
            )

        if me.looked < 0:
            for rollout in self._journal.pages[world.journal].active:
                yield f"{who} reads the journal", now(Controller(world.journal, rollout.id))
            return
        state = self._state(me.looked)
        rollout = state.rollout(me.rollout)
        if me.candidate is None:
            yield (
                f"{who} looks at the candidate",
                now(
                    me._replace(candidate=world.builds[self._folded_by(state, rollout.build)].front)
                ),
            )
            return
        # Of a retired pipeline nothing serves, so nothing is held: the first build stands in.
        live = self._folded_by(state, state.serving.get(rollout.pipeline, rollout.build))
        build = world.builds[live]
        match me.act:
            case None:
                # A controller that acts for a dead job has its lock: to others the job runs.
                act = self._decided(
                    me.looked,
                    me.rollout,
                    me.candidate,
                    build.front,
                    build.job is not None or build.locked,
                )
                yield f"{who} decides", now(Controller() if act is None else me._replace(act=act))
            case ("append", str(key)):
                event = self._events[key]
                page = self._put(world, me.looked, event)
                apart = (
                    self.without is Without.ONE_RECORD
                    and isinstance(event, Served)
                    and page is not None
                )
                after = world if page is None else world._replace(journal=page)
                yield (
                    f"{who} appends {type(event).__name__}",
                    now(me._replace(act=("show", page)) if apart else Controller(), after),
                )
            case ("show", int(page)):
                yield f"{who} shows the map", now(Controller(), world._replace(shown=page))
            case ("acknowledge", int(hold)):
                if build.job is not None or build.locked or build.front.hold == hold:
                    yield f"{who} need not acknowledge", now(Controller())
                else:
                    put = Front(build.front.number + 1, build.front.offset, hold)
                    yield (
                        f"{who} takes the lock of {BUILDS[live]}",
                        now(
                            me._replace(act=("put", put)),
                            _with(world, live, build._replace(locked=True)),
                        ),
                    )
            case ("put", Front() as put):
                if self._free(build, put):
                    yield (
                        f"{who} acknowledges for {BUILDS[live]}",
                        now(
                            Controller(),
                            _with(world, live, self._landed(build, put)._replace(locked=False)),
                        ),
                    )
                else:
                    again = Front(build.front.number + 1, build.front.offset, put.hold)
                    yield f"{who} finds a late put", now(me._replace(act=("put", again)))
                if world.deaths < self.bounds.deaths:
                    left = _with(
                        world,
                        live,
                        build._replace(locked=False, late=tuple(sorted({*build.late, put}))),
                    )
                    yield f"{who} dies", now(Controller(), left._replace(deaths=world.deaths + 1))
            case _:
                raise AssertionError(me.act)

    def _decide(
        self, looked: int, number: int, candidate: Front, live: Front, live_runs: bool
    ) -> tuple[object, ...] | None:
        state = self._state(looked)
        rollout = state.rollout(number)
        if self.without is Without.ACKNOWLEDGEMENT and rollout.hold is not None:
            live = live._replace(hold=rollout.hold)
        shares = state.serves_the_same(rollout.build, state.serving.get(rollout.pipeline))
        sight = Sight(
            state,
            rollout,
            _frontier(rollout.build, live if shares else candidate),
            _frontier(state.serving[rollout.pipeline], live)
            if rollout.pipeline in state.serving
            else None,
            TOPICS,
            target=at(0),
            live_runs=live_runs,
        )
        match next_promote_step(sight, self._rules):
            case Append(event):
                check_may_follow(state, event)
                # Records have maps, which have no hash: a world holds the text that names one.
                self._events[repr(event)] = event
                return ("append", repr(event))
            case Acknowledge(_, hold):
                return ("acknowledge", hold)
            case _:
                return None

    def _put(self, world: World, looked: int, event: Event) -> int | None:
        """Returns the journal with this record at its number, or None if the number is taken."""
        if world.journal != looked and self.without is not Without.EXACT_NUMBER:
            return None
        return self._journal.after(world.journal, event)

    # The reader: serving/query/pin/catalog.py.

    def _read(self, world: World) -> Moves:
        me = world.reader

        def now(**changes: object) -> World:
            return world._replace(reader=me._replace(**changes))

        lease_first = self.without is not Without.LEASE_FIRST
        match me.at:
            case "start":
                apart, serving = self.without is Without.ONE_RECORD, self._serving(world.journal)
                yield (
                    "the reader reads the journal",
                    now(
                        at="map" if apart else "frontiers",
                        generation=self._state(world.journal).generation,
                        served=serving,
                        builds=() if apart else serving,
                    ),
                )
                if me.left is not None:
                    yield (
                        "the reader takes the pin that was left",
                        now(at="once", **me.left._asdict(), served=me.left.builds, left=None),
                    )
            case "once":
                for look in sorted(LOOKS - me.looked):
                    same = self._is_same(world, look)
                    yield (
                        f"the reader looks at the {look} of its pin",
                        now(looked=me.looked | {look}) if same else self._again(world),
                    )
                if me.looked == LOOKS:
                    yield from self._has_pinned(world, "read")
            case "map":
                yield (
                    "the reader reads the map",
                    now(at="frontiers", builds=self._serving(world.shown)),
                )
            case "frontiers":
                number = me.builds[len(me.fronts)]
                fronts = (*me.fronts, NOTHING if number < 0 else world.builds[number].front)
                whole = len(fronts) == len(me.builds)
                follows = ("lease" if lease_first else "floor") if self.bounds.collects else "again"
                yield (
                    f"the reader reads {'nothing' if number < 0 else 'front of ' + BUILDS[number]}",
                    now(at=follows if whole else "frontiers", fronts=fronts),
                )
            case "lease":
                yield (
                    "the reader puts its lease",
                    now(at="floor" if lease_first else "read", lease=1),
                )
            case "floor":
                same = self._is_same(world, "floor")
                yield "the reader reads the floor", now(at="again") if same else self._again(world)
            case "again":
                if self._is_same(world, "journal"):
                    yield from self._has_pinned(world, "read" if lease_first else "lease")
                else:
                    yield "the reader starts over", self._again(world)
            case "read":
                front = (
                    world.builds[me.builds[0]].front
                    if self.without is Without.PIN
                    else me.fronts[0]
                )
                there = not world.builds[me.builds[0]].gone >> front.offset & 1
                tables = (*me.tables, front.offset if there else -1)
                yield (
                    "the reader reads a table",
                    now(tables=tables, at="read" if len(tables) < 2 else "confirm"),
                )
            case "confirm":
                if me.lease == 2 and self.without is not Without.CONFIRM:
                    yield "the reader's lease is over", self._again(world)
                    return
                if -1 in me.tables:
                    raise Violation(
                        "a reader has read a version that was deleted, and gives the answer out"
                    )
                if len(set(me.tables)) > 1:
                    raise Violation(f"an answer mixes frontiers: {me.tables}")
                yield from self._answers(world, me.tables[:1])
            case _:
                raise AssertionError(me.at)
        yield from self._expires(world)

    def _expires(self, world: World) -> Moves:
        me, ended = world.reader, world._replace(expiries=world.expiries + 1)
        if world.expiries == self.bounds.expiries:
            return
        if me.lease == 1:
            yield "the reader's lease ends", ended._replace(reader=me._replace(lease=2))
        if me.left is not None and me.left.lease == 1:
            left = me.left._replace(lease=2)
            yield "the lease that was left ends", ended._replace(reader=me._replace(left=left))

    def _is_same(self, world: World, look: str) -> bool:
        """Returns True if a check finds what the reader saw before."""
        me = world.reader
        there = [
            (front, world.builds[build])
            for build, front in zip(me.builds, me.fronts, strict=True)
            if build >= 0
        ]
        match look:
            case "journal":
                switched = self._state(world.journal).generation > me.generation
                return not switched or self.without is Without.SECOND_LOOK
            case "floor":
                return not self.bounds.collects or all(
                    front.number >= build.floor for front, build in there
                )
            case _:
                is_same = all(front == build.front for front, build in there)
                return is_same or self.without is Without.SAME_FRONTIERS

    def _has_pinned(self, world: World, follows: str) -> Moves:
        me = world.reader
        if self.bounds.collects and me.builds[0] >= 0:
            yield "the reader has pinned", world._replace(reader=me._replace(at=follows))
        else:
            yield from self._answers(world, tuple(front.offset for front in me.fronts))

    def _answers(self, world: World, offsets: tuple[int, ...]) -> Moves:
        me, answered = world.reader, self._answered(world, offsets)
        yield "the reader answers", answered
        if self.bounds.leaves and me.left is None:
            left = Left(me.generation, me.builds, me.fronts, me.lease)
            yield (
                "the reader answers, and leaves its pin",
                answered._replace(reader=answered.reader._replace(left=left)),
            )

    def _answered(self, world: World, offsets: tuple[int, ...]) -> World:
        me = world.reader
        if me.builds != me.served:
            raise Violation("an answer is of one generation and read from the builds of another")
        # Of a retired pipeline nothing is answered, and what was seen of it stays seen.
        seen = (
            was if build < 0 else offset
            for build, offset, was in zip(me.builds, offsets, me.last[1:], strict=False)
        )
        answer = (me.generation, *seen)
        if any(is_now < was for is_now, was in zip(answer, me.last, strict=True)):
            raise Violation(f"a reader goes back, from {me.last} to {answer}")
        return world._replace(reader=self._reader(answer, me.left))

    def _again(self, world: World) -> World:
        return world._replace(reader=self._reader(world.reader.last, world.reader.left))

    @staticmethod
    def _reader(last: tuple[int, ...], left: Left | None = None) -> Reader:
        return Reader("start", 0, (), (), (), 0, (), last, left=left)

    def _serving(self, page: int) -> tuple[int, ...]:
        state = self._state(page)
        return tuple(
            self._folded_by(state, state.serving[each]) if each in state.serving else -1
            for each in self._pipelines
        )

    def _folded_by(self, state: State, build: str) -> int:
        return self._build_of[state.folded_by(build)]

    # Operators, and the deletion of retired builds.

    def _operator(self, world: World) -> Moves:
        state = self._state(world.journal)
        for rollout in self._journal.pages[world.journal].active:
            if world.abandons < self.bounds.abandons:
                page = self._journal.after(world.journal, Abandoned(rollout.id, "by hand"))
                yield (
                    f"rollout {rollout.id} is abandoned",
                    world._replace(journal=page, abandons=world.abandons + 1),
                )
        for pipeline in self._pipelines:
            if world.undos < self.bounds.undos and state.active(pipeline) is None:
                try:
                    page = self._journal.after(
                        world.journal, SwitchAsked(*undo_target(state, pipeline), "undo")
                    )
                except UsageError:
                    continue
                yield f"{pipeline} is undone", world._replace(journal=page, undos=world.undos + 1)
        yield from self._service(world, state)

    def _service(self, world: World, state: State) -> Moves:
        """Retires, pauses and resumes a pipeline, as operators request it."""
        for pipeline in self._pipelines:
            may_be = (False, False)
            if pipeline in state.serving:
                with suppress(Conflict):
                    may_be = (may_retire(state, pipeline), may_pause(state, pipeline))
            if may_be[0] and world.retires < self.bounds.retires:
                event = PipelineRetired(
                    pipeline,
                    state.serving[pipeline],
                    state.generation + 1,
                    {name: each for name, each in state.serving.items() if name != pipeline},
                    (),
                    at(0),
                    0.0,
                )
                yield (
                    f"{pipeline} is retired",
                    world._replace(
                        journal=self._journal.after(world.journal, event),
                        shown=self._journal.after(world.journal, event),
                        retires=world.retires + 1,
                    ),
                )
            if may_be[1] and world.pauses < self.bounds.pauses:
                page = self._journal.after(world.journal, Paused(pipeline))
                yield (
                    f"{pipeline} is paused",
                    world._replace(journal=page, pauses=world.pauses + 1),
                )
            if pipeline in state.paused:
                page = self._journal.after(world.journal, Resumed(pipeline))
                yield f"{pipeline} is resumed", world._replace(journal=page)

    def _retire(self, world: World) -> Moves:
        state = self._state(world.journal)
        if world.retiring >= 0:
            build = world.builds[world.retiring]
            yield (
                f"{BUILDS[world.retiring]} is deleted",
                _with(world, world.retiring, build._replace(gone=-1))._replace(retiring=-1),
            )
            return
        for name in sorted(state.retirable_builds()):
            yield (
                f"{name} is retired",
                world._replace(journal=self._journal.after(world.journal, Retired(name))),
            )
        for name in sorted(state.retired):
            number = self._build_of[name]
            build = world.builds[number]
            if build.gone != -1 and build.job is None and not self._pinned(world, number):
                yield f"no lease is on {name}", world._replace(retiring=number)

    def _pinned(self, world: World, number: int) -> frozenset[int]:
        """Returns the versions of a build that leases pin. An ended lease pins nothing."""
        me = world.reader
        return frozenset(
            front.offset
            for each in (me, *([] if me.left is None else [me.left]))
            for build, front in zip(each.builds, each.fronts, strict=False)
            if build == number and each.lease == 1
        )

    def _state(self, page: int) -> State:
        return self._journal.pages[page].state


def _with(world: World, number: int, build: Build) -> World:
    return world._replace(builds=(*world.builds[:number], build, *world.builds[number + 1 :]))


def _frontier(build: str, front: Front) -> object:
    return frontier(build, front.offset, number=front.number, hold=front.hold or None)


def _ready(pipelines: tuple[str, ...], *, overlay: bool) -> Iterator[Event]:
    """Yields the events of a serving first build of each pipeline, and of a verified second."""
    last, serving = 0, dict[str, str]()
    for generation, pipeline in enumerate(pipelines, start=1):
        build = PAIRS[pipeline][0]
        yield from (staged(build, pipeline=pipeline), CaughtUp(last + 1, at(0)), verified(last + 1))
        yield served(last + 1, generation, build, pipeline=pipeline, others=serving)
        serving[pipeline] = build
        last += 4
    for pipeline in pipelines:
        first, second = PAIRS[pipeline]
        tables_of = first if overlay and pipeline == pipelines[0] else None
        yield from (
            staged(second, pipeline=pipeline, tables_of=tables_of),
            CaughtUp(last + 1, at(0)),
            verified(last + 1),
        )
        last += 3


def searched(
    protocol: Protocol,
) -> tuple[int, Callable[[int], Iterator[tuple[str, int]]], Callable[[int], bool]]:
    """Returns the first state, the moves and the end of a protocol, with worlds in parts."""
    first = protocol.first()
    shape = Shape(first)
    parts = Parts(shape.parts(first))

    def moves(values: Values, actor: Callable[[World], Moves]) -> Iterator[tuple[str, Values]]:
        for name, world in actor(shape.world(values)):
            yield name, shape.parts(world)

    actors = ((shape.seen(sees), partial(moves, actor=actor)) for sees, actor in protocol.actors())
    ended = Seeing(
        parts, shape.seen(Sees(("journal",))), lambda values: protocol.ended(shape.world(values))
    )
    return parts.first, moves_of(parts, actors), ended
