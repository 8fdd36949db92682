"""Pins two builds of one pipeline at equal offsets, for a comparison of rows.

A pair consists of the frontiers of the newest alignment of both builds, as long as the lease of the
alignment has not expired. Otherwise a pair consists of the newest frontiers of both builds, if
their offsets happen to be equal because no records are produced, or because both builds are at the
end of the log. Builds at different offsets cannot be compared, because their rows may differ only
by lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kappa.base.errors import Conflict, UsageError
from kappa.replay.rollout.rollout_numbers import build_named, ensure_served, rollout_named
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.diff import (
    Comparison,
    Part,
    Side,
    compare_builds,
    compare_parts,
)
from kappa.replay.rollout.verify.unsettled_keys import texts_for, unsettled_keys
from kappa.serving.query.pin.catalog import pin_pair
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.serving.query.pin.snapshot_reads import newest_frontier
from kappa.serving.query.query import connect_pair
from kappa.serving.query.reader.reader import Limits
from kappa.state.alignment import Alignments
from kappa.state.build import comparable_topics, folded_by, read_birth
from kappa.state.build_status import ask_turn
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.store import Store

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_LOOKS = 5
_NAP_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Pair:
    """Two frontiers with equal offsets in every partition of the `comparable` topics.

    `lease` is the lease of the alignment, or None if the two frontiers are not an alignment.
    """

    before: Frontier
    after: Frontier
    comparable: frozenset[str]
    lease: str | None

    @property
    def offsets(self) -> Offsets:
        """Returns the offsets of both frontiers in the comparable topics."""
        return self.after.offsets.only(self.comparable)


def builds_to_compare(
    state: State, pipeline: str, before: str | None, after: str | None
) -> tuple[str, str]:
    """Returns the two builds to compare, the earlier one first. Pure.

    The default is the serving build and the candidate, or, without a candidate, the idle build and
    the serving build. Each argument may be the number of a rollout, which means the build of the
    rollout. If only one number is given, it must belong to one of the default builds. Raises
    UsageError if the pipeline does not have two builds, or if both builds serve the same tables.
    """
    named = rollout_named(state, pipeline)
    if named is None:
        builds = _named_or_newest(state, pipeline, before, after)
    elif before is not None and after is None:
        # kappa diff 3 4
        builds = _named_or_newest(state, named.pipeline, named.build, before)
    else:
        builds = _named_or_newest(state, named.pipeline, before, after)
    if named is not None and before is None and named.build not in builds:
        raise UsageError(
            f"build {named.build} of rollout {named.number} is neither {builds[0]} nor {builds[1]}",
            hint=f"name another rollout to compare it with: kappa diff {named.number} NUMBER",
        )
    if state.serves_the_same(*builds):
        raise UsageError(
            f"builds {' and '.join(builds)} serve the same tables, so no row differs",
            hint="what differs is in kappa history: views and checks",
        )
    return builds


def _named_or_newest(
    state: State, pipeline: str, before: str | None, after: str | None
) -> tuple[str, str]:
    before, after = (None if each is None else build_named(state, each) for each in (before, after))
    serving = ensure_served(state, pipeline)
    if before is None or after is None:
        if before is not None:
            raise UsageError(
                "one build is named, and two are compared",
                hint=f"name both, or none: kappa diff {pipeline}",
            )
        rollout = state.active(pipeline)
        idle = state.idle.get(pipeline)
        if rollout is not None:
            return serving, rollout.build
        if idle is None:
            raise UsageError(
                f"pipeline {pipeline} has no build beside the one that serves",
                hint=f"kappa deploy or kappa replay {pipeline} makes one",
            )
        return idle, serving
    for build in (before, after):
        if state.pipelines.get(build) != pipeline or build in state.retired:
            there = sorted(
                each
                for each, of in state.pipelines.items()
                if of == pipeline and each not in state.retired
            )
            raise UsageError(
                f"pipeline {pipeline} has no build "
                f"{build}{' any more' if build in state.retired else ''}",
                hint=f"it has {', '.join(there)}",
            )
    if before == after:
        raise UsageError(
            f"build {before} does not differ from itself",
            hint=f"name two builds, or none: kappa diff {pipeline}",
        )
    return before, after


def aligned_pair(store: Store, live: str, candidate: str) -> Pair | None:
    """Returns the newest alignment of `candidate` with the build `live` as a pair.

    Returns None if the candidate has no alignment, or if its newest alignment is with another live
    build.
    """
    last = Alignments(store, candidate).last()
    if last is None or last.live.build != folded_by(store, live):
        return None
    return Pair(last.live, last.candidate, frozenset(last.comparable), last.lease)


def newest_pair(store: Store, before: str, after: str) -> Pair:
    """Returns the newest frontiers of two builds as a pair.

    Raises Conflict if the frontiers are not at equal offsets. The message contains the number of
    offsets by which the two builds differ.
    """
    one, other, comparable = _newest_frontiers(store, before, after)
    here, there = one.offsets.only(comparable), other.offsets.only(comparable)
    if not here.equals(there):
        apart = here.highest_with(there).distance(here.lowest_with(there))
        raise Conflict(
            f"build {before} is at {here}, and build {after} at {there}: {apart:,} "
            "offsets apart, so their rows cannot be compared",
            hint="ask again when fewer records come; kappa verify"
            f" {read_birth(store, after).pipeline} brings a candidate to the offsets of the live"
            " build, whatever comes",
        )
    return Pair(one, other, comparable, None)


def _newest_frontiers(
    store: Store, before: str, after: str
) -> tuple[Frontier, Frontier, frozenset[str]]:
    """Returns the newest frontiers of two builds, and the topics that both builds read."""
    one, other = (newest_frontier(store, build) for build in (before, after))
    return one, other, comparable_topics(*(read_birth(store, build) for build in (before, after)))


def bring_together(store: Store, before: str, after: str, *, seconds: float) -> None:
    """Wakes the build that is behind, and waits until both builds have equal offsets.

    A build that is behind may be at rest. The wait ends after `seconds` in any case. The platform
    must be up.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        one, other, comparable = _newest_frontiers(store, before, after)
        here, there = one.offsets.only(comparable), other.offsets.only(comparable)
        sides = ((before, here, there), (after, there, here))
        behind = [build for build, own, theirs in sides if not own.covers(theirs)]
        if not behind:
            return
        for build in behind:
            ask_turn(store, folded_by(store, build))
        time.sleep(_NAP_SECONDS)


