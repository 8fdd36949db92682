"""The adoption of a copied root: from then on it is a root of its own."""

from __future__ import annotations

from contextlib import ExitStack

from kappa.base.errors import Conflict
from kappa.serving.collect.collector import SPOOL
from kappa.state.lock import Lock
from kappa.state.root import LOCK, Root, adopt_root, ensure_is_copy
from kappa.state.store import Store


def adopt(store: Store, *, sends: bool) -> Root:
    """Makes a copy a root of its own, with a new id, and returns what it is then.

    Unless it `sends`, its sinks, alerts and pulled sources are off; one that was adopted before may
    send from now on. Events in the copied spool are the first root's to send: they are moved aside.
    Raises UsageError if the root is no copy, and Conflict if the platform is up on it.
    """
    is_new = ensure_is_copy(store, sends=sends)
    lock = Lock(store.local.path(LOCK), what="kappa")
    try:
        lock.acquire()
    except Conflict as error:
        raise Conflict("kappa is up on this root", hint="kappa down, and then again") from error
    with ExitStack() as ending:
        ending.callback(lock.release)
        # The claim in a copied bucket is of a host that has claimed the first one.
        store.control.take(over=is_new)
        ending.callback(store.control.release)
        if is_new:
            for name in store.local.names(SPOOL):
                store.local.set_aside(name)
        return adopt_root(store, sends=sends)
