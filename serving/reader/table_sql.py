"""SQL for the rows of a table's files, and its spelling of names, texts and types. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kappa.base.errors import DeclarationError
from kappa.base.sql import quoted, text
from kappa.state.build import TableBirth
from kappa.tables.merge import contribution_columns, merged_sql
from kappa.values.columns import HEADERS, Array, Scalar, Struct, Type, parse_type

# Schemas that DuckDB has already; a pipeline of such a name gets one with an underscore behind it.
_RESERVED = frozenset({"main", "information_schema", "pg_catalog"})
_SPELLINGS = {
    "string": "varchar",
    "binary": "blob",
    HEADERS: 'struct("key" varchar, "value" blob)[]',
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}

# A part of DuckDB's name of a type: a name or text in quotes, a word, a mark or a space.
_PART = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|\w+|.""")

# The condition for the served rows of a table that hides some.
SERVED_ROWS = "_deleted is not true"


def read_sql(
    table: TableBirth,
    paths: Iterable[str],
    wanted: Iterable[tuple[str, str]] | None = None,
    *,
    recent: Iterable[Sequence[str]] = (),
) -> str:
    """Returns DuckDB's query for the served rows of a table that consists of these files.

    `wanted`: these columns instead of the served ones. `recent`: the files of the tables with
    contributions to it (kappa/engine/write/recent.py), which are folded in. Every column is cast
    to its declared type: Delta's writers spell times in two ways, and the first file would decide.
    """
    columns = table.served if wanted is None else tuple(wanted)
    where = f" where {SERVED_ROWS}" if table.hides_rows else ""
    waiting = [_read_sql(contribution_columns(table), files, "") for files in recent if files]
    if not waiting:
        return _read_sql(columns, paths, where)
    # Contributions of two tables are folded as one. Sums of doubles in another order may differ
    # in their last digits (decision 8).
    folded = merged_sql(table, _read_sql(table.columns, paths, ""), waiting)
    return f"select {', '.join(quoted(name) for name, _ in columns)} from ({folded}){where}"


def stored_sql(table: TableBirth, paths: Iterable[str]) -> str:
    """Returns the query for all that a table has: the platform's own columns and rows too."""
    return _read_sql(table.columns, paths, "")


def _read_sql(columns: Sequence[tuple[str, str]], paths: Iterable[str], where: str) -> str:
    selected = ", ".join(
        f"cast({quoted(name)} as {_duck_type(kind)}) as {quoted(name)}" for name, kind in columns
    )
    listed = ", ".join(text(literal(path)) for path in paths)
    if not listed:
        nothing = ", ".join(f"null as {quoted(name)}" for name, _ in columns)
        return f"select {selected} from (select {nothing}) where false"
    return f"select {selected} from read_parquet([{listed}], hive_partitioning = false){where}"


def check_sql(table: str, condition: str) -> str:
    """Returns the query for a table's count of rows, and of those that fail a condition.

    Null counts as false.
    """
    return (
        "select count(*), count(*) filter (where holds is not true) from "
        f"({condition_sql(table, condition)})"
    )


def condition_sql(table: str, condition: str) -> str:
    """Returns the query for what a condition is of each row of a table."""
    # On a line of its own, so that a comment at its end comments out nothing of ours.
    return f"select (\n{condition}\n) as holds from {quoted(table)}"


def schema_of(pipeline: str) -> str:
    """Returns the schema of a pipeline's relations."""
    return f"{pipeline}_" if pipeline in _RESERVED else pipeline


def _duck_type(kind: str) -> str:
    try:
        return _spelled(parse_type(kind))
    except DeclarationError:
        # No event has bytes or headers, but the rejects do.
        return _SPELLINGS.get(kind, kind)


def _spelled(kind: Type) -> str:
    match kind:
        case Scalar(name):
            return _SPELLINGS.get(name, name)
        case Array(element):
            return f"{_spelled(element)}[]"
        case Struct(fields):
            inside = (f"{quoted(field.name)} {_spelled(field.type)}" for field in fields)
            return f"struct({', '.join(inside)})"
        case _:
            return str(kind)


def type_text(kind: str) -> str:
    """Returns DuckDB's name of a type in small letters; names of fields keep their case."""
    # For each open bracket, whether it has fields: name, then type.
    fields: list[bool] = []
    parts, before = [], ""
    for part in _PART.findall(kind):
        is_name = bool(fields) and fields[-1] and before in {"(", ","}
        parts.append(part if is_name or part[0] in "\"'" else part.lower())
        if part == "(":
            fields.append(before in {"STRUCT", "UNION"})
        elif part == ")":
            fields.pop()
        before = part.strip() or before
    return "".join(parts)


def literal(path: str) -> str:
    """Returns a path as DuckDB takes it for that path alone: a path may be a pattern, too.

    Source: https://duckdb.org/docs/data/multiple_files/overview#list-parameter.
    """
    return re.sub(r"([\[*?])", r"[\1]", path)


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the same names, no two of them alike: a repeated one gets a number."""
    return tuple(_numbered(names))


def _numbered(names: Iterable[str]) -> Iterator[str]:
    # Of `select a.id, b.id` the second is id_1, as in DuckDB's own data frames.
    taken: Counter[str] = Counter()
    for name in names:
        distinct = name
        while distinct in taken:
            distinct = f"{name}_{taken[name]}"
            taken[name] += 1
        taken[distinct] += 1
        yield distinct
