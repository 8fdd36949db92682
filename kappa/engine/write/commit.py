"""The commit of a slice to a table, by one of three writers with equal results.

delta-rs commits Arrow rows from the job's process, in about ten milliseconds. delta-spark commits
rows in Spark, and rows that a DuckDB query finds, with two exceptions:

- Few rows, or contributions by key of few bytes, are committed by delta-rs.
- If there are many contributions by key, and the table has at most four rows per
  contribution, DuckDB folds the contributions and rewrites the table.

DuckDB folds the contributions in the same way as readers fold waiting contributions
(kappa/tables/merge.py defines this fold). If DuckDB's memory is not enough, DuckDB spills to the
disk. DuckDB is used because a merge by delta-rs needs ten to forty times as much memory as the
contributions have bytes, and a merge by Spark takes ten times as long.

One process makes all commits to a table, one after the other. Before the commits, engine/slice.py
checks that the slice begins where the frontier ends.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from delta.tables import DeltaTable as SparkTable
from pyspark.sql import DataFrame, SparkSession

from kappa.base.duck import (
    Connection,
    DuckError,
    Setting,
    TookTooLong,
    interrupted_after,
    showing_progress,
    streamed_sql,
)
from kappa.base.errors import Broken, KappaError
from kappa.base.failpoint import failpoint
from kappa.base.sql import quoted, spark_ddl, spark_quote, text
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.combine import Combiner
from kappa.engine.function.failure import unfit_in
from kappa.engine.function.spark_errors import SPARK_ERRORS
from kappa.engine.slice_rows import HERE, QueryRows, TableRows
from kappa.engine.spark.s3a import spark_address
from kappa.engine.write.recent_rows import RecentRows
from kappa.state.build import folder_of_build, recent_names, slice_scratch, table_path
from kappa.state.disk_space import free_bytes
from kappa.state.file_sums import ensure_whole
from kappa.state.files.duckdb_access import open_exact
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import OVERFLOW_HINT, Guard
from kappa.tables.merge import (
    committed_columns,
    contribution_columns,
    is_mergeable,
    merge_for,
    merged_sql,
)
from kappa.tables.mirrored_table import MirroredTable, mirrored
from kappa.tables.parquet import parquet_sql
from kappa.tables.stored_table import StoredTable, ensure_table
from kappa.tables.versions import files
from kappa.tables.views.changes import too_long, view_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.state.mark import Mark
    from kappa.tables.stored_table import StoredTable

_APPLICATION = "spark.databricks.delta.write.txnAppId"
_NUMBER = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# A table of at most this many rows per contribution is written anew: Spark's merge may leave files
# alone.
_MOST_ROWS = 4
# DuckDB needs some memory for each of its threads.
_LEAST_BYTES = 256 << 20
# DuckDB's errors about a value that does not fit.
_UNFIT = ("Conversion Error", "Out of Range Error")
# Rows that the table is written in.
_BATCH_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Merging:
    """The settings for merging contributions by key into their table.

    Contributions in Spark are merged in this process if they have at most `at_most_bytes` bytes.
    Small contributions to a table of at least `large_rows` rows wait next to the table; if
    `large_rows` is None, no contributions wait. If Spark workers cannot read this machine's files,
    `elsewhere` is the name of a scratch folder that only this job uses, otherwise it is "". The
    computation of a view may spill `most_spilled` bytes to the disk.
    """

    at_most_bytes: int = 0
    large_rows: int | None = None
    elsewhere: str = ""
    most_spilled: int | None = None


# Rows of Spark are merged by Spark, and no contribution waits.
AT_ONCE = Merging()


# A merge in this process may take this many times the bytes of the merged rows.
_MEMORY = 20
_REPLAY = "kappa replay makes a new build from offset zero"


class TableWriter:
    """The writer of one table of a build."""

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
        """Opens the table, or creates the table if it does not exist.

        A new table contains the rows that `first` returns, and has the mark `origin`, which
        contains the offsets at which the build begins. Rows in Spark are committed by delta-rs if
        there are at most `driver_rows` rows, or if `merging` allows more rows.
        """
        self.birth = birth
        self.path = table_path(store, build, birth.name)
        self._build = build
        # About the last commit: whether it had rows, how many, the rows if this process committed
        # them, and the versions before the commit.
        self.has_new_rows = False
        self.new_count = 0
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
            ensure_table(
                self.path,
                birth.columns,
                origin.of_table(birth.name),
                first,
                keys=birth.row_keys,
            ),
            store.local.path(f"{folder_of_build(build)}/mirror/{birth.name}"),
        )
        if isinstance(self.stored, MirroredTable):
            # The mirror was fetched whole. An error in a file would be folded into other files.
            ensure_whole(store, build, self.stored.files(), copies=self.stored.copy)
        recent = {name: table_path(store, build, name) for name in recent_names(birth.name)}
        self.rewriting = (
            Rewriting(
                store,
                birth,
                self.stored,
                store.local.path(f"{folder_of_build(build)}/slice/merged/{birth.name}"),
                _MEMORY * self._merge_bytes,
                merging.most_spilled if birth.view is not None else None,
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
        """Returns the newest versions of the table and of its tables of recent rows, by name."""
        return {name: stored.version for name, stored in self._all_stored()}

    def mark(self) -> Mark:
        """Returns the mark of the newest commit to the table or to its tables of recent rows.

        The mark is the metadata that the slice stores with each commit. It contains the offsets
        that were folded so far.
        """
        return max((stored.mark() for _, stored in self._all_stored()), key=lambda mark: mark.place)

    def stored_sql(self, columns: Sequence[str]) -> str:
        """Returns a DuckDB query for `columns` of all stored rows, including the hidden rows.

        First drains the recent rows, so that no contribution waits next to the table. The caller
        must not have committed its slice yet, because the query must return the rows before the
        slice.
        """
        self._drain()
        wanted = tuple(column for column in self.birth.columns if column[0] in columns)
        return parquet_sql(wanted, files(self.path, self.version, None))

    def at_rest(self) -> Iterator[tuple[str, StoredTable]]:
        """Yields pairs (name, table) for the stored tables that no running drain reads or writes.

        These are the table itself and its tables of recent rows, without the two tables of a
        running drain.
        """
        return self._all_stored() if self.recent is None else self.recent.at_rest()

    def close(self) -> None:
        """Waits until a running drain of recent rows has ended."""
        if self.recent is not None:
            self.recent.close()

    def _all_stored(self) -> Iterator[tuple[str, StoredTable]]:
        yield self.birth.name, self.stored
        if self.recent is not None:
            yield from self.recent.stored()

    def commit(self, rows: TableRows | None, mark: Mark) -> str:
        """Commits a slice's rows, together with the slice's mark.

        Returns the name of the writer that made the commit: `delta-rs`, `spark` or `duckdb`, or
        `mark` if there are no rows.
        """
        self.new_rows, self.new_count, self.versions_before = None, 0, self.versions()
        mark = mark.of_table(self.birth.name)
        # Within a leg the number rises from each (sub-)slice to the next, even if a slice is empty.
        guard = Guard(
            f"{self._build}/{self.birth.name}/{mark.leg}", mark.end.distance(Offsets()) + mark.slice
        )
        writer = (
            self.commit_table(None, mark, guard)
            if rows is None
            else rows.commit_to(self, mark, guard)
        )
        self.has_new_rows = writer != "mark"
        return writer

    def commit_table(self, rows: pa.Table | None, mark: Mark, guard: Guard) -> str:
        """Commits rows that are in this process, usually with delta-rs.

        If `rows` is None or empty, only the mark is committed. Returns the name of the writer, as
        `commit` does.
        """
        failpoint("table.before_commit")
        if rows is None or rows.num_rows == 0:
            self._commit_nothing(mark, guard)
            writer = "mark"
        else:
            self.new_count = rows.num_rows
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
        rewriting = self.rewriting
        if (
            rewriting is not None
            and rows.nbytes > self._merge_bytes > 0
            and rewriting.takes(rows.num_rows)
        ):
            rewriting.write_rows(rows)
            self._rewrite(rewriting, mark, guard)
            return
        self._drain()
        if self.birth.row_keys:
            self.stored.merge(rows, merge_for(self.birth, quoted), mark, guard)
        else:
            self.stored.append(rows, mark, guard)

    def commit_frame(self, rows: DataFrame, mark: Mark, guard: Guard) -> str:
        """Commits the rows of a Spark frame, and returns the name of the writer as `commit` does.

        Raises Broken if Spark did not make the commit.
        """
        # Contributions by key are counted and then used, so they are persisted. Rows to append are
        # as many as the slice's rows: counting reads one decoded column, and persisting would take
        # as much memory again.
        kept = rows.persist() if self.birth.row_keys else rows
        try:
            count = self.new_count = kept.count()
            if count <= self._driver_rows or (
                self._merge_bytes and _bytes_kept(kept) <= self._merge_bytes
            ):
                return self.commit_table(kept.toArrow() if count else None, mark, guard)
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

    def commit_query(self, rows: QueryRows, mark: Mark, guard: Guard) -> str:
        """Commits the result of a DuckDB query, and returns the name of the writer.

        The name is one of the names that `commit` returns.
        """
        rewriting = self.rewriting
        assert rewriting is not None, "only a mergeable table is filled from files"
        try:
            count, size = rewriting.write_query_rows(rows)
            self.new_count = count
            if count <= self._driver_rows or size <= self._merge_bytes:
                return self.commit_table(rewriting.found() if count else None, mark, guard)
            if self._elsewhere or (self._merge_bytes and rewriting.takes(count)):
                return self._rewrite(rewriting, mark, guard)
            return self.commit_frame(rewriting.found_at(rows.spark), mark, guard)
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
    """Returns the uncompressed size in bytes of rows that Spark has persisted."""
    size: int = rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()  # noqa: SLF001  # as in describe.py
    return size


def spark_append(rows: DataFrame, path: str, mark: Mark, guard: Guard) -> None:
    """Appends rows to the table at `path` with delta-spark, in a commit with the slice's mark."""
    options = {
        "txnAppId": guard.application,
        "txnVersion": str(guard.number),
        "userMetadata": mark.to_json(),
    }
    rows.write.format("delta").mode("append").options(**options).save(spark_address(path))


