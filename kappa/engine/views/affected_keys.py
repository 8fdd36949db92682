"""The keys of a view that a slice touches, found in the changed rows of the view's sources.

A source is a table that the view reads. A changed row touches the keys of its old values and the
keys of its new values. The slice's contributions to a source are in memory; the keys of these
contributions show which rows of the source have changed. If the source is append-only, the
contributions are the new rows themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kappa.base.duck import Connection, DuckError, whole_sql
from kappa.base.sql import quoted
from kappa.engine.write.commit import TableWriter
from kappa.state.table import TableBirth
from kappa.tables.parquet import cast_sql
from kappa.tables.versions import FileLists
from kappa.tables.views.changes import changes_sql, stored_columns
from kappa.tables.views.incremental_view import COME, GONE, STATE, ByChange
from kappa.tables.views.served_rows_sql import (
    Among,
    gone_condition,
    least_kept,
    read_sql,
    served_condition,
)
from kappa.tables.views.ways import Read, Way

# The relation of the keys that a slice touches, with the columns of the view's `by`.
TOUCHED = "_touched"
# More keys are not computed apart from the others.
_MOST_KEYS = 100_000
# More changes are not taken into memory; the whole view is computed into a file.
_MOST_BYTES = 128 << 20
_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class SliceChanges:
    """The changes that a slice causes in a view's rows, and the number of touched keys.

    `rows` contains the changes, and `touched` is the number of keys.
    """

    rows: pa.Table
    touched: int


class ViewSource:
    """A table that a view reads, in its states before and after a slice.

    The two states differ in the table's version and in the log's clock. The log's clock decides
    which rows have expired.
    """

    def __init__(self, writer: TableWriter, lists: FileLists, clock: int | None = None) -> None:
        self._writer = writer
        self._lists = lists
        self.birth = writer.birth
        self.clock = self.clock_before = clock

    @property
    def has_changed(self) -> bool:
        """Returns True if the slice has contributed rows to the table."""
        return self._writer.has_new_rows

    @property
    def has_passed(self) -> bool:
        """Returns True if rows of the table may have expired during the slice."""
        return self.clock != self.clock_before and least_kept(self.birth, self.clock) is not None

    @property
    def is_known(self) -> bool:
        """Returns True if all contributions of the slice to this table are in memory."""
        return not self.has_changed or self._writer.new_rows is not None

    @property
    def new_rows(self) -> pa.Table | None:
        """Returns the slice's contributions to the table, or None if none are in memory."""
        return self._writer.new_rows if self.has_changed else None

    def passed_sql(self) -> str | None:
        """Returns a SQL query for the rows that have expired during the slice.

        Returns None if no row can have expired.
        """
        gone = gone_condition(self.birth, self.clock)
        if not self.has_passed or gone is None:
            return None
        rows = self.sql(shown_columns(self.birth), before=True)
        return f"select * from ({rows}) where {gone}"

    def sql(
        self,
        columns: Sequence[tuple[str, str]] | None = None,
        *,
        among: Among | None = None,
        before: bool = False,
    ) -> str:
        """Returns a SQL query for the table's rows as readers see them, including recent rows.

        If `before` is True, the query is for the rows before the slice, otherwise for the rows
        after the slice. `columns` lists the columns to read, as pairs of name and type, or is None
        for the columns that readers see. `among` restricts the rows to certain keys.
        """
        writer = self._writer
        versions = writer.versions_before if before else writer.versions()
        recent = () if writer.recent is None else writer.recent.stored()
        return read_sql(
            self.birth,
            self._lists.at(writer.path, versions[self.birth.name], None),
            columns,
            clock=self.clock_before if before else self.clock,
            recent=[
                self._lists.at(stored.path, versions[name], None)
                for name, stored in recent
                if name in versions
            ],
            among=among,
        )


