"""The SQL that a stranger may use: one query over the catalogue. Pure.

DuckDB's own parser gives the query as a tree (`json_serialize_sql`), and only for a SELECT. Every
name in it that DuckDB would look up is looked up here first. A table must be one of the catalogue's
or of the query's own `with`. A function that gives rows must make them from its arguments. No
function may reveal settings, or how views are made. So the look of the text (quotes, case,
comments, strings as names) decides nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kappa.base.errors import UsageError

ONE_QUERY = "give one query that reads, such as: select * from page_hits limit 10"

# Those that make rows from their arguments and look nowhere.
_TABLE_FUNCTIONS = frozenset(
    {"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"}
)
# Functions that read more than their arguments (settings, variables, the files of a view), or that
# write.
_REFUSED_FUNCTIONS = frozenset({
    "current_setting", "getvariable", "getenv", "nextval", "currval", "write_log",
    "pg_get_viewdef", "pg_get_expr", "pg_get_constraintdef",
    "query", "query_table", "read_text", "read_blob", "glob",
})  # fmt: skip


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


def _walk(node: Any, catalogue: frozenset[tuple[str, str]], named: frozenset[str]) -> None:
    """Checks a node and all below it. `named` has the names that the query defined around it."""
    match node:
        case list():
            for each in node:
                _walk(each, catalogue, named)
        case dict():
            _look(node, catalogue, named)
            inside = _named_in(node, catalogue, named)
            for key, each in node.items():
                if key != "cte_map":
                    _walk(each, catalogue, inside)
        case _:
            pass


def _named_in(
    node: Mapping[str, Any], catalogue: frozenset[tuple[str, str]], named: frozenset[str]
) -> frozenset[str]:
    """Returns the names defined within a node that may have a `with`, whose queries are walked.

    Each of these queries knows those before it, and itself if it is recursive.
    """
    if node.get("type") == "RECURSIVE_CTE_NODE":
        named |= {str(node.get("cte_name")).lower()}
    for each in (node.get("cte_map") or {}).get("map", ()):
        _walk(each["value"], catalogue, named)
        named |= {str(each["key"]).lower()}
    return named


def _look(
    node: Mapping[str, Any], catalogue: frozenset[tuple[str, str]], named: frozenset[str]
) -> None:
    match node:
        case {
            "type": "BASE_TABLE",
            "table_name": str(name),
            "schema_name": str(schema),
            "catalog_name": str(database),
        }:
            _look_up(database, schema, name, catalogue, named)
        case {"type": "SHOW_REF", "query": None}:
            raise UsageError(
                "this shows what is not in the catalogue",
                hint="describe TABLE shows the columns of one; GET /api/v1/tables lists all",
            )
        case {"type": "TABLE_FUNCTION", "function": {"function_name": str(name)}} if (
            name.lower() not in _TABLE_FUNCTIONS
        ):
            raise _no_function(name, _TABLE_FUNCTIONS)
        case {"function_name": str(name)} if name.lower() in _REFUSED_FUNCTIONS:
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
    catalogue: frozenset[tuple[str, str]],
    named: frozenset[str],
) -> None:
    if not database and not schema and name.lower() in named:
        return
    known = {(each.lower(), table.lower()) for each, table in catalogue}
    # The parser takes `flights` in `flights.delays` for a schema. Three parts begin with a
    # database, and a stranger has no name for one.
    if not database and (schema.lower() or "main", name.lower()) in known:
        return
    whole = ".".join(part for part in (database, schema, name) if part)
    names = sorted(
        {table for _, table in catalogue}
        | {f"{each}.{table}" for each, table in catalogue if each != "main"}
    )
    near = difflib.get_close_matches(whole, names, n=1)
    raise UsageError(
        f"the query cannot be run: there is no table {whole}",
        hint=f"did you mean {near[0]}?" if near else _there_are(names),
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
