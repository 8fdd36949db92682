"""The net difference between two points. A point is the state of a table at a frontier.

The difference is first expressed as SQL; a reader then computes it as a change set. A difference
has the columns `op` (insert, update, delete), `times` (the number of equal rows, if the table has
no keys), and `before` and `after`. The last two are structs of the served columns, and one of them
may be null. Two values are equal if DuckDB does not distinguish them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kappa.base.sql import quoted
from kappa.declare.folds.exactness import Exactness
from kappa.declare.options import DELETED
from kappa.serving.outlets.changes.change_set import CHANGES, ChangeKind, ChangeSet, ChangeSetHead
from kappa.serving.outlets.changes.table_snapshot import Point, file_list_sums
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.reader import Limits, Reader, open_reader
from kappa.serving.query.reader.relations import file_sizes_at
from kappa.state.build import recent_names, table_path
from kappa.state.file_sums import ensure_whole
from kappa.state.journal.events import Served, SwitchAsked
from kappa.state.journal.journal import JournalView
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns
from kappa.tables.parquet import parquet_sql
from kappa.tables.versions import touched_files
from kappa.tables.views.served_rows_sql import (
    Among,
    failing_sql,
    folded_sql,
    gone_condition,
    read_sql,
    served_condition,
)

# The relation of the keys that slices between two points have touched.
_TOUCHED = "_touched"
# Lists the files of a table's version, by its path, with the bytes of each file.
Files = Callable[[str, int], Mapping[str, int]]
# The most bytes of Parquet to compute in memory, where they take some ten times as much.
_SMALL_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NetDifference:
    """The difference between a table at two frontiers, as SQL.

    `difference` is the query. `relations` maps the name of each relation that the query reads to
    the relation's own query, in the order in which to create them. `bytes` is the size of the files
    with the rows that may differ, or None if the query reads all files of the table.
    """

    difference: str
    bytes: int | None = None
    relations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TouchedKeys:
    """The query for all keys whose rows may differ between two frontiers.

    `bytes` is the size of all files that the query reads. `stored` is the size of the table's own
    files, without its small tables of recent rows. `rewritten` is the size of those of the table's
    own files that the query reads.
    """

    sql: str
    bytes: int
    rewritten: int
    stored: int


def whole_table(store: Store, point: Point, files: Files) -> NetDifference:
    """Returns the difference between an empty table and the state `point` of a table.

    All rows of this state are inserted.
    """
    row, rows = _struct_sql("r", point.table), _served_rows_sql(store, point, files)
    counted = "1" if point.table.keys else "count(*)"
    grouped = "" if point.table.keys else " group by row"
    return NetDifference(
        f"select 'insert' as op, ({counted})::bigint as times, case when false then row end as "
        f"before, row as after from (select {row} as row from ({rows}) as r){grouped}",
    )


def difference_between(store: Store, before: Point, after: Point, files: Files) -> NetDifference:
    """Returns the net difference between two states of a table, `before` and `after`.

    The states may belong to the same build or to two builds.
    """
    if before.birth.folded_by == after.birth.folded_by:
        return _difference_within_build(store, before, after, files)
    rows = [_served_rows_sql(store, each, files) for each in (before, after)]
    return NetDifference(_difference_of_rows(before.table, after.table, *rows))


def _difference_within_build(
    store: Store, before: Point, after: Point, files: Files
) -> NetDifference:
    """Returns the net difference between two states of a table in the same build.

    Only the rows of keys that slices have touched are compared. If slices have touched most of the
    table, all rows are compared.
    """
    table = after.table
    by = table.keys or table.by
    if not by:
        return _difference_of_appended(store, before, after, files)
    touched = _touched_keys(store, before, after, files, by)
    if table.keys and 2 * touched.rewritten > touched.stored:
        # To compare all rows takes less time than to find most rows.
        rows = [_served_rows_sql(store, each, files) for each in (before, after)]
        return NetDifference(_difference_of_rows(table, table, *rows), touched.bytes)
    relations = {_TOUCHED: touched.sql}
    among = Among(_TOUCHED, {column: column for column in by})
    rows = _touched_rows(store, before, after, files, among, relations)
    return NetDifference(_difference_of_rows(table, table, *rows), touched.bytes, relations)


def _touched_rows(
    store: Store,
    before: Point,
    after: Point,
    files: Files,
    among: Among,
    relations: dict[str, str],
) -> list[str]:
    """Returns a query for the rows of the touched keys in each of two states of a table.

    The states are `before` and `after`, and `among` contains the touched keys. The function adds
    the relations that the two queries read to `relations`. Relations are needed because a fold
    reads its input more than once, and because a file that belongs to both states must be read only
    once.
    """
    table = after.table

    def read_relation(columns: Sequence[tuple[str, str]], paths: Collection[str]) -> str:
        query = among.of(parquet_sql(columns, sorted(paths)))
        named = {query: name for name, query in relations.items()}
        name = named.get(query, f"_read_{len(relations)}")
        relations[name] = query
        return f"select * from {name}"

    versions = [each.table_versions(store) for each in (before, after)]
    path = table_path(store, after.birth.build, table.name)
    stored = [{*files(path, each.pop(path))} for each in versions]
    shared = stored[0] & stored[1]
    recent = [
        [there for name, version in each.items() if (there := files(name, version))]
        for each in versions
    ]
    # The state of a fold may be large, and is needed where something is folded in.
    columns = table.columns if any(recent) else _visible_columns(table)
    return [
        folded_sql(
            table,
            f"{read_relation(columns, shared)} union all {read_relation(columns, own - shared)}",
            [read_relation(contribution_columns(table), each) for each in waiting],
            table.served,
            clock=point.log_clock,
        )
        for point, own, waiting in zip((before, after), stored, recent, strict=True)
    ]


def _visible_columns(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """Lists the columns that readers see or that identify a row, as pairs of name and type."""
    named = {name for name, _ in table.served} | {*table.row_keys, DELETED}
    return tuple(column for column in table.columns if column[0] in named)


def _touched_keys(
    store: Store, before: Point, after: Point, files: Files, by: tuple[str, ...]
) -> TouchedKeys:
    """Returns the query for the keys whose rows may differ between two states of a table.

    Both states belong to the same build. A key's row may differ if a slice has contributed to the
    row, or if the row has expired by the log's clock. `by` are the key columns.
    """
    table = after.table
    named = ", ".join(map(quoted, by))
    columns = [column for column in table.columns if column[0] in by]
    found, lacks, size, rewritten, stored = list[str](), False, 0, 0, 0
    for name in (*recent_names(table.name), table.name):
        path = table_path(store, after.birth.build, name)
        if name not in after.frontier.versions:
            continue
        version = before.frontier.versions.get(name, -1)
        until = after.frontier.versions[name]
        known = None if version < 0 else touched_files(path, version, until)
        sizes = {**({} if version < 0 else files(path, version)), **files(path, until)}
        there, at_first = {*files(path, until)}, {*(() if version < 0 else files(path, version))}
        lacks |= known is None or known[1]
        # A drain between both points moves rows from a recent table into the table. And sums of
        # doubles may differ in the last digits if they are added in another order.
        if known is None or known[1] or (name == table.name and (lacks or _sums_doubles(table))):
            paths = frozenset(there ^ at_first)
        else:
            paths = known[0] & there
        found.append(parquet_sql(columns, sorted(paths)))
        size += sum(map(sizes.__getitem__, paths))
        if name == table.name:
            rewritten, stored = (
                sum(map(sizes.__getitem__, each)) for each in (paths & there, there)
            )
    if (passed := _passed_condition(before, after)) is not None:
        found.append(
            f"select {named} from ({_served_rows_sql(store, before, files)}) where {passed}"
        )
    sql = f"select distinct {named} from ({' union all '.join(found)})"
    return TouchedKeys(sql, size, rewritten, stored)


def _passed_condition(before: Point, after: Point) -> str | None:
    """Returns the SQL condition for rows that expired between two states of a table.

    Rows expire by the log's clock. Returns None if no row can have expired between the states.
    """
    gone = gone_condition(after.table, after.log_clock)
    return None if gone == gone_condition(before.table, before.log_clock) else gone


def _sums_doubles(table: TableBirth) -> bool:
    return any(
        table.exactness(name) is not Exactness.EXACT
        for name, _ in table.served
        if name in table.fold
    )


def _difference_of_appended(
    store: Store, before: Point, after: Point, files: Files
) -> NetDifference:
    """Returns the net difference between two states of a table without keys.

    Both states belong to the same build. Only the files that belong to just one of the states are
    compared. A row that has expired, in a file of both states, is added to the difference as a
    delete.
    """
    table, path = after.table, table_path(store, after.birth.build, after.table.name)
    sizes = [files(path, each.frontier.versions[table.name]) for each in (before, after)]
    one, other = ({*each} for each in sizes)
    gone, come = (
        read_sql(table, sorted(paths), None, clock=each.log_clock)
        for paths, each in ((one - other, before), (other - one, after))
    )
    if (passed := _passed_condition(before, after)) is not None:
        served = served_condition(table, before.log_clock)
        where = passed if served is None else f"{served} and {passed}"
        gone += f" union all {parquet_sql(table.served, sorted(one & other), f' where {where}')}"
    size = sum({**sizes[0], **sizes[1]}[each] for each in one ^ other)
    return NetDifference(_difference_by_count(table, gone, come), size)


def _difference_of_rows(before: TableBirth, after: TableBirth, old: str, new: str) -> str:
    """Returns a query for the difference between the rows of the queries `old` and `new`.

    If the tables `before` and `after` have the same keys, rows with equal keys are compared.
    Otherwise, equal rows are counted, or all old rows are deleted and all new rows inserted.
    """
    is_alike = dict(before.served) == dict(after.served)
    if before.keys != after.keys or not after.keys:
        if is_alike:
            return _difference_by_count(after, old, new)
        return (
            f"select 'delete' as op, 1::bigint as times, {_struct_sql('o', before)} as before, "
            f"null as after from ({old}) as o union all by name "
            f"select 'insert' as op, 1::bigint as times, null as before, "
            f"{_struct_sql('n', after)} as after from ({new}) as n"
        )
    match = " and ".join(
        f"o.{quoted(key)} is not distinct from n.{quoted(key)}" for key in after.keys
    )
    one, other = (
        f"(select {', '.join(quoted(key) for key in table.keys)}, {_struct_sql('r', shape)} as "
        "_row, "
        f"true as _here from ({rows}) as r)"
        for table, shape, rows in (
            # Rows are compared as structs, so the fields of both must have the same order.
            (before, after if is_alike else before, old),
            (after, after, new),
        )
    )
    differs = "o._row is distinct from n._row" if is_alike else "true"
    return (
        "select case when o._here is null then 'insert' when n._here is null then 'delete' "
        "else 'update' end as op, 1::bigint as times, o._row as before, n._row as after "
        f"from {one} as o full join {other} as n on {match} "
        f"where o._here is null or n._here is null or {differs}"
    )


def _difference_by_count(table: TableBirth, old: str, new: str) -> str:
    """Returns a query for the difference between the rows of the queries `old` and `new`.

    The query counts how often each row occurs in the two results.
    """
    row = _struct_sql("r", table)
    return (
        "select case when sum(_n) > 0 then 'insert' else 'delete' end as op, "
        "abs(sum(_n))::bigint as times, case when sum(_n) < 0 then _row end as before, "
        "case when sum(_n) > 0 then _row end as after from ("
        f"select {row} as _row, -1 as _n from ({old}) as r union all "
        f"select {row} as _row, 1 as _n from ({new}) as r) group by _row having sum(_n) <> 0"
    )


def _struct_sql(alias: str, table: TableBirth) -> str:
    fields = ", ".join(f"{quoted(name)} := {alias}.{quoted(name)}" for name, _ in table.served)
    return f"struct_pack({fields})"


def _served_rows_sql(store: Store, point: Point, files: Files) -> str:
    """Returns the query for the served rows in a state of a table, with recent rows folded in.

    If the table is a maintained view whose SQL fails in this state, the returned query fails with
    the same reason. Changes within a build do not need this query: they are computed from the
    build's files, which do not change while the view fails.
    """
    if point.table.name in point.frontier.failing:
        return failing_sql(point.table.served, point.frontier.failing[point.table.name])
    versions = point.table_versions(store)
    path = table_path(store, point.birth.build, point.table.name)
    return read_sql(
        point.table,
        files(path, versions[path]),
        clock=point.log_clock,
        recent=[tuple(files(each, version)) for each, version in versions.items() if each != path],
    )


def paths_of(store: Store, point: Point, files: Files) -> tuple[str, ...]:
    """Lists the files that contain the rows of a table in the state `point`."""
    return tuple(
        each
        for path, version in point.table_versions(store).items()
        for each in files(path, version)
    )


def has_same_rows(store: Store, before: Point, after: Point) -> bool:
    """Returns True if two states of a table certainly have the same rows.

    This is certain if both states belong to the same build and have the same table versions, and
    also the same log's clock if rows can expire.
    """
    if before.birth.folded_by != after.birth.folded_by:
        return False
    return before.table_versions(store) == after.table_versions(store) and (
        after.table.expiry is None or before.log_clock == after.log_clock
    )


@contextmanager
def changes_until(
    store: Store,
    before: Point | None,
    after: Point,
    *,
    is_first: bool,
    limits: Limits | None,
    client: Client,
) -> Iterator[ChangeSet]:
    """Opens the change set that leads from the state `before` of a table to the state `after`.

    If `before` is None, the change set contains the whole table. Its kind is then `snapshot` if
    `is_first` is True, for the reader's first request, and otherwise `reset`. The caller must keep
    the files of both states during the block. If the client leaves, the computation is interrupted,
    and ClientLeft is raised.
    """
    kind = (
        (ChangeKind.SNAPSHOT if is_first else ChangeKind.RESET)
        if before is None
        else ChangeKind.SLICE
        if before.birth.build == after.birth.build
        else switch_kind(store, after)
    )
    change_set, reader = open_change_set(store, kind, before, after, limits, client=client)
    with reader, client.calling_on_leave(reader.interrupt):
        yield change_set
        drop_changes(reader)


def open_change_set(
    store: Store,
    kind: ChangeKind,
    before: Point | None,
    after: Point,
    limits: Limits | None,
    *,
    starts_empty: bool = False,
    unlimited_if_small: bool = False,
    client: Client | None = None,
) -> tuple[ChangeSet, Reader]:
    """Computes the change set between two states of a table.

    Returns the change set and its DuckDB reader, which the caller must close. If `starts_empty` is
    True, a snapshot or reset has no rows. If `unlimited_if_small` is True, a small change set is
    computed in memory without `limits`, which is faster.
    """
    earlier = None if kind is ChangeKind.RESET else before
    points = (after,) if earlier is None else (earlier, after)
    vouched = file_list_sums(store, *points)

    def list_files(path: str, version: int) -> Mapping[str, int]:
        return file_sizes_at(path, version, vouched.get((path, version)))

    net = (
        whole_table(store, after, list_files)
        if earlier is None
        else difference_between(store, earlier, after, list_files)
    )
    if earlier is None and starts_empty:
        net = replace(net, difference=f"{net.difference} limit 0")
    for point in points:
        ensure_whole(store, point.birth.build, paths_of(store, point, list_files))
    is_small = net.bytes is not None and net.bytes <= _SMALL_BYTES
    reader = open_reader(None if unlimited_if_small and is_small else limits, served=True)
    try:
        with (client or Client()).calling_on_leave(reader.interrupt):
            _put_changes(reader, net)
    except BaseException:
        reader.close()
        raise
    head = ChangeSetHead(
        kind,
        after.table.name,
        after.birth.pipeline,
        None if earlier is None else earlier.cursor,
        after.cursor,
        after.frontier.offsets,
        after.table.keys,
        after.table.served,
    )
    return ChangeSet(head, after, reader, (earlier or after).table.served), reader


def open_served_rows(store: Store, point: Point, limits: Limits | None) -> tuple[Reader, str]:
    """Opens a DuckDB reader for the served rows in a state of a table.

    Returns the reader, and the query for the rows. The caller must keep the state's files with a
    lease, and close the reader. Raises Damaged if a file is not as it was written.
    """
    vouched = file_list_sums(store, point)

    def list_files(path: str, version: int) -> Mapping[str, int]:
        return file_sizes_at(path, version, vouched.get((path, version)))

    ensure_whole(store, point.birth.build, paths_of(store, point, list_files))
    return open_reader(limits, served=True), _served_rows_sql(store, point, list_files)


def drop_changes(reader: Reader) -> None:
    """Drops the table of all changes in a DuckDB reader.

    Another reader may use the DuckDB connection next.
    """
    reader.run_command(f"drop table {CHANGES}")


def _put_changes(reader: Reader, net: NetDifference) -> None:
    """Computes a difference in a DuckDB reader, and stores it in a temporary table."""
    for name, query in net.relations.items():
        reader.run_command(f"create or replace temp table {name} as {query}")
    reader.run_command(f"create or replace temp table {CHANGES} as {net.difference}")
    for name in net.relations:
        reader.run_command(f"drop table {name}")


def switch_kind(store: Store, after: Point) -> ChangeKind:
    """Returns whether a promote or an undo has switched to the build of a table's state.

    The kind is read from the journal.
    """
    records = JournalView(store).records()
    for record in reversed(records):
        event = record.event
        if not isinstance(event, Served) or event.generation > after.generation:
            continue
        for switched in event.switched:
            begun = records[switched.rollout - 1].event
            if getattr(begun, "pipeline", None) == after.birth.pipeline:
                return ChangeKind.UNDO if isinstance(begun, SwitchAsked) else ChangeKind.PROMOTE
    return ChangeKind.PROMOTE
