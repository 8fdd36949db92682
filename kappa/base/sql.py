"""Quoted names and text literals for SQL. Pure.

Every name or text of a user passes this module before becoming a part of a statement.
"""

from __future__ import annotations

from collections.abc import Iterable


def quoted(name: str) -> str:
    """Quotes a name as in standard SQL, which DuckDB and delta-rs read."""
    return '"' + name.replace('"', '""') + '"'


def spark_quote(name: str) -> str:
    """Quotes a name as in Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def lowered(name: str) -> str:
    """Lowers a name as DuckDB does to compare names: only ASCII letters have a case."""
    return name.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def text(value: str) -> str:
    """Returns a text as a literal of standard SQL."""
    return "'" + value.replace("'", "''") + "'"


def spark_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Returns columns (name, Spark's type) as Spark reads a schema."""
    return ", ".join(f"{spark_quote(name)} {kind}" for name, kind in columns)
