"""States in parts: a result that depends on some parts is computed once per value of these parts.

A state is an integer in which each part has its own bits. These bits number the values that the
part has had so far. So a search through hundreds of thousands of states compares and changes
integers, and an actor is asked for its moves only if the parts that it sees are new.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Generic, Never, TypeAlias, TypeVar

# A part has fewer than a million values.
_BITS = 20
_ALL = (1 << _BITS) - 1

Values: TypeAlias = tuple[Hashable, ...]
Answer = TypeVar("Answer")


class Unseen:
    """A hidden part: it may be passed on, but any look at it fails."""

    def _refuse(self, *_: object) -> Never:
        raise AssertionError("a part is looked at that was not declared as seen")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse
    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __getattr__ = _refuse
    __add__ = __radd__ = __sub__ = __or__ = __ror__ = __and__ = __rshift__ = __index__ = _refuse


UNSEEN = Unseen()


class Parts:
    """All values that each part of a state has had so far, by number."""

    def __init__(self, first: Values) -> None:
        """Takes in the parts of the first state."""
        self._values: list[list[Hashable]] = [[] for _ in first]
        self._numbers: list[dict[Hashable, int]] = [{} for _ in first]
        self.first = sum(self._bits(part, value) for part, value in enumerate(first))

    def values(self, state: int, seen: frozenset[int]) -> Values:
        """Returns the visible parts of a state, with UNSEEN for the others."""
        return tuple(
            values[state >> _BITS * part & _ALL] if part in seen else UNSEEN
            for part, values in enumerate(self._values)
        )

    def change(self, before: Values, after: Values) -> tuple[int, int]:
        """Returns the bits that a move keeps, and the bits that it sets."""
        changed = [part for part, value in enumerate(after) if value is not before[part]]
        return ~mask(changed), sum(self._bits(part, after[part]) for part in changed)

    def _bits(self, part: int, value: Hashable) -> int:
        values = self._values[part]
        number = self._numbers[part].setdefault(value, len(values))
        if number == len(values):
            assert number < _ALL
            values.append(value)
        return number << _BITS * part


class Seeing(Generic[Answer]):
    """A function of some parts of a state, which is called once per combination of their values."""

    def __init__(self, parts: Parts, seen: Iterable[int], ask: Callable[[Values], Answer]) -> None:
        """Takes the function `ask`: it gets all parts, but may look only at the parts in `seen`."""
        self._parts, self._seen, self._ask = parts, frozenset(seen), ask
        self.mask = mask(self._seen)
        self.known: dict[int, Answer] = {}

    def __call__(self, state: int) -> Answer:
        key = state & self.mask
        if key not in self.known:
            self.known[key] = self._ask(self._parts.values(state, self._seen))
        return self.known[key]


Moves: TypeAlias = Callable[[Values], Iterable[tuple[str, Values]]]


def moves_of(
    parts: Parts, actors: Iterable[tuple[Iterable[int], Moves]]
) -> Callable[[int], Iterator[tuple[str, int]]]:
    """Returns the moves of a state: those of all actors, each with the parts that it sees."""

    def changes(ask: Moves, before: Values) -> tuple[tuple[str, int, int], ...]:
        return tuple((name, *parts.change(before, after)) for name, after in ask(before))

    asked = [Seeing(parts, seen, partial(changes, ask)) for seen, ask in actors]
    each_actor = [(actor.mask, actor.known, actor) for actor in asked]

    def moves(state: int) -> Iterator[tuple[str, int]]:
        for bits, known, actor in each_actor:
            # Looked up here: a call for each actor and state would take twice as long.
            found = known.get(state & bits)
            for name, kept, put in actor(state) if found is None else found:
                yield name, state & kept | put

    return moves


def mask(parts: Iterable[int]) -> int:
    """Returns the bits of these parts."""
    return sum(_ALL << _BITS * part for part in parts)
