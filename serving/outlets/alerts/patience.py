"""The wait before the next attempt at a message, and the end of all attempts. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from kappa.base.sections import AlertSettings, seconds_of

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Rules:
    """The bounds of a delivery: `patience` for a message, `keep` for a place, `most` rows."""

    patience: float = 3600.0
    keep: float = 86_400.0
    most: int = 100

    @classmethod
    def of(cls, settings: AlertSettings) -> Self:
        """Returns the bounds of the settings."""
        return cls(seconds_of(settings.patience), seconds_of(settings.keep), settings.most)


def next_attempt(
    tries: int,
    *,
    first: float,
    now: float,
    asked: float,
    patience: float,
    draw: Callable[[], float],
) -> float | None:
    """Returns when to try again after so many failures, or None: the message is given up.

    The wait doubles from a second to five minutes, less some chance, so that alerts that failed
    together do not come back together. If the receiver `asked` for a longer one, it is given. The
    last attempt is as late as patience lasts, counted from the `first`.
    """
    end = first + patience
    if now >= end:
        return None
    # A greater power is no float any more.
    doubled = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(tries - 1, 20))
    return min(end, now + max(asked, doubled * (0.5 + 0.5 * draw())))
