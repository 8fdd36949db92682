"""Waits until readers see the writes that a write token names.

The wait ends when readers see all records of the token, or when the time is up. A write token is
offsets in the form of `--at-offsets`: for each partition, the offset after the last acknowledged
record. A reader waits before it pins a snapshot. Frontiers never go back, so a snapshot that is
pinned after the wait includes all records of the token. The wait concerns the pipelines that serve
and read a topic of the token. `pipelines_behind` finds the pipelines that still lack records, and
is pure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kappa.base.errors import TimedOut, UsageError
from kappa.serving.query.pin.snapshot_reads import look_now, served_last
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.journal import JournalView
from kappa.state.journal.projections import Pauses, paused_after
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# Seconds between two looks: short beside a slice, and long beside a look.
LOOK_SECONDS = 0.02

# By pipeline that serves: the build, and the offsets that readers of the build see.
Shown = Mapping[str, tuple[str, Offsets]]


@dataclass(frozen=True, slots=True)
class PipelineBehind:
    """A pipeline whose readers do not yet see all records of a write token.

    `shown` contains the offsets that readers see, and `awaited` the offsets of the token, both only
    for the partitions with missing records.
    """

    pipeline: str
    build: str
    shown: Offsets
    awaited: Offsets

    def __str__(self) -> str:
        return f"{self.pipeline} (build {self.build}) shows {self.shown}, not yet {self.awaited}"


def pipelines_behind(token: Offsets, shown: Shown) -> tuple[PipelineBehind, ...]:
    """Lists the pipelines whose readers do not yet see all records of a write token.

    `shown` contains the offsets that readers see. Only pipelines that read a topic of the token are
    checked. Raises UsageError if nothing is served, or if no serving pipeline reads a topic of the
    token.
    """
    if not shown:
        raise UsageError("nothing is served yet", hint="kappa deploy")
    read = {pipeline: frozenset(offsets.next) for pipeline, (_, offsets) in shown.items()}
    for topic in sorted(token.next):
        if not any(topic in topics for topics in read.values()):
            raise UsageError(
                f"nothing that serves reads topic {topic}",
                hint=f"the live builds read {', '.join(sorted(frozenset().union(*read.values())))}",
            )
    return tuple(
        PipelineBehind(pipeline, build, *missing)
        for pipeline, (build, offsets) in sorted(shown.items())
        if (missing := _missing_offsets(token.only(read[pipeline]), offsets)) is not None
    )


def _missing_offsets(awaited: Offsets, shown: Offsets) -> tuple[Offsets, Offsets] | None:
    """Returns the offsets of the partitions in which readers miss records of a write token.

    Returns first the offsets that readers see, and then the offsets that the token requires.
    Returns None if readers miss no record.
    """
    there: dict[str, dict[int, int]] = {}
    wanted: dict[str, dict[int, int]] = {}
    for topic, partition, offset in awaited.items():
        if shown.at(topic, partition) < offset:
            there.setdefault(topic, {})[partition] = shown.at(topic, partition)
            wanted.setdefault(topic, {})[partition] = offset
    return (Offsets(there), Offsets(wanted)) if wanted else None


class ServedLook:
    """Reads the offsets that readers see, again and again.

    Each read searches for a build's newest frontier from the frontier that the previous read found,
    because listing all frontiers of a build takes longer than the rest of the read.
    """

    def __init__(self, store: Store) -> None:
        """Reads nothing yet. The first call of `shown_offsets` makes the first read."""
        self._store = store
        self._newest: Mapping[str, Frontier] = {}

    def shown_offsets(self) -> Shown:
        """Returns, for each pipeline, the serving build and the offsets that its readers see."""
        _, _, serving = served_last(self._store)
        newest = {build: self._newest_of(build) for build in serving.values()}
        self._newest = {build: each for build, each in newest.items() if each is not None}
        if len(self._newest) < len(newest):
            # Damaged, or no longer served and collected: the readers' look knows which.
            snapshot = look_now(self._store).snapshot
            serving, self._newest = snapshot.serving, snapshot.frontiers
        return {
            pipeline: (build, self._newest[build].offsets) for pipeline, build in serving.items()
        }

    def _newest_of(self, build: str) -> Frontier | None:
        frontiers, newest = Frontiers(self._store, build), self._newest.get(build)
        if newest is None:
            return frontiers.newest()
        while (following := frontiers.get(newest.number + 1)) is not None:
            newest = following
        # While this frontier is kept, no later frontier was deleted.
        return newest if frontiers.get(newest.number) is not None else frontiers.newest()


def ensure_covered(
    store: Store, token: Offsets, *, seconds: float, is_up: Callable[[], bool] = lambda: True
) -> None:
    """Waits until readers see all records of a write token.

    All pipelines that serve and read a topic of the token must show the records. Raises TimedOut if
    the wait takes longer than `seconds`. If `is_up` returns False (no supervisor runs jobs), the
    hint of TimedOut also states that Kappa is not up. Raises UsageError at once if nothing is
    served, or if no serving pipeline reads a topic of the token.
    """
    look, due = ServedLook(store), time.monotonic() + seconds
    while behind := pipelines_behind(token, look.shown_offsets()):
        if time.monotonic() >= due:
            raise timeout_error(store, behind, seconds, is_up=is_up())
        time.sleep(LOOK_SECONDS)


def timeout_error(
    store: Store, behind: tuple[PipelineBehind, ...], seconds: float, *, is_up: bool = True
) -> TimedOut:
    """Creates the error for a wait that has taken too long.

    The hint names the known reasons why the pipelines in `behind` lack records.
    """
    none: Pauses = {}
    pauses = JournalView(store).folded(paused_after, none)
    reasons = [
        f"{each.pipeline} is {pauses[each.pipeline].text}: kappa resume {each.pipeline}"
        for each in behind
        if each.pipeline in pauses
    ]
    if not is_up:
        reasons.append("kappa is not up, so nothing is folded: kappa up -d")
    return TimedOut(
        f"after {seconds:g} s {'; '.join(map(str, behind))}",
        hint="; ".join(reasons)
        or "kappa status shows how far it is and what keeps it; beyond the log's end nothing comes",
    )