def changes_of_slice(
    duck: Connection,
    view: TableBirth,
    way: Way,
    sources: Mapping[str, ViewSource],
    changed: Collection[str],
    *,
    since: int,
) -> SliceChanges | None:
    """Computes the changes of a view's stored rows, for the keys that the slice touched.

    `sources` contains the view's own table and the tables that the view reads. `changed` names the
    tables that have changed. `changes_sql` explains `since`. Returns None if the changes cannot be
    computed from the touched keys; then the whole view must be computed.
    """
    if way.change is None and not way.whole_after.keys().isdisjoint(changed):
        return None
    if not all(sources[name].is_known for name in changed):
        return None
    register_changes(duck, (sources[name] for name in changed))
    parts = {} if way.change is None else changed_groups(way.change, sources)
    for name, sql in parts.items():
        duck.execute(f"create or replace temp table {name} as {sql}")
    touched = (
        touched_sql(view, way, sources, changed)
        if way.change is None
        else touched_groups(view, way.change, parts)
    )
    duck.execute(f"create or replace temp table {TOUCHED} as {touched}")
    some_null = " or ".join(f"{quoted(by)} is null" for by in way.by)
    count, nulls = duck.execute(
        f"select count(*), count(*) filter ({some_null}) from {TOUCHED}"
    ).fetchone() or (0, 0)
    if count > _MOST_KEYS:
        return None
    among = Among(TOUCHED, {by: by for by in way.by}, bool(nulls))
    stored = sources[view.name].sql(stored_columns(view), among=among)
    if way.change is not None:
        query = way.change.outer
        relations = {STATE: way.change.changed(stored, parts)}
    else:
        query = among.of(way.sql)
        relations = {
            read.name: sources[read.table].sql(
                among=Among(TOUCHED, {c: by for by, c in read.by.items()}, bool(nulls))
                if read.by
                else None
            )
            for read in way.reads
        }
    duck.execute(whole_sql(changes_sql(view, query, relations, stored, since)))
    rows = _few_rows(duck.to_arrow_reader(_BATCH_ROWS))
    return None if rows is None else SliceChanges(rows, count)


def _few_rows(reader: pa.RecordBatchReader) -> pa.Table | None:
    """Reads all rows of a query's result into one Arrow table.

    Returns None if the rows are larger than 128 MiB. Raises DuckError if the query fails.
    """
    batches, size = [], 0
    try:
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            if size > _MOST_BYTES:
                return None
    except pa.ArrowException as error:
        raise DuckError(str(error)) from error
    return pa.Table.from_batches(batches, reader.schema)


def register_changes(duck: Connection, sources: Iterable[ViewSource]) -> None:
    """Registers the slice's contributions to each of `sources` as a DuckDB relation."""
    for source in sources:
        if source.new_rows is not None:
            duck.register(_contributed(source.birth.name), source.new_rows)


def touched_sql(
    view: TableBirth, way: Way, sources: Mapping[str, ViewSource], changed: Collection[str]
) -> str:
    """Returns a SQL query for the keys of `view` that changed rows touch.

    The changed rows are in the tables `changed`. `sources` contains all tables that the view reads.
    Before the query runs, `register_changes` must have registered the slice's contributions to the
    tables `changed`.
    """
    found = [
        each
        for read in way.reads
        if read.table in changed
        for each in (
            _of_changed_rows(read, sources[read.table])
            if read.reaches is None
            else _reached(read, way, sources)
        )
    ]
    return _distinct_keys(view, way.by, found)


def changed_groups(change: ByChange, sources: Mapping[str, ViewSource]) -> dict[str, str]:
    """Returns queries that compute the view's groups over only the changed rows of a slice.

    A changed row is a row of the table that the view reads. The query with the name COME reads the
    rows that the slice adds, and the query with the name GONE reads the rows that the slice
    removes. A query is absent if the slice cannot have added, or removed, rows.
    """
    names = {False: COME, True: GONE}
    return {
        names[before]: f"with {change.table} as ({rows}) {change.inner}"
        for before, rows in changed_rows(sources[change.table]).items()
    }


