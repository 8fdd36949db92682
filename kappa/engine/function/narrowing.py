"""Narrowing: finds the failing items by trying ever fewer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

_Error = TypeVar("_Error")


class Together(Exception):
    """Many items fail together, and no item fails alone."""


def failing(count: int, tried: Callable[[int, int], _Error | None]) -> Iterator[tuple[int, _Error]]:
    """Yields the places of items that fail alone, with the errors.

    All `count` items are known to fail together. `tried(start, end)` tries the items of that
    half-open range, and returns an error or None. Nothing is tried before it is needed: the first
    place costs log2(count) tries, each further place at most about twice as many. Raises Together
    if no item fails alone.
    """
    return _within(0, count, None, tried)


def _within(
    start: int, end: int, error: _Error | None, tried: Callable[[int, int], _Error | None]
) -> Iterator[tuple[int, _Error]]:
    """Yields the failing places of a range that is known to fail.

    The range is `[start, end)`. `error` is the error of trying just this range, or None if the
    range was not tried yet.
    """
    if end - start == 1:
        error = error or tried(start, end)
        if error is None:
            raise Together
        yield start, error
        return
    middle = (start + end) // 2
    first = tried(start, middle)
    if first is None:
        yield from _within(middle, end, None, tried)
        return
    yield from _within(start, middle, first, tried)
    second = tried(middle, end)
    if second is not None:
        yield from _within(middle, end, second, tried)
