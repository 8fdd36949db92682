"""The keys of a view that a slice touches: those that rows of its sources have, or had.

The slice's contributions to a source are at hand. Their keys say which of its rows have changed;
those that were appended are themselves what is new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from kappa.base.duck import Connection
from kappa.base.sql import quoted
from kappa.engine.write.commit import TableWriter
from kappa.state.table import TableBirth
from kappa.tables.parquet import cast_sql
from kappa.tables.versions import files
from kappa.views.served import Among, read_sql
from kappa.views.ways import Read, Way

# The relation of the keys that a slice touches, with the columns of the view's `by`.
TOUCHED = "_touched"


class Source:
    """A table of the build as views read it: at the newest versions, and at those before."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self.birth = writer.birth

    @property
    def has_changed(self) -> bool:
        """Returns True if the slice has contributed rows to it."""
        return self._writer.has_new_rows

    @property
    def new_rows(self) -> pa.Table | None:
        """Returns what the slice has contributed; None if that is not at hand."""
        return self._writer.new_rows

    def sql(
        self,
        columns: Sequence[tuple[str, str]] | None = None,
        *,
        among: Among | None = None,
        before: bool = False,
    ) -> str:
        """Returns the query for its served rows, its recent rows folded in.

        `before`: those before the slice. `columns` and `among` are as `read_sql` takes them.
        """
        writer = self._writer
        versions = writer.versions_before if before else writer.versions()
        recent = () if writer.recent is None else writer.recent.stored()
        return read_sql(
            self.birth,
            files(writer.path, versions[self.birth.name]),
            columns,
            recent=[
                files(stored.path, versions[name]) for name, stored in recent if name in versions
            ],
            among=among,
        )


def touched_sql(view: TableBirth, way: Way, sources: Mapping[str, Source], duck: Connection) -> str:
    """Returns the query for the keys of a view that changes of these sources touch.

    It registers their contributions in `duck`.
    """
    kinds = dict(view.columns)
    casts = ", ".join(cast_sql(by, kinds[by]) for by in way.by)
    for name, source in sources.items():
        duck.register(_contributed(name), source.new_rows)
    found = [
        each
        for read in way.reads
        if read.table in sources
        for each in _columns_of(read, sources[read.table])
    ]
    return f"select distinct {casts} from ({' union all '.join(found)})"


def _columns_of(read: Read, source: Source) -> Iterator[str]:
    """Yields queries for the view's `by` columns of a source's changed rows, new and old."""
    selected = ", ".join(f"{quoted(column)} as {quoted(by)}" for by, column in read.by.items())
    keys, rows = source.birth.row_keys, _contributed(read.table)
    if not keys or set(read.by.values()) <= set(keys):
        yield f"select {selected} from {rows}"
        return
    assert source.new_rows is not None
    has_nulls = any(source.new_rows.column(key).null_count for key in keys)
    among = Among(rows, {key: key for key in keys}, has_nulls)
    kinds = dict(source.birth.columns)
    columns = [(name, kinds[name]) for name in {*keys, *read.by.values()}]
    for before in (True, False):
        yield f"select {selected} from ({source.sql(columns, among=among, before=before)})"


def _contributed(table: str) -> str:
    return f"_contributed_{table}"
