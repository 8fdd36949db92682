"""Limits on the number of pinned snapshots, so that no client keeps others from pinning."""

from __future__ import annotations

import threading
from collections import Counter

from kappa.base.units import count_of

# Each held snapshot has a thread that renews the lease, and keeps files from being collected.
MOST_PINS = 64


class PinPlaces:
    """The places for pinned snapshots on one server. Any thread may use the object.

    Each pinned snapshot occupies a place. A client gets a place only if it occupies fewer places
    than are free. So a client that is alone can occupy half of all places.
    """

    def __init__(self) -> None:
        """Creates the places, all of them free."""
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def take(self, client: str) -> str | None:
        """Occupies a place for the named client, and returns None.

        If the client gets no place, returns the reason.
        """
        with self._lock:
            held, free = self._held[client], MOST_PINS - self._held.total()
            if held < free:
                self._held[client] += 1
                return None
        if free:
            own = count_of(held, "snapshot")
            return f"{client or 'this client'} holds {own}, as many as are left for all others"
        return f"clients hold {MOST_PINS} snapshots already"

    def give_back(self, client: str) -> None:
        """Frees a place that the named client occupies."""
        with self._lock:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
