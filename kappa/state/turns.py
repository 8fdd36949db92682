"""Turns that were asked for: a build that rests is to fold up to the log's end now, once."""

from __future__ import annotations

from kappa.state.store import Store

_FOLDER = "run/turns"


def ask_turn(store: Store, build: str) -> None:
    """Asks the supervisor to let a build fold what there is; it may have been asked already."""
    store.local.put_json(f"{_FOLDER}/{build}", {}, synced=False)


def turns_asked(store: Store) -> frozenset[str]:
    """Returns the builds that were asked for."""
    return frozenset(name.rsplit("/", 1)[-1] for name in store.local.names(_FOLDER))


def end_turn(store: Store, build: str) -> None:
    """Takes note that a build has begun its turn, or needs none."""
    store.local.delete(f"{_FOLDER}/{build}")
