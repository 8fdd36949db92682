"""Names and texts as SQL has them. Pure.

Whatever a user may name or write goes through here before it is a part of a statement.
"""

from __future__ import annotations


def quoted(name: str) -> str:
    """Returns a name as standard SQL has it, which DuckDB and delta-rs read."""
    return '"' + name.replace('"', '""') + '"'


def spark_quote(name: str) -> str:
    """Returns a name as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def lowered(name: str) -> str:
    """Returns a name as DuckDB compares it: only letters of ASCII have a case."""
    return name.encode(errors="surrogatepass").lower().decode(errors="surrogatepass")


def text(value: str) -> str:
    """Returns a text as a literal of standard SQL."""
    return "'" + value.replace("'", "''") + "'"
