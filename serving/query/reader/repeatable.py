"""The SQL of views and checks: a query over the pipeline's tables with one answer. Pure.

The rules are the sandbox's (allowed.py), and two more. Names are bare, since a view is made in its
pipeline's schema before other schemas have names. Its as-of joins are those that DuckDB computes
alike by any plan. Nothing in it may give another value each time:
no clock, no chance, nothing of the connection.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kappa.base.errors import UsageError
from kappa.serving.query.reader.allowed import ensure_allowed
from kappa.tables.views.nulls import unsure_asof

# DuckDB's functions whose stability is not CONSISTENT, and macros over them (duckdb_functions()).
# `error` is left out: it gives no value at all.
CHANGING_FUNCTIONS = frozenset({
    "ago", "current_connection_id", "current_database", "current_catalog", "current_date",
    "current_query", "current_query_id", "current_schema", "current_schemas",
    "current_transaction_id", "currval", "gen_random_uuid", "get_current_time",
    "get_current_timestamp", "in_search_path", "nextval", "now", "pg_conf_load_time",
    "pg_postmaster_start_time", "pg_sleep", "random", "setseed", "sleep_ms", "stats", "today",
    "transaction_timestamp", "txid_current", "uuid", "uuidv4", "uuidv7", "write_log",
})  # fmt: skip
# Names that SQL reads as calls, unless a column has that name.
_CALLED_BY_NAME = frozenset({
    "current_catalog", "current_date", "current_schema", "current_time", "current_timestamp",
    "localtime", "localtimestamp",
})  # fmt: skip
_KEEP_IT = "fold the value into a column of the table, or say it in the query that reads the table"


def ensure_repeatable(
    tree: Any, names: Collection[str], columns: Collection[str], *, what: str
) -> None:
    """Raises UsageError if SQL, as `json_serialize_sql` gives it, may not be declared.

    `names` are the pipeline's tables and views, `columns` the columns of its tables. `what` is "a
    view" or "a check".
    """
    ensure_allowed(tree, {("main", name) for name in names})
    _walk(tree, {column.lower() for column in columns}, what)
    if (unsure := unsure_asof(tree)) is not None:
        raise UsageError(f"it has {unsure[0]}", hint=unsure[1])


def _walk(node: Any, columns: Collection[str], what: str) -> None:
    match node:
        case list():
            for each in node:
                _walk(each, columns, what)
        case dict():
            _look(node, columns, what)
            for each in node.values():
                _walk(each, columns, what)
        case _:
            pass


def _look(node: dict[str, Any], columns: Collection[str], what: str) -> None:
    match node:
        case {"type": "BASE_TABLE", "schema_name": str(schema), "table_name": str(name)} if schema:
            raise UsageError(
                f"it names {schema}.{name}, and {what} names relations without a schema",
                hint=f"write {name}",
            )
        case {"function_name": str(name), "children": list(arguments)} if (
            name.lower() in CHANGING_FUNCTIONS
            # With one argument it counts from today.
            or (name.lower() == "age" and len(arguments) == 1)
        ):
            raise _changing(f"{name}()", what)
        case {"type": "COLUMN_REF", "column_names": [str(name)]} if (
            name.lower() in _CALLED_BY_NAME and name.lower() not in columns
        ):
            raise _changing(name, what)
        case {"sample": dict()}:
            raise _changing("a sample", what)
        case _:
            pass


def _changing(name: str, what: str) -> UsageError:
    return UsageError(
        f"{name} gives another value each time, and {what} has one answer for each version",
        hint=_KEEP_IT,
    )
