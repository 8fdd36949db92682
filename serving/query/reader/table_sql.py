"""Builds the SQL of declared checks, and formats names and types for DuckDB. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from kappa.base.sql import quoted

# Schemas that DuckDB has already: a pipeline of that name gets a schema with an underscore.
_RESERVED = frozenset({"main", "information_schema", "pg_catalog"})
# A part of DuckDB's name of a type: a name or text in quotes, a word, a mark or a space.
_PART = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|\w+|.""")


def check_sql(table: str, condition: str) -> str:
    """Returns the query that counts the rows of a table that do not meet a declared check.

    The query returns two counts: all rows of the table, and the rows for which the condition is
    false or null.
    """
    return (
        "select count(*), count(*) filter (where holds is not true) from "
        f"({condition_sql(table, condition)})"
    )


def failing_rows_sql(
    table: str, condition: str, columns: Iterable[str], by: Iterable[str], most: int
) -> str:
    """Returns a query for up to `most` rows for which a condition is false or null.

    The query returns these `columns` of the rows that come first in the order of the columns `by`.
    """
    order = ", ".join(map(quoted, by))
    # Names of served columns never begin with an underscore, so `_holds` is free.
    return (
        f"select {', '.join(map(quoted, columns))} from "
        f"(select *, (\n{condition}\n) as _holds from {quoted(table)}) "
        f"where _holds is not true{f' order by {order}' if order else ''} limit {most}"
    )


def condition_sql(table: str, condition: str) -> str:
    """Returns a query for the value of a condition in each row of a table.

    The only column of the result is `holds`.
    """
    # The condition has its own line: a comment at its end must not reach the bracket.
    return f"select (\n{condition}\n) as holds from {quoted(table)}"


def schema_of(pipeline: str) -> str:
    """Returns the name of the schema that contains a pipeline's tables and views.

    If DuckDB reserves the pipeline's name, an underscore is appended.
    """
    return f"{pipeline}_" if pipeline in _RESERVED else pipeline


def type_text(kind: str) -> str:
    """Returns the lower-case form of DuckDB's name of a type.

    The names of a struct's fields keep their case.
    """
    # For each open bracket: True if the bracket has fields, each a name and then a type.
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


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names, with a number added to each repeated name to make it distinct."""
    return tuple(_numbered_names(names))


def _numbered_names(names: Iterable[str]) -> Iterator[str]:
    # Of `select a.id, b.id` the second is id_1, as in DuckDB's own data frames.
    taken: Counter[str] = Counter()
    for name in names:
        distinct = name
        while distinct in taken:
            distinct = f"{name}_{taken[name]}"
            taken[name] += 1
        taken[distinct] += 1
        yield distinct
