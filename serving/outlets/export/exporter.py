"""An exporter: updates the copies of served tables in a folder from frontier to frontier.

An update of the copies is called a switch. A switch pins the serving snapshot, copies each table as
of that snapshot, and then writes the versions of all copies into the folder's record. Each commit
stores the cursor of its rows. So if an exporter is killed between two commits, the next exporter
continues from the last commit of each table, and the result is the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from kappa.base.clock import now
from kappa.base.errors import Conflict, Damaged, UsageError
from kappa.base.failpoint import failpoint
from kappa.base.program import handing_out
from kappa.base.sections import StorageSettings
from kappa.declare.options import REJECTS
from kappa.serving.outlets.changes.change_set import ChangeKind
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.difference import (
    drop_changes,
    has_same_rows,
    open_change_set,
    open_served_rows,
)
from kappa.serving.outlets.changes.table_snapshot import (
    Clock,
    Point,
    ensure_point_kept,
    not_served,
    point_at,
    point_of,
    put_point_lease,
)
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.serving.query.reader.reader import Limits
from kappa.state.files.address import entries_at
from kappa.state.files.bucket import is_bucket
from kappa.state.lease import LEASES, ensure_released, ensure_renewed
from kappa.state.root import lock_of, own_root
from kappa.state.store import Store
from kappa.tables.iceberg import IcebergCatalog
from kappa.tables.plain_table import GONE, CopyNote, CopyShape, PlainTable

# The file that names one version of each table, in the folder of the export. A reader of several
# tables takes their versions from this file. The file is put whole, once all tables are written, so
# the file never names tables of two moments.
RECORD = "kappa-export.json"
# The folder of Iceberg's metadata, below the folder of the export.
ICEBERG = "iceberg"
# Replaced files stay so long, for readers that have begun with them.
KEPT_SECONDS = 3600.0
_TIDY_SECONDS = 600.0
_DIGITS = 12


class ExportedTable(Struct, frozen=True):
    """A table of an export: the version that readers must use, and the cursor of its rows.

    `cursor` contains the generation, build and frontier. `offsets` are the offsets of that
    frontier, by topic and partition. `snapshot` is the id of the Iceberg snapshot, or 0 without
    Iceberg.
    """

    cursor: str
    pipeline: str
    version: int
    offsets: Mapping[str, Mapping[int, int]]
    snapshot: int = 0


class ExportRecord(Struct, frozen=True):
    """The content of the export's record file: the exporting root, and all exported tables.

    The tables are listed as of `switched_at`, the time of the last update of all copies.
    `switched_at` is "" before the first update.
    """

    root: str
    tables: Mapping[str, ExportedTable] = {}
    generation: int = 0
    switched_at: str = ""
    format: int = 1


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table of an export, and the way in which its copy was updated.

    `kind` is "slice" if a change set was applied, "anew" if all rows were written, and "same" if
    the rows were unchanged. `rows` is the number of written rows.
    """

    name: str
    kind: str
    rows: int


@dataclass(frozen=True, slots=True)
class ExportSwitch:
    """The result of an update of all copies: the new record, and how each copy was updated.

    All tables in the record are copies as of the same snapshot.
    """

    record: ExportRecord
    tables: tuple[CopiedTable, ...]


