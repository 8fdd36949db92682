"""The back-off of a child that dies: its next start waits, twice as long each time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0
# A child that ran for so long was well: its next death counts as the first.
WELL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """A child's deaths in a row, and the time before which it is not started again."""

    deaths: int = 0
    not_before: float = 0.0

    def after_death(self, *, ran_seconds: float, now: float) -> BackOff:
        """Returns the back-off after one more death."""
        deaths = 1 if ran_seconds >= WELL_SECONDS else self.deaths + 1
        pause = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** (deaths - 1))
        return BackOff(deaths, now + pause)
