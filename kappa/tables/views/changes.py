"""The query that computes the changed rows of a maintained view. Pure.

The query compares the result of the view's query, for all keys or for the touched keys (ways.py),
with the stored rows. New rows, rows with other values and deleted rows are the slice's
contributions to the view's table (kappa/tables/merge.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.errors import Broken
from kappa.base.sql import quoted, text
from kappa.declare.options import DELETED
from kappa.state.table import NUMBER, SINCE, TableBirth
from kappa.tables.parquet import cast_sql

# An error names at most so many of the keys that several rows have, and of each key so many rows.
_NAMED = 3
# A longer row is cut in an error.
_LONGEST = 200
_QUOTE = text("'")


def changes_sql(
    view: TableBirth, query: str, relations: Mapping[str, str], stored: str, since: int
) -> str:
    """Returns the DuckDB query for a slice's contributions to a view's table.

    `query` is the view's own query, or a query for some of the view's rows. `relations` maps the
    name of each relation that `query` reads to a query for the rows of that relation. `stored` is a
    query for the stored rows of the same part of the view, including the columns that identify
    rows. `since` is the number of offsets that the build has folded so far. If several rows of the
    view have the same keys, the returned query fails.
    """
    kinds = dict(view.columns)
    columns = [name for name, _ in stored_columns(view)]
    listed = ", ".join(map(quoted, columns))
    served = ", ".join(cast_sql(name, kinds[name]) for name in columns if name != NUMBER)
    own = f"select {served} from (\n{query}\n)"
    if not view.keys:
        order = ", ".join(quoted(name) for name, _ in view.served)
        by = ", ".join(map(quoted, view.by))
        own = (
            f"select *, row_number() over (partition by {by} order by {order}) as"
            f" {quoted(NUMBER)} from ({own})"
        )
    same = " and ".join(
        f"_old.{quoted(key)} is not distinct from _new.{quoted(key)}" for key in view.row_keys
    )
    read = "".join(f"{quoted(name)} as ({sql}),\n" for name, sql in relations.items())
    mark = f"{since}::bigint as {quoted(SINCE)}"
    return (
        f"with {read}_new as materialized ({own}),\n"
        f"_old as materialized (select {listed} from ({stored}))\n"
        f"select {listed}, false as {quoted(DELETED)}, {mark} from"
        f" (select {listed} from _new except all select {listed} from _old)\n"
        f"union all select {listed}, true as {quoted(DELETED)}, {mark}"
        f" from _old anti join _new on {same}{_unique(view)}"
    )


def stored_columns(view: TableBirth) -> tuple[tuple[str, str], ...]:
    """Lists the columns that a view's query returns, and the columns that identify a row.

    Each column is a pair of name and type.
    """
    return tuple(column for column in view.columns if column[0] not in {DELETED, SINCE})


def _unique(view: TableBirth) -> str:
    """Returns a part of a query that fails if several rows of the view have the same keys.

    Otherwise this part adds no rows to the result.
    """
    if not view.keys:
        return ""
    keys, kinds = ", ".join(map(quoted, view.keys)), dict(view.columns)
    each = " || ', ' || ".join(
        f"{text(f'{key}=')} || coalesce({_shown_key(key, kinds[key])}, 'null')" for key in view.keys
    )
    row = ", ".join(f"{quoted(name)} := {quoted(name)}" for name, _ in view.served)
    same = " and ".join(
        f"_new.{name} is not distinct from _few.{name}" for name in map(quoted, view.keys)
    )
    nothing = ", ".join(
        f"null as {quoted(name)}" for name, _ in (*stored_columns(view), (DELETED, ""), (SINCE, ""))
    )
    # Only the first of these queries is computed if keys are unique.
    return (
        f"\nunion all select {nothing} from ("
        f"with _twice as materialized (select {keys} from _new group by {keys} having count(*) > 1)"
        f", _few as (from _twice order by all limit {_NAMED})"
        f", _rows as (select _new.*, left(struct_pack({row})::varchar, {_LONGEST}) as _row"
        f" from _new semi join _few on {same})"
        f" select error({text(SEVERAL_ROWS)} || string_agg(_each, '; ' order by _each) ||"
        f" (select case when count(*) > {_NAMED} then '; and ' || (count(*) - {_NAMED}) ||"
        f" ' keys more' else '' end from _twice)) as failed from (select {each} || ': ' ||"
        f" array_to_string(list(_row order by _row)[:{_NAMED}], ', ') as _each"
        f" from _rows group by {keys}) having count(*) > 0) where failed is not null"
    )


def _shown_key(key: str, kind: str) -> str:
    shown = f"{quoted(key)}::varchar"
    return f"{_QUOTE} || {shown} || {_QUOTE}" if kind == "string" else shown


# The beginning of the error for keys that are not unique.
SEVERAL_ROWS = "several rows have the keys "


# DuckDB's errors about queries, files, servers and an interrupt. All others are about rows.
_NOT_OF_ROWS = (
    "Parser Error: ",
    "Binder Error: ",
    "Catalog Error: ",
    "Not implemented Error: ",
    "IO Error: ",
    "HTTP Error: ",
    "Permission Error: ",
    "INTERRUPT Error: ",
)
# A view may spill or hold too much because of its rows, too.
_TOO_MUCH = "No space left on device"
_SPILLED = "max_temp_directory_size"
# What follows is advice about settings of DuckDB, which only Kappa sets.
_ADVICE = "Possible solutions:"
_MEND = "fix its query, and kappa deploy makes a new build of it"


class Unfit(Broken):
    """The error if a view cannot be computed over the present rows of its tables.

    The message contains DuckDB's message. It may be possible to compute the view over other rows.
    """


def too_long(name: str, seconds: float) -> Unfit:
    """Returns the error for a view whose query was interrupted after `seconds`."""
    return Unfit(
        f"view {name} takes longer than {seconds:g} s, half of engine.slice_seconds",
        hint=_MEND,
    )


def view_error(name: str, told: str) -> Broken:
    """Returns the error for a view that DuckDB could not compute. `told` is DuckDB's message.

    The error is Unfit if it may be possible to compute the view over other rows, and otherwise
    Broken.
    """
    told = told.partition(_ADVICE)[0].rstrip()
    _, found, rows = told.partition(SEVERAL_ROWS)
    if found:
        return Unfit(
            f"view {name}: {SEVERAL_ROWS}{rows}",
            hint="its keys identify a row: give it other keys, or by=(...) in their place",
        )
    if _SPILLED in told:
        return Unfit(
            f"view {name} has too many rows: computing it would spill more to the disk than"
            f" verify.temp_size, or than half of the free space: {told}",
            hint=_MEND,
        )
    is_of_rows = _TOO_MUCH in told or not told.startswith(_NOT_OF_ROWS)
    return (Unfit if is_of_rows else Broken)(f"view {name} cannot be computed: {told}", hint=_MEND)
