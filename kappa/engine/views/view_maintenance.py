"""The maintained views of a build, computed for the frontier that a slice will publish.

If a table that a view reads has changed, DuckDB computes the view from the files of the versions
that the frontier will name. DuckDB computes either the whole view, or only the keys that the slice
touched; kappa/tables/views/ways.py defines these ways. The differences between the result and the
view's stored rows are committed like contributions, with the slice's mark. So for all other code, a
view's table is an ordinary table of the build.

Some rows exist before any slice: the rows of files, and the rows of maintained views over files.
These rows are in version 0 of their table, which the build's first frontier names. So every
frontier contains these rows, however the log is cut into slices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from kappa.base.clock import Stopwatch, now
from kappa.base.duck import (
    Connection,
    DuckError,
    TookTooLong,
    interrupted_after,
    showing_progress,
)
from kappa.declare.pipeline import Pipeline
from kappa.declare.seed import SeedFile, read_seed
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows, QueryRows
from kappa.engine.views.affected_keys import SliceChanges, ViewSource, changes_of_slice
from kappa.engine.write.commit import Merging, TableWriter
from kappa.state.build import Birth
from kappa.state.build_status import ViewCost
from kappa.state.files.duckdb_access import NO_ACCESS, open_exact, renew_access
from kappa.state.log_clock import log_clock
from kappa.state.mark import Mark, origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.versions import FileLists
from kappa.tables.views.changes import Unfit, changes_sql, stored_columns, too_long, view_error
from kappa.tables.views.served_rows_sql import read_sql
from kappa.tables.views.ways import ways_of

# A view that takes longer to fail than this rests for so many times as long.
_LONG_SECONDS = 1.0
_REST = 10


class MaintainedViews:
    """The computation and the commits of a build's maintained views."""

    def __init__(
        self,
        writers: Sequence[TableWriter],
        birth: Birth,
        *,
        are_current: bool,
        slice_seconds: float = math.inf,
    ) -> None:
        """Finds the maintained views among the build's tables, and the ways to compute them.

        `writers` contains the writers of all tables of the build; a view comes after the tables
        that it reads. `are_current` is False if earlier slices have postponed the views to the end
        of a leg. If a slice makes no progress for `slice_seconds`, the job ends. So the computation
        of a view is interrupted after half of `slice_seconds`, unless the view was never computed
        before.
        """
        self._birth = birth
        lists = FileLists()
        self._views = [writer for writer in writers if writer.birth.view is not None]
        clock = log_clock(birth, self._views[0].mark().log_time) if self._views else None
        self._sources = {writer.birth.name: ViewSource(writer, lists, clock) for writer in writers}
        names = {writer.birth.name for writer in self._views}
        # The views that are computed whole next.
        self._stale = set() if are_current else names
        # The views that have been computed before: the log so far suits their queries.
        self._computed = names - self._stale
        self._view_seconds = slice_seconds / 2
        # The times before which a view that fails slowly is not tried again.
        self._next_tries: dict[str, float] = {}
        self._ways = ways_of(writer.birth for writer in writers)
        # The costs of the views that the last slice computed.
        self.costs: Mapping[str, ViewCost] = {}
        self._duck: Connection | None = None
        self._access = NO_ACCESS

    def commit(
        self,
        mark: Mark,
        spark: SparkSession,
        watch: Stopwatch,
        *,
        are_due: bool,
        failing: Mapping[str, str] | None = None,
    ) -> Mapping[str, str]:
        """Computes all views and commits them, after the commits of the slice's tables.

        If `are_due` is False, the rows of the views stay unchanged, and the views are computed at
        the end of a later slice. `failing` contains the views that failed at the slice's start.
        Returns the views that fail at the slice's end because of the rows in their sources, as a
        mapping from the view's name to the reason. The rows of a failing view stay unchanged. A
        failing view is computed again with every slice, or less often if the computation takes
        long. Raises Broken if a view cannot be computed for another reason, or if a failing view
        was never computed before.
        """
        self.costs = costs = dict[str, ViewCost]()
        if not self._views:
            return {}
        still = dict(failing or {})
        self._stale |= still.keys()
        self._computed |= still.keys()
        views = {writer.birth.name for writer in self._views}
        changed = {name for name, source in self._sources.items() if source.has_changed} - views
        clock = log_clock(self._birth, mark.log_time)
        for source in self._sources.values():
            source.clock_before, source.clock = source.clock, clock
        # Rows of these tables expire, though nothing is folded.
        changed |= {name for name, source in self._sources.items() if source.has_passed}
        for writer in self._views:
            name, reads = writer.birth.name, changed.intersection(writer.birth.reads)
            if not still.keys().isdisjoint(writer.birth.reads) or (reads and not are_due):
                self._stale.add(name)
            with watch.step(f"view {name}"):
                rests = name in still and time.monotonic() < self._next_tries.get(name, 0)
                if not are_due or rests or not (reads or name in self._stale):
                    writer.commit(None, mark)
                    continue
                began = time.monotonic()
                try:
                    self._ensure_sources(writer.birth, still)
                    way, rows, touched = self._changes(writer, mark, spark, reads)
                    writer.commit(rows, mark)
                except Unfit as error:
                    if name not in self._computed:
                        raise
                    still[name] = error.message
                    self._stale.add(name)
                    self._rest_after(name, time.monotonic() - began)
                    writer.commit(None, mark)
                    continue
            costs[name] = ViewCost(
                way,
                mark.end.distance(mark.start),
                writer.new_count,
                round(time.monotonic() - began, 6),
                now(),
                touched,
            )
            self._computed.add(name)
            still.pop(name, None)
            if writer.has_new_rows:
                changed.add(name)
        return still

    def close(self) -> None:
        """Closes the DuckDB connection of the views."""
        if self._duck is not None:
            self._duck.close()
            self._duck = None

    def _rest_after(self, name: str, seconds: float) -> None:
        """Delays the next computation of the view `name`, which failed after `seconds` seconds.

        If the failure took more than one second, the delay is ten times as long, so that the
        computation does not hold up the other tables.
        """
        if seconds > _LONG_SECONDS:
            self._next_tries[name] = time.monotonic() + _REST * seconds

    @staticmethod
    def _ensure_sources(view: TableBirth, failing: Mapping[str, str]) -> None:
        """Raises Unfit if `view` reads a view in `failing`, which maps failing views to reasons."""
        below = next((each for each in view.reads if each in failing), None)
        if below is not None:
            raise Unfit(f"view {view.name} reads view {below}, which fails: {failing[below]}")

    def _changes(
        self, writer: TableWriter, mark: Mark, spark: SparkSession, changed: set[str]
    ) -> tuple[str, ArrowRows | QueryRows, int | None]:
        """Returns the way in which a view is computed, and the changes of its stored rows.

        `writer` writes the view's table. `changed` names the tables that the view reads and that
        have changed. The third value is the number of keys that the slice touched, or None if the
        whole view is computed. Raises Unfit if the computation takes too long.
        """
        birth, rewriting = writer.birth, writer.rewriting
        assert rewriting is not None, "a view's table is mergeable"
        is_limited = birth.name in self._computed
        rewriting.most_seconds = self._view_seconds if is_limited else math.inf
        if birth.name not in self._stale:
            try:
                found = self._of_slice(writer, mark, changed, rewriting.most_seconds)
            except TookTooLong as error:
                self.close()
                raise too_long(birth.name, rewriting.most_seconds) from error
            except DuckError:
                # DuckDB may be able to compute the query whole, and the whole query reports the
                # reason if not. After some errors a connection accepts no further query.
                self.close()
                found = None
            if found is not None:
                is_by_change = self._ways[birth.name].change is not None
                way = "by change" if is_by_change else "by touched keys"
                return way, ArrowRows(found.rows), found.touched
        relations = {name: self._sources[name].sql() for name in birth.reads}
        query = self._ways[birth.name].whole
        self._stale.discard(birth.name)
        changes = changes_sql(
            birth,
            query,
            relations,
            self._sources[birth.name].sql(stored_columns(birth)),
            _since(mark),
        )
        return "whole", QueryRows(changes, spark), None

    def _of_slice(
        self, writer: TableWriter, mark: Mark, changed: set[str], seconds: float
    ) -> SliceChanges | None:
        """Returns the changes of a view's stored rows, for the keys that the slice touched.

        `writer` writes the view's table. Returns None if the whole view must be computed. Raises
        TookTooLong after `seconds` seconds.
        """
        birth = writer.birth
        sources = {name: self._sources[name] for name in (*birth.reads, birth.name)}
        with (
            showing_progress(self._connection(writer)) as duck,
            interrupted_after(duck, seconds),
        ):
            return changes_of_slice(
                duck, birth, self._ways[birth.name], sources, changed, since=_since(mark)
            )

    def _connection(self, writer: TableWriter) -> Connection:
        if self._duck is None:
            assert writer.rewriting is not None, "a view's table is mergeable"
            self._duck = open_exact(writer.rewriting.bounds)
        self._access = renew_access(self._duck, self._access)
        return self._duck


