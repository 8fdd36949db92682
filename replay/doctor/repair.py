"""The repair of a root: what is given up is moved aside, while nothing runs."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.base.errors import Conflict
from kappa.state.root import LOCK, lock_of
from kappa.state.store import Store
from replay.doctor.damage import Damage


def repair(store: Store, damages: Iterable[Damage]) -> tuple[str, ...]:
    """Moves what these damages give up aside, the newest first; returns where to.

    No supervisor can start meanwhile. Raises Conflict if one is up.
    """
    names = [name for damage in damages for name in damage.names]
    try:
        with lock_of(store, LOCK, what="kappa"):
            moved = [store.set_aside(name) for name in sorted(names, reverse=True)]
    except Conflict as error:
        raise Conflict(
            "kappa is up, and works with what is to be repaired", hint="kappa down, and then again"
        ) from error
    return tuple(path for path in moved if path is not None)
