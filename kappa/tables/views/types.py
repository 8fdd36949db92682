"""Spark's names for DuckDB's types: a view's columns are stored as a table's are. Pure."""

from __future__ import annotations

from typing import Any

from kappa.base.errors import DeclarationError

# In the spelling of DuckDB's own names of types.
_NAMES = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    # The type of a sum of whole numbers.
    "hugeint": "decimal(38,0)",
    "utinyint": "smallint",
    "usmallint": "int",
    "uinteger": "bigint",
    "ubigint": "decimal(20,0)",
    "float": "float",
    "double": "double",
    "varchar": "string",
    "blob": "binary",
    "date": "date",
    "timestamp with time zone": "timestamp",
}
# The hint for a type that no table's file can have a column of.
_CAST = "cast it in the query, as in count(*)::bigint or at::timestamptz"


def spark_type(duck: Any, where: str) -> str:
    """Returns Spark's simple name of a DuckDB type.

    Raises DeclarationError, beginning with `where`, if a table can have no column of that type.
    """
    kind = str(duck.id)
    match kind:
        case "decimal":
            parts = dict(duck.children)
            return f"decimal({parts['precision']},{parts['scale']})"
        case "list":
            return f"array<{spark_type(dict(duck.children)['child'], where)}>"
        case "struct":
            fields = (f"{name}:{spark_type(each, where)}" for name, each in duck.children)
            return f"struct<{','.join(fields)}>"
    if kind not in _NAMES:
        raise DeclarationError(
            f"{where} is of DuckDB's type {duck}, which no table can keep", hint=_CAST
        )
    return _NAMES[kind]
