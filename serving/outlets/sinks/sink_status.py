"""The state of each sink, as the courier records it.

The state is only for display: it can be computed again, and is not synced to disk. The position of
a sink is stored in its topic. A status also shows whether a courier runs, and how far a sink is
behind.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from msgspec import Struct, to_builtins

from kappa.serving.outlets.outlet import served_outlets
from kappa.serving.query.render import Listing
from kappa.state.documents import Documents
from kappa.state.lock import is_held
from kappa.state.root import why_silent
from kappa.state.store import Store

_FOLDER = "run/sinks"
_DIGITS = 16
LOCK = "run/courier.lock"
# A courier that runs says this often, with room for a busy machine, that a sink has all.
_FRESH_SECONDS = 2.0


class Sent(Struct, frozen=True):
    """The numbers of records that a sink has sent for one change set.

    `written` counts rows, and `deleted` counts deletions. `cursor` is the cursor of the change set.
    """

    kind: str
    generation: int
    cursor: str
    written: int
    deleted: int
    at: str


class SinkState(Struct, frozen=True):
    """The state of a sink: `starts`, `follows`, `retries`, `fenced` or `ended`.

    `current_at` is the time at which the sink last had nothing more to send, in seconds since 1970.
    `written` and `deleted` count the records that the sink has sent in total. `last` describes the
    records of the last change set, and `switch` the records of the last promote or undo.
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


def put_sink_state(store: Store, state: SinkState) -> None:
    """Stores the state of a sink."""
    _STATE.put(store.local, _state_file(state.topic), state)


def read_sink_state(store: Store, topic: str) -> SinkState | None:
    """Returns the state of the sink that writes a topic, or None if the state is unknown."""
    return _STATE.get(store.local, _state_file(topic), f"the state of sink {topic}")


def sink_states(store: Store) -> tuple[SinkState, ...]:
    """Returns the known states of all sinks, ordered by topic."""
    found = (_STATE.get(store.local, name, name) for name in store.local.names(_FOLDER))
    return tuple(sorted((each for each in found if each is not None), key=lambda s: s.topic))


def _state_file(topic: str) -> str:
    # A topic's name may be as long as a file's.
    return f"{_FOLDER}/{hashlib.sha256(topic.encode()).hexdigest()[:_DIGITS]}.json"


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """A sink's state for display, and how far the sink is behind.

    `known` is the state that the courier has recorded. `behind_seconds` is None if the sink has
    never sent all rows. The state `waits` means that no courier runs. The state `off` means that no
    courier may run, because the root is an adopted copy and may not send yet. The state `ended`
    means that no serving build declares the sink any more. The records of such a sink remain in its
    topic.
    """

    known: SinkState
    state: str
    behind_seconds: float | None


def sink_statuses(store: Store, now: float) -> tuple[SinkStatus, ...]:
    """Returns the status of each sink, ordered by topic.

    First come the sinks of the serving builds, and then the sinks that have ended. `now` is in
    seconds since 1970.
    """
    served = {
        sink.topic: SinkState(sink.topic, sink.of, birth.pipeline, "starts")
        for birth in served_outlets(store).values()
        for sink in birth.sinks
    }
    at_rest = _state_without_courier(store)
    found = [
        _status_of(read_sink_state(store, topic) or new, now, at_rest=at_rest)
        for topic, new in served.items()
    ]
    ended = [
        SinkStatus(each, "ended", None) for each in sink_states(store) if each.topic not in served
    ]
    return (*sorted(found, key=_topic_of), *ended)


def sinks_listing(found: tuple[SinkStatus, ...]) -> Listing:
    """Creates a listing with a row for each sink."""
    columns = (
        *("sink", "table", "pipeline", "state", "behind_seconds", "written", "deleted"),
        *("switch", "error", "hint", "error_at", "cursor", "last"),
    )
    rows = (
        (
            each.known.topic,
            each.known.table,
            each.known.pipeline,
            each.state,
            each.behind_seconds,
            each.known.written,
            each.known.deleted,
            None if each.known.switch is None else sent_text(each.known.switch),
            each.known.error or None,
            each.known.hint or None,
            each.known.error_at or None,
            each.known.cursor or None,
            None if each.known.last is None else to_builtins(each.known.last),
        )
        for each in found
    )
    wide = frozenset({"hint", "error_at", "cursor", "last"})
    return Listing(
        columns,
        tuple(rows),
        wide=wide,
        is_report=True,
        times=frozenset({"error_at"}),
        empty="no sinks",
    )


def sent_text(sent: Sent) -> str:
    """Describes in words how many records a sink sent for a promote or an undo."""
    return (
        f"{sent.kind} to generation {sent.generation}: {sent.written:,} written, "
        f"{sent.deleted:,} deleted"
    )


def _state_without_courier(store: Store) -> str:
    """Returns the state that all sinks have because no courier runs, or "" if a courier runs."""
    if is_held(store.local.path(LOCK)):
        return ""
    return "off" if why_silent(store) else "waits"


def _status_of(known: SinkState, now: float, *, at_rest: str) -> SinkStatus:
    behind = None
    if known.current_at:
        seconds = max(0.0, now - known.current_at)
        behind = 0.0 if seconds < _FRESH_SECONDS and not known.error else round(seconds, 1)
    return SinkStatus(known, at_rest or known.state, behind)


def _topic_of(status: SinkStatus) -> str:
    return status.known.topic
