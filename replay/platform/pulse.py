"""The pulse of a child: the time since its beat changed, by looks at it."""

from __future__ import annotations

from collections.abc import Callable

# A job imports its modules before its first beat, and may wait half a minute for the end of what a
# dead one has left (kappa/state/lock.py). Ended for that, on a busy machine it would never begin.
_START_SECONDS = 45.0


class Pulse:
    """The pulse of one child.

    A child that has just started is silent only once it had time for a start. Clocks are not
    compared: what counts is that the beat changes between two looks. So a machine that slept for a
    night has lost no time.
    """

    def __init__(self, look: Callable[[], int | None], clock: Callable[[], float]) -> None:
        """Takes what the last beat is, and seconds that only go forward while the machine runs."""
        self._look = look
        self._clock = clock
        self._seen = look()
        self._changed_at = clock() + _START_SECONDS

    def silent_seconds(self) -> float:
        """Returns for how long the beat has not changed, as far as it was looked at."""
        seen = self._look()
        if seen != self._seen:
            self._seen, self._changed_at = seen, self._clock()
        return max(0.0, self._clock() - self._changed_at)
