"""A build's Delta table, which a job holds open to read, append, merge and compact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from deltalake import (
    BloomFilterProperties,
    ColumnProperties,
    DeltaTable,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import TableNotFoundError

from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.state.mark import Mark
from kappa.tables.delta import (
    NO_HOOKS,
    Guard,
    Guards,
    attempted,
    commit_properties,
    create,
    open_newest,
    put_commit,
)
from kappa.tables.merge import Merge
from kappa.tables.versions import files_of, mark_of

if TYPE_CHECKING:
    import pyarrow as pa


Columns = Iterable[tuple[str, str]]
First = Callable[[], "pa.Table"] | None
# A reader of one key reads one group of so many rows, whatever the order of the rows: the least and
# greatest keys of a group, and its Bloom filters, tell which.
_GROUP_ROWS = 32_768
_FALSE_HITS = 0.01
# A column with more distinct values in a group is not worth a dictionary: seen as three times the
# bytes, and 1.4 times the CPU of a merge.
_DICTIONARY_BYTES = 1 << 16


def _writer_properties(keys: Iterable[str]) -> WriterProperties:
    found = BloomFilterProperties(set_bloom_filter_enabled=True, fpp=_FALSE_HITS, ndv=_GROUP_ROWS)
    return WriterProperties(
        compression="ZSTD",
        max_row_group_size=_GROUP_ROWS,
        dictionary_page_size_limit=_DICTIONARY_BYTES,
        column_properties={key: ColumnProperties(bloom_filter_properties=found) for key in keys},
    )


class StoredTable:
    """A Delta table of a build, held open by the build's job at the newest version."""

    def __init__(self, path: str, table: DeltaTable, keys: Sequence[str] = ()) -> None:
        """Wraps an opened Delta table of a build.

        Other modules call `open_table` or `ensure_table` instead.
        """
        self.path = path
        self.keys = tuple(keys)
        self._properties = _writer_properties(keys)
        # The place at which the handle reads and writes the table.
        self._at = path
        self._table = table
        # Commits of no rows since the handle's version: the handle has not read these commits.
        self._unread = 0
        self._guards = Guards(path)

    @property
    def version(self) -> int:
        """Returns the newest version that this object knows of.

        The object knows its own commits. After `refresh`, it also knows a commit that the job has
        made through another object.
        """
        return int(self._table.version()) + self._unread

    def refresh(self) -> None:
        """Reads a new commit that this job has made through another object.

        Raises KappaError if there is more than one new commit, because then another process writes.
        """
        before = self.version
        self._guards.forget()
        self._update()
        self._ensure_own(before + 1)

    def go_on_with(self, newer: StoredTable) -> None:
        """Takes over the Delta table that `newer` has opened.

        `newer` is an object for the same table, and was opened later, from a newer checkpoint.
        Raises KappaError if another process has committed to the table.
        """
        before = self.version
        self._table, self._unread = newer._table, 0
        self._update()
        self._ensure_own(before)

    def mark(self) -> Mark:
        """Returns the mark of the newest commit: the offsets that the table has folded, and totals.

        Raises Damaged if that commit has no mark.
        """
        return mark_of(self._at, self.version)

    def append(self, rows: pa.Table, mark: Mark, guard: Guard) -> None:
        """Appends rows in one commit. The rows have the table's columns, in the table's order.

        `mark` is the metadata of the commit, and `guard` is its Delta transaction.
        """
        self._write(rows, "append", mark, guard, f"rows could not be appended to {self.path}")

    def merge(
        self,
        rows: pa.Table,
        how: Merge,
        mark: Mark,
        guard: Guard | None,
    ) -> None:
        """Folds contributions into the stored rows of their keys, in one commit.

        `rows` are the contributions, and `how` is the SQL of the merge. `mark` is the metadata of
        the commit, and `guard` is its Delta transaction. `guard` is None if the contributions come
        from a table of recent rows, because their slices are committed already. Raises Broken if a
        result does not fit its column.
        """
        before = self._read_on()
        with self._guards.once(self._table, guard):
            merger = self._table.merge(
                rows,
                predicate=how.match,
                source_alias="s",
                target_alias="t",
                streamed_exec=False,
                writer_properties=self._properties,
                commit_properties=commit_properties(mark, guard),
                post_commithook_properties=NO_HOOKS,
            )
            attempted(
                lambda: (
                    merger.when_matched_update(dict(how.update), predicate=how.update_when)
                    .when_not_matched_insert(dict(how.insert))
                    .execute()
                ),
                f"contributions could not be folded into {self.path}",
            )
            # If no row changes (all are older than the stored ones), delta-rs commits nothing. The
            # slice is folded all the same.
            if self.version == before:
                self.commit_nothing(mark, guard)
                return
        self._committed(before)

    def replace(self, rows: pa.RecordBatchReader, mark: Mark, guard: Guard) -> None:
        """Replaces all rows of the table with these rows, in one commit.

        `mark` is the metadata of the commit, and `guard` is its Delta transaction.
        """
        self._write(rows, "overwrite", mark, guard, f"{self.path} could not be written anew")

    def commit_nothing(self, mark: Mark, guard: Guard | None) -> None:
        """Commits a version with the same rows, for a slice that contributes no rows.

        The commit's metadata, `mark`, shows that the table has folded the slice. `guard` is the
        Delta transaction of the slice's commit, or None if the commit is not for a slice.
        """
        version = self.version + 1
        with self._guards.once(self._table, guard):
            put = attempted(
                lambda: put_commit(self._at, version, mark, guard),
                f"a slice could not be marked in {self.path}",
            )
            if not put:
                raise strangers(self.path, version, version - 1)
            self._unread += 1
        self._put_version(version)

    def empty(self, mark: Mark) -> None:
        """Deletes all rows of the table, in a commit with the metadata `mark`."""
        # Imported late, for the reason below.
        import pyarrow as pa  # noqa: PLC0415

        none = pa.schema(self._table.schema().to_arrow()).empty_table()
        self._write(none, "overwrite", mark, None, f"{self.path} could not be emptied")

    def files(self) -> tuple[str, ...]:
        """Lists the data files of the newest version, without reading the files.

        The files are absolute paths or URLs.
        """
        return files_of(self._at, self.version, self._table.file_uris)

    def file_sizes(self) -> tuple[int, ...]:
        """Returns the sizes of the newest version's data files, in bytes."""
        return tuple(int(size) for size in self.facts().column("size_bytes").to_pylist())

    def rows(self) -> int:
        """Returns the number of rows in the newest version.

        The number comes from the statistics in the Delta log.
        """
        return sum(self.facts().column("num_records").to_pylist())

    def facts(self) -> pa.Table:
        """Returns the entries of the Delta log for the data files of the newest version.

        The result is a table with a row per file. An entry contains the file's path, size, number
        of rows and other statistics.
        """
        # The import takes 0.13 s, and readers of lists of files do not need it.
        import pyarrow as pa  # noqa: PLC0415

        return pa.table(self._table.get_add_actions(flatten=True))

    def compact(self, mark: Mark, *, target_bytes: int) -> None:
        """Joins files that are smaller than `target_bytes` into larger files.

        The rows stay the same. `mark` is the metadata of the commit, equal to that of the previous
        commit.
        """
        self._tidy(
            lambda: self._table.optimize.compact(
                target_size=target_bytes,
                writer_properties=self._properties,
                commit_properties=commit_properties(mark, None),
                post_commithook_properties=NO_HOOKS,
            ),
            f"files of {self.path} could not be joined",
        )

    def delete(self, where: str, mark: Mark) -> None:
        """Deletes the rows that meet a condition in DataFusion's SQL.

        `mark` is the metadata of the commit, equal to that of the previous commit.
        """
        self._tidy(
            lambda: self._table.delete(
                where,
                writer_properties=self._properties,
                commit_properties=commit_properties(mark, None),
                post_commithook_properties=NO_HOOKS,
            ),
            f"rows of {self.path} that are gone could not be deleted",
        )

    def _tidy(self, change: Callable[[], object], otherwise: str) -> None:
        before = self._read_on()
        failpoint("table.before_compact")
        attempted(change, otherwise)
        self._committed(before)
        failpoint("table.after_compact")

    def _write(
        self,
        rows: pa.Table | pa.RecordBatchReader,
        mode: Literal["append", "overwrite"],
        mark: Mark,
        guard: Guard | None,
        otherwise: str,
    ) -> None:
        before = self._read_on()
        with self._guards.once(self._table, guard):
            attempted(
                lambda: write_deltalake(
                    self._table,
                    rows,
                    mode=mode,
                    writer_properties=self._properties,
                    commit_properties=commit_properties(mark, guard),
                    post_commithook_properties=NO_HOOKS,
                ),
                otherwise,
            )
        self._committed(before)

    def _committed(self, before: int) -> None:
        """Checks the commit that this object has just made, and makes it visible to readers.

        `before` is the version before the commit. If there was nothing to commit, the version is
        still `before`; then nothing has to be made visible. Raises KappaError if another process
        has committed.
        """
        self._ensure_own(before + 1)
        if self.version > before:
            self._put_version(before + 1)

    def _put_version(self, version: int) -> None:
        """Does nothing, because readers of this table can read a new version at once.

        The class of tables with a mirror overrides this method, and copies the version into the
        bucket.
        """

    def _read_on(self) -> int:
        """Reads the job's own commits that this object has not read yet.

        Returns the newest version.
        """
        version = self.version
        if self._unread:
            self._update()
            if self.version != version:
                raise strangers(self.path, self.version, version)
        return version

    def _update(self) -> None:
        attempted(self._table.update_incremental, f"table {self.path} could not be read")
        self._unread = 0

    def _ensure_own(self, at_most: int) -> None:
        """Raises KappaError if the table has a later version than `at_most`.

        A later version shows that another process has committed to the table.
        """
        if self.version > at_most:
            raise strangers(self.path, self.version, at_most)


