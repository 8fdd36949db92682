"""The repair of a root: what is given up is moved aside, while nothing runs."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.base.errors import Conflict
from kappa.state.build import birth_copy, birth_name
from kappa.state.documents import note_of
from kappa.state.lock import Lock
from kappa.state.root import LOCK, NAME, ROOT_COPY, lock_of
from kappa.state.store import Store
from replay.doctor.damage import Damage


def repair(store: Store, damages: Iterable[Damage]) -> tuple[str, ...]:
    """Moves what these damages give up aside, the newest first; returns where to.

    No supervisor can start meanwhile. Raises Conflict if one is up.
    """
    names = [name for damage in damages for name in damage.names]
    # With a newest record that is given up goes the note that it was there.
    notes = {note_of(name.rpartition("/")[0]) for name in names} - {*names}
    moved = list[str | None]()
    try:
        if NAME in names:
            # What the root is has to be known first: of a copy nothing else is moved.
            names.remove(NAME)
            with Lock(store.local.path(LOCK), what="kappa"):
                moved.append(store.set_aside(NAME))
                store.put(NAME, _copy_of(store, ROOT_COPY))
        with lock_of(store, LOCK, what="kappa"):
            moved += [
                store.set_aside(name) or store.local.set_aside(name)
                for name in sorted(names, reverse=True)
            ]
            store.local.delete(*notes)
            for name in names:
                build = name.split("/")[1] if name.startswith("builds/") else ""
                if build and name == birth_name(build):
                    store.put(name, _copy_of(store, birth_copy(build)))
    except Conflict as error:
        raise Conflict(
            "kappa is up, and works with what is to be repaired", hint="kappa down, and then again"
        ) from error
    return tuple(path for path in moved if path is not None)


def _copy_of(store: Store, name: str) -> bytes:
    content = store.get(name)
    assert content is not None, "what is moved aside has a copy"
    return content
