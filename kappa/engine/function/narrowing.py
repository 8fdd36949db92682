"""Narrowing: which of many things fail, found by trying ever fewer of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

_Error = TypeVar("_Error")


class Together(Exception):
    """Many things fail together, and none of them alone."""


def failing(count: int, tried: Callable[[int, int], _Error | None]) -> Iterator[tuple[int, _Error]]:
    """Yields the places of those of `count` things that fail alone, each with its error.

    They are known to fail together. `tried(start, end)` tries those in `[start, end)`, and returns
    an error or None. Nothing is tried before it is needed: the first place costs log2(count) tries,
    each further one at most about twice that. Raises Together if none fails alone.
    """
    return _within(0, count, None, tried)


def _within(
    start: int, end: int, error: _Error | None, tried: Callable[[int, int], _Error | None]
) -> Iterator[tuple[int, _Error]]:
    """Yields the failing places of `[start, end)`, which is known to fail.

    `error` is the error of trying just these, or None if they were not tried yet.
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
