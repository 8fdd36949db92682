"""The interface between the courier and the outlets (sinks and alerts) that the courier runs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.state.build import Birth, read_birth
from kappa.state.files.markers import MarkerWatch
from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import Journal, JournalView
from kappa.state.store import Store

OutletBirth = SinkBirth | AlertBirth


class Outlet(Protocol):
    """A running sink or alert, in its own thread."""

    def run(self, stop: threading.Event) -> None:
        """Delivers data until `stop` is set, or until no serving build declares this outlet.

        A sink delivers rows, and an alert delivers messages. The outlet handles or reports its own
        errors.
        """


# Makes the outlet of a part, such as `sink carrier-delays`; None if another maker does.
MakeOutlet = Callable[[str], Outlet | None]


@dataclass
class _ServingWatch:
    """The builds that served when this process last read the journal."""

    news: MarkerWatch
    serving: tuple[str, ...] = ()
    # Threads of the courier share this watch.
    turn: threading.Lock = field(default_factory=threading.Lock)


_WATCHES: WeakKeyDictionary[Store, _ServingWatch] = WeakKeyDictionary()


def outlets_of(birth: Birth) -> Mapping[str, OutletBirth]:
    """Returns the sinks and alerts of a build, by full name, such as `sink carrier-delays`."""
    return {
        **{f"sink {sink.topic}": sink for sink in birth.sinks},
        **{f"alert {alert.name}": alert for alert in birth.alerts},
    }


def served_outlets(store: Store) -> Mapping[str, Birth]:
    """Returns the outlets of the serving builds, each with its build's birth certificate.

    The keys are the full names of the outlets, such as `sink carrier-delays`.
    """
    if store not in _WATCHES:
        _WATCHES[store] = _ServingWatch(Journal.news(store))
    watch = _WATCHES[store]
    with watch.turn, watch.news.looking_for_news() as due:
        if due:
            _, record = JournalView(store).last_served()
            watch.serving = (
                tuple(record.event.serving.values())
                if record is not None and isinstance(record.event, GenerationMade)
                else ()
            )
        serving = watch.serving
    return _outlets_in(store, serving)


@functools.lru_cache(maxsize=4)
def _outlets_in(store: Store, builds: tuple[str, ...]) -> Mapping[str, Birth]:
    # Birth certificates never change, and the courier's threads ask several times a second.
    births = (read_birth(store, build) for build in builds)
    return {part: birth for birth in births for part in outlets_of(birth)}
