"""The commit of a slice to a table, by any of three writers with equal results.

delta-rs commits Arrow rows from the driver, in about ten milliseconds. delta-spark commits rows of
Spark and rows in files, with two exceptions. Few rows, or small contributions by key, are committed
by delta-rs. Many contributions by key, beside a table that is not much larger, are folded by DuckDB
(rewritten.py). One process commits, and the commits of a table follow one another. follows.py
checks law 2: a slice that does not begin where the frontier ends stops the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from kappa.base.errors import Broken
from kappa.base.failpoint import failpoint
from kappa.base.sql import quoted
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.combine import Combiner
from kappa.engine.read.rows import Rows, RowsInFiles
from kappa.engine.write.recent import RecentRows
from kappa.engine.write.rewritten import Rewriting
from kappa.engine.write.spark_commit import folding, spark_append, spark_merge
from kappa.state.build import folder_of_build, recent_names, slice_scratch, table_path
from kappa.state.file_sums import ensure_whole
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import Guard
from kappa.tables.merge import committed_columns, contribution_columns, is_mergeable, merge_for
from kappa.tables.mirrored_table import MirroredTable, mirrored
from kappa.tables.parquet import parquet_sql
from kappa.tables.stored_table import StoredTable, ensure_table
from kappa.tables.versions import files


@dataclass(frozen=True, slots=True)
class Merging:
    """The way in which contributions by key are merged into their table.

    Spark's contributions are merged in this process if their size is at most `at_most_bytes`. Few
    contributions wait beside a table of `large_rows` or more; None: contributions never wait. Where
    Spark's workers see no file of this machine, `elsewhere` is the name of the job's own folder.
    """

    at_most_bytes: int = 0
    large_rows: int | None = None
    elsewhere: str = ""


# Rows of Spark are merged by Spark, and no contribution waits.
AT_ONCE = Merging()


# A merge in this process may take this many times the bytes of the merged rows.
_MEMORY = 20
_REPLAY = "kappa replay makes a new build from offset zero"


class TableWriter:
    """The writer of a table of a build."""

    def __init__(
        self,
        store: Store,
        build: str,
        birth: TableBirth,
        *,
        origin: Mark,
        driver_rows: int,
        merging: Merging = AT_ONCE,
        first: Callable[[], pa.Table] | None = None,
    ) -> None:
        """Opens the table, or makes it.

        A new table has its `first` rows and the mark of the build's origin. delta-rs commits up to
        `driver_rows` rows of Spark, and merges more rows as `merging` allows.
        """
        self.birth = birth
        self.path = table_path(store, build, birth.name)
        self._build = build
        # About the last commit: whether it had rows, the rows if this process committed them, and
        # the versions before the commit.
        self.has_new_rows = False
        self.new_rows: pa.Table | None = None
        self.versions_before: Mapping[str, int] = {}
        self._driver_rows = driver_rows
        # Spark read combined rows beside the stored rows of their keys: combined rows stay at
        # Spark.
        self._elsewhere = bool(merging.elsewhere)
        scratch = slice_scratch(store, build, merging.elsewhere)
        self._merge_bytes = merging.at_most_bytes if birth.row_keys and not birth.is_combined else 0
        self._contributed = arrow_schema(contribution_columns(birth))
        self._schema = arrow_schema(committed_columns(birth))
        self._combiner = (
            Combiner(birth, self.path, f"{scratch}/combined/{birth.name}")
            if birth.is_combined
            else None
        )
        self.stored: StoredTable = mirrored(
            ensure_table(self.path, birth.columns, origin.of_table(birth.name), first),
            store.local.path(f"{folder_of_build(build)}/mirror/{birth.name}"),
        )
        if isinstance(self.stored, MirroredTable):
            # The mirror was fetched whole. An error in a file would be folded into other files.
            ensure_whole(store, build, self.stored.files(), copies=self.stored.copy)
        recent = {name: table_path(store, build, name) for name in recent_names(birth.name)}
        self.rewriting = (
            Rewriting(
                birth,
                self.stored,
                store.local.path(f"{folder_of_build(build)}/slice/merged/{birth.name}"),
                _MEMORY * self._merge_bytes,
            )
            if is_mergeable(birth)
            else None
        )
        self.recent = (
            RecentRows(birth, self.stored, recent, large_rows=merging.large_rows)
            if is_mergeable(birth)
            else None
        )

    @property
    def version(self) -> int:
        """Returns the newest version of the table."""
        return self.stored.version

    def versions(self) -> dict[str, int]:
        """Returns the newest versions of the table and of its recent tables, by name."""
        return {name: stored.version for name, stored in self._all_stored()}

    def mark(self) -> Mark:
        """Returns the newest commit's mark: how far the table has folded."""
        return max((stored.mark() for _, stored in self._all_stored()), key=lambda mark: mark.place)

    def stored_sql(self, columns: Sequence[str]) -> str:
        """Returns DuckDB's query for these columns of all stored rows.

        First drains the recent rows, so that no row waits beside the table. The query includes
        hidden rows. The caller's slice must not be in the table yet (law 1).
        """
        self._drain()
        wanted = tuple(column for column in self.birth.columns if column[0] in columns)
        return parquet_sql(wanted, files(self.path, self.version, None))

    def at_rest(self) -> Iterator[tuple[str, StoredTable]]:
        """Yields the tables that have no commit under way between slices, by name."""
        return self._all_stored() if self.recent is None else self.recent.at_rest()

    def close(self) -> None:
        """Waits for the thread that drains."""
        if self.recent is not None:
            self.recent.close()

    def _all_stored(self) -> Iterator[tuple[str, StoredTable]]:
        yield self.birth.name, self.stored
        if self.recent is not None:
            yield from self.recent.stored()

    def commit(self, rows: Rows, mark: Mark) -> str:
        """Commits a slice's rows with its mark.

        Returns the writer: `delta-rs`, `spark`, `duckdb`, or `mark` if there are no rows.
        """
        self.new_rows, self.versions_before = None, self.versions()
        writer = self._commit(rows, mark)
        self.has_new_rows = writer != "mark"
        return writer

    def _commit(self, rows: Rows, mark: Mark) -> str:
        mark = mark.of_table(self.birth.name)
        # Within a leg the number rises from each (sub-)slice to the next, even if a slice is empty.
        guard = Guard(
            f"{self._build}/{self.birth.name}/{mark.leg}", mark.end.distance(Offsets()) + mark.slice
        )
        if isinstance(rows, RowsInFiles):
            return self._commit_found(rows, mark, guard)
        if isinstance(rows, DataFrame):
            return self._commit_frame(rows, mark, guard)
        failpoint("table.before_commit")
        if rows is None or rows.num_rows == 0:
            self._commit_nothing(mark, guard)
            writer = "mark"
        else:
            self._commit_arrow(rows, mark, guard)
            writer = "delta-rs"
        failpoint("table.after_commit")
        return writer

    def _commit_nothing(self, mark: Mark, guard: Guard) -> None:
        if self.recent is not None and self.recent.holds:
            self.recent.merge(None, mark, guard)
        else:
            self.stored.commit_nothing(mark, guard)

    def _commit_arrow(self, rows: pa.Table, mark: Mark, guard: Guard) -> None:
        rows = self.new_rows = rows.cast(self._contributed)
        if self._combiner is not None:
            # The table has not folded this slice, so its newest version is the version of the slice
            # before (law 1).
            with folding(self.birth):
                rows = self._combiner.here(rows, self.version)
        rows = rows.cast(self._schema)
        if self.recent is not None and self.recent.takes(rows):
            self.recent.merge(rows, mark, guard)
            return
        self._drain()
        if self.birth.row_keys:
            self.stored.merge(rows, merge_for(self.birth, quoted), mark, guard)
        else:
            self.stored.append(rows, mark, guard)

    def _commit_frame(self, rows: DataFrame, mark: Mark, guard: Guard) -> str:
        # Contributions by key are counted and then used, so they are persisted. Rows to append are
        # as many as the slice's rows: counting reads one decoded column, and persisting would take
        # as much memory again.
        kept = rows.persist() if self.birth.row_keys else rows
        try:
            count = kept.count()
            if count <= self._driver_rows or (
                self._merge_bytes and _bytes_kept(kept) <= self._merge_bytes
            ):
                return self._commit(kept.toArrow() if count else None, mark)
            rewriting = None if self._elsewhere else self.rewriting
            if self._merge_bytes and rewriting is not None and rewriting.takes(count):
                kept.write.mode("overwrite").parquet(str(rewriting.contributed))
                return self._rewrite(rewriting, mark, guard)
            self._drain()
            before = self.version
            failpoint("table.before_spark_commit")
            if self.birth.row_keys:
                self._merge_at_spark(kept, mark, guard)
            else:
                spark_append(kept, self.path, mark, guard)
            failpoint("table.after_spark_commit")
        finally:
            if self.birth.row_keys:
                kept.unpersist()
        self.stored.refresh()
        # Delta silently skips a transaction that it has seen.
        if self.version == before or self.stored.mark() != mark:
            raise Broken(
                f"Spark did not commit slice {mark.leg}/{mark.slice} to table {self.birth.name} "
                f"of build {self._build}",
                hint=_REPLAY,
            )
        return "spark"

    def _commit_found(self, rows: RowsInFiles, mark: Mark, guard: Guard) -> str:
        rewriting = self.rewriting
        assert rewriting is not None, "only a mergeable table is filled from files"
        try:
            count, size = rewriting.find(rows)
            if count <= self._driver_rows or size <= self._merge_bytes:
                return self._commit(rewriting.found() if count else None, mark)
            if self._elsewhere or (self._merge_bytes and rewriting.takes(count)):
                return self._rewrite(rewriting, mark, guard)
            return self._commit_frame(rewriting.found_at(rows.spark), mark, guard)
        finally:
            rewriting.clear()

    def _rewrite(self, rewriting: Rewriting, mark: Mark, guard: Guard) -> str:
        self._drain()
        failpoint("table.before_rewriting")
        rewriting.fold(mark, guard)
        failpoint("table.after_rewriting")
        return "duckdb"

    def _drain(self) -> None:
        if self.recent is not None:
            self.recent.drain()

    def _merge_at_spark(self, rows: DataFrame, mark: Mark, guard: Guard) -> None:
        if self._combiner is None:
            spark_merge(rows, self.birth, self.path, mark, guard)
            return
        # A merge reads its rows twice, and each reading would make another KLL sketch.
        combined = self._combiner.at_spark(rows, self.version).persist()
        try:
            spark_merge(combined, self.birth, self.path, mark, guard)
        finally:
            combined.unpersist()


def _bytes_kept(rows: DataFrame) -> int:
    """Returns the uncompressed size of persisted rows as Spark keeps them."""
    size: int = rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()  # noqa: SLF001  # as in describe.py
    return size
