"""Keeps frontiers of the past while a build's job runs: one every so often while the build serves, and one at each switch.

What is kept is always the frontier that readers see at that moment, and it is kept before the next one is published. A job
that was away at a switch keeps it when it begins again: what its build showed has not moved in between.
Read next: kappa/state/kept.py for what is kept, engine/write/maintenance.py for when it goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kappa.journal.journal import Record, Served
from kappa.state.frontier import Frontier
from kappa.state.kept import Kept, moment, put_kept, read_kept
from kappa.state.store import Store


class Keeper:
    """What one build's job keeps; told of every record of the journal, and of what readers see."""

    def __init__(
        self,
        store: Store,
        build: str,
        *,
        pipeline: str,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """At most one frontier in `every_seconds` is kept, switches aside."""
        self._store = store
        self._build = build
        self._pipeline = pipeline
        self._every_seconds = every_seconds
        self._clock = clock
        self._begun = False
        self._serves = False
        self._newest_kept: int | None = None
        self._due = clock()

    def hear(self, record: Record, shown: Frontier | None) -> None:
        """Hears the journal's next record; `shown` is what readers see of the build (None: nothing yet)."""
        if not isinstance(record.event, Served):
            return
        before, self._serves = self._serves, record.event.serving.get(self._pipeline) == self._build
        if shown is None or not (before or self._serves):
            return
        # The journal is read from its beginning when a job begins: what readers saw at its older switches was kept then.
        if not self._begun and moment(record.at) < moment(shown.published_at):
            return
        self._keep(shown, record.event.generation, stays=before is not self._serves)

    def look(self, shown: Frontier) -> None:
        """Keeps what readers see, where it is time and they see something new."""
        self._begun = True
        if self._serves and shown.number != self._newest_kept and self._clock() >= self._due:
            self._keep(shown)

    def _keep(self, shown: Frontier, *generations: int, stays: bool = False) -> None:
        before = read_kept(self._store, self._build, shown.number) or Kept(shown)
        kept = Kept(
            shown,
            tuple(sorted({*before.generations, *generations})),
            before.stays or stays,
            before.until,
        )
        if kept != before or self._newest_kept != shown.number:
            put_kept(self._store, kept)
        self._newest_kept = shown.number
        self._due = self._clock() + self._every_seconds
