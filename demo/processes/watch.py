"""Observes the memory of all processes of the story, and each build's progress, in a thread."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Self

from demo.processes.family import members
from kappa.base.errors import KappaError
from kappa.replay.rollout.current_state import current_state
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_LOOK_SECONDS = 0.25
_WEIGH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """The replay of a build from its first frontier on: the folded offsets, and the seconds."""

    offsets: int
    seconds: float

    @property
    def rate(self) -> float:
        """Returns the number of offsets folded per second."""
        return self.offsets / self.seconds if self.seconds else 0.0


class Watch:
    """A context manager whose thread records the peak memory and the progress of builds."""

    def __init__(self, store: Store, mark: str) -> None:
        """Prepares to observe the processes with the mark `mark` (family.py), without starting."""
        self.peak_resident = 0
        self._store = store
        self._mark = mark
        self._steps: dict[str, list[tuple[float, int]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def replayed(self, build: str, *, at_least: int) -> Replayed | None:
        """Returns the replay of a build up to the first frontier with at least `at_least` offsets.

        Returns None if no such frontier was observed.
        """
        steps = self._steps.get(build, [])
        for at, folded in steps:
            if folded >= at_least:
                return Replayed(folded - steps[0][1], at - steps[0][0])
        return None

    def __enter__(self) -> Self:
        """Starts the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the thread."""
        self._stop.set()
        self._thread.join()

    def _look_on(self) -> None:
        weighed = 0.0
        while not self._stop.wait(_LOOK_SECONDS):
            if time.monotonic() - weighed > _WEIGH_SECONDS:
                weighed = time.monotonic()
                self.peak_resident = max(
                    self.peak_resident, sum(member.resident for member in members(self._mark))
                )
            self._look()

    def _look(self) -> None:
        for rollout in current_state(self._store).rollouts:
            try:
                newest = Frontiers(self._store, rollout.build).newest()
            except KappaError:
                # A build that is retired at this moment; the reader judges the others.
                continue
            steps = self._steps.setdefault(rollout.build, [])
            folded = 0 if newest is None else newest.offsets.distance(Offsets())
            if newest is not None and (not steps or steps[-1][1] != folded):
                steps.append((time.monotonic(), folded))
