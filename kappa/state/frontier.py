"""Frontiers: the states of a build that readers may see, as numbered records without gaps.

A record can be stored only after the record with the previous number. A record contains offsets,
and the Delta version of every table at these offsets. A frontier is published by a single write,
after ALL tables of a slice are committed.

`epoch` counts the processes that have held the build's lock. A process that has just taken the lock
first publishes the newest frontier again, under its own epoch. If a write of the previous holder
arrives later, this write fails, because its number is already used.
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

    - `versions` maps the names of tables to Delta versions. It includes the rejects table and the
      tables with the recent rows of large tables (`recent_names`).
    - `log_time` is the running maximum of the broker's timestamp per topic and partition, in
      milliseconds.
    - `hold` is the number of the journal's hold record that this frontier acknowledges.
    - `leg` and `slice` identify the slice that was folded last. Before the first slice, both are
      -1.
    - `heard_at` is the last time at which the job had read all records of the compacted topics. If
      the job has not yet read all of them, `heard_at` is the time when the build began to read.
    - `sums` contains the checksums of the data files that are new in the frontier
      (kappa/state/file_sums.py).
    - `failing` maps each maintained view that cannot be computed over the present rows to the
      reason. The tables of these views contain the rows of an earlier frontier, and readers do not
      see these tables.
    - `witnesses` contains, for each partition, the last record that was read. These records
      identify the log. Frontiers of an older Kappa have no witnesses.
    - `file_lists` maps the name of each table to a checksum of the list of the version's live files
      (kappa/tables/file_list.py), so that a change of the list is noticed. Frontiers of an older
      Kappa have no such checksums.
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
        """Returns the time at which the job had last read all records of the compacted topics.

        This is `heard_at`, or `published_at` if an older Kappa has stored the frontier.
        """
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
    """The frontiers of a build. An overlay has the frontiers of the build below it."""

    def __init__(self, store: Store, build: str) -> None:
        self._build = build
        self._records = frontier_records(store, build)
        self._marker = store.news_marker(_news_name(build))

    @staticmethod
    def news(
        store: Store, build: str, *, clock: Callable[[], float] = time.monotonic
    ) -> MarkerWatch:
        """Returns a watcher that notices when another frontier of a build is published."""
        return MarkerWatch(store.news_marker(_news_name(build)), clock=clock)

    def newest(self) -> Frontier | None:
        """Returns the frontier that readers see now, or None if the build has not published any."""
        last = self._records.last()
        return None if last is None else last[1]

    def get(self, number: int) -> Frontier | None:
        """Returns the frontier with that number, or None if it does not exist."""
        return self._records.get(number)

    def publish(self, frontier: Frontier) -> None:
        """Stores a frontier as the next one.

        Raises NumberTaken if a frontier with this number exists, because then another process
        writes for this build.
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
        """Publishes and returns the next frontier of a build whose lock was just taken.

        The caller is the process that has taken the lock. `next_of` is called with the newest
        frontier, or None if there is none, and returns the frontier to publish. If `next_of`
        returns None, nothing is published and None is returned. If a late write of the lock's
        previous holder has used the next number, the newest frontier is read again, and `next_of`
        is called again. Raises Broken if this happens five times.
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
        """Deletes the frontiers with lower numbers than `number`."""
        failpoint("frontier.before_delete")
        self._records.delete_below(number)
        failpoint("frontier.after_delete")


def _news_name(build: str) -> str:
    return f"frontier/{build}"
