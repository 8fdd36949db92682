"""Narrowing: which of many things fail, found by trying ever fewer of them. Pure. Read next: culprits.py, which tries records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

_Error = TypeVar("_Error")


class Together(Exception):
    """Many things fail together, and none of them alone."""


def failing(count: int, tried: Callable[[int, int], _Error | None]) -> Iterator[tuple[int, _Error]]:
    """Of `count` things that are known to fail together, the places of those that fail alone, in order, each with its error.

    `tried(start, end)` tries those in `[start, end)`, and gives an error or None. Nothing is tried before it is asked for: the
    first place costs log2(count) tries, each further one at most about twice that. Raises Together where none fails alone.
    """
    return _within(0, count, None, tried)


def _within(
    start: int, end: int, error: _Error | None, tried: Callable[[int, int], _Error | None]
) -> Iterator[tuple[int, _Error]]:
    """`error` is what trying just these gave; None where they are only known to fail since others beside them don't."""
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
