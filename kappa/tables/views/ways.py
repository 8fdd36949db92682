"""The method by which a slice keeps a view up to date: whole, by touched keys, or by change.

*Whole*: the view's query is computed and compared with all stored rows. *By touched keys*: the
touched keys are the `by` values that the changed rows of the slice have now or had before. Only the
view's rows with these values are computed, from only those rows of the tables on which these view
rows depend (lineage.py). *By change*: counts and sums over the slice's rows are added to stored
counts and sums, or subtracted (incremental_view.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from kappa.base.duck import Connection, open_connection
from kappa.base.sql import lowered, quoted
from kappa.declare.values.columns import parse_type
from kappa.state.table import TableBirth
from kappa.tables.views.incremental_view import ByChange, by_change
from kappa.tables.views.lineage import lineage_of
from kappa.tables.views.nulls import without_nulls
from kappa.tables.views.query_binding import declared_sql, why_not_bound
from kappa.tables.views.reached_keys import reached_by
from kappa.tables.views.syntax_tree import Tree, copied, sql_of, tree_of, trees
from kappa.tables.views.view_tables import can_be_key, make_empty

# The prefix of the name of a place at which the query reads a table; the place's number follows.
_READING = "_read_"


@dataclass(frozen=True, slots=True)
class Read:
    """A place at which a view's query reads a table.

    `by` maps each `by` column of the view to the column of the table with the same value, if there
    is one. If the table lacks some of these columns, `reaches` is the query for the keys of the
    view rows that changed rows of the table affect through joins. `reaches` is None if no query is
    certain to find these keys.
    """

    name: str
    table: str
    by: Mapping[str, str]
    reaches: str | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """The way of a view: the method by which slices keep the view up to date.

    `sql` is the view's query, in which each place that reads a table has its own name; `reads`
    contains these places. After a change of a table in `whole_after`, the view is computed as a
    whole; `whole_after` maps the table to the reason. `advice` is a text for the user on how to
    avoid this, or "".
    """

    by: tuple[str, ...]
    # The query for all stored rows, over the tables under their own names.
    whole: str
    sql: str
    reads: tuple[Read, ...]
    whole_after: Mapping[str, str]
    change: ByChange | None = None
    # The arguments with which a whole view would be kept by touched keys, if there are some.
    advice: str = ""

    @property
    def is_whole(self) -> bool:
        """Returns True if all rows of the view are computed again after every change."""
        return {read.table for read in self.reads} <= set(self.whole_after)

    def __str__(self) -> str:
        if self.change is not None:
            return "by change: its counts and sums take what the slice adds"
        if self.is_whole:
            why = next(iter(self.whole_after.values()), "it reads no table")
            return f"whole: {why}{'; ' if self.advice else ''}{self.advice}"
        rest = "".join(
            f"; whole when {name} changes: {why}" for name, why in self.whole_after.items()
        )
        return f"by touched keys ({', '.join(self.by)}){rest}"


def ways_of(tables: Iterable[TableBirth]) -> dict[str, Way]:
    """Returns the way of each maintained view of a build, by the view's name.

    `tables` are the tables of the build, including its maintained views.
    """
    births = {table.name: table for table in tables}
    views = [table for table in births.values() if table.view is not None]
    if not views:
        return {}
    with open_connection() as duck:
        for table in births.values():
            make_empty(duck, table)
        return {view.name: way_of(duck, view, births) for view in views}


def way_of(duck: Connection, view: TableBirth, tables: Mapping[str, TableBirth]) -> Way:
    """Returns the way of a maintained view: the method by which slices keep it up to date.

    `tables` are the tables of the build. If the view is computed as a whole, `advice` in the result
    is a text on how to avoid this, or "" if there is no way to avoid it. `duck` is a connection in
    which the tables exist; no rows are read.
    """
    way = _way_by(duck, view, tables)
    if way.change is not None or not way.is_whole:
        return way
    return replace(way, advice=_advice(duck, view, tables))


def _advice(duck: Connection, view: TableBirth, tables: Mapping[str, TableBirth]) -> str:
    """Returns an advice for a view that is computed as a whole: the `keys` and `by` to declare.

    With these arguments, the view would be kept by touched keys. Returns "" if there are no such
    arguments. Only the view's own keys are considered; for a query with a window function, all
    columns of the query are considered.
    """
    assert view.view is not None
    tree, columns = tree_of(duck, view.view), _columns_read(view, tables)
    served = [name for name, kind in view.served if can_be_key(parse_type(kind))]
    found = lineage_of(tree, columns, served)
    if found.why_not is not None:
        return ""
    followed = [name for name in served if all(name in each.by for each in found.readings)]
    has_windows = any(each.get("class") == "WINDOW" for each in trees(found.tree))
    by = [name for name in followed if name in (view.keys or view.by)]
    by = by or [name for name in followed if has_windows]
    keys = () if not view.keys else tuple(dict.fromkeys((*by, *view.keys)))
    if not by or _way_by(duck, with_fields(view, keys=keys, by=tuple(by)), tables).is_whole:
        return ""
    if {*keys} != {*view.keys}:
        return f"give keys={_tuple_text(keys)}, by={_tuple_text(by)}"
    return f"{'add' if keys and view.by == view.keys else 'give'} by={_tuple_text(by)}"


def _tuple_text(names: Sequence[str]) -> str:
    """Returns a tuple of names in Python syntax, with double quotes."""
    return f"({', '.join(json.dumps(name) for name in names)}{',' * (len(names) == 1)})"


def _columns_read(
    view: TableBirth, tables: Mapping[str, TableBirth]
) -> Mapping[str, Mapping[str, str]]:
    """Returns the column types of each table that a view reads. All names are in lower case."""
    return {
        lowered(name): {lowered(column): kind for column, kind in tables[name].served}
        for name in view.reads
    }


def _way_by(duck: Connection, view: TableBirth, tables: Mapping[str, TableBirth]) -> Way:
    """Returns the way of a view with its declared keys and `by`.

    The result contains no advice on how to avoid that the view is computed as a whole.
    """
    assert view.view is not None
    columns = _columns_read(view, tables)
    tree = tree_of(duck, view.view)
    change = None
    if view.keys:
        change = by_change(duck, tree, view.keys, {name: tables[name] for name in view.reads})
        # A build may be older than the columns that are stored beside a view by change.
        if change is not None and not set(change.columns) <= dict(view.columns).keys():
            change = None
    found = lineage_of(tree, columns, view.by)
    whole_sql = declared_sql(duck, view.view)
    if found.why_not is not None:
        return Way(view.by, whole_sql, whole_sql, (), dict.fromkeys(view.reads, found.why_not))
    reads, whole = list[Read](), dict[str, str]()
    wanted = {lowered(by): by for by in view.by}
    for number, reading in enumerate(found.readings):
        reading.tree[_NUMBER] = number
    for number, reading in enumerate(found.readings):
        missing = next((by for by in view.by if by not in reading.by), None)
        reaches = None
        if missing is not None:
            query = reached_by(found.scopes, found.node, reading.tree, wanted)
            if query is None:
                whole.setdefault(reading.table, reading.lost.get(missing, "it cannot be told"))
            else:
                statement = {**found.tree["statements"][0], "node": query}
                reaches = _tree_sql(duck, {**found.tree, "statements": [statement]})
        reads.append(Read(f"{_READING}{number}", reading.table, dict(reading.by), reaches))
    stored = whole_sql if change is None else change.whole()
    sql = _tree_sql(duck, found.tree)
    # A query that DuckDB cannot read is computed whole.
    at = {read.name: f"from {quoted(read.table)}" for read in reads}
    if (why := why_not_bound(duck, sql, at)) is not None:
        whole = {**dict.fromkeys(view.reads, why), **whole}
    for read in reads:
        if read.reaches is not None and (why := why_not_bound(duck, read.reaches, at)) is not None:
            whole.setdefault(read.table, why)
    return Way(view.by, stored, sql, tuple(reads), whole, change)


# The key in a tree of the number of a reading.
_NUMBER = "_number"


def _tree_sql(duck: Connection, tree: Tree) -> str:
    """Returns the SQL of a query's tree.

    In the SQL, each reference to a table has its own alias.
    """
    named = without_nulls(copied(tree))
    for each in trees(named):
        if _NUMBER in each:
            each["alias"] = each.get("alias") or each["table_name"]
            each["table_name"] = f"{_READING}{each.pop(_NUMBER)}"
    return sql_of(duck, named)
