"""The SQL that a stranger may use: one query over the catalogue. Pure.

DuckDB's own parser gives the query as a tree (`json_serialize_sql`), and only for a SELECT. Every
name in it that DuckDB would look up is looked up here first, in the same scope: of a `with` there,
or else in the catalogue. A function that gives rows must make them from its arguments. No
function may reveal settings, or how views are made. So the look of the text (quotes, case,
comments, strings as names) decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kappa.base.errors import UsageError, did_you_mean
from kappa.base.sql import lowered

ONE_QUERY = "give one query that reads, such as: select * from page_hits limit 10"

# Those that make rows from their arguments and look nowhere.
_TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
)
# Functions that read more than their arguments (settings, variables, system tables, the files of a
# view), or that write.
REFUSED_FUNCTIONS = frozenset({
    "current_setting", "getvariable", "getenv", "nextval", "currval", "write_log",
    "pg_get_viewdef", "pg_get_expr", "pg_get_constraintdef", "format_type", "get_block_size",
    "json_serialize_plan", "query", "query_table", "read_text", "read_blob", "glob",
})  # fmt: skip
# The schema by which a recursive query names all its rows so far (`using key`).
_RECURRING = "recurring"

# Schema and name of relations; the name of a `with` has no schema.
Names = frozenset[tuple[str, str]]


def ensure_allowed(serialized: Any, catalogue: Collection[tuple[str, str]]) -> None:
    """Raises UsageError if a query may not be asked.

    `serialized` is its tree as `json_serialize_sql` gives it. `catalogue` has (schema, name) of all
    relations that may be read.
    """
    statements: Sequence[Any] = serialized.get("statements") or ()
    if serialized.get("error") or len(statements) != 1:
        raise UsageError(
            "this is not one query that reads: a snapshot can only be read", hint=ONE_QUERY
        )
    try:
        _walk(statements[0], frozenset(catalogue), frozenset())
    except RecursionError as error:
        raise UsageError(
            "the query is nested too deeply to be read",
            hint="say it in parts: with a as (...), b as (...) select ...",
        ) from error


def _walk(node: Any, catalogue: Names, scope: Names) -> None:
    """Checks a node and all below it; `scope` has the names of `with` that it may use."""
    match node:
        case list():
            for each in node:
                _walk(each, catalogue, scope)
        case {"type": "RECURSIVE_CTE_NODE", "cte_name": str(name), "right": right}:
            scope = _scope_within(node, catalogue, scope)
            # Its first member is bound before its name exists: there the name is another's.
            _walk(right, catalogue, scope | {("", lowered(name)), (_RECURRING, lowered(name))})
            for key, each in node.items():
                if key not in {"cte_map", "right"}:
                    _walk(each, catalogue, scope)
        case dict():
            _look(node, catalogue, scope)
            scope = _scope_within(node, catalogue, scope)
            for key, each in node.items():
                if key != "cte_map":
                    _walk(each, catalogue, scope)
        case _:
            pass


def _scope_within(node: Mapping[str, Any], catalogue: Names, scope: Names) -> Names:
    """Returns the scope within a node that may have a `with`, after a walk through its queries.

    Each of these queries may use the names before it, but not its own.
    """
    for each in (node.get("cte_map") or {}).get("map", ()):
        _walk(each["value"], catalogue, scope)
        scope |= {("", lowered(str(each["key"])))}
    return scope


def _look(node: Mapping[str, Any], catalogue: Names, scope: Names) -> None:
    match node:
        case {
            "type": "BASE_TABLE",
            "table_name": str(name),
            "schema_name": str(schema),
            "catalog_name": str(database),
        }:
            _look_up(database, schema, name, catalogue, scope)
        case {"type": "SHOW_REF", "query": None}:
            raise UsageError(
                "this shows what is not in the catalogue",
                hint="describe TABLE shows the columns of one; GET /api/v1/tables lists all",
            )
        case {"type": "TABLE_FUNCTION", "function": {"function_name": str(name)}} if (
            lowered(name) not in _TABLE_FUNCTIONS
        ):
            raise _no_function(name, _TABLE_FUNCTIONS)
        case {"function_name": str(name)} if lowered(name) in REFUSED_FUNCTIONS:
            raise _no_function(name, ())
        case {"type": "TABLE_FUNCTION", "function": function} if (
            not isinstance(function, Mapping) or "function_name" not in function
        ):
            raise UsageError("the query calls what is no function", hint=ONE_QUERY)
        case _:
            pass


def _look_up(
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
    # database, and a stranger has no name for one.
    if not database and (lowered(schema) or "main", lowered(name)) in known:
        return
    whole = ".".join(part for part in (database, schema, name) if part)
    names = sorted(
        {table for _, table in catalogue}
        | {f"{each}.{table}" for each, table in catalogue if each != "main"}
    )
    raise UsageError(
        f"the query cannot be run: there is no table {whole}",
        hint=did_you_mean(whole, names) or _there_are(names),
    )


def _there_are(names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"there are {listed}" if listed else "nothing is served yet: kappa deploy"


def _no_function(name: str, instead: Iterable[str]) -> UsageError:
    there = ", ".join(sorted(instead))
    return UsageError(
        f"the query cannot be run: {name} looks outside of the tables, which a query may not",
        hint=f"of functions that give rows there are {there}; all else comes from tables"
        if there
        else "leave it out: a query sees its tables and nothing else",
    )
