"""A clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """A clock in seconds that moves only when a test moves it."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now