def _since(mark: Mark) -> int:
    return mark.end.distance(Offsets())


def open_tables(
    store: Store, birth: Birth, pipeline: Pipeline, *, driver_rows: int, merging: Merging
) -> tuple[TableWriter, ...]:
    """Returns a `TableWriter` for each table of a build, and creates missing tables.

    Raises Broken if a maintained view over the rows of files cannot be computed.
    """
    files = {table.name: table.file for table in pipeline.tables if table.file is not None}
    origin = origin_mark(birth.build, birth.origin_offsets)
    writers: dict[str, TableWriter] = {}
    filled = set(files)
    for table in birth.tables:
        first = None
        if table.name in files:
            first = partial(seed_rows, files[table.name], table)
        elif filled.intersection(table.reads):
            filled.add(table.name)
            first = partial(_first_rows, table, birth, writers)
        writers[table.name] = TableWriter(
            store,
            birth.build,
            table,
            origin=origin,
            first=first,
            driver_rows=driver_rows,
            merging=merging,
        )
    return tuple(writers.values())


def seed_rows(file: SeedFile, table: TableBirth) -> pa.Table:
    """Reads the rows of a seed file, with the table's columns and types.

    Raises DeclarationError, with the line of the file, if a row or a value is not valid.
    """
    schema = arrow_schema(table.columns)
    _, values = read_seed(file)
    return pa.table(
        [pa.array(found, of.type) for found, of in zip(values, schema, strict=True)], schema
    )


def _first_rows(view: TableBirth, birth: Birth, writers: Mapping[str, TableWriter]) -> pa.Table:
    """Computes the first rows of a maintained view, before any slice.

    The tables that the view reads were just created, so they contain only their own first rows.
    Raises Broken if the view cannot be computed.
    """
    changes = changes_sql(
        view,
        ways_of(birth.tables)[view.name].whole,
        {name: ViewSource(writers[name], FileLists()).sql() for name in view.reads},
        read_sql(view, (), stored_columns(view), clock=None),
        birth.origin_offsets.distance(Offsets()),
    )
    schema = arrow_schema(view.columns)
    try:
        with open_exact() as duck:
            return duck.query(changes).to_arrow_table().select(schema.names).cast(schema)
    except DuckError as error:
        raise view_error(view.name, str(error)) from error