class Exporter:
    """Exports some served tables to one folder, and updates the copies there.

    Only one process at a time may use an exporter for the folder.
    """

    def __init__(
        self,
        store: Store,
        tables: Sequence[str],
        target: Store,
        record: ExportRecord,
        *,
        with_iceberg: bool = False,
        limits: Limits | None = None,
        lease_seconds: float = 60.0,
        keep_seconds: float = 3600.0,
        clock: Clock = time.time,
    ) -> None:
        """Continues from the state that `record`, the export's record in the folder, describes.

        Callers use `open_exporter` instead. The files that the exporter needs to continue are kept
        for `keep_seconds` after its last update of the copies.
        """
        self._store = store
        self._names = tuple(dict.fromkeys(tables))
        self._target = target
        self.record = record
        self._limits = limits
        self._lease_seconds = lease_seconds
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._tidied_at = 0.0
        self._holder = f"export-{_digest(target.url)}-"
        # Iceberg tables that exist are never left behind: their files would be deleted.
        has_iceberg = with_iceberg or any(each.snapshot for each in record.tables.values())
        with handing_out():
            self._iceberg = IcebergCatalog(target.folder / ICEBERG) if has_iceberg else None
        self._open_copies()

    def next_switch(self) -> ExportSwitch | None:
        """Updates all copies to the tables as they are served now.

        Returns None if the copies are up to date. Raises NotServed if a table is not served, and
        KappaError if a table cannot be read or written. After an error, the record still names the
        copies of the last update.
        """
        with pin_served(self._store, lease_seconds=self._lease_seconds) as pinned:
            points = {name: self._served_point(pinned, name) for name in self._names}
            cursors = {name: each.cursor for name, each in points.items()}
            if cursors == self._cursors and self._is_recorded(cursors):
                self._renew_leases()
                return None
            # A switch may have failed half way, and another program may have written: the tables
            # themselves say how far each is.
            self._open_copies()
            for point in {each.cursor: each for each in points.values()}.values():
                # Before the first commit: a cursor that a commit carries is always kept.
                put_point_lease(
                    self._store,
                    point,
                    self._lease_id(point.cursor),
                    self._clock() + self._keep_seconds,
                )
            with handing_out():
                copied = tuple(self._copy(name, point) for name, point in points.items())
                self._switch(points)
        self._release_leases(set(cursors.values()))
        return ExportSwitch(self.record, copied)

    def tidy(self) -> int:
        """Deletes the copies' files that were replaced more than an hour ago.

        Does nothing if less than ten minutes have passed since the last time. Returns the number of
        deleted data files.
        """
        if self._clock() - self._tidied_at < _TIDY_SECONDS:
            return 0
        self._tidied_at = self._clock()
        return self.delete_replaced(time.time() - KEPT_SECONDS)

    def delete_replaced(self, before: float) -> int:
        """Deletes files that only old versions of the copies need.

        A version is old if a newer version replaced it before the time `before`, in seconds since
        1970. Returns the number of deleted data files.
        """
        with handing_out():
            if self._iceberg is not None:
                self._iceberg.expire(self._names, before)
                self._iceberg.switch(self.record.tables)
                self._iceberg.delete_replaced(self._names, before)
            return sum(each.delete_replaced(self._target, before) for each in self.copies.values())

    def close(self) -> None:
        """Closes the file of the Iceberg catalog."""
        if self._iceberg is not None:
            self._iceberg.close()

    def _open_copies(self) -> None:
        self.copies = {name: PlainTable(self._target.address(name)) for name in self._names}
        self._cursors = {name: self._cursor_of(name) for name in self._names}

    def _served_point(self, pinned: PinnedSnapshot, name: str) -> Point:
        point = point_of(pinned.snapshot, name)
        if point is None:
            raise not_served(pinned.snapshot, name)
        return point

    def _cursor_of(self, name: str) -> Cursor | None:
        """Returns the cursor of the rows in a table's copy, or None if the cursor is unknown.

        Each commit of a copy stores a cursor. If the rows have not changed since the last commit,
        the export's record may have a later cursor for the copy. In this case, returns the later
        cursor.
        """
        recorded, copy = self.record.tables.get(name), self.copies[name]
        note = copy.note()
        if note is None or note.root != self.record.root:
            return None
        if recorded is not None and recorded.version == copy.version:
            return Cursor.parse(recorded.cursor)
        return Cursor.parse(note.cursor)

    def _is_recorded(self, cursors: Mapping[str, Cursor]) -> bool:
        recorded = {name: each.cursor for name, each in self.record.tables.items()}
        has_snapshots = all(each.snapshot for each in self.record.tables.values())
        return recorded == {name: str(each) for name, each in cursors.items()} and (
            self._iceberg is None or has_snapshots
        )

    def _copy(self, name: str, after: Point) -> CopiedTable:
        """Updates the copy of a table to the state `after`, and returns how it was updated."""
        before = self._point_before(name, after)
        if before is None:
            copied = self._write_anew(name, after)
        elif before.cursor == after.cursor or has_same_rows(self._store, before, after):
            copied = CopiedTable(name, "same", 0)
        else:
            copied = self._apply_changes(name, before, after)
        self._cursors[name] = after.cursor
        return copied

    def _point_before(self, name: str, after: Point) -> Point | None:
        """Returns the state of a copy's rows if a change set leads from there to `after`.

        Returns None otherwise: all rows of the table must then be written again. Change sets lead
        only forward, and only within a build.
        """
        cursor = self._cursors[name]
        if (
            cursor is None
            or cursor.build != after.birth.build
            or cursor.frontier > after.frontier.number
        ):
            return None
        if cursor == after.cursor:
            return after
        holder, at = self._lease_id(cursor), self._clock()
        before = point_at(self._store, cursor, name, at, holder=holder)
        if before is None or not ensure_point_kept(
            self._store, before, now=at, seconds=self._lease_seconds, holder=holder
        ):
            return None
        return before

    def _write_anew(self, name: str, point: Point) -> CopiedTable:
        copy = self.copies[name]
        reader, sql = open_served_rows(self._store, point, self._limits)
        with reader:
            copy.replace(reader.arrow_batches(sql), _shape_of(point), self._note(point))
        return CopiedTable(name, "anew", copy.row_count())

    def _apply_changes(self, name: str, before: Point, after: Point) -> CopiedTable:
        copy, note = self.copies[name], self._note(after)
        change_set, reader = open_change_set(
            self._store, ChangeKind.SLICE, before, after, self._limits, unlimited_if_small=True
        )
        with reader:
            counts = change_set.counts()
            if not counts.row_count:
                drop_changes(reader)
                return CopiedTable(name, "same", 0)
            replaces = counts.update or counts.delete
            if not replaces:
                copy.append(change_set.inserted_rows(), _shape_of(after), note)
            elif after.table.keys and 2 * counts.row_count <= copy.row_count():
                copy.merge(
                    change_set.merged_rows(GONE), _shape_of(after), note, count=counts.row_count
                )
            else:
                # To merge most rows takes longer than to write all.
                return self._write_anew(name, after)
            drop_changes(reader)
        if copy.is_scattered():
            if after.table.keys:
                # Joined files would have another type of texts than merged ones.
                return self._write_anew(name, after)
            copy.join_files(note)
        return CopiedTable(name, "slice", counts.row_count)

    def _note(self, point: Point) -> CopyNote:
        return CopyNote(
            self.record.root,
            str(point.cursor),
            point.birth.pipeline,
            point.frontier.offsets.next,
        )

    def _switch(self, points: Mapping[str, Point]) -> None:
        """Writes the versions of all copies to the export's record.

        Before that, commits the new versions of the Iceberg tables, if there are any.
        """
        snapshots = dict.fromkeys(points, 0)
        if self._iceberg is not None:
            for name, point in points.items():
                snapshots[name] = self._iceberg.stage(
                    name,
                    point.table.served,
                    self.copies[name].files(),
                    {"kappa.cursor": str(point.cursor)},
                )
            self._iceberg.switch(points)
        generation = next(iter(points.values())).generation
        record = ExportRecord(
            self.record.root,
            {
                name: ExportedTable(
                    str(point.cursor),
                    point.birth.pipeline,
                    self.copies[name].version,
                    point.frontier.offsets.next,
                    snapshots[name],
                )
                for name, point in points.items()
            },
            generation,
            now(),
        )
        failpoint("export.before_record")
        _put_record(self._target, record)
        failpoint("export.after_record")
        self.record = record

    def _lease_id(self, cursor: Cursor) -> str:
        return f"{self._holder}{_digest(str(cursor))}"

    def _renew_leases(self) -> None:
        for cursor in set(self._cursors.values()):
            if cursor is not None:
                ensure_renewed(
                    self._store,
                    self._lease_id(cursor),
                    now=self._clock(),
                    seconds=self._keep_seconds,
                )

    def _release_leases(self, kept: set[Cursor]) -> None:
        """Releases this export's leases on all cursors except the cursors in `kept`.

        The leases of a killed exporter are released, too.
        """
        ids = {self._lease_id(each) for each in kept}
        for name in self._store.names(LEASES):
            id_ = name.rsplit("/", 1)[-1].removesuffix(".json")
            if id_.startswith(self._holder) and id_ not in ids:
                ensure_released(self._store, id_)


