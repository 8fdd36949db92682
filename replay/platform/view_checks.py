"""The check of maintained views as a child of the supervisor: once for each build that serves.

The check waits until slices have kept the views for a while: right after a replay the views were
computed whole, and the verification compared them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from kappa.base.process import LOW_PRIORITY
from kappa.base.program import project_options
from kappa.base.settings import Settings
from kappa.replay.platform.child import ChildProcess
from kappa.replay.platform.course import ended_text
from kappa.state.build import read_birth
from kappa.state.build_status import read_view_check
from kappa.state.frontier import Frontiers
from kappa.state.store import Store

# So many frontiers have views that slices kept.
AFTER_FRONTIERS = 20
_LOOK_SECONDS = 5.0
_PATIENCE_SECONDS = 1.0


class ViewChecks:
    """The child that checks the views of one build after another."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` gets what the operator should read; `clock` gives seconds that only go forward."""
        self._store = store
        self._settings = settings
        self._say = say
        self._clock = clock
        self._child = ChildProcess(
            "the check of maintained views",
            store.local.path("logs/views.log"),
            say=say,
            clock=clock,
            patience_seconds=_PATIENCE_SECONDS,
            nice=LOW_PRIORITY,
        )
        # Of each build that is waited for: the number of its frontier when it was first seen.
        self._first: dict[str, int] = {}
        self._done = set[str]()
        self._look_at = 0.0

    def ensure_running(self, serving: Iterable[str]) -> None:
        """Starts the check of a serving build whose slices have kept its views for a while."""
        if (code := self._child.ended()) is not None:
            self._say(f"{self._child.what} {ended_text(code)}")
        if self._child.pid is not None or self._clock() < self._look_at:
            return
        self._look_at = self._clock() + _LOOK_SECONDS
        for build in sorted({*serving} - self._done):
            if not self._is_waited_for(build):
                self._done.add(build)
                continue
            newest = Frontiers(self._store, build).newest()
            number = 0 if newest is None else newest.number
            if number >= self._first.setdefault(build, number) + AFTER_FRONTIERS:
                self._done.add(build)
                self._child.start(
                    "kappa.replay.rollout.verify.view_check",
                    *project_options(self._settings),
                    *("--build", build),
                )
                self._say(f"{self._child.what} begins, of build {build}")
                return

    def end(self) -> None:
        """Ends the check: the next supervisor begins it anew."""
        self._child.end()

    def _is_waited_for(self, build: str) -> bool:
        if build in self._first:
            return True
        born = read_birth(self._store, read_birth(self._store, build).folded_by)
        is_kept = any(table.view is not None for table in born.tables)
        return is_kept and read_view_check(self._store, build) is None
