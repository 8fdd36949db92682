"""The desk: what all who answer over HTTP look at, the API and the page alike, so that both tell the same.

A look costs the broker and the disk something, and many look at once: one look is for all who ask within a second, and one that
takes long is for all who ask within ten times as long.
Read next: api.py (documents), page/routes.py (pages).
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kappa.build import read_birth
from kappa.errors import KappaError, Unreachable
from replay.listings import topics_listing
from replay.status import Status, observe_status
from replay.underway import Underway, read_underway
from serving.query import read
from serving.render import Listing
from serving.tables import ServedTable, served_tables

if TYPE_CHECKING:
    from kappa.log.client import Log
    from replay.here import Here

_Found = TypeVar("_Found")
# One look is for all who ask within it; what it tells changes about as often.
_LOOK_SECONDS = 1.0
# Who watches a page asks all the time: at most a tenth of it is spent on looking.
_REST = 10
_LONGEST_REST_SECONDS = 30.0
_COUNTED_REJECTS = "select pipeline, reason, count(*) from rejects group by all order by all"


class Desk:
    """What answers stand on: the project, one client of its broker, and what was seen of it just now."""

    def __init__(self, here: Here, *, clock: Callable[[], float] = time.monotonic, connect: Callable[[], Log] | None = None) -> None:
        """`clock` gives seconds that only go forward; `connect` the broker's client, once where it is is known."""
        self.here = here
        self._connect = connect or here.log
        self._clock = clock
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._log: tuple[str, Log] | None = None
        # By name: until when it is true enough, and what it is.
        self._seen: dict[str, tuple[float, Any]] = {}

    def log(self) -> Log | None:
        """The broker's client; None where no broker is known."""
        servers = self.here.bootstrap_servers
        if servers is None:
            return None
        if self._log is None or self._log[0] != servers:
            self._log = servers, self._connect()
        return self._log[1]

    def look(self, what: str, look: Callable[[], _Found]) -> _Found:
        """What `look` gives, or gave a moment ago under the same name; of each name one looks at a time."""
        with self._locks[what]:
            begun = self._clock()
            until, seen = self._seen.get(what, (begun, None))
            if seen is None or begun > until:
                seen = look()
                ended = self._clock()
                self._seen[what] = ended + min(_LONGEST_REST_SECONDS, max(_LOOK_SECONDS, _REST * (ended - begun))), seen
            found: _Found = seen
            return found

    def status(self) -> Status:
        """What `kappa status` tells."""
        return self.look("status", self._status)

    def topics(self) -> Listing:
        """What `kappa topics list` tells, but for topics that are declared only. Raises Unreachable where there is no broker."""
        log = self.reached()

        def look() -> Listing:
            births = (read_birth(self.here.store, build) for build in self.here.state().wanted_builds())
            return topics_listing(log, {topic.name: topic for birth in births for topic in birth.topics})

        return self.look("topics", look)

    def tables(self) -> tuple[ServedTable, ...]:
        """What `kappa tables` tells."""
        return self.look("tables", lambda: served_tables(self.here.store, lease_seconds=self.here.lease_seconds))

    def counted_rejects(self) -> Mapping[tuple[str, str], int]:
        """How many records what serves has rejected, by pipeline and reason."""

        def counted() -> dict[tuple[str, str], int]:
            try:
                found = read(self.here.store, lambda reader: reader.rows(_COUNTED_REJECTS), lease_seconds=self.here.lease_seconds)
            except KappaError:
                # Nothing is served yet, so there is no such table.
                return {}
            return {(str(pipeline), str(reason)): int(count) for pipeline, reason, count in found.rows}

        return self.look("rejects", counted)

    def reached(self) -> Log:
        """The broker's client. Raises Unreachable where no broker is known."""
        found = self.log()
        if found is None:
            raise Unreachable("kappa is not up, so there is no broker", hint="start it with: kappa up -d")
        return found

    def pulse(self) -> Hashable:
        """Something else whenever builds or the log have moved on."""
        status = self.status()
        builds = tuple((each.build, each.role, each.folded, each.lag, each.fresh_at, each.waits_for, each.trouble, each.rate) for each in status.builds)
        return builds, status.broker_error, status.generation, self.here.running is None

    def _status(self) -> Status:
        underway = Underway() if self.here.running is None else read_underway(self.here.store)
        return observe_status(self.here.store, self.log(), soak_seconds=self.here.settings.rollout.soak_seconds, underway=underway)
