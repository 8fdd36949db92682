"""A thread that looks on while the story goes: how much memory all its processes take, and how far each build has come."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from demo.family import members
from kappa.base.errors import KappaError
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_LOOK_SECONDS = 0.25
_WEIGH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Replayed:
    """How a build came to its end of the log: offsets folded, over the seconds from its first frontier to that point."""

    offsets: int
    seconds: float

    @property
    def rate(self) -> float:
        """Events per second."""
        return self.offsets / self.seconds if self.seconds else 0.0


class Watch:
    """Looks on from `with` to its end."""

    def __init__(self, store: Store, mark: str) -> None:
        """`mark` is that of the family (family.py)."""
        self.peak_resident = 0
        self._store = store
        self._mark = mark
        self._steps: dict[str, list[tuple[float, int]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="watch", daemon=True)

    def replayed(self, build: str, *, at_least: int) -> Replayed | None:
        """How long a build took to fold `at_least` offsets; None where that was not seen."""
        steps = self._steps.get(build, [])
        for at, folded in steps:
            if folded >= at_least:
                return Replayed(folded - steps[0][1], at - steps[0][0])
        return None

    def __enter__(self) -> Self:
        """Begins to look."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Looks no more."""
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
        builds = self._store.path("builds")
        for folder in sorted(builds.iterdir()) if builds.is_dir() else ():
            try:
                newest = Frontiers(self._store, folder.name).newest()
            except KappaError:
                # A build that is being retired under our eyes; whether all is well with the others is for the reader to say.
                continue
            steps = self._steps.setdefault(folder.name, [])
            folded = 0 if newest is None else newest.offsets.distance(Offsets())
            if newest is not None and (not steps or steps[-1][1] != folded):
                steps.append((time.monotonic(), folded))
