"""The maintained views of a build, computed after a slice's tables for the same frontier.

A view whose sources have changed is computed whole by DuckDB, over the files of the versions that
the frontier will name. What differs from its stored rows is committed as contributions are
(commit.py), with the slice's mark. So a view's table is one of the build's tables to all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from kappa.base.clock import Stopwatch
from kappa.engine.read.rows import RowsInFiles
from kappa.engine.write.commit import TableWriter
from kappa.state.build import Birth
from kappa.state.log_clock import log_clock
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.table import NUMBER
from kappa.tables.versions import files
from kappa.views.changes import changes_sql
from kappa.views.served import read_sql


class MaintainedViews:
    """The maintained views among the tables of one build."""

    def __init__(self, writers: Sequence[TableWriter], birth: Birth) -> None:
        """Takes all tables of the build; a view comes after those it reads."""
        self._birth = birth
        self._writers = {writer.birth.name: writer for writer in writers}
        self._views = [writer for writer in writers if writer.birth.view is not None]
        # What a job before has left is not known: it may have ended within a leg.
        self._stale = {writer.birth.name for writer in self._views}
        # The log's clock at the slice before: with it rows of sources go, though nothing is folded.
        self._clock: int | None = None

    def commit(self, mark: Mark, spark: SparkSession, watch: Stopwatch, *, are_due: bool) -> None:
        """Commits a slice to all views, after its tables.

        Views that are not `are_due` yet keep their rows, and are computed later. Raises Broken if a
        view cannot be computed, or has several rows of one key.
        """
        if self._views:
            with watch.step("views"):
                self._commit(mark, spark, are_due=are_due)

    def _commit(self, mark: Mark, spark: SparkSession, *, are_due: bool) -> None:
        changed = {name for name, writer in self._writers.items() if writer.has_new_rows}
        changed -= {writer.birth.name for writer in self._views}
        before, self._clock = self._clock, log_clock(self._birth, mark.log_time)
        if before != self._clock:
            changed |= {name for name, writer in self._writers.items() if writer.birth.expiry}
        for writer in self._views:
            name = writer.birth.name
            if changed.intersection(writer.birth.reads):
                self._stale.add(name)
            if are_due and name in self._stale:
                writer.commit(RowsInFiles(self._changes(writer, mark), spark), mark)
                self._stale.discard(name)
            else:
                writer.commit(None, mark)
            if writer.has_new_rows:
                changed.add(name)

    def _changes(self, view: TableWriter, mark: Mark) -> str:
        birth = view.birth
        numbered = () if birth.keys else ((NUMBER, "bigint"),)
        return changes_sql(
            birth,
            {name: _rows(self._writers[name], self._clock) for name in birth.reads},
            _rows(view, self._clock, (*birth.served, *numbered)),
            mark.end.distance(Offsets()),
        )


def _rows(
    writer: TableWriter, clock: int | None, columns: Sequence[tuple[str, str]] | None = None
) -> str:
    """Returns the query for the served rows of a table as it is now, its recent rows folded in."""
    recent = () if writer.recent is None else (stored for _, stored in writer.recent.stored())
    return read_sql(
        writer.birth,
        files(writer.path, writer.version),
        columns,
        clock=clock,
        recent=[files(stored.path, stored.version) for stored in recent],
    )
