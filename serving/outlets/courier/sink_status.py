"""The sinks that are served, and how far each is: for people and machines. It only looks."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import to_builtins

from kappa.serving.outlets.courier.outlet import served_outlets
from kappa.serving.outlets.courier.sink_state import Sent, SinkState, read_state, sink_states
from kappa.serving.query.render import Listing
from kappa.state.lock import is_held
from kappa.state.root import why_silent
from kappa.state.store import Store

LOCK = "run/courier.lock"
# A courier that runs says this often, with room for a busy machine, that a sink has all.
_FRESH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """A sink with its state; `behind_seconds` is since when it lacks something, None: ever.

    `waits`: no courier runs. `off`: none may, since the root was adopted. A sink that ended is no
    more served, and its topic keeps what it has.
    """

    known: SinkState
    state: str
    behind_seconds: float | None


def sink_statuses(store: Store, now: float) -> tuple[SinkStatus, ...]:
    """Returns the sinks that are served, and then those that have ended, each by topic."""
    served = {
        sink.topic: SinkState(sink.topic, sink.of, birth.pipeline, "starts")
        for birth in served_outlets(store).values()
        for sink in birth.sinks
    }
    at_rest = _at_rest(store)
    found = [
        _status(read_state(store, topic) or new, now, at_rest=at_rest)
        for topic, new in served.items()
    ]
    ended = [
        SinkStatus(each, "ended", None) for each in sink_states(store) if each.topic not in served
    ]
    return (*sorted(found, key=_topic), *ended)


def sinks_listing(found: tuple[SinkStatus, ...]) -> Listing:
    """Makes a row of each sink."""
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
    return Listing(columns, tuple(rows), wide=wide)


def sent_text(sent: Sent) -> str:
    """Returns what a switch has sent, in words."""
    return (
        f"{sent.kind} to generation {sent.generation}: {sent.written:,} written, "
        f"{sent.deleted:,} deleted"
    )


def _at_rest(store: Store) -> str:
    """Returns the state of all sinks if no courier runs, or ""."""
    if is_held(store.local.path(LOCK)):
        return ""
    return "off" if why_silent(store) else "waits"


def _status(known: SinkState, now: float, *, at_rest: str) -> SinkStatus:
    behind = None
    if known.current_at:
        seconds = max(0.0, now - known.current_at)
        behind = 0.0 if seconds < _FRESH_SECONDS and not known.error else round(seconds, 1)
    return SinkStatus(known, at_rest or known.state, behind)


def _topic(status: SinkStatus) -> str:
    return status.known.topic
