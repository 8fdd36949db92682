"""A small table in a bucket, with a mirror on the job's disk. Commits go to the mirror first.

For a commit to a bucket, delta-rs sends nine requests, one after the other: it reads the file into
which rows are merged, and lists and reads the log before and after the write. Here delta-rs commits
to the mirror. Then the job uploads the files that the commit has added, and after them the commit
itself, unless the bucket already contains a commit of this version. So the table in the bucket has
the same commits, in the same order. Readers, Spark and the next job use only the table in the
bucket; the next job creates a new mirror. If another writer commits, or the table has grown too
large, the job deletes the mirror and commits to the bucket directly.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from kappa.base.disk import delete_file
from kappa.base.errors import Damaged
from kappa.state.file_sums import note_put_file
from kappa.state.files.address import ask_side_by_side, fetch_file, put_data_file, put_new_file
from kappa.state.files.bucket import is_bucket
from kappa.tables.delta import LOG_FOLDER, Guard, attempted, note_put, open_newest
from kappa.tables.file_list import parse_commit
from kappa.tables.stored_table import StoredTable, strangers
from kappa.tables.versions import files_of, log_of

if TYPE_CHECKING:
    import pyarrow as pa

    from kappa.state.mark import Mark

# The job commits to a table of more bytes in the bucket itself: each merge writes the table's files
# anew.
_MOST_BYTES = 32 << 20


class MirroredTable(StoredTable):
    """A build's table in a bucket, to which a job commits through a mirror on its own disk.

    Once another writer commits in the bucket, or the table has grown too large, the job stops using
    the mirror for good.
    """

    def __init__(self, path: str, folder: Path, table: DeltaTable, keys: Sequence[str]) -> None:
        """Wraps the mirror in `folder` of the table at the URL `path`. `mirrored` calls this.

        `table` is the opened mirror, and `keys` are the columns by which readers find rows.
        """
        super().__init__(path, table, keys)
        self._folder = folder
        self._at = str(folder)
        # The newest version that is in the bucket.
        self._there = self.version

    def refresh(self) -> None:
        """Reads a commit that this job has made directly in the bucket, and stops using the mirror.

        Raises KappaError if the bucket contains a commit of another process.
        """
        if self._at == self.path:
            super().refresh()
            return
        self._guards.forget()
        self._go_on_in_bucket(self.version + 1)

    def replace(self, rows: pa.RecordBatchReader, mark: Mark, guard: Guard) -> None:
        """Replaces all rows of the table in the bucket, and stops using the mirror.

        Small tables are not rewritten, so a mirror would be of no use.
        """
        if self._at != self.path:
            self._go_on_in_bucket(self.version)
        super().replace(rows, mark, guard)

    def go_on_with(self, newer: StoredTable) -> None:
        """Deletes unnecessary files of the mirror.

        If the mirror is no longer used, continues from `newer` instead, as the method of the base
        class does.
        """
        if self._at == self.path:
            super().go_on_with(newer)
        else:
            self._read_on()
            self._table = _tidied(self._folder, self._table)

    def files(self) -> tuple[str, ...]:
        """Lists the data files of the newest version as URLs, without a request to the bucket."""
        return tuple(map(self._of_bucket, super().files()))

    def copy(self, url: str) -> str:
        """Returns the local path of a data file in the mirror.

        `url` is the URL of the same file in the bucket.
        """
        return f"{self._at}{url.removeprefix(self.path)}"

    def _go_on_in_bucket(self, at_most: int) -> None:
        self._ensure_no_hole(self.version)
        self._at, self._table, self._unread = self.path, open_newest(self.path), 0
        shutil.rmtree(self._folder, ignore_errors=True)
        self._ensure_own(at_most)

    def _put_version(self, version: int) -> None:
        if self._at == self.path:
            return
        self._ensure_no_hole(version - 1)
        commit = Path(self._at) / LOG_FOLDER / f"{version:020d}.json"
        content = commit.read_bytes()
        made = parse_commit(content, where=str(commit))
        ask_side_by_side(self.path, self._put, (each.name for each in made.added))
        if not put_new_file(f"{self.path}/{LOG_FOLDER}/{commit.name}", content):
            raise strangers(self.path, version, self._there)
        note_put(f"{self.path}/{LOG_FOLDER}/{commit.name}", content)
        self._there = version
        for gone in made.removed:
            delete_file(self._folder / gone.name)
        if made.added and sum(self.file_sizes()) > _MOST_BYTES:
            self._go_on_in_bucket(version)

    def _ensure_no_hole(self, version: int) -> None:
        """Raises KappaError unless the commits in the bucket end with the commit of `version`."""
        if version != self._there:
            raise strangers(self.path, version, self._there)

    def _put(self, name: str) -> None:
        note_put_file(f"{self.path}/{name}", self._folder / name)
        put_data_file(self._folder / name, f"{self.path}/{name}")

    def _of_bucket(self, file: str) -> str:
        return f"{self.path}{file.removeprefix(self._at)}"


def mirrored(stored: StoredTable, folder: Path) -> StoredTable:
    """Creates a mirror in `folder` of a small table in a bucket, and returns the mirrored table.

    Returns the table unchanged if it is not small, if it is not in a bucket, or if the disk has no
    room for a mirror. Only the table's job may commit to the table. Raises Damaged if a file of the
    table does not exist any more.
    """
    if not is_bucket(stored.path):
        return stored
    shutil.rmtree(folder, ignore_errors=True)
    if sum(stored.file_sizes()) > _MOST_BYTES:
        return stored

    def fetch(address: str) -> None:
        fetch_file(address, folder / address.removeprefix(f"{stored.path}/"))

    try:
        (folder / LOG_FOLDER).mkdir(parents=True)
        ask_side_by_side(
            stored.path, fetch, (*log_of(stored.path, stored.version), *stored.files())
        )
    except FileNotFoundError as error:
        raise Damaged(
            f"table {stored.path} cannot be read: {error}",
            hint="kappa replay makes a new build of it",
        ) from error
    except OSError:
        # The disk has no room for a mirror.
        shutil.rmtree(folder, ignore_errors=True)
        return stored
    return MirroredTable(stored.path, folder, open_newest(str(folder)), stored.keys)


def _tidied(folder: Path, table: DeltaTable) -> DeltaTable:
    """Writes a checkpoint of a mirror's log, deletes unnecessary files, and opens the mirror again.

    `folder` is the folder of the mirror, and `table` is the opened mirror.
    """
    at, version = str(folder), int(table.version())
    attempted(table.create_checkpoint, f"the log of {at} could not be checkpointed")
    needed = {*log_of(at, version), *files_of(at, version, table.file_uris)}
    for file in folder.rglob("*.*"):
        if str(file) not in needed:
            delete_file(file)
    return open_newest(at)
