"""SQL for checks, and its spelling of names, texts and types. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from kappa.base.sql import quoted

# Schemas that DuckDB has already; a pipeline of such a name gets one with an underscore behind it.
_RESERVED = frozenset({"main", "information_schema", "pg_catalog"})
# A part of DuckDB's name of a type: a name or text in quotes, a word, a mark or a space.
_PART = re.compile(r""""(?:[^"]|"")*"|'(?:[^']|'')*'|\w+|.""")


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
