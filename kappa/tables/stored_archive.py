"""The Delta table of an archive, as its writer and its readers open it, and the table's files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction
from msgspec import Struct, field

from kappa.base.errors import Damaged
from kappa.base.failpoint import failpoint
from kappa.state.documents import Documents
from kappa.state.file_sums import ensure_archived_whole, sum_name
from kappa.state.files.address import delete_files, delete_folder, deletion_parts
from kappa.state.frontier import Sums
from kappa.state.store import Store
from kappa.tables.archive import HINT, ArchiveMark, folder, parse_archive_mark
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.delta import (
    NO_HOOKS,
    Guard,
    attempted,
    commit_properties,
    create,
    open_newest,
    refuse_repeated,
)
from kappa.tables.durable_versions import sync_commit, take_back
from kappa.tables.file_list import FileList, ensure_read
from kappa.tables.vacuum import unneeded
from kappa.tables.versions import is_committed, list_of, mark_text

# An archive's files are named by their place in the log: so one commit can replace exactly some of
# the files.
_BLOCKED = ["_partition", "_block"]


@dataclass(frozen=True, slots=True)
class Block:
    """A data file of an archive: rows of a partition, in the order of offsets.

    `first` is the offset at which the file's slice begins; this offset identifies the file among
    the files of the partition. `least` and `greatest` are the offsets of the first and the last
    row. A file contains at least one row.
    """

    path: str
    partition: int
    first: int
    rows: int
    bytes: int
    least: int
    greatest: int


class StoredArchive:
    """An opened archive, at the version that was opened or committed last."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        """Wraps the opened Delta table of an archive.

        Other modules call `open_archive` or `ensure_archive` instead.
        """
        self.path = path
        self._table = table
        # The mark of the version that was read last: a commit's mark never changes.
        self._mark: tuple[int, ArchiveMark] | None = None
        # The list of the version that lasts, as far as it was read.
        self._listed: FileList | None = None

    @property
    def version(self) -> int:
        """Returns the version that this object has opened or committed last."""
        return int(self._table.version())

    def mark(self) -> ArchiveMark:
        """Returns the mark of the newest commit, which says what the archive covers.

        Raises Damaged if that commit has no mark.
        """
        version = self.version
        if self._mark is None or self._mark[0] != version:
            where = f"version {version} of {self.path}"
            mark = parse_archive_mark(mark_text(self.path, version), where=where)
            self._mark = version, mark
        return self._mark[1]

    def blocks(self) -> tuple[Block, ...]:
        """Lists the data files of the archive, in the order of partitions and offsets."""
        import pyarrow as pa  # noqa: PLC0415  # it takes a while, and only the archiver needs it

        found = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        blocks = (
            Block(
                *(
                    f"{self.path}/{unquote(each['path'])}",
                    int(each["partition._partition"]),
                    int(each["partition._block"]),
                    int(each["num_records"]),
                ),
                *(int(each["size_bytes"]), int(each["min._offset"]), int(each["max._offset"])),
            )
            for each in found
        )
        return tuple(sorted(blocks, key=lambda block: (block.partition, block.first)))

    def append(
        self,
        store: Store,
        block: Block | None,
        replaced: Iterable[Block],
        mark: ArchiveMark,
        guard: Guard,
    ) -> None:
        """Commits a file of new rows, and removes the files that `replaced` lists.

        `block` is the new file, or None if the slice contains no record. The new file also contains
        the rows of the replaced files. `mark` is the metadata of the commit, and `guard` is its
        Delta transaction. When this method returns, the commit is on the disk. Raises Broken if
        this transaction was already committed.
        """
        done = attempted(
            lambda: self._table.transaction_version(guard.application),
            f"archive {self.path} could not be read",
        )
        refuse_repeated(self.path, done, guard)
        old = [str(each.first) for each in replaced]
        assert block is not None or not old, "what is replaced has rows"
        failpoint("archive.before_append")
        attempted(
            lambda: self._table.create_write_transaction(
                [] if block is None else [_add_action(block)],
                "overwrite" if old else "append",
                self._table.schema(),
                partition_by=_BLOCKED,
                partition_filters=[("_partition", "=", str(block.partition)), ("_block", "in", old)]
                if block is not None and old
                else None,
                commit_properties=commit_properties(mark, guard),
                post_commithook_properties=NO_HOOKS,
            ),
            f"records could not be appended to {self.path}",
        )
        attempted(self._table.update_incremental, f"archive {self.path} could not be read")
        self.settle(store)
        failpoint("archive.after_append")

    def settle(self, store: Store) -> None:
        """Makes the newest version durable, and stores a record of its checksums.

        The record contains the checksums of the version's files, and the checksum of the file list.
        """
        added = sync_commit(store, self.path, self.version)
        needed = {sum_name(block.path) for block in self.blocks()}
        known = {**self.sums(store), **added}
        sums = {name: each for name, each in known.items() if name in needed}
        self._listed = list_of(self.path, self.version, None, self._listed)
        lasting = LastingVersion(self.version, sums, self._listed.sum)
        _LASTING.put(store, _lasting_name(self.path), lasting)

    def sums(self, store: Store) -> Sums:
        """Returns the stored checksums of the archive's files.

        The checksums were computed when the files were committed.
        """
        lasting = self._lasting(store)
        return {} if lasting is None else lasting.sums

    def ensure_listed(self, store: Store) -> None:
        """Raises Damaged if the newest durable version has other files than when it was committed.

        The checksum of the version's file list is compared with the stored checksum.
        """
        lasting = self._lasting(store)
        if lasting is not None and lasting.file_list is not None:
            try:
                with _mended_as_archive():
                    self._listed = list_of(self.path, lasting.version, lasting.file_list)
            except Damaged:
                # The archiver may have continued meanwhile, and deleted the log of that version.
                if self._lasting(store) == lasting:
                    raise
                self.ensure_listed(store)
                return
            # The writer may have made the version since the handle was opened.
            if lasting.version == self.version:
                ensure_read(self._listed, self.path, (block.path for block in self.blocks()))

    def _lasting(self, store: Store) -> LastingVersion | None:
        return _LASTING.get(
            store, _lasting_name(self.path), f"the newest version of archive {self.path}"
        )

    def ensure_whole(
        self,
        store: Store,
        blocks: Iterable[Block],
        copies: Callable[[str], str] | None = None,
    ) -> None:
        """Raises Damaged if a file of these blocks has changed since it was written.

        The error names the file. If the archive is in a bucket, `copies` returns the local path of
        a downloaded file for its URL, and this local file is checked. Without `copies`, the files
        are downloaded for the check.
        """
        paths = [block.path for block in blocks]
        ensure_archived_whole(store, self.sums(store), paths, copies=copies, hint=HINT)

    def tidy(self, store: Store, *, long_log: int) -> None:
        """Deletes the files that the newest version does not need.

        If the version is a multiple of `long_log`, this method first writes a checkpoint of the
        table's log, so that older log files can be deleted too. No other process may write
        meanwhile.
        """
        if self.version % long_log == 0:
            vouched = None if self._listed is None else self._listed.sum
            ensure_checkpoint(store, self.path, self.version, vouched)
            # A handle that has read the log would read the log's older files again.
            self._table = open_newest(self.path)
        for part in deletion_parts(unneeded(store, self.path, self.version, (), vouched=None)):
            delete_files(part)


class LastingVersion(Struct, frozen=True):
    """The stored record of an archive's newest durable version, like a frontier for a table.

    `sums` contains the checksums of the version's files; files that were written before Kappa
    stored checksums have none. `file_list` is the checksum of the file list, or None if an older
    Kappa has written the version.
    """

    version: int
    sums: Sums = field(default_factory=dict)
    file_list: str | None = None
    format: int = 1


_LASTING = Documents(LastingVersion)


def open_archive(path: str) -> StoredArchive | None:
    """Opens an archive for reading. Returns None if the archive does not exist."""
    try:
        with _mended_as_archive():
            return StoredArchive(path, open_newest(path))
    except TableNotFoundError:
        return None


@contextmanager
def _mended_as_archive() -> Iterator[None]:
    """Gives a Damaged error that the block raises another hint: how to repair an archive."""
    try:
        yield
    except Damaged as error:
        raise Damaged(error.message, hint=HINT) from error


def ensure_archive(
    store: Store, path: str, columns: Iterable[tuple[str, str]], mark: ArchiveMark
) -> StoredArchive:
    """Opens an archive for its writer, or creates an empty archive.

    A new archive has the columns `columns`, and the metadata of its first commit is `mark`. Commits
    after the newest durable version are deleted: they may be incomplete after a power loss.
    """
    name = _lasting_name(path)
    lasting = _LASTING.get(store, name, f"the newest version of archive {path}")
    if lasting is not None:
        take_back(path, lasting.version)
    elif not is_committed(path, 1):
        # The archive's making was interrupted: the archive has no row yet.
        delete_folder(path)
    found = open_archive(path)
    if found is not None:
        found.ensure_listed(store)
        return found
    from kappa.declare.values.arrow import arrow_schema  # noqa: PLC0415  # imports pyarrow

    rows = arrow_schema([*columns, ("_block", "bigint")]).empty_table()
    failpoint("archive.before_create")
    told = f"archive {path} could not be made"
    made = StoredArchive(path, create(path, rows, mark, told, partition_by=_BLOCKED))
    made.settle(store)
    failpoint("archive.after_create")
    return made


def _lasting_name(path: str) -> str:
    return f"{folder(*path.rsplit('/', 2)[1:])}.json"


def _add_action(block: Block) -> AddAction:
    stats = {
        "numRecords": block.rows,
        "minValues": {"_offset": block.least},
        "maxValues": {"_offset": block.greatest},
        "nullCount": {"_offset": 0},
    }
    return AddAction(
        block.path.rpartition("/")[2],
        block.bytes,
        {"_partition": str(block.partition), "_block": str(block.first)},
        int(time.time() * 1000),
        True,  # noqa: FBT003  # deltalake's signature
        json.dumps(stats),
    )
