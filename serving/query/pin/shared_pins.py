"""Pinned snapshots that the readers of one process share until the frontier moves.

A pinned snapshot, with its lease, is called a pin. While a reader uses a pin, and for about a
second afterwards, the next reader of the same frontiers uses the same pin. So the next reader does
not write a lease, which would take two files, or two requests to a bucket. This is safe: when the
next reader looks up the serving builds, the lease of the shared pin already exists, so the files of
the snapshot cannot be deleted. The lease is renewed as long as the pin is shared or used. A pin is
released when no reader has used it for about a second, or when a newer pin has replaced it and its
last reader has left.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.state.store import Store

_IDLE_SECONDS = 1.0


@dataclass(slots=True)
class _Shared:
    """The pinned snapshot that the readers of a store share.

    `clock` is the timer that releases the snapshot if no reader uses it.
    """

    pinned: PinnedSnapshot
    idle_since: float = 0.0
    clock: threading.Timer | None = None


_NEWEST: WeakKeyDictionary[Store, _Shared] = WeakKeyDictionary()
# How many readers use each pin that was ever shared, and is not given up yet.
_READERS: dict[PinnedSnapshot, int] = {}
_CHANGES = threading.Lock()


def take_pin(store: Store, lease_seconds: float) -> PinnedSnapshot | None:
    """Returns the pinned snapshot that a store's readers share, and counts one more reader.

    Returns None if there is no such snapshot. If its lease was not taken for `lease_seconds`, or
    has less than half of that time left, the function stops sharing the snapshot and returns None.
    """
    with _CHANGES:
        shared = _NEWEST.get(store)
        if shared is None:
            return None
        pinned = shared.pinned
        if pinned.is_as_good_as_new(lease_seconds):
            _READERS[pinned] += 1
            return pinned
        is_unused = _forget(store, shared)
    if is_unused:
        end_beside(pinned)
    return None


def share_pin(store: Store, pinned: PinnedSnapshot) -> None:
    """Lets later readers share a newly pinned snapshot, which already has one reader.

    If the snapshot could be pinned only without a lease, it is not shared. The snapshot that was
    shared before is released when its last reader leaves.
    """
    if not pinned.is_leased:
        return
    with _CHANGES:
        before = _NEWEST.get(store)
        is_unused = before is not None and _forget(store, before)
        _NEWEST[store] = _Shared(pinned)
        _READERS[pinned] = 1
    if before is not None and is_unused:
        end_beside(before.pinned)


def leave_pin(store: Store, pinned: PinnedSnapshot, *, lingers: bool = True) -> None:
    """Subtracts one reader of a pinned snapshot, and releases it if no reader is left.

    If `lingers` is True, a shared snapshot without readers stays pinned for about a second, for the
    next reader. A snapshot that was not shared, or whose lease was lost, is released at once.
    """
    with _CHANGES:
        shared = _NEWEST.get(store)
        is_newest = shared is not None and shared.pinned is pinned
        readers = _READERS.get(pinned, 1) - 1
        if readers:
            _READERS[pinned] = readers
            return
        if shared is not None and is_newest:
            if lingers and pinned.is_leased and _start_clock(store, shared):
                _READERS[pinned] = 0
                return
            del _NEWEST[store]
        was_shared = _READERS.pop(pinned, None) is not None
    if was_shared and not is_newest:
        # A newer pin has replaced this one.
        end_beside(pinned)
    else:
        pinned.close()


def give_up_pin(store: Store) -> None:
    """Releases the shared pinned snapshot of a store, if no reader uses the snapshot.

    This function is called, for example, when the process exits.
    """
    with _CHANGES:
        shared = _NEWEST.get(store)
        if shared is None or not _forget(store, shared):
            return
    shared.pinned.close()


def _forget(store: Store, shared: _Shared) -> bool:
    """Stops sharing a pinned snapshot. Returns True if no reader uses the snapshot."""
    del _NEWEST[store]
    if shared.clock is not None:
        shared.clock.cancel()
    if _READERS[shared.pinned]:
        return False
    del _READERS[shared.pinned]
    return True


def _start_clock(store: Store, shared: _Shared) -> bool:
    """Starts the timer that releases a pinned snapshot that no reader uses.

    Returns False if no thread can be started.
    """
    shared.idle_since = time.monotonic()
    if shared.clock is not None:
        return True
    clock = threading.Timer(_IDLE_SECONDS, _give_up_idle, (store, shared))
    clock.daemon = True
    try:
        clock.start()
    except RuntimeError:
        return False
    shared.clock = clock
    return True


def _give_up_idle(store: Store, shared: _Shared) -> None:
    with _CHANGES:
        shared.clock = None
        if _NEWEST.get(store) is not shared or _READERS[shared.pinned]:
            return
        left = shared.idle_since + _IDLE_SECONDS - time.monotonic()
        if left > 0:
            # Readers have come and gone meanwhile.
            clock = threading.Timer(left, _give_up_idle, (store, shared))
            clock.daemon = True
            with suppress(RuntimeError):
                clock.start()
                shared.clock = clock
                return
        _forget(store, shared)
    _close_quietly(shared.pinned)


def end_beside(pinned: PinnedSnapshot) -> None:
    """Releases a pinned snapshot in a background thread, so that the caller does not wait.

    The process waits for the thread before the process exits. If no thread can be started, the
    snapshot is released in the caller's thread.
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
        stores = [*_NEWEST]
    for store in stores:
        # A lease that stays ends by itself.
        with suppress(Exception):
            give_up_pin(store)


def _forget_pins_of_parent() -> None:
    """Forgets, in a forked process, the shared snapshots that the parent process has pinned.

    The snapshots are not released, because the parent still uses them. The forked process has no
    threads that renew the leases.
    """
    _NEWEST.clear()
    _READERS.clear()


os.register_at_fork(after_in_child=_forget_pins_of_parent)