@contextmanager
def open_exporter(
    store: Store,
    tables: Sequence[str],
    to: str,
    *,
    with_iceberg: bool = False,
    storage: StorageSettings | None = None,
    limits: Limits | None = None,
    lease_seconds: float = 60.0,
    keep_seconds: float = 3600.0,
    clock: Clock = time.time,
) -> Iterator[Exporter]:
    """Opens an exporter that copies served tables to a folder, or to `s3://BUCKET/PREFIX`.

    `to` is the folder or URL. `storage` contains the settings of the bucket's server. Raises
    Conflict if another process or another root exports to the same place, and UsageError if the
    place cannot be used for an export.
    """
    _ensure_apart(store, to)
    if REJECTS in tables:
        raise UsageError(f"{REJECTS} is no table of its own", hint="kappa rejects list shows them")
    if with_iceberg and is_bucket(to):
        raise UsageError(
            "Iceberg's catalog is a file, and cannot be in a bucket",
            hint="leave --iceberg out, or give --to a folder",
        )
    address = to if is_bucket(to) else str(Path(to).resolve())
    own = f"run/export-{_digest(address)}"
    with lock_of(store, f"{own}.lock", what=f"the export to {to}"):
        root = own_root(store)
        if root is None:
            raise UsageError("nothing is served yet", hint="kappa deploy")
        with handing_out():
            target = _open_target(address, storage or store.storage, store.local.path(own))
            record = _claim_target(target, root.id)
        exporter = Exporter(
            store,
            tables,
            target,
            record,
            with_iceberg=with_iceberg,
            limits=limits,
            lease_seconds=lease_seconds,
            keep_seconds=keep_seconds,
            clock=clock,
        )
        try:
            yield exporter
        finally:
            exporter.close()