def spark_merge(rows: DataFrame, table: TableBirth, path: str, mark: Mark, guard: Guard) -> None:
    """Merges rows into the table at `path` with delta-spark, in a commit with the slice's mark.

    Raises Broken if a folded value does not fit its column.
    """
    session: SparkSession = rows.sparkSession
    how = merge_for(table, spark_quote)
    stored = SparkTable.forPath(session, spark_address(path))
    into = stored.alias("t").merge(rows.alias("s"), how.match)
    update, insert = dict(how.update), dict(how.insert)
    # Delta's stubs want an invariant dict.
    matched = into.whenMatchedUpdate(how.update_when, set=update)  # type: ignore[arg-type]
    settings = {
        _APPLICATION: guard.application,
        _NUMBER: str(guard.number),
        _METADATA: mark.to_json(),
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        with folding(table):
            matched.whenNotMatchedInsert(values=insert).execute()  # type: ignore[arg-type]  # as above
    finally:
        # If the settings stayed set, Delta would skip the session's next write.
        for name in settings:
            session.conf.unset(name)


@contextmanager
def folding(table: TableBirth) -> Iterator[None]:
    """Runs the `with` block, and raises Broken if Spark reports a value that does not fit.

    The value does not fit its column. The fold causes such an error, not a single record. If Broken
    were not raised, the job would search for a record that causes the error.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        unfit = unfit_in(str(error))
        if unfit is None:
            raise
        raise Broken(
            f"contributions could not be folded into table {table.name}: {unfit}",
            hint=OVERFLOW_HINT,
        ) from error


class Rewriting:
    """The writer that rewrites a table with DuckDB.

    `folder` contains the contributions of the current slice, and DuckDB's spilled data.
    """

    def __init__(
        self,
        store: Store,
        birth: TableBirth,
        stored: StoredTable,
        folder: Path,
        memory: int,
        most_spilled: int | None,
    ) -> None:
        """Stores the table and the limits.

        DuckDB may use about `memory` bytes of memory, and spill `most_spilled` bytes to the disk.
        """
        self._store = store
        self._birth = birth
        self._stored = stored
        # A folder of Parquet files.
        self.contributed = folder / "contributed"
        self._found = self.contributed / "found.parquet"
        self._contributions = arrow_schema(contribution_columns(birth))
        self._folder = folder
        self._memory = max(memory, _LEAST_BYTES)
        self._most_spilled = most_spilled
        # The seconds for which a query may look for rows.
        self.most_seconds = math.inf

    @property
    def bounds(self) -> dict[str, Setting]:
        """Returns DuckDB's settings that limit its memory and the size of its spilled files."""
        bounds: dict[str, Setting] = {
            "memory_limit": f"{self._memory}B",
            "temp_directory": str(self._folder / "spilled"),
            "preserve_insertion_order": False,
        }
        if self._most_spilled is not None:
            # A view that explodes fails alone: half of the disk is left to all others.
            free = free_bytes(self._store)
            bounds["max_temp_directory_size"] = f"{min(self._most_spilled, free // 2)}B"
        return bounds

    def write_query_rows(self, rows: QueryRows) -> tuple[int, int]:
        """Runs a DuckDB query, and writes its rows into the folder of contributions.

        Returns the number of rows, and their uncompressed size in bytes.
        """
        self.clear()
        self.contributed.mkdir(parents=True)
        path = self._found
        with self._duck() as duck, interrupted_after(duck, self.most_seconds):
            if rows.here is not None:
                duck.register(HERE, rows.here)
            duck.execute(
                f"copy ({rows.sql}) to {text(str(path))} (format parquet, compression lz4)"
            )
        found = pq.read_metadata(path)
        groups = (found.row_group(number) for number in range(found.num_row_groups))
        return found.num_rows, sum(group.total_byte_size for group in groups)

    def write_rows(self, rows: pa.Table) -> None:
        """Writes contributions that are in this process into the folder of contributions."""
        self.clear()
        self.contributed.mkdir(parents=True)
        pq.write_table(rows, self._found, compression="lz4")

    def found(self) -> pa.Table:
        """Returns the rows that `write_query_rows` has written, as an Arrow table."""
        return pq.ParquetFile(self._found).read().cast(self._contributions)

    def found_at(self, spark: SparkSession) -> DataFrame:
        """Returns the rows in the folder of contributions, as a Spark frame."""
        ddl = spark_ddl(contribution_columns(self._birth))
        return spark.read.schema(ddl).parquet(str(self.contributed))

    def clear(self) -> None:
        """Deletes the files of contributions and the spilled files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def takes(self, contributions: int) -> bool:
        """Returns True if the table has at most four rows per contribution.

        In that case, the caller rewrites the table instead of merging the contributions.
        """
        return self._stored.rows() <= _MOST_ROWS * contributions

    def fold(self, mark: Mark, guard: Guard) -> None:
        """Folds the rows in the folder of contributions into the table, in one commit.

        There is one contribution per key. The folder is deleted afterwards. Raises Broken if a
        value overflows, and KappaError if DuckDB fails for another reason.
        """
        try:
            with self._duck() as duck:
                sql = streamed_sql(duck, self._sql())
                merged = duck.execute(sql).to_arrow_reader(_BATCH_ROWS)
                schema = arrow_schema(self._birth.columns)
                self._stored.replace(
                    pa.RecordBatchReader.from_batches(schema, _typed(merged, schema)), mark, guard
                )
        finally:
            self.clear()

    @contextmanager
    def _duck(self) -> Iterator[Connection]:
        try:
            with open_exact(self.bounds) as duck, showing_progress(duck):
                yield duck
        except TookTooLong as error:
            raise too_long(self._birth.name, self.most_seconds) from error
        except DuckError as error:
            raise self._explained(str(error)) from error

    def _sql(self) -> str:
        paths = sorted(map(str, self.contributed.glob("*.parquet")))
        merged = merged_sql(
            self._birth,
            parquet_sql(self._birth.columns, files(self._stored.path, self._stored.version, None)),
            [parquet_sql(contribution_columns(self._birth), paths)],
        )
        if self._birth.view is None:
            return merged
        # A view is read by keys at each slice, and neighbouring keys often come together.
        keys = ", ".join(map(quoted, self._birth.row_keys))
        return f"select * from ({merged}) order by {keys}"

    def _explained(self, told: str) -> KappaError:
        if self._birth.view is not None:
            return view_error(self._birth.name, told)
        why = f"contributions could not be folded into table {self._birth.name}: {told}"
        if any(word in told for word in _UNFIT):
            return Broken(why, hint=OVERFLOW_HINT)
        return KappaError(why, hint="see whether the disk is full; the slice is folded again")


def _typed(merged: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in merged:
        yield from pa.Table.from_batches([batch]).select(schema.names).cast(schema).to_batches()