def strangers(path: str, version: int, own: int) -> KappaError:
    """Returns the error for a table to which another process has committed.

    `own` is the last version that the job has committed.
    """
    return KappaError(
        f"{path} is at version {version}, and its job has committed up to {own}: another process "
        "writes there",
        hint="the job begins again by itself, and takes back what is not its own",
    )


def open_table(path: str, keys: Sequence[str] = ()) -> StoredTable | None:
    """Opens a build's table. Returns None if the table does not exist.

    `keys` are the columns by which readers find rows; new files get a Bloom filter for each of
    these columns.
    """
    try:
        return StoredTable(path, open_newest(path), keys)
    except TableNotFoundError:
        return None


def ensure_table(
    path: str, columns: Columns, mark: Mark, first: First = None, *, keys: Sequence[str] = ()
) -> StoredTable:
    """Opens a build's table, or creates the table if it does not exist.

    Version 0 of a new table contains the rows that `first` returns, or no rows without `first`. The
    metadata of this commit is `mark`. `keys` are the columns by which readers find rows; new files
    get a Bloom filter for each of these columns.
    """
    found = open_table(path, keys)
    if found is not None:
        return found
    from kappa.declare.values.arrow import arrow_schema  # noqa: PLC0415  # imports pyarrow

    rows = arrow_schema(columns).empty_table() if first is None else first()
    failpoint("table.before_create")
    made = create(path, rows, mark, f"table {path} could not be made")
    failpoint("table.after_create")
    return StoredTable(path, made, keys)
