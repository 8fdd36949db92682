"""The publisher of a build's frontier, the record that decides what readers see.

The first record that a process publishes repeats the frontier under the process's own epoch. So if
a dead process puts a record late, the number of that record is already taken. A hold is
acknowledged once, by a frontier that names the hold. After that, nothing is published until the
hold ends. If a hold lasts too long, the job releases the hold by a journal record; the journal
decides which record came first. Two threads use the publisher: one thread folds and publishes, and
the other reads the journal. kappa/state/journal/projections.py defines holds.

If a build's frontier records are lost, a frontier is made from the tables' marks. Every commit to a
table contains the mark of the slice that was folded last. So the newest slice that all tables have
folded gives a frontier: its mark contains the offsets, the log times and the counts of records. The
restored frontier gets a number above all numbers that readers have ever seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.errors import Broken, Damaged
from kappa.base.failpoint import failpoint
from kappa.base.log_lines import Level, write_log_line
from kappa.state.build import Birth, folder_of_build, recent_names, table_path
from kappa.state.file_sums import RecordedSums
from kappa.state.files.address import files_in
from kappa.state.frontier import Frontier, Frontiers, frontier_records
from kappa.state.journal.events import GenerationMade, Held, Released, Staged
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.journal.projections import hold_after
from kappa.state.kept_frontiers import (
    KeptFrontierRecord,
    kept_frontiers_of,
    kept_numbers,
    parse_moment,
    put_kept_frontier,
    read_kept_frontier,
)
from kappa.state.lease import read_floor
from kappa.state.mark import Mark
from kappa.state.store import Store
from kappa.tables.delta import LOG_FOLDER
from kappa.tables.durable_versions import sync_versions, vouched_lists
from kappa.tables.versions import mark_of

_LOOK_SECONDS = 0.05


class Stopping(Exception):
    """A signal that ends the job's work, because the job was asked to stop.

    The signal is raised while the job waits for the end of a hold, and where the job would
    otherwise begin further work.
    """


class Keeper:
    """An object that keeps past frontiers of a build, so that later queries can read them.

    While the build serves, the job keeps a frontier at regular intervals and at each switch of the
    serving build. The kept frontier is always the frontier that readers see at that moment; it is
    kept before the next frontier is published. If no job runs at a switch, the next job keeps the
    frontier when the job begins, since readers have seen no other frontier in between.
    """

    def __init__(
        self,
        store: Store,
        build: str,
        *,
        pipeline: str,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Stores the build and the interval.

        At most one frontier per `every_seconds` seconds is kept, except at switches.
        """
        self._store = store
        self._build = build
        self._pipeline = pipeline
        self._every_seconds = every_seconds
        self._clock = clock
        self._begun = False
        # The build itself and its overlays: readers of an overlay see this build's tables.
        self._shown_by = {build}
        self._serving: str | None = None
        self._newest_kept: int | None = None
        self._due = clock()

    def read_record(self, record: JournalRecord, shown: Frontier | None) -> None:
        """Processes the next journal record, and keeps the current frontier at a switch.

        A switch is a new generation in which this build, or an overlay of this build, served before
        or serves now. `shown` is the frontier that readers see, or None if readers see no frontier
        yet.
        """
        if isinstance(record.event, Staged) and record.event.tables_of == self._build:
            self._shown_by.add(record.event.build)
        if not isinstance(record.event, GenerationMade):
            return
        before, self._serving = self._serving, record.event.serving.get(self._pipeline)
        if shown is None or self._shown_by.isdisjoint({before, self._serving}):
            return
        # A job reads the journal from its beginning: the frontiers of older switches were kept at
        # the time.
        if not self._begun and parse_moment(record.at) < parse_moment(shown.published_at):
            return
        self._keep(shown, record.event.generation, stays=before != self._serving)

    def look(self, shown: Frontier) -> None:
        """Keeps the frontier that readers see, if the build serves and the interval has passed.

        A frontier that is already kept is not kept again.
        """
        self._begun = True
        serves = self._serving in self._shown_by
        if serves and shown.number != self._newest_kept and self._clock() >= self._due:
            self._keep(shown)

    def _keep(self, shown: Frontier, *generations: int, stays: bool = False) -> None:
        before = read_kept_frontier(self._store, self._build, shown.number) or KeptFrontierRecord(
            shown, before=self._kept_before(shown.number)
        )
        kept = replace(
            before,
            frontier=shown,
            generations=tuple(sorted({*before.generations, *generations})),
            stays=before.stays or stays,
        )
        if kept != before or self._newest_kept != shown.number:
            put_kept_frontier(self._store, kept)
        self._newest_kept = shown.number
        self._due = self._clock() + self._every_seconds

    def _kept_before(self, number: int) -> int | None:
        earlier = (each for each in kept_numbers(self._store, self._build) if each < number)
        return max(earlier, default=None)


