"""Snapshots that are pinned under a name, so that many requests read the same snapshot."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kappa.serving.http.problem import HttpError
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.pin_places import PinPlaces
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.state.store import Store

NEW = "new"


@dataclass(slots=True)
class _Held:
    """A client's pinned snapshot.

    `used` is the number of requests that read from the snapshot now. If there are none, the
    snapshot expires at `until`, on the monotonic clock.
    """

    client: str
    pinned: PinnedSnapshot
    closing: ExitStack
    until: float
    used: int = 0


class Snapshots:
    """The snapshots that a server keeps pinned, by name. Any thread may use the object."""

    def __init__(
        self,
        store: Store,
        *,
        lease_seconds: float,
        idle_seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Sets the times for which snapshots stay pinned.

        After its last use, a snapshot stays pinned for `idle_seconds`. Then the next call of `held`
        or `close` releases the snapshot. `lease_seconds` is the duration of a snapshot's lease,
        which is renewed while the snapshot is pinned.
        """
        self._store = store
        self._lease_seconds = lease_seconds
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._places = PinPlaces()

    @contextmanager
    def held(self, name: str, client: str) -> Iterator[tuple[str, PinnedSnapshot]]:
        """Yields the name of a pinned snapshot, and the snapshot itself.

        If `name` is the constant `NEW`, a new snapshot is pinned for the client. Raises HttpError
        if the named snapshot is no longer pinned, or if too many snapshots are pinned already.
        """
        found, held = self._borrowed(name, client)
        try:
            yield found, held.pinned
        finally:
            with self._lock:
                held.used -= 1
                held.until = self._clock() + self._idle_seconds

    def let_go(self, name: str) -> None:
        """Releases the snapshot with the given name, if it is still pinned."""
        with self._lock:
            held = self._held.pop(name, None)
        if held is not None:
            self._release(held)

    def close(self) -> None:
        """Releases all snapshots."""
        for name in tuple(self._held):
            self.let_go(name)

    def _borrowed(self, name: str, client: str) -> tuple[str, _Held]:
        with self._lock:
            gone = [
                each
                for each, held in self._held.items()
                if not held.used and (held.until < self._clock() or not held.pinned.is_kept())
            ]
            ended = [self._held.pop(each) for each in gone]
            held = self._held.get(name)
            if held is not None:
                held.used += 1
        for each in ended:
            self._release(each)
        if held is not None:
            return name, held
        if name != NEW:
            raise HttpError(
                410,
                f"snapshot {name[:40]} is not kept any more",
                hint=f"pin a new one: X-Kappa-Snapshot: {NEW}; "
                f"one is kept while it is read from every {self._idle_seconds:g} s",
            )
        if (reason := self._places.take(client)) is not None:
            raise HttpError(
                503,
                reason,
                hint=f"let one go: DELETE /api/v1/snapshots/NAME; or wait {self._idle_seconds:g} s",
                headers={"Retry-After": "5"},
            )
        return self._pinned(client)

    def _pinned(self, client: str) -> tuple[str, _Held]:
        try:
            with ExitStack() as opening:
                pinned = opening.enter_context(
                    pin_served(self._store, lease_seconds=self._lease_seconds)
                )
                until = self._clock() + self._idle_seconds
                held = _Held(client, pinned, opening.pop_all(), until, used=1)
        except BaseException:
            self._places.give_back(client)
            raise
        name = secrets.token_hex(8)
        with self._lock:
            self._held[name] = held
        return name, held

    def _release(self, held: _Held) -> None:
        self._places.give_back(held.client)
        held.closing.close()
