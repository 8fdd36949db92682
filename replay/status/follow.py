"""A rollout followed from outside. It only reads: a follower that stops changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kappa.base.errors import TimedOut, Unreachable
from kappa.replay.rollout.current import current_state
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.supervisor_report import Underway, Waiting, read_underway
from kappa.replay.rollout.verify.verification_progress import verification_progress
from kappa.state.build import read_birth
from kappa.state.build_status import SliceProgress, read_progress
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_LOOK_SECONDS = 0.2
# After the supervisor's death and while it starts, none is up for a moment.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a rollout.

    `start` is where its build began to read, `folded` what its frontier shows (None: nothing yet).
    `waiting` and `trouble` are the supervisor's words; `live` is the build that serves, `shown`
    what its readers see. `slice` is how far the job is in the slice that comes next, and
    `verifying` the step that the verification has begun.
    """

    rollout: Rollout
    start: Offsets
    folded: Offsets | None
    waiting: Waiting = field(default_factory=Waiting)
    trouble: str = ""
    live: str | None = None
    shown: Offsets | None = None
    slice: SliceProgress | None = None
    verifying: str = ""

    def done(self, end: Offsets) -> tuple[int, int]:
        """Counts the offsets read and folded, and those from its start to `end`: at least as many.

        What is read of the next slice counts too, so that it grows while a long one is read.
        """
        folded = 0 if self.folded is None else self.folded.distance(self.start)
        folded += 0 if self.slice is None else self.slice.read
        return folded, max(folded, end.distance(self.start))


def follow(
    store: Store,
    id_: int,
    *,
    timeout: float | None,
    supervised: Callable[[], bool],
    until: Callable[[Rollout], bool] = lambda rollout: not rollout.active,
) -> Iterator[Progress]:
    """Yields a rollout's progress, some times a second, until it has served or ended without.

    `until` ends it earlier, at the first rollout that it is true of. `timeout` is in seconds (None:
    no end); `supervised` returns whether a supervisor is up. Raises TimedOut if the time ends
    first, and Unreachable if no supervisor brings the rollout on. Both leave it as it is.
    """
    begun = seen_up = time.monotonic()
    before: Progress | None = None
    start: Offsets | None = None
    while True:
        state = current_state(store)
        rollout = state.rollout(id_)
        # The data of one that has ended may be on their way out.
        start = read_birth(store, rollout.build).reads_from if start is None else start
        newest = Frontiers(store, rollout.build).newest() if rollout.active else None
        folded = (
            newest.offsets if newest is not None else before.folded if before is not None else None
        )
        up, underway, live = supervised(), read_underway(store), state.serving.get(rollout.pipeline)
        shown = None if live is None or live == rollout.build else Frontiers(store, live).newest()
        before = Progress(
            rollout,
            start,
            folded,
            underway.rollouts.get(id_, Waiting()) if up else Waiting(),
            _trouble(underway, rollout.build, live) if up else "",
            None if shown is None else live,
            None if shown is None else shown.offsets,
            read_progress(store, rollout.build, newest)
            if rollout.phase is Phase.REPLAYING
            else None,
            verification_progress(store, rollout.build) if rollout.phase is Phase.VERIFYING else "",
        )
        yield before
        if not rollout.active or until(rollout):
            return
        now = time.monotonic()
        seen_up = now if up else seen_up
        if now - seen_up > _PATIENCE_SECONDS:
            raise Unreachable(
                f"rollout {rollout.number} is {rollout.phase}, and nobody is there to bring it on",
                hint="kappa up -d goes on with it; kappa status shows it",
            )
        if timeout is not None and now - begun > timeout:
            raise TimedOut(
                f"rollout {rollout.number} is still {rollout.phase} after {timeout:g} s",
                hint=f"it goes on: kappa status -w follows it, kappa abandon {rollout.pipeline} "
                "gives it up",
            )
        time.sleep(_LOOK_SECONDS)


def _trouble(underway: Underway, candidate: str, live: str | None) -> str:
    """Returns what is wrong with the job of a candidate, or of the live build, or ""."""
    for build in (candidate, live):
        if build is not None and (trouble := underway.trouble(build)):
            return f"build {build}: {trouble}"
    return ""