def touched_groups(view: TableBirth, change: ByChange, parts: Iterable[str]) -> str:
    """Returns a SQL query for the keys of the groups that a slice touches.

    `parts` contains the names of the tables with the results of the queries of `changed_groups`.
    """
    keys = ", ".join(map(quoted, change.keys))
    return _distinct_keys(view, change.keys, [f"select {keys} from {name}" for name in parts])


def _distinct_keys(view: TableBirth, keys: Sequence[str], found: Iterable[str]) -> str:
    """Returns a SQL query for the distinct keys in the results of the queries `found`.

    The keys are cast to the types of the view's columns.
    """
    kinds = dict(view.columns)
    casts = ", ".join(cast_sql(key, kinds[key]) for key in keys)
    return f"select distinct {casts} from ({' union all '.join(found)})"


def _of_changed_rows(read: Read, source: ViewSource) -> Iterator[str]:
    """Yields SQL queries for the values of the view's `by` columns in a source's changed rows.

    A source is a table that the view reads. If both are needed, one query reads the changed rows as
    they were before the slice, and another query reads them as they are after the slice.
    """
    selected = ", ".join(f"{quoted(column)} as {quoted(by)}" for by, column in read.by.items())
    # The changed rows have the keys of the slice's contributions.
    has_all = set(read.by.values()) <= set(source.birth.row_keys) and not source.has_passed
    changed = [f"from {_contributed(read.table)}"] if has_all else changed_rows(source).values()
    for rows in changed:
        yield f"select {selected} from ({rows})"


def _reached(read: Read, way: Way, sources: Mapping[str, ViewSource]) -> Iterator[str]:
    """Yields SQL queries for the view's keys that a source's changed rows reach through joins.

    A source is a table that the view reads. One query reads the rows after the slice, and another
    query reads the rows before the slice.
    """
    for before, rows in changed_rows(sources[read.table]).items():
        relations = {
            each.name: rows if each is read else sources[each.table].sql(before=before)
            for each in way.reads
        }
        named = ", ".join(f"{name} as ({sql})" for name, sql in relations.items())
        yield f"select * from (with {named} {read.reaches})"


def changed_rows(source: ViewSource) -> dict[bool, str]:
    """Returns SQL queries for a source's changed rows, as they are before and after the slice.

    A source is a table that a view reads. The key of a query is False for the rows after the slice,
    and True for the rows before the slice. The queries read the contributions that
    `register_changes` has registered.
    """
    birth, rows, passed = source.birth, source.new_rows, source.passed_sql()
    columns = shown_columns(birth)
    served = ", ".join(quoted(name) for name, _ in birth.served)
    found: dict[bool, list[str]] = {True: [], False: []}
    if rows is None:
        found[True] += [] if passed is None else [passed]
    elif not birth.row_keys:
        condition = served_condition(birth, source.clock)
        where = "" if condition is None else f" where {condition}"
        found[False].append(f"select {served} from {_contributed(birth.name)}{where}")
        found[True] += [] if passed is None else [passed]
    else:
        has_nulls = any(rows.column(key).null_count for key in birth.row_keys)
        among = Among(_contributed(birth.name), {key: key for key in birth.row_keys}, has_nulls)
        # The rows before come first: files are listed by the commits since a version.
        for before in (True, False):
            found[before].append(source.sql(columns, among=among, before=before))
        if passed is not None:
            found[True].append(among.others_of(passed))
    return {
        before: f"select {served} from ({' union all '.join(each)})"
        for before, each in found.items()
        if each
    }


def shown_columns(birth: TableBirth) -> list[tuple[str, str]]:
    """Returns the table's columns that identify a row, and the columns that readers see.

    Each column is a pair (name, type).
    """
    wanted = {*birth.row_keys, *(name for name, _ in birth.served)}
    return [column for column in birth.columns if column[0] in wanted]


def _contributed(table: str) -> str:
    return f"_contributed_{table}"
