"""Kept frontiers: what a build showed in the past, for queries as of then.

The build's job keeps a frontier every so often while the build serves, and at each switch
(kappa/engine/write/publisher.py). The pins of kept frontiers do not expire by the age of files.
Maintenance first deletes past records, then lists the leases, and then deletes the files that
neither a record nor a lease needs. A reader first puts its lease and then checks that the record
still exists (law 11, as for floors).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from kappa.base.failpoint import failpoint
from kappa.state.build import folded_by, folder_of_build
from kappa.state.documents import Documents, note_last, noted_last, numbered_name, numbers_in
from kappa.state.files.address import ask_side_by_side
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.store import Store


class KeptFrontierRecord(Struct, frozen=True):
    """A frontier that is kept.

    `generations` are the generations that began while readers saw the frontier. In these
    generations it is the first frontier that readers saw of the build, and in the generations
    before it is the last.

    `stays` is True if one of the generations switched the build's own pipeline. The frontier is
    then kept as long as the build.

    `until` is when readers moved on to a frontier that is no longer kept, or None if the next
    frontier still exists.

    `before` is the number of the frontier that was kept before. So the loss of a record is noticed,
    and an earlier frontier is not taken for the lost frontier.
    """

    frontier: Frontier
    generations: tuple[int, ...] = ()
    stays: bool = False
    until: str | None = None
    before: int | None = None
    format: int = 1

    @property
    def since(self) -> datetime:
        """Returns when readers began to see the frontier."""
        return parse_moment(self.frontier.published_at)

    def shown_at(self, when: datetime) -> bool:
        """Returns True if readers saw the frontier at `when`, or a successor that was not kept."""
        return self.since <= when and (self.until is None or when < parse_moment(self.until))


_KEPT = Documents(KeptFrontierRecord, derived=True)


def parse_moment(text: str) -> datetime:
    """Returns a record's time text as a time in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def put_kept_frontier(store: Store, kept: KeptFrontierRecord) -> None:
    """Keeps a frontier, in place of an earlier record of the frontier."""
    failpoint("kept.before_put")
    build, number = kept.frontier.build, kept.frontier.number
    _KEPT.put(store, kept_name(build, number), kept)
    if number > noted_last(store, kept_folder(build)):
        note_last(store, kept_folder(build), number)
    failpoint("kept.after_put")


def read_kept_frontier(store: Store, build: str, number: int) -> KeptFrontierRecord | None:
    """Returns the kept record of a build's frontier, or None if no record is kept."""
    what = f"the kept frontier {number} of build {build}"
    return _KEPT.get(store, kept_name(build, number), what)


def kept_frontiers_of(store: Store, build: str) -> tuple[KeptFrontierRecord, ...]:
    """Returns all kept frontiers of a served build, oldest first.

    A frontier before a lost record counts as shown only at the frontier's own moment.
    """
    found, lost = _find_kept(store, folded_by(store, build))
    return tuple(
        replace(one, until=one.frontier.published_at) if one.frontier.number in lost else one
        for one in found
    )


def lost_kept_numbers(store: Store, build: str) -> tuple[int, ...]:
    """Returns the numbers of a build's kept frontiers whose records are known to be lost."""
    return tuple(_find_kept(store, folded_by(store, build))[1].values())


def _find_kept(store: Store, build: str) -> tuple[list[KeptFrontierRecord], dict[int, int]]:
    """Returns the existing kept frontiers, and by number the lost record behind each (0: all)."""
    noted = noted_last(store, kept_folder(build))
    found = _read_kept(store, build, kept_numbers(store, build))
    # A list of a bucket may lack a record that is there, whose files must not go.
    while unlisted := _read_kept(store, build, {*_lost_behind(found, noted).values()}):
        found = sorted((*found, *unlisted), key=lambda kept: kept.frontier.number)
    return found, _lost_behind(found, noted)


def _read_kept(store: Store, build: str, numbers: Iterable[int]) -> list[KeptFrontierRecord]:
    looked = ask_side_by_side(
        store.url, lambda number: read_kept_frontier(store, build, number), numbers
    )
    return [kept for kept in looked if kept is not None]


def _lost_behind(found: Sequence[KeptFrontierRecord], noted: int) -> dict[int, int]:
    """Returns the number of the lost record behind each kept frontier (0: all). Pure."""
    lost = {
        one.frontier.number: following.before
        for one, following in pairwise(found)
        if one.until is None and (following.before or 0) > one.frontier.number
    }
    last = found[-1].frontier.number if found else 0
    if noted > last:
        lost[last] = noted
    return {one: before for one, before in lost.items() if before is not None}


def kept_numbers(store: Store, build: str) -> tuple[int, ...]:
    """Returns the numbers of a build's kept frontiers, ascending."""
    return numbers_in(store, kept_folder(build))


def with_newest(
    kept: Sequence[KeptFrontierRecord], newest: Frontier | None
) -> list[KeptFrontierRecord]:
    """Returns all frontiers of a build that can be looked back at, oldest first.

    These are the kept frontiers, and the frontier that readers see now.
    """
    return (
        [*kept]
        if newest is None or (kept and kept[-1].frontier.number >= newest.number)
        else [*kept, KeptFrontierRecord(newest)]
    )


def shown_frontiers(store: Store, build: str) -> tuple[Frontier, ...]:
    """Lists the frontiers of a build that a branch can begin with, the newest last."""
    # The newest is read first: a frontier published in between is kept, if at all, before the next.
    newest = Frontiers(store, build).newest()
    return tuple(each.frontier for each in with_newest(kept_frontiers_of(store, build), newest))


def past_frontiers(
    kept: Iterable[KeptFrontierRecord], now: float, keep_seconds: float
) -> tuple[tuple[KeptFrontierRecord, ...], tuple[KeptFrontierRecord, ...]]:
    """Returns the kept frontiers of a build that may go at `now`, and the records that change.

    `kept` is oldest first, and `now` is in seconds since 1970. A frontier is the answer until the
    next frontier begins to be the answer. So a frontier may go when even the next frontier is older
    than `keep_seconds`. A frontier that stays then records until when it was the answer. Pure.
    """
    horizon = datetime.fromtimestamp(now, UTC) - timedelta(seconds=keep_seconds)
    every = list(kept)
    going = [
        one for one, following in pairwise(every) if not one.stays and following.since <= horizon
    ]
    gone = {one.frontier.number for one in going}
    dated = []
    for one, following in pairwise(every):
        if (
            one.frontier.number not in gone
            and following.frontier.number in gone
            and one.until is None
        ):
            dated.append(replace(one, until=following.frontier.published_at))
    return tuple(going), tuple(dated)


def ensure_past_gone(
    store: Store, build: str, now: float, keep_seconds: float
) -> tuple[KeptFrontierRecord, ...]:
    """Deletes the kept frontiers that `past` lets go. Returns the kept frontiers that are left."""
    going, dated = past_frontiers(kept := kept_frontiers_of(store, build), now, keep_seconds)
    for each in dated:
        put_kept_frontier(store, each)
    for each in going:
        failpoint("kept.before_delete")
        store.delete(kept_name(build, each.frontier.number))
        failpoint("kept.after_delete")
    return kept_frontiers_of(store, build) if going or dated else kept


def kept_name(build: str, number: int) -> str:
    """Returns the name of a kept frontier below the root."""
    return numbered_name(kept_folder(build), number)


def kept_folder(build: str) -> str:
    """Returns the folder of a build's kept frontiers, below the root."""
    return f"{folder_of_build(build)}/kept"
