"""Kept frontiers: what a build showed at some times of the past, kept so that a query can be answered as of then.

The build's job keeps one every so often while the build serves, and one at each switch (kappa/engine/write/publisher.py). What they
pin goes by no age of files: maintenance first takes records away (`past`), then lists the leases, then deletes what neither
needs; a reader puts its lease first and then looks whether the record is still there (law 11, as for floors).
Read next: serving/pin/past.py for who reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from kappa.base.failpoint import failpoint
from kappa.state.build import folder
from kappa.state.documents import Documents, numbered, numbers_in
from kappa.state.frontier import Frontier
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class Kept:
    """One frontier that is kept.

    `generations` are those that began while readers saw it: it is the first that they saw of the build in them, and the
    last in the ones before. `stays`: one of those switched its own pipeline, and it is kept for as long as the build is.
    `until` is when readers went on to a frontier that is kept no longer; None where the next one is there still.
    """

    frontier: Frontier
    generations: tuple[int, ...] = ()
    stays: bool = False
    until: str | None = None
    format: int = 1

    @property
    def since(self) -> datetime:
        """When readers began to see it."""
        return moment(self.frontier.published_at)

    def shown_at(self, when: datetime) -> bool:
        """True where it, or one that followed too soon to be kept, was what readers saw."""
        return self.since <= when and (self.until is None or when < moment(self.until))


_KEPT = Documents(Kept)


def moment(text: str) -> datetime:
    """A time as records carry it, in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def put_kept(store: Store, kept: Kept) -> None:
    """Keeps a frontier, in place of what was said of it before."""
    failpoint("kept.before_put")
    _KEPT.put(store, kept_name(kept.frontier.build, kept.frontier.number), kept)
    failpoint("kept.after_put")


def read_kept(store: Store, build: str, number: int) -> Kept | None:
    """What is kept of a build's frontier of that number; None where it is not kept (any more)."""
    name = kept_name(build, number)
    what = f"the kept frontier {number} of build {build}"
    return _KEPT.get(store, name, what, hint=f"delete {store.path(name)}")


def kept_of(store: Store, build: str) -> tuple[Kept, ...]:
    """All that is kept of a build, oldest first."""
    found = (read_kept(store, build, number) for number in kept_numbers(store, build))
    return tuple(kept for kept in found if kept is not None)


def kept_numbers(store: Store, build: str) -> tuple[int, ...]:
    """The numbers of the frontiers that are kept of a build, ascending."""
    return numbers_in(store, _folder(build))


def with_newest(kept: Sequence[Kept], newest: Frontier | None) -> list[Kept]:
    """All that can be looked back at of a build, oldest first: what is kept of it, and what it shows now."""
    return (
        [*kept]
        if newest is None or (kept and kept[-1].frontier.number >= newest.number)
        else [*kept, Kept(newest)]
    )


def past(
    kept: Iterable[Kept], now: float, keep_seconds: float
) -> tuple[tuple[Kept, ...], tuple[Kept, ...]]:
    """Which of a build's kept frontiers, oldest first, may go at `now` (seconds since 1970), and which are told otherwise then.

    A frontier is the answer until the next one is, so it goes when even that one is older than `keep_seconds`. One that
    stays says from then on until when it was the answer. Pure.
    """
    horizon = datetime.fromtimestamp(now, UTC) - timedelta(seconds=keep_seconds)
    every = list(kept)
    going = [
        one for one, following in pairwise(every) if not one.stays and following.since <= horizon
    ]
    gone = {one.frontier.number for one in going}
    told = []
    for one, following in pairwise(every):
        if (
            one.frontier.number not in gone
            and following.frontier.number in gone
            and one.until is None
        ):
            told.append(replace(one, until=following.frontier.published_at))
    return tuple(going), tuple(told)


def ensure_past_gone(store: Store, build: str, now: float, keep_seconds: float) -> tuple[Kept, ...]:
    """Takes away what `past` lets go, and gives what is left. Call it before the leases are listed, and hold the build's lock."""
    going, told = past(kept_of(store, build), now, keep_seconds)
    for each in told:
        put_kept(store, each)
    for each in going:
        failpoint("kept.before_delete")
        store.delete(kept_name(build, each.frontier.number))
        failpoint("kept.after_delete")
    return kept_of(store, build)


def kept_name(build: str, number: int) -> str:
    """Where a kept frontier lies."""
    return numbered(_folder(build), number)


def _folder(build: str) -> str:
    return f"{folder(build)}/kept"
