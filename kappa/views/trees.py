"""The names in a query's tree, as DuckDB's parser gives it (`json_serialize_sql`). Pure."""

from __future__ import annotations

from collections.abc import Iterator


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
