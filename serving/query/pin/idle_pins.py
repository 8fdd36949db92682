"""The pin that a reader of a bucket has left, for the next one that sees the same frontiers.

A lease costs two requests, and one that is there already was put before the next reader looks (law
11). It is renewed meanwhile, and given up when nobody has taken the pin for a moment.
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


def take(store: Store, lease_seconds: float) -> PinnedSnapshot | None:
    """Returns the pin that was left, for its new owner; one that ends soon is given up."""
    left = _taken(store)
    if left is None or left.is_as_good_as_new(lease_seconds):
        return left
    end_beside(left)
    return None


def leave(store: Store, pinned: PinnedSnapshot) -> None:
    """Leaves a pin for the next reader of a bucket, if it holds; gives up any other."""
    if store.is_on_disk or not pinned.is_leased:
        pinned.close()
        return
    clock = threading.Timer(_IDLE_SECONDS, _give_up, (store, pinned))
    clock.daemon = True
    with _CHANGES:
        is_first = store not in _LEFT
        if is_first:
            _LEFT[store] = _Waiting(pinned, clock)
    if is_first:
        try:
            clock.start()
        except RuntimeError:
            # No thread can be started. Another reader may have taken it by now.
            if _taken(store, pinned) is None:
                return
        else:
            return
    pinned.close()


def give_up(store: Store) -> None:
    """Gives up the pin that was left in a store, as at the end of a process."""
    left = _taken(store)
    if left is not None:
        left.close()


def _taken(store: Store, only: PinnedSnapshot | None = None) -> PinnedSnapshot | None:
    with _CHANGES:
        left = _LEFT.get(store)
        if left is None or (only is not None and left.pinned is not only):
            return None
        del _LEFT[store]
    left.clock.cancel()
    return left.pinned


def _give_up(store: Store, pinned: PinnedSnapshot) -> None:
    left = _taken(store, pinned)
    if left is not None:
        end_beside(left)


def end_beside(pinned: PinnedSnapshot) -> None:
    """Gives a lease up in a thread: nobody waits for that, but the process before it ends."""
    try:
        threading.Thread(target=_end, args=(pinned,), name="end of a lease").start()
    except RuntimeError:
        _end(pinned)


def _end(pinned: PinnedSnapshot) -> None:
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
            give_up(store)


# A child has no thread that renews it.
os.register_at_fork(after_in_child=_LEFT.clear)
