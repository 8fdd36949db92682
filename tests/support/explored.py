"""An exhaustive breadth-first search of the states that any order of steps can reach.

The search finds the shortest way to a forbidden state.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass(frozen=True)
class Found:
    """The result of a search.

    It has the number of states, the number of states from which no end can be reached, the first
    violation, and the steps that lead to it.
    """

    states: int
    stuck: int
    violation: str = ""
    way: tuple[str, ...] = ()


def explore(
    first: S,
    moves: Callable[[S], Iterable[tuple[str, S]]],
    is_end: Callable[[S], bool],
    *,
    wrong: tuple[type[Exception], ...],
) -> Found:
    """Visits every state that can be reached from `first`.

    `moves` raises one of the errors in `wrong` at a forbidden state.
    """
    number_of, states = {first: 0}, [first]
    came_from, origins, targets = array("l", [-1]), array("l"), array("l")
    names = [""]
    at = 0
    while at < len(states):
        try:
            for name, state in moves(states[at]):
                number = number_of.get(state)
                if number is None:
                    number = number_of[state] = len(states)
                    states.append(state)
                    came_from.append(at)
                    names.append(name)
                origins.append(at)
                targets.append(number)
        except wrong as error:
            return Found(len(states), 0, str(error), _way(at, came_from, names))
        at += 1
    return Found(
        len(states),
        len(states)
        - _reaching(
            [number for number, state in enumerate(states) if is_end(state)],
            origins,
            targets,
            len(states),
        ),
    )


def _way(at: int, came_from: array[int], names: list[str]) -> tuple[str, ...]:
    way: list[str] = []
    while at > 0:
        way.append(names[at])
        at = came_from[at]
    return tuple(reversed(way))


def _reaching(ends: list[int], origins: array[int], targets: array[int], count: int) -> int:
    """Returns the number of states from which an end can be reached."""
    before: list[list[int]] = [[] for _ in range(count)]
    for origin, target in zip(origins, targets, strict=True):
        before[target].append(origin)
    reaches = bytearray(count)
    for end in ends:
        reaches[end] = 1
    left = list(ends)
    while left:
        for origin in before[left.pop()]:
            if not reaches[origin]:
                reaches[origin] = 1
                left.append(origin)
    return sum(reaches)
