"""Quoted names and text literals for SQL. This module does no I/O.

Every name or text from a user is quoted by this module before it becomes part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """Quotes a name for standard SQL, which DuckDB and delta-rs use."""
    return '"' + name.replace('"', '""') + '"'


def spark_quote(name: str) -> str:
    """Quotes a name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def lowered(name: str) -> str:
    """Converts the ASCII letters of a name to lower case, as DuckDB does when it compares names."""
    return name.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def text(value: str) -> str:
    """Quotes a text as a string literal for standard SQL."""
    return "'" + value.replace("'", "''") + "'"


def spark_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Formats (name, Spark type) pairs of columns as the DDL text of a Spark schema."""
    return ", ".join(f"{spark_quote(name)} {kind}" for name, kind in columns)
