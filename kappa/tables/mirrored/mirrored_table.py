"""A small table of a bucket that its job commits to on its own disk first.

To commit to a bucket delta-rs sends nine requests, one after the other: it reads the file that it
merges into, and lists and reads the log around its put. Here it does all that on the disk. Then the
files that a commit has added are put to the bucket, and the commit after them, if it is absent
there. So the table of the bucket has the same commits, in the same order, and it alone counts: for
readers, for Spark, and for the next job, which makes a mirror of its own. Where anybody else has
committed, or the table has grown, its job goes on in the bucket.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable

from kappa.base.disk import delete_file
from kappa.objects.address import put_new_file, side_by_side
from kappa.objects.bucket import is_bucket
from kappa.objects.transfer import fetch_file
from kappa.tables.delta import LOG_FOLDER, attempted, open_newest
from kappa.tables.stored_table import StoredTable, strangers
from kappa.tables.versions import files_of, log_of

# A table of more bytes is committed to in the bucket itself: each merge writes its files anew.
_MOST_BYTES = 32 << 20


class MirroredTable(StoredTable):
    """A build's table that its job has open on its own disk, and puts to its bucket."""

    def __init__(self, path: str, folder: Path, table: DeltaTable) -> None:
        """Takes the mirror in a folder as `mirrored` makes it."""
        super().__init__(path, table)
        self._folder = folder
        self._at = str(folder)
        # The newest version that is in the bucket.
        self._there = self.version

    def refresh(self) -> None:
        """Notes a commit that was made in the bucket, and goes on there. Raises KappaError."""
        before = self.version
        self._leave(open_newest(self.path))
        super().refresh()
        self._ensure_own(before + 1)

    def go_on_with(self, newer: StoredTable) -> None:
        """Deletes what the mirror need not have; or leaves it for `newer`, if it has grown."""
        if self._at != self.path and sum(self.file_sizes()) <= _MOST_BYTES:
            self._read_on()
            self._table = _tidied(self._folder, self._table)
        else:
            self._at = self.path
            super().go_on_with(newer)

    def files(self) -> tuple[str, ...]:
        """Lists the data files of its version, as URLs, without a look there."""
        return tuple(map(self._of_bucket, super().files()))

    def _leave(self, table: DeltaTable) -> None:
        self._at, self._table, self._unread = self.path, table, 0
        shutil.rmtree(self._folder, ignore_errors=True)

    def _put_version(self, version: int) -> None:
        if self._at == self.path:
            return
        commit = f"{self._at}/{LOG_FOLDER}/{version:020d}.json"
        actions = [json.loads(line) for line in Path(commit).read_bytes().splitlines()]
        added, removed = (
            [f"{self._at}/{unquote(each[what]['path'])}" for each in actions if what in each]
            for what in ("add", "remove")
        )
        side_by_side(self.path, self._put, added)
        # One that failed before would leave a hole in the log.
        if version != self._there + 1 or not self._put(commit):
            raise strangers(self.path, version, self._there)
        self._there = version
        for file in removed:
            delete_file(Path(file))

    def _put(self, file: str) -> bool:
        return put_new_file(self._of_bucket(file), Path(file).read_bytes())

    def _of_bucket(self, file: str) -> str:
        return f"{self.path}{file.removeprefix(self._at)}"


def mirrored(stored: StoredTable, folder: Path) -> StoredTable:
    """Returns a small table of a bucket with its mirror in a folder; any other one as it is.

    The table's job alone may commit to it.
    """
    if not is_bucket(stored.path) or sum(stored.file_sizes()) > _MOST_BYTES:
        return stored
    shutil.rmtree(folder, ignore_errors=True)
    (folder / LOG_FOLDER).mkdir(parents=True)

    def fetch(address: str) -> None:
        fetch_file(address, folder / address.removeprefix(f"{stored.path}/"))

    side_by_side(stored.path, fetch, (*log_of(stored.path, stored.version), *stored.files()))
    return MirroredTable(stored.path, folder, open_newest(str(folder)))


def _tidied(folder: Path, table: DeltaTable) -> DeltaTable:
    """Opens a mirror anew, by a checkpoint, without the log before it and files of no use."""
    at, version = str(folder), int(table.version())
    attempted(table.create_checkpoint, f"the log of {at} could not be checkpointed")
    needed = {*log_of(at, version), *files_of(at, version, table.file_uris)}
    for file in folder.rglob("*.*"):
        if str(file) not in needed:
            delete_file(file)
    return open_newest(at)
