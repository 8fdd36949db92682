"""Kept frontiers: earlier frontiers of a build, for queries as of a past time.

While a build serves, its job keeps a frontier at regular intervals, and at each switch
(kappa/engine/write/publisher.py). As long as the record of a kept frontier exists, the frontier's
files are not deleted. Maintenance first deletes the records of kept frontiers that are too old.
Then maintenance lists the leases, and then deletes the files that no record and no lease needs. A
reader first stores its lease, and then checks that the record of the kept frontier still exists. So
no file is deleted while a reader uses it.
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
    """The record of a kept frontier.

    - `generations` are the generations that began while readers saw this frontier: readers saw this
      frontier last in the previous generation, and first in the new one.
    - `stays` is True if one of these generations switched the build's own pipeline; then the
      frontier is kept as long as the build.
    - `until` is the time when readers began to see the next frontier, if that frontier was kept and
      is not kept any more. Otherwise `until` is None.
    - `before` is the number of the frontier that was kept before this one. If the record of that
      frontier is lost, `before` shows the loss. Then no query uses an earlier frontier instead of
      the lost one.
    """

    frontier: Frontier
    generations: tuple[int, ...] = ()
    stays: bool = False
    until: str | None = None
    before: int | None = None
    format: int = 1

    @property
    def since(self) -> datetime:
        """Returns the time when readers began to see the frontier."""
        return parse_moment(self.frontier.published_at)

    def shown_at(self, when: datetime) -> bool:
        """Returns True if a query as of the time `when` uses this frontier.

        The query uses the last kept frontier that was published at that time or before.
        """
        return self.since <= when and (self.until is None or when < parse_moment(self.until))


_KEPT = Documents(KeptFrontierRecord, derived=True)


def parse_moment(text: str) -> datetime:
    """Parses an ISO 8601 time from a record, and converts it to UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)


def put_kept_frontier(store: Store, kept: KeptFrontierRecord) -> None:
    """Stores the record of a kept frontier. An existing record of the same frontier is replaced."""
    failpoint("kept.before_put")
    build, number = kept.frontier.build, kept.frontier.number
    _KEPT.put(store, kept_name(build, number), kept)
    if number > noted_last(store, kept_folder(build)):
        note_last(store, kept_folder(build), number)
    failpoint("kept.after_put")


def read_kept_frontier(store: Store, build: str, number: int) -> KeptFrontierRecord | None:
    """Returns the record of a kept frontier of a build, or None if the frontier is not kept."""
    what = f"the kept frontier {number} of build {build}"
    return _KEPT.get(store, kept_name(build, number), what)


def kept_frontiers_of(store: Store, build: str) -> tuple[KeptFrontierRecord, ...]:
    """Returns the records of all kept frontiers of a served build, oldest first.

    If the record of the next kept frontier is lost, `until` in the returned record of a frontier is
    the time when that frontier was published. So queries as of a later time do not use this
    frontier instead of the lost one.
    """
    found, lost = _find_kept(store, folded_by(store, build))
    return tuple(
        replace(one, until=one.frontier.published_at) if one.frontier.number in lost else one
        for one in found
    )


def lost_kept_numbers(store: Store, build: str) -> tuple[int, ...]:
    """Returns the numbers of a build's kept frontiers whose records are lost."""
    return tuple(_find_kept(store, folded_by(store, build))[1].values())


def _find_kept(store: Store, build: str) -> tuple[list[KeptFrontierRecord], dict[int, int]]:
    """Returns the records of the kept frontiers, oldest first, and the numbers of lost frontiers.

    A lost frontier is a kept frontier whose record is lost. The second value maps the number of the
    kept frontier that precedes a lost frontier (0 if there is none) to the number of the lost
    frontier.
    """
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
    """Finds the kept frontiers whose records are lost. Pure.

    `found` contains the existing records, oldest first, and `noted` is the number of the frontier
    that was kept last. The result maps the number of the kept frontier that precedes a lost
    frontier (0 if there is none) to the number of the lost frontier.
    """
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
    """Returns the numbers of a build's kept frontiers, in ascending order."""
    return numbers_in(store, kept_folder(build))


def with_newest(
    kept: Sequence[KeptFrontierRecord], newest: Frontier | None
) -> list[KeptFrontierRecord]:
    """Returns the records of all frontiers of a build that queries can use, oldest first.

    `kept` contains the records of the kept frontiers, oldest first. `newest` is the frontier that
    readers see now, or None.
    """
    return (
        [*kept]
        if newest is None or (kept and kept[-1].frontier.number >= newest.number)
        else [*kept, KeptFrontierRecord(newest)]
    )


def shown_frontiers(store: Store, build: str) -> tuple[Frontier, ...]:
    """Returns the frontiers of a build at which a branch can begin, oldest first.

    These are the kept frontiers, and the frontier that readers see now.
    """
    # The newest is read first: a frontier published in between is kept, if at all, before the next.
    newest = Frontiers(store, build).newest()
    return tuple(each.frontier for each in with_newest(kept_frontiers_of(store, build), newest))


def past_frontiers(
    kept: Iterable[KeptFrontierRecord], now: float, keep_seconds: float
) -> tuple[tuple[KeptFrontierRecord, ...], tuple[KeptFrontierRecord, ...]]:
    """Returns the kept frontiers that may be deleted, and the records that must be changed. Pure.

    `kept` contains the records of kept frontiers, oldest first. `now` is in seconds since 1970. A
    query as of a past time uses the last frontier that was published before that time. So a
    frontier may be deleted if the next frontier was published more than `keep_seconds` ago, unless
    its `stays` is True. If the frontier after a remaining frontier is deleted, the record of the
    remaining frontier must be changed: its `until` becomes the time when the deleted frontier was
    published.
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
    """Deletes the kept frontiers that are too old, and returns the records of all others.

    `past_frontiers` decides which frontiers are too old. `now` is in seconds since 1970.
    """
    going, dated = past_frontiers(kept := kept_frontiers_of(store, build), now, keep_seconds)
    for each in dated:
        put_kept_frontier(store, each)
    for each in going:
        failpoint("kept.before_delete")
        store.delete(kept_name(build, each.frontier.number))
        failpoint("kept.after_delete")
    return kept_frontiers_of(store, build) if going or dated else kept


def kept_name(build: str, number: int) -> str:
    """Returns the name of a kept frontier's record, relative to the root."""
    return numbered_name(kept_folder(build), number)


def kept_folder(build: str) -> str:
    """Returns the folder of a build's kept frontiers, relative to the root."""
    return f"{folder_of_build(build)}/kept"
