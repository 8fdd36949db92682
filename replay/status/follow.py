"""Follows a rollout from a process other than the rollout's job, and shows the progress.

On a terminal, a few lines are updated in place. Elsewhere a plain line is printed for each new
state, and for each tenth of the records. A follower only reads: if the follower stops, the rollout
continues.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kappa.base.errors import Conflict, KappaError, TimedOut, Unreachable, VerificationFailed
from kappa.base.units import count_of, pace_text
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.supervisor_report import (
    RolloutWait,
    SupervisorReport,
    read_supervisor_report,
)
from kappa.replay.rollout.verify.diff_listing import (
    check_text,
    count_line,
    difference_line,
    differing_counts,
    rejects_line,
)
from kappa.state.build import read_birth
from kappa.state.build_status import SliceProgress, read_progress, verification_progress
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import Verified
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_COUNT = re.compile(r"\d[\d,.]*")
# How far the live build is behind is asked of the broker, so not at every look.
_LOG_END_SECONDS = 2.0
# The next action after a verification that has not passed.
_AFTER = {
    "failed": "mend the pipeline or its check and deploy again",
    "inconclusive": "see to what kept it from being told, and try the same code again: kappa "
    "retry {pipeline}",
}
_LOOK_SECONDS = 0.2
# Between the death of a supervisor and the start of the next, none is up for a moment.
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """The progress of a rollout.

    `start` contains the offsets at which the build began to read. `folded` contains the offsets of
    the build's frontier, or is None if there is no frontier yet. `waiting` and `trouble` are from
    the supervisor's report. `live` is the build that serves, and `shown` contains the offsets that
    readers of the live build see. `slice` is the job's progress in the next slice. `verifying` is
    the current step of the verification, or "".
    """

    rollout: Rollout
    start: Offsets
    folded: Offsets | None
    waiting: RolloutWait = field(default_factory=RolloutWait)
    trouble: str = ""
    live: str | None = None
    shown: Offsets | None = None
    slice: SliceProgress | None = None
    verifying: str = ""

    def done_and_total(self, end: Offsets) -> tuple[int, int]:
        """Returns the number of offsets read, and the number of offsets from the start to `end`.

        The second number is never less than the first. Records of the next slice count once they
        are read, even before they are folded. So the first number also grows during a long slice.
        """
        read = 0 if self.folded is None else self.folded.distance(self.start)
        read += 0 if self.slice is None else self.slice.read
        return read, max(read, end.distance(self.start))

    @property
    def waits_for(self) -> str:
        """Returns the event for which the rollout waits.

        Returns "" while the progress of a slice or of the verification is shown instead.
        """
        if self.slice is not None or self.verifying:
            return ""
        return self.waiting.cause_in(self.rollout.phase)

    def state(self, end: Offsets) -> tuple[object, ...]:
        """Returns a value that changes whenever a new plain line should be shown.

        During a replay, the value changes once for each tenth of the records.
        """
        read, total = self.done_and_total(end)
        return (
            self.rollout.phase,
            _COUNT.sub("", self.waits_for),
            _COUNT.sub("", self.verifying),
            10 * read // total if total and self.rollout.phase is Phase.REPLAYING else None,
        )


def follow_rollout(
    store: Store,
    id_: int,
    *,
    timeout: float | None,
    supervised: Callable[[], bool],
    until: Callable[[Rollout], bool] = lambda rollout: not rollout.active,
) -> Iterator[RolloutProgress]:
    """Yields a rollout's progress several times a second, until the rollout has ended.

    Stops earlier once `until` returns True for the rollout. `timeout` is in seconds, or None for no
    limit. `supervised` returns True if a supervisor is up. Raises TimedOut after the timeout, and
    Unreachable if no supervisor has been up for some seconds. In both cases, the rollout itself
    continues.
    """
    begun = seen_up = time.monotonic()
    before: RolloutProgress | None = None
    start: Offsets | None = None
    while True:
        state = current_state(store)
        rollout = state.rollout(id_)
        # The data of a rollout that has ended may be under deletion.
        start = read_birth(store, rollout.build).reads_from if start is None else start
        newest = Frontiers(store, rollout.build).newest() if rollout.active else None
        folded = (
            newest.offsets if newest is not None else before.folded if before is not None else None
        )
        up, underway, live = (
            supervised(),
            read_supervisor_report(store),
            state.serving.get(rollout.pipeline),
        )
        shown = None if live is None or live == rollout.build else Frontiers(store, live).newest()
        before = RolloutProgress(
            rollout,
            start,
            folded,
            underway.rollouts.get(id_, RolloutWait()) if up else RolloutWait(),
            _job_trouble(underway, rollout.build, live) if up else "",
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
                f"rollout {rollout.number} is {rollout.phase}, and the platform is not running",
                hint="kappa up -d continues it; kappa status shows it",
            )
        if timeout is not None and now - begun > timeout:
            raise TimedOut(
                f"rollout {rollout.number} is still {rollout.phase} after {timeout:g} s",
                hint=f"it goes on: kappa status -w follows it, kappa abandon {rollout.pipeline} "
                "gives it up",
            )
        time.sleep(_LOOK_SECONDS)


def _job_trouble(underway: SupervisorReport, candidate: str, live: str | None) -> str:
    """Describes the trouble of a job in one line, or returns "" if there is none.

    If the candidate's job has no trouble, the trouble of the live build's job is described.
    """
    for build in (candidate, live):
        if build is not None and (trouble := underway.trouble(build)):
            return f"build {build}: {trouble}"
    return ""


def show_progress(
    steps: Iterable[RolloutProgress],
    end: Offsets,
    console: Console | None,
    *,
    known: Rollout | None = None,
    end_now: Callable[[], Offsets] | None = None,
    sends: Callable[[Rollout], Iterable[str]] = lambda _rollout: (),
    clock: Callable[[], float] = time.monotonic,
) -> Rollout:
    """Shows a rollout's progress until it ends. Returns the ended rollout.

    Args:
        steps: The progress, as `follow_rollout` yields it.
        end: The end of the log when the rollout began. The share of records read refers to it.
        console: On a terminal, lines are updated in place. Elsewhere each event is printed, and
            a line for each new state. If None, nothing is shown.
        known: A state of the rollout whose events the user has already seen; they are not shown.
        end_now: Returns the current end of the log, for the lag of the live build.
        sends: Lists the changes that a switch sends, for a candidate that has just passed.
        clock: Returns seconds that never move back.
    """
    last = known
    if console is None:
        for progress in steps:
            last = progress.rollout
        return _ended_rollout(last)
    log_end = _LogEnd(end_now, clock)
    with _live_lines(console) as moving:
        states, in_trouble = set[tuple[object, ...]](), False
        for progress in steps:
            changes = rollout_news(last, progress.rollout)
            if has_passed(progress.rollout) and not (last is not None and has_passed(last)):
                changes += tuple(f"  sends: {each}" for each in sends(progress.rollout))
            for line in changes:
                console.print(line, markup=False, highlight=False, soft_wrap=True)
            lines = progress_lines(
                progress, end, log_end.current_end() if progress.rollout.active else None
            )
            if moving is not None:
                moving.update(
                    Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True
                )
            elif progress.trouble and not in_trouble:
                console.print(progress.trouble, markup=False, highlight=False, soft_wrap=True)
            elif progress.rollout.active and (state := progress.state(end)) not in states:
                states.add(state)
                console.print("; ".join(lines), markup=False, highlight=False, soft_wrap=True)
            last, in_trouble = progress.rollout, bool(progress.trouble)
    return _ended_rollout(last)


def _ended_rollout(last: Rollout | None) -> Rollout:
    if last is None:
        raise AssertionError("following gives at least what there is")
    return last


def progress_lines(
    progress: RolloutProgress, end: Offsets, log_end: Offsets | None
) -> tuple[str, ...]:
    """Returns the lines that show a rollout's current progress. Pure.

    The lines contain the phase and the share of records read, the rate and the time left, the
    slice, the awaited event, the trouble of a job, and the lag of the live build. `log_end` is None
    if the current end of the log is not known.
    """
    rollout, waiting = progress.rollout, progress.waiting
    read, total = progress.done_and_total(end)
    share = f"{read:,} of {count_of(total, 'record')} read"
    share += f" ({100 * read // total} %)" if total else ""
    pace = pace_text(read, total, waiting.rate)
    share += f", {pace}" if pace else ""
    lines = [
        f"rollout {rollout.number} of pipeline {rollout.pipeline}: {rollout.phase}"
        + (f", {share}" if rollout.phase is Phase.REPLAYING else "")
    ]
    if progress.slice is not None:
        lines.append(progress.slice.text)
    if progress.verifying:
        lines.append(progress.verifying)
    if progress.waits_for:
        lines.append(f"waits for {progress.waits_for}")
    if progress.trouble:
        lines.append(progress.trouble)
    if progress.live is not None and progress.shown is not None and log_end is not None:
        behind = log_end.only(set(progress.shown.next)).distance(progress.shown)
        lines.append(
            f"live build {progress.live} is "
            + (f"{count_of(behind, 'record')} behind" if behind > 0 else "at the end of")
            + " the log"
        )
    if rollout.verified is not None:
        checks = rollout.verified.checks
        lines.append(
            f"verification {rollout.verified.verdict}"
            + (
                f", {sum(check.passed for check in checks)} of {len(checks)} checks"
                if checks
                else ""
            )
        )
    return tuple(lines)


def raise_unless_served(rollout: Rollout) -> None:
    """Raises an error if a rollout has ended without serving.

    Raises VerificationFailed if the verification has not passed, KappaError if the rollout has
    failed for another reason, and Conflict if the rollout was abandoned.
    """
    match rollout.phase:
        case Phase.FAILED if rollout.verified is not None and rollout.verified.verdict != "passed":
            raise VerificationFailed(
                f"build {rollout.build} of pipeline {rollout.pipeline} was not promoted: "
                f"{rollout.reason}",
                hint=rollout.hint
                or f"{_AFTER[rollout.verified.verdict].format(pipeline=rollout.pipeline)}; what "
                "served keeps serving",
            )
        case Phase.FAILED:
            raise KappaError(
                f"build {rollout.build} of pipeline {rollout.pipeline} was not promoted: "
                f"{rollout.reason}",
                hint=rollout.hint or f"see kappa logs {rollout.build}",
            )
        case Phase.ABANDONED:
            raise Conflict(
                f"rollout {rollout.number} of pipeline {rollout.pipeline} was given up by "
                f"{rollout.asked_by}: {rollout.reason}",
                hint=f"to start again: kappa deploy {rollout.pipeline}",
            )
        case _:
            return


def ensure_not_waiting(rollout: Rollout) -> None:
    """Raises KappaError if a rollout that was approved waits for an approval again.

    This happens if another rollout of its group is abandoned, fails, or is verified again.
    """
    if rollout.waits:
        raise KappaError(
            f"build {rollout.build} of pipeline {rollout.pipeline} was not promoted: "
            f"{rollout.reason or 'it was verified once more since'}",
            hint=f"it waits: kappa promote {rollout.pipeline}; or kappa abandon {rollout.pipeline}",
        )


def has_passed(rollout: Rollout) -> bool:
    """Returns True if a rollout's last verification has passed."""
    return rollout.verified is not None and rollout.verified.verdict == "passed"


