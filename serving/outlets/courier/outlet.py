"""An outlet at work: the seam between the courier and the ways out that it runs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.state.build import Birth, read_birth
from kappa.state.files.markers import News
from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import Journal, JournalView
from kappa.state.store import Store

OutletBirth = SinkBirth | AlertBirth


class Outlet(Protocol):
    """One sink or alert at work, in a thread of its own."""

    def run(self, stop: threading.Event) -> None:
        """Delivers until asked to stop, or until no serving build has this outlet any more.

        It mends or shows its own errors.
        """


# Makes the outlet of a part, such as `sink carrier-delays`; None if it is another's to make.
MakeOutlet = Callable[[str], Outlet | None]


@dataclass
class _Watch:
    """The builds that serve, as of the last look of this process."""

    news: News
    serving: tuple[str, ...] = ()
    # Threads of the courier share it.
    turn: threading.Lock = field(default_factory=threading.Lock)


_WATCHES: WeakKeyDictionary[Store, _Watch] = WeakKeyDictionary()


def tell(text: str) -> None:
    """Writes a line to the courier's log, which a full disk loses."""
    with suppress(OSError):
        print(text, flush=True)


def outlets_of(birth: Birth) -> Mapping[str, OutletBirth]:
    """Returns the sinks and alerts of a build, by their names among a version's parts."""
    return {
        **{f"sink {sink.topic}": sink for sink in birth.sinks},
        **{f"alert {alert.name}": alert for alert in birth.alerts},
    }


def served_outlets(store: Store) -> Mapping[str, Birth]:
    """Returns each part of a serving build that is an outlet, with that build's birth."""
    if store not in _WATCHES:
        _WATCHES[store] = _Watch(Journal.news(store))
    watch = _WATCHES[store]
    with watch.turn, watch.news.looking() as due:
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
