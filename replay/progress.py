"""How a rollout's progress is told while somebody follows it: a line that moves on a terminal, a line per event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.status import Status

from kappa.errors import Conflict, KappaError, VerificationFailed
from kappa.journal import Verified
from kappa.offsets import Offsets
from replay.diff_listing import count_line, difference_line, differing
from replay.follow import Progress
from replay.rollout import Phase, Rollout

# A rate over less than this says more about the moment than about the replay.
_RATE_SECONDS = 1.0


def tell(steps: Iterable[Progress], end: Offsets, console: Console) -> Rollout:
    """Tells a rollout's progress to its end, and gives the rollout as it ended.

    `end` is the log's end when the rollout was begun: what the share that is folded is of.
    """
    last: Progress | None = None
    pace = _Pace()
    with console.status("") as moving:
        for progress in steps:
            for line in news(None if last is None else last.rollout, progress.rollout):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            _move(moving, progress, end, pace)
            last = progress
    if last is None:
        raise AssertionError("following gives at least what there is")
    return last.rollout


def ensure_served(rollout: Rollout) -> None:
    """Raises what a rollout that ended without serving means to the one who asked for it."""
    match rollout.phase:
        case Phase.FAILED if rollout.verified is not None and rollout.verified.verdict != "passed":
            raise VerificationFailed(
                f"build {rollout.build} of pipeline {rollout.pipeline} was not promoted: {rollout.reason}",
                hint=rollout.hint or "mend the pipeline or its check and deploy again; what served goes on serving",
            )
        case Phase.FAILED:
            raise KappaError(f"build {rollout.build} of pipeline {rollout.pipeline} was not promoted: {rollout.reason}", hint=rollout.hint or f"see kappa logs {rollout.build}")
        case Phase.ABANDONED:
            raise Conflict(f"rollout {rollout.number} of pipeline {rollout.pipeline} was abandoned: {rollout.reason}", hint="kappa history shows by whom")
        case _:
            return


def news(before: Rollout | None, now: Rollout) -> tuple[str, ...]:
    """What has happened to a rollout between two looks, a line each."""
    lines = []
    if before is None:
        lines.append(f"rollout {now.number}: build {now.build} of pipeline {now.pipeline} {'is kept, and shall serve again' if now.switch else 'replays from the beginning'}")
    if now.caught_up is not None and (before is None or before.caught_up is None):
        lines.append(f"caught up at {now.caught_up}")
    if now.verified is not None and (before is None or before.verified is None):
        lines.extend(_verified(now.verified))
    if now.attempts > (0 if before is None else before.attempts):
        lines.append(f"holding the live build still (attempt {now.attempts})")
    return tuple(lines)


@dataclass(slots=True)
class _Pace:
    """When and where the folding began to be watched."""

    since: float = 0.0
    folded: int = -1

    def rate(self, folded: int, at: float) -> float | None:
        """Offsets per second since the first look; None where that was but a moment ago."""
        if self.folded < 0:
            self.since, self.folded = at, folded
        return (folded - self.folded) / (at - self.since) if at - self.since >= _RATE_SECONDS else None


def _move(moving: Status, progress: Progress, end: Offsets, pace: _Pace) -> None:
    folded, total = progress.done(end)
    rate = pace.rate(folded, time.monotonic())
    share = f"{folded:,} of {total:,} records" + (f", {rate:,.0f}/s" if rate else "") + (f", {(total - folded) / rate:,.0f} s left" if rate and total > folded else "")
    moving.update(f"{progress.rollout.phase}: {share}" if progress.rollout.phase is Phase.REPLAYING else str(progress.rollout.phase))


def _verified(verified: Verified) -> list[str]:
    lines = [f"verified at {verified.offsets}: {verified.verdict}{', ' + verified.reason if verified.reason else ''}"]
    for check in verified.checks:
        found = f"could not be run: {check.error}" if check.failing is None else f"{check.failing:,} of {check.rows:,} rows fail" if check.failing else f"{check.rows:,} rows pass"
        lines.append(f"  {check.table}: {check.condition}: {found}")
    lines.extend(f"  {difference_line(difference)}" for difference in verified.differences)
    lines.extend(f"  {count_line(count)}" for count in differing(verified.counts))
    lines.extend(f"  topic {topic} is not the same for both builds: what comes from it is not comparable" for topic in verified.incomparable_topics)
    return lines
