"""Snapshots that stay pinned, so that agents can repeat queries on the same rows."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from kappa.base.errors import KappaError, UsageError
from kappa.serving.query.pin.catalog import pin_moment
from kappa.serving.query.pin.moments import Past
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
from kappa.state.store import Store

# Each snapshot has a thread that renews the lease, and keeps files from being collected.
_MOST = 16


@dataclass(slots=True)
class _HeldPin:
    pinned: PinnedSnapshot
    closing: ExitStack
    used: int = 0


class AgentSnapshots:
    """A cache of the 16 pinned snapshots that were used last, by name.

    Snapshots with the same generation and frontiers have the same name. Several threads may use the
    cache at the same time.
    """

    def __init__(self, store: Store, *, lease_seconds: float) -> None:
        """Creates an empty cache. `lease_seconds` is the duration of each snapshot's lease."""
        self._store = store
        self._lease_seconds = lease_seconds
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _HeldPin] = OrderedDict()

    @contextmanager
    def pinned(
        self, name: str | None = None, when: Past | None = None
    ) -> Iterator[tuple[str, PinnedSnapshot]]:
        """Yields a name and the pinned snapshot with this name.

        If `name` is given, the snapshot comes from the cache. Otherwise, the snapshot of the past
        moment `when`, or of the present if `when` is None, is pinned. Raises UsageError if the
        cache no longer contains a snapshot named `name`.
        """
        found, held = self._named(name) if name is not None else self._newly(when)
        try:
            yield found, held.pinned
        finally:
            with self._lock:
                held.used -= 1
            self._let_go()

    def close(self) -> None:
        """Releases all snapshots."""
        with self._lock:
            held = [*self._held.values()]
            self._held.clear()
        for each in held:
            _release(each)

    def _named(self, name: str) -> tuple[str, _HeldPin]:
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                held.used += 1
                self._held.move_to_end(name)
        if held is not None and held.pinned.is_kept():
            return name, held
        if held is not None:
            with self._lock:
                held.used -= 1
                self._held.pop(name, None)
            _release(held)
        raise UsageError(
            f"snapshot {name[:80]!r} is not kept any more",
            hint="ask without a snapshot: the answer names a new one; the newest 16 are kept",
        )

    def _newly(self, when: Past | None) -> tuple[str, _HeldPin]:
        with ExitStack() as opening:
            pinned = opening.enter_context(
                pin_moment(self._store, when, lease_seconds=self._lease_seconds)
            )
            name = name_of(pinned.snapshot)
            with self._lock:
                held = self._held.get(name)
                if held is None or not held.pinned.is_leased:
                    held = self._held[name] = _HeldPin(pinned, opening.pop_all())
                held.used += 1
                self._held.move_to_end(name)
        return name, held

    def _let_go(self) -> None:
        with self._lock:
            idle = [name for name, held in self._held.items() if not held.used]
            over = [self._held.pop(name) for name in idle[: max(0, len(self._held) - _MOST)]]
        for each in over:
            _release(each)


def name_of(snapshot: Snapshot) -> str:
    """Returns the name of a snapshot: a hash of its generation and frontiers. Pure.

    The name does not contain the ids of builds, because the caller may not be allowed to see some
    builds.
    """
    frontiers = (
        f"{build}.{snapshot.frontiers[build].number}"
        for _, build in sorted(snapshot.serving.items())
    )
    whole = "+".join([str(snapshot.generation), *frontiers])
    return hashlib.sha256(whole.encode()).hexdigest()[:20]


def _release(held: _HeldPin) -> None:
    # A lease that could not be given up ends by itself.
    with suppress(KappaError):
        held.closing.close()