def _ensure_apart(store: Store, to: str) -> None:
    """Raises UsageError if the folder of an export is inside the root, or contains the root."""
    if is_bucket(to) or not store.is_on_disk:
        inside = to.rstrip("/").startswith(f"{store.url}/") or to.rstrip("/") == store.url
        around = store.url.startswith(f"{to.rstrip('/')}/")
    else:
        target = Path(to).resolve()
        inside = target.is_relative_to(store.folder)
        around = store.folder.is_relative_to(target)
    if inside or around:
        raise UsageError(
            f"{to} is {'in' if inside else 'around'} the root, which has files of its own",
            hint="give --to a folder beside the root",
        )


def _claim_target(target: Store, root: str) -> ExportRecord:
    """Returns the record of the export in a folder, or creates the record if there is none.

    The record belongs to `root`. Raises Conflict if another root exports to the folder, and
    UsageError if the folder contains files but no record.
    """
    found = _read_record(target)
    if found is None:
        there = entries_at(target.address("").rstrip("/"))
        if strange := next((each.address for each in there if not each.is_folder), None):
            raise UsageError(
                f"{target.url} is not empty, and no export: it has a file {strange}",
                hint="give --to an empty folder, or one that does not exist yet",
            )
        found = ExportRecord(root)
        if not target.put_new_json(RECORD, msgspec.to_builtins(found, str_keys=True)):
            found = _read_record(target) or found
    if found.root != root:
        raise Conflict(
            f"{target.url} has the export of another root, {found.root}",
            hint="give --to another folder; or delete this one, if that root exports no more",
        )
    return found


def _read_record(target: Store) -> ExportRecord | None:
    """Returns the record of the export in a folder, or None if there is no record.

    Raises Damaged if the record file is not the record of an export.
    """
    document = target.get_json(RECORD)
    if document is None:
        return None
    try:
        return msgspec.convert(document, ExportRecord, str_keys=True)
    except msgspec.ValidationError as error:
        raise Damaged(
            f"{target.address(RECORD)} is not the record of an export: {error}",
            hint="delete the folder, and export again",
        ) from error


def _put_record(target: Store, record: ExportRecord) -> None:
    """Replaces the record file in a folder in one step."""
    target.put_json(RECORD, msgspec.to_builtins(record, str_keys=True))


def _open_target(address: str, storage: StorageSettings, local: Path) -> Store:
    if is_bucket(address):
        return Store(address, storage=storage, local=local)
    # A new folder is the user's, and for the eyes that the user's umask allows.
    Path(address).mkdir(parents=True, exist_ok=True)
    return Store(address)


def _shape_of(point: Point) -> CopyShape:
    return CopyShape(point.table.served, point.table.keys)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
