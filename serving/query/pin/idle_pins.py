"""Idle pins: pins that the next reader of a bucket takes over.

A reader leaves its pin, and the next reader of the same frontiers takes the pin. A lease costs two
requests. The lease of an idle pin was put before the next reader looks (law 11), so the next reader
needs no new lease. The lease is renewed meanwhile. The pin is given up when no reader has taken it
for a moment.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.state.store import Store

_IDLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    pinned: PinnedSnapshot
    clock: threading.Timer


_LEFT: WeakKeyDictionary[Store, _Waiting] = WeakKeyDictionary()
_CHANGES = threading.Lock()


def take_pin(store: Store, lease_seconds: float) -> PinnedSnapshot | None:
    """Returns the idle pin of a store for its new owner.

    An idle pin that ends soon is given up.
    """
    left = _take_waiting_pin(store)
    if left is None or left.is_as_good_as_new(lease_seconds):
        return left
    end_beside(left)
    return None


def leave_pin(store: Store, pinned: PinnedSnapshot) -> None:
    """Leaves a pin that holds for the next reader of a bucket.

    Gives up any other pin.
    """
    if store.is_on_disk or not pinned.is_leased:
        pinned.close()
        return
    clock = threading.Timer(_IDLE_SECONDS, _give_up_waiting, (store, pinned))
    clock.daemon = True
    with _CHANGES:
        is_first = store not in _LEFT
        if is_first:
            _LEFT[store] = _Waiting(pinned, clock)
    if is_first:
        try:
            clock.start()
        except RuntimeError:
            # No thread can be started. Another reader may have taken the pin by now.
            if _take_waiting_pin(store, pinned) is None:
                return
        else:
            return
    pinned.close()


def give_up_pin(store: Store) -> None:
    """Gives up the idle pin of a store, as at the end of a process."""
    left = _take_waiting_pin(store)
    if left is not None:
        left.close()


def _take_waiting_pin(store: Store, only: PinnedSnapshot | None = None) -> PinnedSnapshot | None:
    with _CHANGES:
        left = _LEFT.get(store)
        if left is None or (only is not None and left.pinned is not only):
            return None
        del _LEFT[store]
    left.clock.cancel()
    return left.pinned


def _give_up_waiting(store: Store, pinned: PinnedSnapshot) -> None:
    left = _take_waiting_pin(store, pinned)
    if left is not None:
        end_beside(left)


def end_beside(pinned: PinnedSnapshot) -> None:
    """Gives up a lease in a thread.

    Nobody waits for the end, but the process does before its own exit.
    """
    try:
        threading.Thread(target=_close_quietly, args=(pinned,), name="end of a lease").start()
    except RuntimeError:
        _close_quietly(pinned)


def _close_quietly(pinned: PinnedSnapshot) -> None:
    # A lease that stays ends by itself.
    with suppress(BaseException):
        pinned.close()


@atexit.register
def _give_up_all() -> None:
    with _CHANGES:
        stores = [*_LEFT]
    for store in stores:
        # A lease that stays ends by itself.
        with suppress(Exception):
            give_up_pin(store)


# A child process has no thread that renews the lease.
os.register_at_fork(after_in_child=_LEFT.clear)
