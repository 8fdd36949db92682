"""The state of each sink, for people: derived, and not synced. Its topic has the position."""

from __future__ import annotations

import hashlib

from msgspec import Struct

from kappa.state.documents import Documents
from kappa.state.store import Store

_FOLDER = "run/sinks"
_DIGITS = 16


class Sent(Struct, frozen=True):
    """The rows of one change set that were sent, and its place: of the last switch, for people."""

    kind: str
    generation: int
    cursor: str
    written: int
    deleted: int
    at: str


class SinkState(Struct, frozen=True):
    """The state of a sink: starts, follows, retries, fenced or ended.

    `current_at` is when it had nothing more to send, in seconds since 1970. `written` and `deleted`
    count the records that it has sent since the sink began.
    """

    topic: str
    table: str
    pipeline: str
    state: str
    cursor: str = ""
    current_at: float = 0.0
    written: int = 0
    deleted: int = 0
    error: str = ""
    hint: str = ""
    error_at: str = ""
    last: Sent | None = None
    switch: Sent | None = None
    format: int = 1


_STATE = Documents(SinkState, derived=True, synced=False)


def put_state(store: Store, state: SinkState) -> None:
    """Puts the state of a sink in place of the last one."""
    _STATE.put(store.local, _name(state.topic), state)


def read_state(store: Store, topic: str) -> SinkState | None:
    """Returns the state of a topic's sink, or None if none is known."""
    return _STATE.get(store.local, _name(topic), f"the state of sink {topic}")


def sink_states(store: Store) -> tuple[SinkState, ...]:
    """Returns the states of all sinks that are known, by topic."""
    found = (_STATE.get(store.local, name, name) for name in store.local.names(_FOLDER))
    return tuple(sorted((each for each in found if each is not None), key=lambda s: s.topic))


def _name(topic: str) -> str:
    # A topic's name may be as long as a file's.
    return f"{_FOLDER}/{hashlib.sha256(topic.encode()).hexdigest()[:_DIGITS]}.json"
