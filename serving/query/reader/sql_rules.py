"""Rules for the SQL of untrusted clients, and of declared views and checks. Pure.

An untrusted client may run a single query over the tables and views that it may read, the
catalogue. DuckDB's own parser turns the query into a tree (`json_serialize_sql`), and does so only
for a SELECT. This module looks up every name before DuckDB does, in the same scope: first in a
`with`, and otherwise in the catalogue. A function that returns rows must compute the rows from its
arguments. No function may reveal settings or the definitions of views. The rules use the tree
alone, so the spelling of the text (quotes, case, comments, strings as names) has no influence.

The result of a view or a check must depend only on the pipeline's tables, so more rules apply. A
name must have no schema, because a view is created in its pipeline's schema before other schemas
can be named. An as-of join must have the same result with each of DuckDB's plans. The SQL may
contain nothing whose value changes from call to call, such as a clock, a random number, or a
property of the connection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kappa.base.errors import UsageError, near_or_all
from kappa.base.sql import lowered
from kappa.tables.views.nulls import unsure_asof

ONE_QUERY = "give one query that reads, such as: select * from TABLE limit 10; see kappa tables"

# The functions that make rows from their arguments alone.
TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
)
# Functions that read more than their arguments (settings, variables, system tables, the files of a
# view), or that write.
REFUSED_FUNCTIONS = frozenset({
    "current_setting", "getvariable", "getenv", "nextval", "currval", "write_log",
    "pg_get_viewdef", "pg_get_expr", "pg_get_constraintdef", "format_type", "get_block_size",
    "json_serialize_plan", "query", "query_table", "read_text", "read_blob", "glob",
})  # fmt: skip
# The schema by which a recursive query names all rows so far (`using key`).
_RECURRING = "recurring"

# Schema and name of relations; the name of a `with` has no schema.
Names = frozenset[tuple[str, str]]
# DuckDB's functions whose stability is not CONSISTENT, and macros over them (duckdb_functions()).
# `error` is left out: this function gives no value at all.
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


class UnknownTable(UsageError):
    """The error for a query that names a table that the client cannot read."""

    def __init__(self, name: str, *, hint: str) -> None:
        super().__init__(f"the query cannot be run: there is no table {name}", hint=hint)
        self.name = name


def ensure_allowed(serialized: Any, catalogue: Collection[tuple[str, str]]) -> None:
    """Raises UsageError if an untrusted client may not run a query.

    `serialized` is the parser tree of the query, from `json_serialize_sql`. `catalogue` contains
    the schema and the name of each table and view that the query may read.
    """
    statements: Sequence[Any] = serialized.get("statements") or ()
    if serialized.get("error") or len(statements) != 1:
        raise UsageError(
            "this is not one query that reads: a snapshot can only be read", hint=ONE_QUERY
        )
    try:
        _check_node(statements[0], frozenset(catalogue), frozenset())
    except RecursionError as error:
        raise nested_too_deeply_error() from error


def nested_too_deeply_error() -> UsageError:
    """Creates the error for a query that is nested too deeply."""
    return UsageError(
        "the query is nested too deeply to be read",
        hint="say it in parts: with a as (...), b as (...) select ...",
    )


def _check_node(node: Any, catalogue: Names, scope: Names) -> None:
    """Raises UsageError if a part of a query names a table or function that is not allowed.

    `node` is a node of the query's parser tree; all nodes below this node are also checked.
    `catalogue` contains the tables and views that the query may read, and `scope` contains the
    names, defined in a `with`, that the node may use.
    """
    match node:
        case list():
            for each in node:
                _check_node(each, catalogue, scope)
        case {"type": "RECURSIVE_CTE_NODE", "cte_name": str(name), "right": right}:
            scope = _scope_within(node, catalogue, scope)
            # The first member is bound before the name exists: there it is another relation's.
            _check_node(
                right, catalogue, scope | {("", lowered(name)), (_RECURRING, lowered(name))}
            )
            for key, each in node.items():
                if key not in {"cte_map", "right"}:
                    _check_node(each, catalogue, scope)
        case dict():
            _check_name(node, catalogue, scope)
            scope = _scope_within(node, catalogue, scope)
            for key, each in node.items():
                if key != "cte_map":
                    _check_node(each, catalogue, scope)
        case _:
            pass


def _scope_within(node: Mapping[str, Any], catalogue: Names, scope: Names) -> Names:
    """Returns the names that the parts of a parser tree's node may use.

    These are the names in `scope`, and the names that the node defines in a `with`. The function
    also checks the queries of the `with`. Each of these queries may use the names that were defined
    before its own name, but not its own name.
    """
    for each in (node.get("cte_map") or {}).get("map", ()):
        _check_node(each["value"], catalogue, scope)
        scope |= {("", lowered(str(each["key"])))}
    return scope


def _check_name(node: Mapping[str, Any], catalogue: Names, scope: Names) -> None:
    match node:
        case {
            "type": "BASE_TABLE",
            "table_name": str(name),
            "schema_name": str(schema),
            "catalog_name": str(database),
        }:
            _check_relation(database, schema, name, catalogue, scope)
        case {"type": "SHOW_REF", "query": None}:
            raise UsageError(
                "this shows what is not in the catalogue",
                hint="describe TABLE shows the columns of one; kappa tables, GET /api/v1/tables "
                "and \\d of kappa shell list all",
            )
        case {"type": "TABLE_FUNCTION", "function": {"function_name": str(name)}} if (
            lowered(name) not in TABLE_FUNCTIONS
        ):
            raise _no_function(name, TABLE_FUNCTIONS)
        case {"function_name": str(name)} if lowered(name) in REFUSED_FUNCTIONS:
            raise _no_function(name, ())
        case {"type": "TABLE_FUNCTION", "function": function} if (
            not isinstance(function, Mapping) or "function_name" not in function
        ):
            raise UsageError("the query calls a name that is not a function", hint=ONE_QUERY)
        case _:
            pass


def _check_relation(
    database: str,
    schema: str,
    name: str,
    catalogue: Names,
    scope: Names,
) -> None:
    if not database and (lowered(schema), lowered(name)) in scope:
        return
    known = {(lowered(each), lowered(table)) for each, table in catalogue}
    # The parser takes `flights` in `flights.delays` for a schema. Three parts begin with a
    # database, and a stranger can name no database.
    if not database and (lowered(schema) or "main", lowered(name)) in known:
        return
    whole = ".".join(part for part in (database, schema, name) if part)
    names = sorted(
        {table for _, table in catalogue}
        | {f"{each}.{table}" for each, table in catalogue if each != "main"}
    )
    raise UnknownTable(
        whole,
        hint=near_or_all(whole, names, none="nothing is served yet: kappa deploy"),
    )


def _no_function(name: str, instead: Iterable[str]) -> UsageError:
    there = ", ".join(sorted(instead))
    return UsageError(
        f"the query cannot be run: {name} looks outside of the tables, which a query may not",
        hint=f"of functions that give rows there are {there}; all else comes from tables"
        if there
        else "leave it out: a query sees its tables and nothing else",
    )


def ensure_repeatable(
    tree: Any, names: Collection[str], columns: Collection[str], *, what: str
) -> None:
    """Raises UsageError if the SQL of a declared view or check is not allowed.

    `tree` is the parser tree of the SQL, from `json_serialize_sql`. `names` contains the tables and
    views of the pipeline, and `columns` contains the columns of the tables. `what` is "a view" or
    "a check", for the messages.
    """
    ensure_allowed(tree, {("main", name) for name in names})
    _refuse_changing(tree, {column.lower() for column in columns}, what)
    if (unsure := unsure_asof(tree)) is not None:
        raise UsageError(f"it has {unsure[0]}", hint=unsure[1])


def _refuse_changing(node: Any, columns: Collection[str], what: str) -> None:
    match node:
        case list():
            for each in node:
                _refuse_changing(each, columns, what)
        case dict():
            _refuse_changing_node(node, columns, what)
            for each in node.values():
                _refuse_changing(each, columns, what)
        case _:
            pass


def _refuse_changing_node(node: dict[str, Any], columns: Collection[str], what: str) -> None:
    match node:
        case {"type": "BASE_TABLE", "schema_name": str(schema), "table_name": str(name)} if schema:
            raise UsageError(
                f"it names {schema}.{name}, and {what} names relations without a schema",
                hint=f"write {name}",
            )
        case {"function_name": str(name), "children": list(arguments)} if (
            name.lower() in CHANGING_FUNCTIONS
            # With a single argument, age() counts from today.
            or (name.lower() == "age" and len(arguments) == 1)
        ):
            raise _changing_error(f"{name}()", what)
        case {"type": "COLUMN_REF", "column_names": [str(name)]} if (
            name.lower() in _CALLED_BY_NAME and name.lower() not in columns
        ):
            raise _changing_error(name, what)
        case {"sample": dict()}:
            raise _changing_error("a sample", what)
        case _:
            pass


def _changing_error(name: str, what: str) -> UsageError:
    return UsageError(
        f"{name} gives another value each time, and {what} has one answer for each version",
        hint=_KEEP_IT,
    )
