"""The tree of a query, as DuckDB's parser returns it (`json_serialize_sql`), and its parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from kappa.base.duck import Connection, open_connection
from kappa.base.sql import lowered, text

Tree = dict[str, Any]
# The types of a tree's nodes; other values in a tree have no parts.
_PARTS = (dict, list)
# A join, the numbers of its first items on the left and the right, and the number after its last
# item.
Join = tuple[Tree, int, int, int]


def tree_of(duck: Connection, sql: str) -> Tree:
    """Parses a query with DuckDB, and returns its tree."""
    (found,) = duck.execute(f"select json_serialize_sql({text(sql)})").fetchone() or ("",)
    tree: Tree = json.loads(found)
    return tree


def sql_of(duck: Connection, tree: Tree) -> str:
    """Returns the SQL text of a query's tree, and makes sure that the text has the same meaning.

    DuckDB writes a cross join as a comma and omits parentheses, and a comma binds less than all
    other joins. So this function writes a cross join within another join as an inner join. DuckDB
    also writes a double without an exponent, and would read it as a decimal. So this function
    writes a double as a cast.
    """
    written = json.dumps(_with_meaning(tree))
    (sql,) = duck.execute(f"select json_deserialize_sql({text(written)})").fetchone() or ("",)
    return str(sql)


def _with_meaning(tree: Any, *, in_join: bool = False) -> Any:
    """Returns a copy of a part of a tree for which DuckDB writes SQL with the same meaning.

    DuckDB would write some cross joins and doubles as SQL with another meaning; these parts are
    replaced.
    """
    if isinstance(tree, list):
        return [_with_meaning(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    match tree:
        case {"class": "CONSTANT", "value": {"type": {"id": "DOUBLE"}, "value": float(value)}}:
            return _cast_constant(repr(value), "DOUBLE", tree["alias"])
        case {"type": "JOIN", "ref_type": "CROSS"} if in_join:
            tree = {**tree, "ref_type": "REGULAR", "condition": _cast_constant("true", "BOOLEAN")}
        case {"type": "JOIN", "ref_type": str(kind)}:
            in_join = kind != "CROSS"
        case _:
            in_join = False
    return {
        key: _with_meaning(each, in_join=in_join and key in {"left", "right"})
        if isinstance(each, _PARTS)
        else each
        for key, each in tree.items()
    }


def _cast_constant(value: str, kind: str, alias: str = "") -> Tree:
    """Returns the tree of an expression that casts a text to a type."""
    varchar = {"id": "VARCHAR", "type_info": None}
    constant = {"type": varchar, "is_null": False, "value": value}
    return {
        "class": "CAST",
        "type": "OPERATOR_CAST",
        "alias": alias,
        "child": {
            "class": "CONSTANT",
            "type": "VALUE_CONSTANT",
            "alias": "",
            "value": constant,
        },
        "cast_type": {"id": kind, "type_info": None},
        "try_cast": False,
    }


def tables_in(tree: object) -> Iterator[tuple[str, str]]:
    """Yields the tables that a query names, as (schema, name)."""
    match tree:
        case {"type": "BASE_TABLE", "schema_name": str(schema), "table_name": str(name)}:
            yield schema, name
        case dict():
            for each in tree.values():
                yield from tables_in(each)
        case list():
            for each in tree:
                yield from tables_in(each)


def functions_in(tree: object) -> Iterator[str]:
    """Yields the names of the functions that a query calls."""
    match tree:
        case dict():
            if isinstance(name := tree.get("function_name"), str):
                yield name
            for each in tree.values():
                yield from functions_in(each)
        case list():
            for each in tree:
                yield from functions_in(each)


def trees(tree: Any, *, within: bool = False) -> Iterator[Tree]:
    """Yields all nodes of a query's tree. With `within`, the nodes of subqueries are left out."""
    pending = [tree] if isinstance(tree, _PARTS) else []
    # All parts go through one generator, not through a generator for each level of the tree.
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if within and "cte_map" in each:
                continue
            yield each
            each = [*each.values()]
        # Most values in a tree are names and nulls.
        pending += [part for part in reversed(each) if isinstance(part, _PARTS)]


def copied(tree: Any) -> Any:
    """Returns a deep copy of a query's tree, much faster than `copy.deepcopy`."""
    if isinstance(tree, dict):
        return {
            key: copied(each) if isinstance(each, _PARTS) else each for key, each in tree.items()
        }
    return [copied(each) for each in tree] if isinstance(tree, list) else tree


def is_recursive(tree: Tree) -> bool:
    """Returns True if a query has a recursive named subquery (`with recursive`).

    Such a subquery cannot be expanded (see `expanded`).
    """
    return any(each.get("type") == "RECURSIVE_CTE_NODE" for each in trees(tree))