def rollout_news(before: Rollout | None, now: Rollout) -> tuple[str, ...]:
    """Returns lines about the changes of a rollout between two observations, one line per change.

    `before` is None at the first observation.
    """
    lines = []
    if before is None:
        comes = (
            "is kept, and shall serve again"
            if now.switch
            else f"replays nothing: it serves the tables of build {now.tables_of}"
            if now.tables_of is not None
            else "replays from the beginning"
            if now.base is None
            else f"is {now.base}"
        )
        lines.append(f"rollout {now.number}: build {now.build} of pipeline {now.pipeline} {comes}")
    if now.caught_up is not None and (before is None or before.caught_up is None):
        lines.append(f"caught up at {now.caught_up}")
    if now.verified is not None and (before is None or before.verified is None):
        lines.extend(_verification_lines(now.verified))
    if now.attempts > (0 if before is None else before.attempts):
        lines.append(f"holding the live build still (attempt {now.attempts})")
    return tuple(lines)


class _LogEnd:
    """Requests the current end of the log from the broker, every two seconds at most.

    The end is None if the broker does not answer.
    """

    def __init__(self, ask: Callable[[], Offsets] | None, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._due = clock()
        self._last: Offsets | None = None

    def current_end(self) -> Offsets | None:
        if self._ask is not None and self._clock() >= self._due:
            self._due = self._clock() + _LOG_END_SECONDS
            try:
                self._last = self._ask()
            except KappaError:
                # A broker that is away for a moment hides a number, and ends no view.
                self._last = None
        return self._last


@contextmanager
def _live_lines(console: Console) -> Iterator[Live | None]:
    """Yields a display whose lines are updated in place, or None without a terminal."""
    if not console.is_terminal:
        yield None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield live


def verification_text(rollout: Rollout) -> str:
    """Formats the result of a candidate's verification for display."""
    lines = [
        f"{rollout.pipeline}: build {rollout.build} (version {rollout.version})",
        *(_verification_lines(rollout.verified) if rollout.verified else ()),
    ]
    return "".join(f"{line}\n" for line in lines)


def _verification_lines(verified: Verified) -> list[str]:
    lines = [
        (
            f"verified at {verified.offsets}: "
            f"{verified.verdict}{', ' + verified.reason if verified.reason else ''}"
        )
    ]
    for check in verified.checks:
        lines.append(f"  {check.table}: {check.condition}: {check_text(check)}")
        lines.extend(
            "    "
            + ", ".join(
                f"{column}={'null' if value is None else value}"
                for column, value in zip(check.columns, row, strict=True)
            )
            for row in check.samples
        )
    lines.extend(f"  {difference_line(difference)}" for difference in verified.differences)
    rejects = rejects_line(verified.counts) or (
        f"rejects: {verified.rejected:,} of {count_of(verified.records, 'record')}"
        if verified.rejected and verified.records
        else ""
    )
    lines.extend([f"  {rejects}"] if rejects else [])
    lines.extend(f"  {count_line(count)}" for count in differing_counts(verified.counts))
    lines.extend(
        f"  topic {topic} is not the same for both builds: what comes from it is not comparable"
        for topic in verified.incomparable_topics
    )
    return lines