class Publisher:
    """The publisher of a build's frontiers. It also acknowledges holds and releases them."""

    def __init__(
        self,
        store: Store,
        birth: Birth,
        *,
        hold_seconds: float,
        keep_every_seconds: float = 60.0,
        stop: threading.Event | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates a publisher for the build `birth`.

        `hold_seconds` is the maximum duration of a hold. `Keeper` explains `keep_every_seconds`. If
        `stop` is set, a publisher that waits for the end of a hold raises Stopping.
        """
        self._store = store
        self._birth = birth
        self._build = birth.build
        self._journal = Journal(store)
        self._news = Journal.news(store, clock=clock)
        self._frontiers = Frontiers(store, birth.build)
        self._keeper = Keeper(
            store,
            birth.build,
            pipeline=birth.pipeline,
            every_seconds=keep_every_seconds,
            clock=clock,
        )
        self._hold_seconds = hold_seconds
        self._clock = clock
        self._turn = threading.RLock()
        self._seen = 0
        self._hold: JournalRecord | None = None
        self._held_since = 0.0
        self._stop = stop or threading.Event()
        self._newest: Frontier | None = None
        # The sums of the build's files, which this job need not read again.
        self.sums = RecordedSums(store, birth.build)

    @property
    def newest(self) -> Frontier:
        """Returns the frontier that readers see."""
        assert self._newest is not None, "begin comes first"
        return self._newest

    def take_over(self) -> Frontier | None:
        """Begins this process's epoch by publishing the newest frontier again.

        Returns the published frontier, or None if the build has published no frontier. If the
        frontier records are lost, publishes a frontier that is made from the tables' marks. After
        this call, no earlier process of the build can publish a frontier, so the tables can be
        reverted to the returned frontier.
        """
        with self._turn:
            self._newest = self._frontiers.publish_next(
                lambda found: None if found is None else self._repeated(found)
            )
            restored = None if self._newest else restored_frontier(self._store, self._birth)
            if restored is not None:
                told = f"the frontiers of build {self._build} were lost: one is made of its tables"
                write_log_line(told, Level.WARN)
                self.begin(restored)
        return self._newest

    def begin(self, first: Frontier) -> Frontier:
        """Publishes `first` if the build has no frontier yet, and returns the newest frontier."""
        with self._turn:
            if self._newest is None:
                self._newest = self._frontiers.publish_next(
                    lambda found: self._first(first) if found is None else self._repeated(found)
                )
                self.sums.take(self.newest)
        return self.newest

    def publish(
        self,
        mark: Mark,
        versions: Mapping[str, int],
        *,
        heard_at: str | None = None,
        failing: Mapping[str, str] | None = None,
    ) -> Frontier:
        """Publishes the frontier of a slice that all tables have folded.

        `mark` is the slice's mark, and `versions` contains the versions of the tables. Also
        publishes `heard_at` if it is not None. `failing` contains the views that cannot be computed
        at this frontier, with the reasons. Waits while a hold is open. Raises Stopping if the job
        is asked to stop during the wait.
        """
        return self._when_free(
            lambda last: replace(
                last,
                offsets=last.offsets.highest_with(mark.end),
                versions=dict(versions),
                leg=mark.leg,
                slice=mark.slice,
                log_time=mark.log_time,
                tally=mark.tally,
                heard_at=heard_at or last.heard_time,
                witnesses=mark.witnesses,
                failing=dict(failing or {}),
            )
        )

    def republish(self, versions: Mapping[str, int]) -> Frontier:
        """Publishes the newest frontier again, with new versions that contain the same rows.

        Maintenance creates such versions. Waits and raises Stopping like `publish`.
        """
        return self._when_free(
            lambda last: replace(last, versions=dict(versions), heard_at=last.heard_time)
        )

    def publish_heard_at(self, heard_at: str) -> Frontier:
        """Publishes the newest frontier again, with a newer time `heard_at`.

        `heard_at` is the time up to which the build has read all records of its compacted topics.
        Waits and raises Stopping like `publish`.
        """
        return self._when_free(lambda last: replace(last, heard_at=heard_at))

    def follow_journal(self) -> None:
        """Reads new journal records, and acknowledges and releases holds.

        An open hold is acknowledged, and a hold that lasts too long is released. Also keeps the
        newest frontier for later queries if the interval has passed.
        """
        with self._turn:
            self._read_journal(self._newest)
            if self._newest is not None:
                self._keeper.look(self._newest)
            if self._hold is None:
                return
            if self.newest.hold != self._hold.number:
                failpoint("publisher.before_acknowledge")
                self._put(
                    replace(
                        self.newest,
                        number=self.newest.number + 1,
                        hold=self._hold.number,
                        published_at=now(),
                        heard_at=self.newest.heard_time,
                    )
                )
                failpoint("publisher.after_acknowledge")
            if self._clock() - self._held_since >= self._hold_seconds:
                self._release(self._hold)

    def is_held(self) -> bool:
        """Returns True if the journal records that were read so far contain an open hold."""
        return self._hold is not None

    def _when_free(self, change: Callable[[Frontier], Frontier]) -> Frontier:
        while True:
            with self._turn:
                self.follow_journal()
                if self._hold is None:
                    last = self.newest
                    self._put(
                        replace(change(last), number=last.number + 1, hold=None, published_at=now())
                    )
                    return self.newest
            if self._stop.wait(_LOOK_SECONDS):
                raise Stopping

    def _first(self, first: Frontier) -> Frontier:
        self._read_journal(None)
        hold, at = self._hold_number(), now()
        return self._synced(
            replace(first, hold=hold, published_at=at, heard_at=first.heard_at or at)
        )

    def _repeated(self, found: Frontier) -> Frontier:
        self._read_journal(found)
        # The frontier that readers had while no job ran.
        self._keeper.look(found)
        number, epoch, hold = found.number + 1, found.epoch + 1, self._hold_number()
        again = replace(found, number=number, epoch=epoch, hold=hold, published_at=now())
        return replace(again, heard_at=found.heard_time, sums={})

    def _put(self, frontier: Frontier) -> None:
        last = self._newest
        if last is not None and not frontier.offsets.covers(last.offsets):
            raise Broken(
                f"frontier {frontier.number} of build {self._build} would go back, from "
                f"{last.offsets} to {frontier.offsets}",
                hint="kappa replay makes a new build",
            )
        frontier = self._synced(frontier)
        self._frontiers.publish(frontier)
        self.sums.take(frontier)
        self._newest = frontier

    def _synced(self, frontier: Frontier) -> Frontier:
        """Syncs the files that a frontier names to the disk.

        Returns the frontier with the checksums of these files and of the tables' file lists.
        """
        last, versions = self._newest, frontier.versions
        before = {} if last is None else last.versions
        return replace(
            frontier,
            sums=sync_versions(self._store, self._build, before, versions),
            file_lists=vouched_lists(self._store, self._build, last, versions),
        )

    def _read_journal(self, shown: Frontier | None) -> None:
        with self._news.looking_for_news() as due:
            for record in self._journal.after(self._seen) if due else ():
                self._keeper.read_record(record, shown)
                self._seen = record.number
                before, self._hold = self._hold, hold_after(self._hold, record, self._build)
                if self._hold is not None and self._hold is not before:
                    self._held_since = self._clock()

    def _release(self, hold: JournalRecord) -> None:
        assert isinstance(hold.event, Held)
        reason = f"the job of build {self._build} has waited {self._hold_seconds:g} seconds"
        self._journal.append(
            self._seen + 1, Released(hold.event.rollout, self._build, hold.number, reason)
        )
        # Taken or not, the record that has the number decides.
        self._read_journal(self._newest)

    def _hold_number(self) -> int | None:
        return None if self._hold is None else self._hold.number


# Folders that a build has as soon as it has published a frontier.
_FOLLOWS = ("floor", "kept", "legs")


def restored_frontier(store: Store, birth: Birth) -> Frontier | None:
    """Makes a frontier from the tables' commits, for a build whose frontier records are lost.

    Each commit contains a mark: the offsets, log times and counts up to the end of the slice.
    Returns None if the build has published no frontier. The caller must hold the build's lock.
    Raises Damaged if there is no slice that all tables have folded. Also raises Damaged if
    contributions wait next to a table, since then it is unknown which contributions were drained.
    """
    if not any(store.names(f"{folder_of_build(birth.build)}/{each}") for each in _FOLLOWS):
        return None
    for table in birth.tables:
        for name in recent_names(table.name):
            path = table_path(store, birth.build, name)
            if files_in(path) or files_in(f"{path}/{LOG_FOLDER}"):
                raise _cannot(birth.build, f"contributions wait beside table {table.name}")
    marks = {
        table.name: tuple(_marks(table_path(store, birth.build, table.name)))
        for table in birth.tables
    }
    found = common(marks)
    if found is None:
        raise _cannot(birth.build, "its tables have no slice in common")
    mark, versions = found
    kept = kept_frontiers_of(store, birth.build)
    noted = frontier_records(store, birth.build).noted_number()
    last = max([read_floor(store, birth.build), noted, *(each.frontier.number for each in kept)])
    return Frontier(
        last + 1,
        birth.build,
        max((each.frontier.epoch for each in kept), default=0) + 1,
        mark.end,
        versions,
        "",
        mark.leg,
        mark.slice,
        log_time=mark.log_time,
        tally=mark.tally,
        witnesses=mark.witnesses,
        failing=kept[-1].frontier.failing if kept else {},
        heard_at=kept[-1].frontier.heard_time if kept else birth.born_at,
    )


def common(
    marks: Mapping[str, Sequence[tuple[int, Mark]]],
) -> tuple[Mark, Mapping[str, int]] | None:
    """Returns the newest mark that all tables have, and each table's version with this mark.

    A mark is the metadata that a slice stores with each commit. `marks` contains the versions of
    each table with their marks, the newest version first. If several versions of a table have the
    mark, the newest of these versions is returned. Returns None if the tables have no mark in
    common. Pure.
    """
    places = [{mark.place: version for version, mark in reversed(each)} for each in marks.values()]
    shared = set.intersection(*(set(each) for each in places)) if places else set()
    if not shared:
        return None
    newest = max(shared)
    mark = next(mark for each in marks.values() for _, mark in each if mark.place == newest)
    return mark, {name: each[newest] for name, each in zip(marks, places, strict=True)}


def _marks(path: str) -> Iterator[tuple[int, Mark]]:
    """Yields pairs (version, mark) for a table's readable versions, the newest version first.

    A mark is the metadata that a slice stores with each commit.
    """
    for name in sorted(files_in(f"{path}/{LOG_FOLDER}"), reverse=True):
        try:
            version = int(name.removesuffix(".json"))
            yield version, mark_of(path, version)
        except (ValueError, Damaged):
            continue


def _cannot(build: str, why: str) -> Damaged:
    return Damaged(
        f"all frontiers of build {build} are lost, and none can be made of its tables: {why}",
        hint="kappa replay makes a new build of it",
    )