def expanded(tree: Any, named: Mapping[str, Tree] | None = None) -> Any:
    """Returns a copy of a query's tree without named subqueries (`with`).

    Where the query reads a named subquery, the copy contains the subquery itself. The query must
    not be recursive.
    """
    named = {} if named is None else named
    if not isinstance(tree, dict):
        return [expanded(each, named) for each in tree] if isinstance(tree, list) else tree
    match tree:
        case {"type": "BASE_TABLE", "schema_name": "", "table_name": str(name)} if (
            lowered(name) in named
        ):
            cte, own = named[lowered(name)], tree.get("column_name_alias") or []
            return {
                "type": "SUBQUERY",
                "alias": tree.get("alias") or name,
                "sample": tree.get("sample"),
                "query_location": tree.get("query_location"),
                "subquery": {"node": copied(cte["node"]), "named_param_map": []},
                # The place of a read may rename only the first of several columns.
                "column_name_alias": [*own, *cte["aliases"][len(own) :]],
            }
        case {"cte_map": {"map": list(ctes)}}:
            inner = dict(named)
            for each in ctes:
                value = each["value"]
                node = expanded(value["query"]["node"], inner)
                inner[lowered(each["key"])] = {"node": node, "aliases": value["aliases"]}
            rest = {key: expanded(each, inner) for key, each in tree.items() if key != "cte_map"}
            return {**rest, "cte_map": {"map": []}}
    return {
        key: expanded(value, named) if isinstance(value, _PARTS) else value
        for key, value in tree.items()
    }


def conjuncts(expression: Any) -> Iterator[Any]:
    """Yields the conditions that an expression combines with `and`."""
    match expression:
        case {"type": "CONJUNCTION_AND", "children": list(children)}:
            for child in children:
                yield from conjuncts(child)
        case dict():
            yield expression


def joins(tree: Any, first: int = 0) -> Iterator[Join]:
    """Yields the joins of a `from` clause. A nested join comes before the join that contains it.

    Each join is yielded as a tuple: its tree, the number of the first table or subquery on its
    left, the number of the first one on its right, and the number after its last one. The numbers
    begin with `first`.
    """
    if isinstance(tree, dict) and tree.get("type") == "JOIN":
        left = [*joins(tree["left"], first)]
        middle = left[-1][-1] if left else first + 1
        right = [*joins(tree["right"], middle)]
        yield from (*left, *right)
        yield tree, first, middle, right[-1][-1] if right else middle + 1


def place_of(expression: Any) -> int | None:
    """Returns the position in the select list to which an expression refers, or None.

    The expression is part of another clause, such as `order by 2`. Only a whole number refers to a
    position: DuckDB treats a decimal, a text or a truth value in these clauses as a plain constant.
    """
    match expression:
        case {"class": "CONSTANT", "value": {"type": {"id": str(kind)}, "value": int(place)}} if (
            kind in {"INTEGER", "BIGINT"}
        ):
            return place
    return None


def meant(expression: Any, outputs: Sequence[tuple[str, Any]]) -> list[Any]:
    """Returns the expressions to which a part of an `order by` or of a `distinct on` refers.

    `outputs` contains the name and the expression of each column in the select list. In these
    clauses, DuckDB looks for a bare name first among the names of the select list, and then among
    the columns of the `from` clause. (In `group by`, `where` and windows, and within any larger
    expression, DuckDB looks among the columns first: scopes.py.) In the result, None stands for an
    unknown column.
    """
    if (place := place_of(expression)) is not None:
        return [outputs[place - 1][1] if 0 < place <= len(outputs) else None]
    match expression:
        case {"class": "STAR", "expr": None}:
            return [each for _, each in outputs]
        case {"class": "COLUMN_REF", "column_names": [str(name)]}:
            found = [each for each in outputs if each[0] == lowered(name)]
            if found:
                return [found[0][1] if len(found) == 1 else None]
    return [expression]


def sorts(orders: Iterable[Tree]) -> list[Any]:
    """Returns the expressions by which an `order by` sorts rows."""
    return [each["expression"] for each in orders]


def parts(tree: Any) -> Iterator[Tree]:
    """Yields the direct subexpressions of an expression."""
    for each in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(each, dict) and "class" in each:
            yield each
        elif isinstance(each, dict | list):
            yield from parts(each)


@cache
def aggregates() -> frozenset[str]:
    """Returns the names of DuckDB's aggregate functions."""
    known = "select function_name from duckdb_functions() where function_type = 'aggregate'"
    with open_connection() as duck:
        return frozenset(name for (name,) in duck.execute(known).fetchall())
