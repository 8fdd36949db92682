"""The promote protocol in every order of steps, within small bounds.

These laws hold in each state. Without any one ingredient of the protocol, some law breaks:

- No reader moves back, in generation or in offsets.
- An answer is of one generation, from one frontier of each of its builds, of versions that existed.
- No record is put that may not follow.
- A dead process's put is refused once the next process has begun.
- An end can be reached.

The world is in promote_world.py, its states as numbers in parts.py, the search in explored.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import pytest
from explored import Found, explore
from promote_world import Bounds, Protocol, Shape, Violation, Without, World, searched

from kappa.base.errors import KappaError

# Many actors in many orders.
pytestmark = pytest.mark.slow


def looked_at(bounds: Bounds, without: Without = Without.NOTHING) -> Found:
    found = explore(*searched(Protocol(bounds, without)), wrong=(Violation, KappaError))
    print(f"{found.states:,} states, without {without}: {found.violation or 'all is well'}")
    return found


def reached(worlds: dict[int, World]) -> Iterator[tuple[int, World]]:
    """Yields the states with their worlds, including states that are added meanwhile."""
    at = 0
    while at < len(worlds):
        found = list(islice(worlds.items(), at, None))
        yield from found
        at += len(found)


one = partial(Bounds, offsets=1)

WORLDS = {
    "a promote and an undo": one(undos=1),
    "a promote that is released, tried again, abandoned": one(attempts=2, abandons=1),
    "a job that dies with a put under way": one(deaths=1),
    "two jobs that die, or a controller that acts for one": one(deaths=2, caught_up=True),
    "two controllers": one(controllers=2),
    "two pipelines": one(pipelines=2, caught_up=True),
    "a lease that may end, collection and a build that is retired": one(
        collects=True, expiries=1, caught_up=True
    ),
    "a pipeline that is retired and undone": one(retires=1, undos=1, abandons=1),
    "a pipeline that is paused, undone and resumed": one(pauses=1, undos=1, caught_up=True),
    "a pin that is left, and an undo": one(undos=1, caught_up=True, leaves=True),
    "a pin that is left, and collection": one(collects=True, caught_up=True, leaves=True),
}

WIDE = {
    "a promote and an undo, two offsets": Bounds(offsets=2, undos=1),
    "two deaths, two offsets": Bounds(offsets=2, deaths=2, caught_up=True),
    "holds that are tried again, and an undo": one(attempts=2, undos=1),
    "a death around an undo": one(deaths=1, undos=1),
    "two controllers and a death": one(controllers=2, deaths=1, undos=1, caught_up=True),
    "two pipelines and two controllers": one(pipelines=2, controllers=2, caught_up=True),
    "an overlay, deaths and undos": Bounds(offsets=2, undos=2, deaths=1, overlay=True),
    "an overlay, collection and undos": one(
        undos=2, collects=True, expiries=1, caught_up=True, overlay=True
    ),
    "an overlay and two controllers": one(undos=1, controllers=2, abandons=1, overlay=True),
    "collection, a death and an undo": one(
        collects=True, expiries=1, deaths=1, undos=1, caught_up=True
    ),
    "a retirement with collection and an undo": one(
        collects=True, undos=1, retires=1, caught_up=True
    ),
    "a pin that is left, whose lease may end, and collection": one(
        collects=True, expiries=1, caught_up=True, leaves=True
    ),
    "a pin that is left, and two pipelines": one(pipelines=2, caught_up=True, leaves=True),
    "a pin that is left, a death and an undo": one(deaths=1, undos=1, caught_up=True, leaves=True),
    "a pause, a death and an undo": one(pauses=1, deaths=1, undos=1, caught_up=True),
}

TEETH = {
    Without.ACKNOWLEDGEMENT: (Bounds(offsets=1), "a reader goes back"),
    Without.SECOND_LOOK: (Bounds(offsets=1), "a reader goes back"),
    Without.EXACT_NUMBER: (Bounds(offsets=1), "(served) cannot follow: build a was not held"),
    Without.EPOCH: (Bounds(offsets=1, deaths=1), "a late put of a dead job"),
    Without.FRONTIER_NUMBER: (Bounds(offsets=2, deaths=1), "a late put of a dead job"),
    Without.ONE_RECORD: (Bounds(offsets=1), "one generation and read from the builds of another"),
    Without.PIN: (Bounds(offsets=1, collects=True), "an answer mixes frontiers"),
    Without.LEASE_FIRST: (Bounds(offsets=1, collects=True), "a version that was deleted"),
    Without.FLOOR_FIRST: (Bounds(offsets=1, collects=True), "a version that was deleted"),
    Without.CONFIRM: (Bounds(offsets=1, collects=True, expiries=1), "a version that was deleted"),
    Without.SAME_FRONTIERS: (Bounds(offsets=1, leaves=True), "a reader goes back"),
}


@pytest.mark.parametrize("bounds", WORLDS.values(), ids=WORLDS)
def test_any_order_of_steps_can_end_and_none_goes_back(bounds: Bounds) -> None:
    found = looked_at(bounds)

    assert (found.violation, found.way) == ("", ())
    assert found.stuck == 0
    assert found.states > 10_000


@pytest.mark.parametrize("bounds", WORLDS.values(), ids=WORLDS)
def test_worlds_in_parts_have_the_moves_of_whole_worlds(bounds: Bounds) -> None:
    """Worlds in parts have the same moves as whole worlds.

    The search asks an actor once for all worlds in which the actor sees the same.
    """
    protocol = Protocol(bounds)
    first, moves, _ = searched(protocol)
    shape = Shape(protocol.first())
    worlds = {first: protocol.first()}
    for state, world in islice(reached(worlds), 2_000):
        whole = [move for _, actor in protocol.actors() for move in actor(world)]
        for (name, after), (whole_name, whole_after) in zip(moves(state), whole, strict=True):
            assert name == whole_name
            assert worlds.setdefault(after, whole_after) == whole_after
    assert len({shape.parts(world) for world in worlds.values()}) == len(worlds)


def test_an_overlay_is_switched_to_and_undone_without_a_hold() -> None:
    found = looked_at(Bounds(offsets=1, undos=1, deaths=1, overlay=True))

    assert (found.violation, found.way) == ("", ())
    assert found.stuck == 0


@pytest.mark.sweep
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("bounds", WIDE.values(), ids=WIDE)
def test_in_a_larger_world_too(bounds: Bounds) -> None:
    found = looked_at(bounds)

    assert (found.violation, found.way) == ("", ())
    assert found.stuck == 0


@pytest.mark.parametrize("name", [each.name for each in Without if each is not Without.NOTHING])
def test_without_any_one_ingredient_a_way_to_break_it_is_found(name: str) -> None:
    without = Without[name]
    bounds, violation = TEETH[without]
    found = looked_at(bounds, without)

    assert violation in found.violation
    assert found.way
