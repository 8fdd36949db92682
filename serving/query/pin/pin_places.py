"""Limits on the snapshots that clients hold, so that no client takes all places."""

from __future__ import annotations

import threading
from collections import Counter

from kappa.base.units import count_of

# Each held snapshot has a thread that renews the lease, and keeps files from being collected.
MOST_PINS = 64


class PinPlaces:
    """The places of one server for pinned snapshots. Usable from any thread.

    A client may take a place only while it holds fewer snapshots than there are free places. A
    client that is alone can therefore hold half of all places.
    """

    def __init__(self) -> None:
        """Creates the places, all of them free."""
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def take(self, client: str) -> str | None:
        """Takes a place for the named client.

        Returns None if the place was taken. Otherwise returns the reason why the client gets no
        place.
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
        """Gives back a place that the named client has taken."""
        with self._lock:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