@contextmanager
def pin_equal(
    store: Store, before: str, after: str, *, lease_seconds: float, wait_seconds: float = 0
) -> Iterator[tuple[Pair, PinnedSnapshot]]:
    """Pins two builds at equal offsets, and yields the pair and the pinned snapshot.

    If the builds are not at equal offsets and `wait_seconds` is not 0, wakes the build that is
    behind, and waits for at most `wait_seconds`. Raises Conflict if no frontiers at equal offsets
    are kept.
    """
    with ExitStack() as kept:
        try:
            found = kept.enter_context(_pin_best_pair(store, before, after, lease_seconds))
        except Conflict:
            if not wait_seconds:
                raise
            bring_together(store, before, after, seconds=wait_seconds)
            found = kept.enter_context(_pin_best_pair(store, before, after, lease_seconds))
        yield found


@contextmanager
def _pin_best_pair(
    store: Store, before: str, after: str, lease_seconds: float
) -> Iterator[tuple[Pair, PinnedSnapshot]]:
    with ExitStack() as kept:
        for pair in _possible_pairs(store, before, after):
            try:
                pinned = kept.enter_context(
                    pin_pair(
                        store,
                        pair.before,
                        pair.after,
                        alignment_lease=pair.lease,
                        lease_seconds=lease_seconds,
                    )
                )
            except Conflict as error:
                gone = error
            else:
                yield pair, pinned
                return
        raise gone


def compare_pair(
    store: Store,
    pair: Pair,
    pinned: PinnedSnapshot,
    *,
    log: Log | None,
    limits: Limits | None,
    samples: int = 0,
    only: Collection[str] | None = None,
    parts: Collection[Part] = (),
    on_progress: Callable[[str], None] = lambda _text: None,
) -> Comparison:
    """Compares the rows of two builds at a pinned pair of frontiers.

    The parameters `samples`, `only` and `on_progress` are those of `compare_builds`. `log` is None
    if there is no broker. Raises Conflict if the frontiers were deleted before the end.
    """
    births = pinned.snapshot.births
    before, after = (
        Side(births[frontier.build], frontier) for frontier in (pair.before, pair.after)
    )
    texts_of = texts_for(store, after.birth)
    with connect_pair(
        store, (before.birth, before.frontier), (after.birth, after.frontier), limits=limits
    ) as reader:
        found = compare_builds(
            reader,
            before,
            after,
            comparable=pair.comparable,
            unsettled=lambda table: unsettled_keys(log, after.birth, table, pair.offsets, texts_of),
            texts_of=texts_of,
            samples=samples,
            only=only,
            on_progress=on_progress,
        )
        if parts:
            compared = compare_parts(reader, before.birth, after.birth, found.differences, parts)
            found = replace(found, parts=compared)
    pinned.confirm_kept()
    return found


def _possible_pairs(store: Store, before: str, after: str) -> Iterator[Pair]:
    """Yields pairs of frontiers that may still be kept, alignments first.

    The last pairs are the newest frontiers of both builds.
    """
    aligned, turned = aligned_pair(store, before, after), aligned_pair(store, after, before)
    if aligned is not None:
        yield aligned
    if turned is not None:
        yield Pair(turned.after, turned.before, turned.comparable, turned.lease)
    # Maintenance, every few seconds, may let go of a frontier between look and lease.
    for _ in range(_LOOKS):
        yield newest_pair(store, before, after)
