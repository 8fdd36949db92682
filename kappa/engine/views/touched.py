"""The keys of a view that a slice touches: those that rows of its sources have, or had.

The slice's contributions to a source are at hand. Their keys say which of its rows have changed;
those that were appended are themselves what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from kappa.base.duck import Connection
from kappa.base.sql import quoted
from kappa.engine.write.commit import TableWriter
from kappa.state.table import TableBirth
from kappa.tables.parquet import cast_sql
from kappa.tables.versions import FileLists
from kappa.views.by_change import COME, GONE, ByChange
from kappa.views.served import Among, read_sql
from kappa.views.ways import Read, Way

# The relation of the keys that a slice touches, with the columns of the view's `by`.
TOUCHED = "_touched"


class ViewSource:
    """A table of the build as views read it: at the newest versions, and at those before."""

    def __init__(self, writer: TableWriter, lists: FileLists) -> None:
        self._writer = writer
        self._lists = lists
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
            self._lists.at(writer.path, versions[self.birth.name]),
            columns,
            recent=[
                self._lists.at(stored.path, versions[name])
                for name, stored in recent
                if name in versions
            ],
            among=among,
        )


def register_changes(duck: Connection, sources: Iterable[ViewSource]) -> None:
    """Makes the slice's contributions to these sources relations of DuckDB."""
    for source in sources:
        duck.register(_contributed(source.birth.name), source.new_rows)


def touched_sql(view: TableBirth, way: Way, sources: Mapping[str, ViewSource]) -> str:
    """Returns the query for the keys of a view that this slice's changes of its sources touch.

    `sources` are all that it reads. Those that have changed are registered (`register_changes`).
    """
    kinds = dict(view.columns)
    casts = ", ".join(cast_sql(by, kinds[by]) for by in way.by)
    changed = {name: source for name, source in sources.items() if source.has_changed}
    found = [
        each
        for read in way.reads
        if read.table in changed
        for each in (
            _of_changed_rows(read, changed[read.table])
            if read.reaches is None
            else _reached(read, way, sources)
        )
    ]
    return f"select distinct {casts} from ({' union all '.join(found)})"


def changed_groups(change: ByChange, sources: Mapping[str, ViewSource]) -> dict[str, str]:
    """Returns the queries for the state of the rows that a slice has brought and taken, by name."""
    names = {False: COME, True: GONE}
    return {
        names[before]: f"with {change.table} as ({rows}) {change.inner}"
        for before, rows in changed_rows(sources[change.table]).items()
    }


def touched_groups(view: TableBirth, change: ByChange, parts: Iterable[str]) -> str:
    """Returns the query for the groups that a slice touches, by the names of its parts."""
    kinds = dict(view.columns)
    casts = ", ".join(cast_sql(key, kinds[key]) for key in change.keys)
    return " union ".join(f"select {casts} from {name}" for name in parts)


def _of_changed_rows(read: Read, source: ViewSource) -> Iterator[str]:
    """Yields queries for the view's `by` columns of a source's changed rows, new and old."""
    selected = ", ".join(f"{quoted(column)} as {quoted(by)}" for by, column in read.by.items())
    if set(read.by.values()) <= set(source.birth.row_keys):
        yield f"select {selected} from {_contributed(read.table)}"
        return
    for rows in changed_rows(source).values():
        yield f"select {selected} from ({rows})"


def _reached(read: Read, way: Way, sources: Mapping[str, ViewSource]) -> Iterator[str]:
    """Yields queries for the keys that changed rows reach, new ones and old ones."""
    for before, rows in changed_rows(sources[read.table]).items():
        relations = {
            each.name: rows if each is read else sources[each.table].sql(before=before)
            for each in way.reads
        }
        named = ", ".join(f"{name} as ({sql})" for name, sql in relations.items())
        yield f"select * from (with {named} {read.reaches})"


def changed_rows(source: ViewSource) -> dict[bool, str]:
    """Returns queries for a source's changed rows as they are (False), and were before (True).

    They read its contributions, which `register_changes` has registered.
    """
    birth, rows = source.birth, source.new_rows
    assert rows is not None, "the view is computed whole then"
    served = ", ".join(quoted(name) for name, _ in birth.served)
    if not birth.row_keys:
        return {False: f"select {served} from {_contributed(birth.name)}"}
    has_nulls = any(rows.column(key).null_count for key in birth.row_keys)
    among = Among(_contributed(birth.name), {key: key for key in birth.row_keys}, has_nulls)
    columns = [
        column for column in birth.columns if column[0] in {*birth.row_keys, *dict(birth.served)}
    ]
    return {
        before: f"select {served} from ({source.sql(columns, among=among, before=before)})"
        # Those before come first: files are listed by the commits since a version.
        for before in (True, False)
    }


def _contributed(table: str) -> str:
    return f"_contributed_{table}"
