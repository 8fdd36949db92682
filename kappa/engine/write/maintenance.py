"""The maintenance of a build's tables between slices.

A table has one writer, so the job itself maintains the tables. While slices are processed, the job
checkpoints the tables' Delta logs at the versions of published frontiers, which never change, and
lists the files of the versions that must be kept. Between slices, the job deletes expired rows,
joins small files, and publishes the frontier again with the new versions. Then the job stores the
floor. Only after that, the job lists the leases and deletes the files that are no longer needed.
The job decides by file lists, never by the age of a file. The files of three kinds of versions are
kept: the newest version of each table, versions that a lease pins, and versions of kept frontiers.
A kept frontier whose time has ended is deleted before the leases are listed. kappa/state/lease.py
explains what readers do.

Readers leave out the rows that have expired by the log's clock, so no reader sees that these rows
are deleted. Frontiers that are still needed name older versions, which still contain the deleted
rows. No accepted contribution reaches an expired row (kappa/state/log_clock.py explains why), so no
later slice folds into a row that was deleted.

In a latest table, an older record of a key could replace the key's newest row if this row were
deleted too early. So this row is kept until no older record can follow: no contribution waits next
to the table, and each partition of the table's topic is past the row. In a view, the hidden rows
are kept only until no contribution waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from kappa.base.errors import Damaged
from kappa.base.sql import quoted
from kappa.declare.options import DELETED
from kappa.engine.write.commit import TableWriter
from kappa.engine.write.publisher import Publisher
from kappa.state.build import Birth, table_path
from kappa.state.file_sums import join_sums
from kappa.state.files.duckdb_access import open_over_files
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept_frontiers import (
    KeptFrontierRecord,
    ensure_past_gone,
    kept_frontiers_of,
    past_frontiers,
)
from kappa.state.lease import Lease, live_leases, put_floor, sorted_leases
from kappa.state.log_clock import log_clock, topic_clock
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.file_list import FileList, ensure_read, ensure_vouched, read_list
from kappa.tables.parquet import parquet_sql
from kappa.tables.stored_table import StoredTable, open_table
from kappa.tables.vacuum import delete_unneeded
from kappa.tables.versions import files, list_of, list_since
from kappa.tables.views.served_rows_sql import least_kept

# Files of this size are left alone: a table of a gigabyte has about thirty of them, and joining
# smaller files takes less than a second.
_TARGET_BYTES = 32 * 1024 * 1024
# This many small files are worth joining: each costs every query about a millisecond.
_MANY = 8
# A log of this length is worth a checkpoint: opening the table reads the whole log.
_LONG_LOG = 20
# Deleting rewrites the files that mix gone rows with others: worth it from this part on.
_SHARE = 10


class Maintenance:
    """The maintenance of a build's tables, run by the build's job between slices."""

    def __init__(
        self,
        store: Store,
        birth: Birth,
        writers: Sequence[TableWriter],
        publisher: Publisher,
        *,
        seconds: float,
        keep_seconds: float = 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Stores the tables and the time limits.

        Two maintenance runs are at least `seconds` seconds apart. kappa/state/kept_frontiers.py
        explains `keep_seconds`. `clock` returns seconds since 1970, the unit in which a lease
        records its end.
        """
        self._store = store
        self._birth = birth
        self._build = birth.build
        self._writers = writers
        self._publisher = publisher
        self._seconds = seconds
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._last = clock()
        # By the names of tables and of recent tables: the newest version with a checkpoint, and the
        # files of versions that stay and of the newest version at the last run.
        self._checkpoints: dict[str, int] = {}
        self._listed: dict[str, dict[int, FileList]] = {}
        # Versions in the history whose checkpoint is on the disk.
        self._lasting: dict[str, frozenset[int]] = {}
        # Tables opened at their newest checkpoint, for the next run; and the checkpoints at which
        # the tables in use were opened.
        self._newer: dict[str, StoredTable] = {}
        self._read_from: dict[str, int] = {}
        # Whether the next run is prepared.
        self._prepared = False
        # The number of the frontier and the count of leases after the last run: no new frontier and
        # no lease mean that nothing is to be done now.
        self._settled = (0, 0)

    def run_if_due(self) -> bool:
        """Runs the maintenance if a run is due. Returns True if the maintenance has run."""
        if not self.is_due():
            return False
        self.run()
        return True

    def is_due(self) -> bool:
        """Returns True if a maintenance run is due.

        A run is due if the interval since the last run has passed, or if the recent rows are full
        and wait for maintenance. In addition, something must be there to maintain: a new frontier
        since the last run, a lease now or at the last run, a waiting contribution, or a record of a
        kept frontier to delete or to change. A prepared run is always due. No run is due while a
        hold keeps the frontier unchanged.
        """
        if self._prepared:
            return not self._publisher.is_held()
        recent = [writer.recent for writer in self._writers if writer.recent is not None]
        if self._publisher.is_held() or (
            self._clock() - self._last < self._seconds
            and not any(each.wants_upkeep for each in recent)
        ):
            return False
        leases = len(self._store.names("leases"))
        waits = any(each.holds for each in recent)
        if (
            self._settled == (self._publisher.newest.number, 0)
            and leases == 0
            and not waits
            and not self._has_past()
        ):
            # Without this, a build at rest would list its folders at every look.
            self._last = self._clock()
            return False
        return True

    def prepare(self) -> None:
        """Prepares the next maintenance run. Slices may be processed meanwhile.

        Checks the file lists of the newest frontier, checkpoints the tables' Delta logs, and lists
        the files of the versions that must be kept. Returns at once if the next run is already
        prepared.
        """
        if self._prepared:
            return
        kept = kept_frontiers_of(self._store, self._build)
        leases, _ = sorted_leases(self._store, self._clock())
        newest = self._publisher.newest
        for name, version in newest.versions.items():
            path, in_history = table_path(self._store, self._build, name), kept_versions(kept, name)
            vouched = newest.file_lists.get(name)
            if self._store.is_on_disk:
                # The job knows its own commits. The log shows damage that a disk has done to them
                # since. In a bucket the job looks only when it checkpoints, since each commit is a
                # request.
                ensure_vouched(path, read_list(path, version), vouched)
            self._ensure_checkpoints(name, path, in_history, version, vouched)
            if self._read_from.get(name, 0) < self._checkpoints[name]:
                opened = open_table(path)
                assert opened is not None, "a frontier names it"
                self._newer[name] = opened
            listed = self._listed.setdefault(name, {})
            stay = in_history.keys() | pinned_versions(leases, self._build, name)
            for each in sorted(stay - listed.keys()):
                with suppress(Damaged):
                    listed[each] = list_since(path, listed, each)
        self._prepared = True

    def run(self) -> None:
        """Maintains all tables of the build except tables that are being drained.

        No slice may be committed during the run.
        """
        self.prepare()
        self._prepared = False
        newest = self._publisher.newest
        if not all(newest.offsets.covers(writer.mark().end) for writer in self._writers):
            # A slice failed after its commits: the commits belong to no frontier, and this process
            # ends.
            self._last = self._clock()
            return
        for writer in self._writers:
            if writer.recent is not None:
                writer.recent.begin_upkeep()
            for _, stored in writer.at_rest():
                if stored is writer.stored:
                    ensure_gone_deleted(self._birth, writer, newest)
                if wants_joining(stored.file_sizes()):
                    stored.compact(stored.mark(), target_bytes=_TARGET_BYTES)
        versions = {
            name: version for writer in self._writers for name, version in writer.versions().items()
        }
        if dict(newest.versions) != versions:
            newest = self._publisher.republish(versions)
        put_floor(self._store, self._build, newest.number)
        kept = ensure_past_gone(self._store, self._build, self._clock(), self._keep_seconds)
        leases = live_leases(self._store, self._clock())
        for name, stored in (each for writer in self._writers for each in writer.at_rest()):
            if name in self._newer:
                # The handle forgets the part of the log that it has read.
                stored.go_on_with(self._newer[name])
                self._read_from[name] = self._checkpoints[name]
            listed = self._listed.setdefault(name, {})
            vouched = newest.file_lists.get(name)
            if newest.versions.get(name) != stored.version:
                # A drain has ended since.
                vouched = None
            listed[stored.version] = list_of(stored.path, stored.version, vouched)
            ensure_read(listed[stored.version], stored.path, stored.files())
            delete_unneeded(
                self._store,
                stored.path,
                stored.version,
                pinned_versions(leases, self._build, name) | kept_versions(kept, name).keys(),
                vouched=vouched,
                listed=listed,
            )
        self._newer.clear()
        join_sums(self._store, self._build, self._publisher.sums)
        Frontiers(self._store, self._build).delete_below(newest.number)
        self._last, self._settled = self._clock(), (newest.number, len(leases))

    def _has_past(self) -> bool:
        going, dated = past_frontiers(
            kept_frontiers_of(self._store, self._build), self._clock(), self._keep_seconds
        )
        return bool(going or dated)

    def _ensure_checkpoints(
        self,
        name: str,
        path: str,
        in_history: Mapping[int, str | None],
        newest: int,
        vouched: str | None,
    ) -> None:
        """Checkpoints a table's Delta log at the versions of kept frontiers.

        `in_history` maps these versions to the checksums of their file lists. If the log is long,
        also checkpoints the version `newest`, whose checksum is `vouched`. A published frontier
        names each of these versions, so none of them is ever reverted. Therefore a checkpoint is
        correct even if a suspended host writes it later.
        """
        lasting = self._lasting.get(name, frozenset()) & in_history.keys()
        for version in sorted(in_history.keys() - lasting):
            # A version that was let go before it was kept is passed over.
            with suppress(Damaged):
                ensure_checkpoint(self._store, path, version, in_history[version])
                lasting |= {version}
        self._lasting[name] = lasting
        last = max({self._checkpoints.get(name, 0), *lasting})
        if newest - last >= _LONG_LOG:
            ensure_checkpoint(self._store, path, newest, vouched)
            last = newest
        self._checkpoints[name] = last


