"""Places for the snapshots that clients hold, so that one client cannot take all of them."""

from __future__ import annotations

import threading
from collections import Counter

from kappa.base.units import count_of

# Each held snapshot has a thread that renews the lease, and keeps files from being collected.
MOST_PINS = 64


class PinPlaces:
    """The places of one server, for any thread.

    A client may hold as many snapshots as are left for all other clients: half of all places if it
    is alone.
    """

    def __init__(self) -> None:
        """Starts with all places free."""
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def take(self, client: str) -> str | None:
        """Takes a place for a client, by its name. Returns the reason if there is none for it."""
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
        """Gives a place back that the client has taken."""
        with self._lock:
            self._held[client] -= 1
            if not self._held[client]:
                del self._held[client]
