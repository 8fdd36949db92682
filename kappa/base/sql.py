"""Quoted names and text literals for SQL. Pure.

Every name or text that a user gives passes through this module before it becomes part of a
statement.
"""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """Quotes a name in the way of standard SQL, which DuckDB and delta-rs use."""
    return '"' + name.replace('"', '""') + '"'


def spark_quote(name: str) -> str:
    """Quotes a name in the way of Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def lowered(name: str) -> str:
    """Converts the ASCII letters of a name to lower case, as DuckDB does when it compares names."""
    return name.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def text(value: str) -> str:
    """Returns a text as a literal of standard SQL."""
    return "'" + value.replace("'", "''") + "'"


def spark_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Formats columns, each a name and a Spark type, as the DDL text of a Spark schema."""
    return ", ".join(f"{spark_quote(name)} {kind}" for name, kind in columns)
