"""The frontier: what readers may see of a build, in numbered records without gaps (law 10).

Each record is put only after the record before. A record contains the offsets, and the Delta
version of every table at these offsets. A frontier is published in one put after ALL tables of a
slice are committed.

`epoch` counts the holders of the build's lock. A new holder first publishes the same frontier again
under the new epoch. A late put of a dead holder then finds its number taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from kappa.base.errors import Broken
from kappa.base.failpoint import failpoint
from kappa.declare.values.tally import Tally
from kappa.state.build import tables_folder
from kappa.state.documents import Documents, NumberedRecords, NumberTaken
from kappa.state.files.markers import MarkerWatch, touch_marker
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.witness import Witnesses

# The size of a file in bytes and its CRC; and the sums of a build's files, by `TABLE/FILE`.
Sum = tuple[int, int]
Sums = Mapping[str, Sum]


class Frontier(Struct, frozen=True):
    """A published frontier of a build.

    `versions` maps a table's name to its Delta version. This includes the rejects table and a large
    table's recent rows (`recent_names`).

    `log_time` is the running maximum of the broker's timestamp per topic and partition, in
    milliseconds (law 4).

    `hold` is the number of the journal's hold record that this frontier acknowledges.

    `leg` and `slice` name the slice that was folded last (-1: none yet).

    `heard_at` is when the job last read everything that the compacted topics contained. For a build
    that has not yet got so far, it is when the build began to read (law 5).

    `sums` are the sums of the data files that are new with the frontier (kappa/state/file_sums.py).

    `failing` are the maintained views that cannot be computed over the current rows, and why. The
    tables of these views have the rows of an earlier frontier, which no reader sees.

    `witnesses` are the last records that were read before the offsets. They identify the log (law
    2). Frontiers of an older Kappa have none.

    `file_lists` vouches for the files of each version: by a table's name, the sum over the live
    files of the table's version (kappa/tables/file_list.py). Frontiers of an older Kappa have none.
    """

    number: int
    build: str
    epoch: int
    offsets: Offsets
    versions: Mapping[str, int]
    published_at: str
    leg: int = -1
    slice: int = -1
    hold: int | None = None
    log_time: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    tally: Mapping[str, Mapping[int, Tally]] = field(default_factory=dict)
    heard_at: str = ""
    sums: Sums = field(default_factory=dict)
    witnesses: Witnesses = field(default_factory=dict)
    file_lists: Mapping[str, str] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    format: int = 1

    @property
    def heard_time(self) -> str:
        """Returns `heard_at`, or `published_at` for older frontiers, which have no `heard_at`."""
        return self.heard_at or self.published_at


_FRONTIER = Documents(Frontier)
# A dead process leaves at most one put behind, and the new holder has waited until it is gone.
_LATE = 5


def frontier_records(store: Store, build: str) -> NumberedRecords[Frontier]:
    """Returns the stored records of a build's frontiers."""
    return NumberedRecords(
        store,
        f"{tables_folder(store, build)}/frontier",
        _FRONTIER,
        f"frontier {{}} of build {build}",
        made_anew=True,
    )


class Frontiers:
    """The frontiers of a build, newest last; an overlay has the frontiers of the build below."""

    def __init__(self, store: Store, build: str) -> None:
        self._build = build
        self._records = frontier_records(store, build)
        self._marker = store.news_marker(_news_name(build))

    @staticmethod
    def news(
        store: Store, build: str, *, clock: Callable[[], float] = time.monotonic
    ) -> MarkerWatch:
        """Returns a watcher's looks for frontiers newer than the watcher has."""
        return MarkerWatch(store.news_marker(_news_name(build)), clock=clock)

    def newest(self) -> Frontier | None:
        """Returns the frontier that readers see now, or None if the build has published none."""
        last = self._records.last()
        return None if last is None else last[1]

    def get(self, number: int) -> Frontier | None:
        """Returns a frontier by number, or None if the frontier does not exist (any more)."""
        return self._records.get(number)

    def publish(self, frontier: Frontier) -> None:
        """Puts the next frontier.

        Raises Taken if the frontier's number is taken: another process writes for this build.
        """
        failpoint("frontier.before_put")
        put = self._records.put(frontier.number, frontier)
        touch_marker(self._marker)
        failpoint("frontier.after_put")
        if not put:
            raise NumberTaken(f"frontier {frontier.number} of build {self._build}")

    def publish_next(
        self, next_of: Callable[[Frontier | None], Frontier | None]
    ) -> Frontier | None:
        """Publishes the frontier that follows the newest frontier, as the build's new holder.

        Returns the published frontier. If `next_of` returns None, nothing is published and None is
        returned.

        A put that the previous holder had under way when it died may land at this moment. In that
        case the newest frontier is read again.
        """
        for _ in range(_LATE):
            following = next_of(self.newest())
            if following is None:
                return None
            try:
                self.publish(following)
            except NumberTaken:
                continue
            return following
        raise Broken(
            f"build {self._build} has a new frontier each time that one is to follow the last",
            hint="two jobs ran for one build; kappa logs says which",
        )

    def delete_below(self, number: int) -> None:
        """Deletes the frontiers before `number`."""
        failpoint("frontier.before_delete")
        self._records.delete_below(number)
        failpoint("frontier.after_delete")


def _news_name(build: str) -> str:
    return f"frontier/{build}"