def wants_joining(sizes: Iterable[int]) -> bool:
    """Returns True if at least eight files are smaller than the target size of 32 MiB. Pure."""
    return sum(size < _TARGET_BYTES for size in sizes) >= _MANY


def pinned_versions(leases: Iterable[Lease], build: str, table: str) -> frozenset[int]:
    """Returns the versions of a table that leases pin. Pure."""
    return frozenset(
        lease.pins[build].versions[table]
        for lease in leases
        if build in lease.pins and table in lease.pins[build].versions
    )


def kept_versions(kept: Iterable[KeptFrontierRecord], table: str) -> Mapping[int, str | None]:
    """Returns the versions of a table that kept frontiers name.

    Each version is mapped to the checksum of its file list in the frontier, or None. Pure.
    """
    return {
        each.frontier.versions[table]: each.frontier.file_lists.get(table)
        for each in kept
        if table in each.frontier.versions
    }


def ensure_gone_deleted(birth: Birth, writer: TableWriter, frontier: Frontier) -> None:
    """Deletes the rows of a table that have expired at the newest frontier, `frontier`.

    In a view, the hidden rows are deleted. Rows are deleted only if at least a tenth of the table's
    rows can be deleted. The table must be at the version that `frontier` names, and no commit to
    the table may be running.
    """
    table, stored = writer.birth, writer.stored
    is_mergeable = table.latest is not None or table.view is not None
    if is_mergeable and writer.recent is not None and writer.recent.holds:
        return
    condition = _condition(birth, table, frontier)
    if condition is None:
        return
    rows = parquet_sql(table.columns, files(stored.path, stored.version, None))
    with open_over_files() as duck:
        # Times are compared as in DataFusion, which deletes the rows.
        duck.execute("create macro arrow_cast(micros, kind) as make_timestamptz(micros)")
        gone, every = duck.execute(
            f"select count(*) filter ({condition}), count(*) from ({rows})"
        ).fetchone() or (0, 0)
    if gone and gone * _SHARE >= every:
        stored.delete(condition, stored.mark())


def _condition(birth: Birth, table: TableBirth, frontier: Frontier) -> str | None:
    """Returns the SQL condition for rows that can be deleted, or None if there are no such rows."""
    if table.view is not None:
        return quoted(DELETED)
    least = least_kept(table, log_clock(birth, frontier.log_time))
    if table.expiry is None or least is None:
        return None
    time = f"""arrow_cast({least}, 'Timestamp(Microsecond, Some("UTC"))')"""
    gone = f"{quoted(table.expiry.column)} < {time}"
    if table.latest is None:
        return gone
    passed = topic_clock(birth, table.latest, frontier.log_time)
    return None if passed is None else f"{gone} and _log_time < {passed}"
