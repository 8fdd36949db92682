"""Creates `pg_catalog` and `information_schema` for the tables of a snapshot.

The two schemas are called the catalogue. The module serving/postgres/translation.py finds out
whether a query names a relation or function of the catalogue. If so, the relation or function is
created in DuckDB before the query runs. The catalogue describes only the names, types and kinds of
the snapshot's tables, views and columns.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence

from kappa.base.duck import Connection
from kappa.base.sql import quoted, text
from kappa.serving.query.postgres.catalogue_sql import (
    FUNCTIONS,
    PUBLIC,
    PUBLIC_OID,
    RELATIONS,
    SCHEMA,
    creation_sql,
    type_rows,
)
from kappa.serving.query.postgres.placeholders import words_of
from kappa.serving.query.postgres.wire_types import wire_type
from kappa.serving.query.reader.relations import Relations

# Relations of users begin here, as in Postgres.
_FIRST_OID, _OIDS = 16_384, 1 << 30


def catalogue_names() -> frozenset[tuple[str, str]]:
    """Returns the relations of `pg_catalog` and `information_schema` that a query may read.

    Each relation is a pair of schema and name.
    """
    return frozenset((SCHEMA, name) for name in RELATIONS)


def put_catalogue(connection: Connection, sql: str, found: Sequence[Relations]) -> None:
    """Creates the relations and functions of `pg_catalog` that the query `sql` names.

    The relations and functions of `information_schema` are created in the same way. Their rows
    describe the tables and views in `found`, which must exist in DuckDB already. These rows are
    collected only once per connection.
    """
    is_there = f"select count(*) from duckdb_schemas() where schema_name = '{SCHEMA}'"
    if connection.execute(is_there).fetchall() == [(0,)]:
        _put_tables(connection, found)
    if commands := creation_sql(_names_in(sql)):
        connection.execute(commands)


def _put_tables(connection: Connection, found: Sequence[Relations]) -> None:
    views = {(schema, name) for each in found for name in each.views for schema in _schemas(each)}
    named = {(schema, name) for each in found for name in each.named for schema in _schemas(each)}
    connection.execute(f"create schema {SCHEMA}")
    # A parameter would make DuckDB import pandas.
    relations, columns = _rows(connection, views, named)
    for name, head, rows in (
        ("_relations", ("oid bigint, schema_oid bigint, schema text, name text, kind text, "
         "columns integer"), relations),
        ("_columns", ("relation bigint, schema text, name text, kind text, shown text, "
         "number integer, type bigint, size integer, modifier integer, spelled text"), columns),
        ("_types", ("oid bigint, name text, size integer, category text, element bigint, "
         "array_oid bigint, spelled text"), type_rows()),
    ):  # fmt: skip
        connection.execute(f"create table {SCHEMA}.{name} ({head})")
        if rows:
            listed = ", ".join(_row_sql(each) for each in rows)
            connection.execute(f"insert into {SCHEMA}.{name} values {listed}")


def _schemas(relations: Relations) -> tuple[str, str]:
    return relations.schema, "main"


def _names_in(sql: str) -> Iterator[str]:
    """Yields the words of a query that may name relations or functions of `pg_catalog`."""
    for each in words_of(sql):
        name = each.name
        if name in RELATIONS:
            yield name
        if name[:1] == "_" and name[1:] in FUNCTIONS:
            yield name[1:]


def _rows(
    connection: Connection, views: set[tuple[str, str]], may_be_named: set[tuple[str, str]]
) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Returns the rows of `_relations` and of `_columns`, from which the catalogue is created.

    There is a row for each table or view in `may_be_named`, and for each of its columns. `views`
    contains the views. Tables and views are pairs of schema and name.
    """
    made = connection.execute(
        "select schema_name, view_name from duckdb_views() "
        "where not internal and database_name = 'memory' order by all"
    ).fetchall()
    # A relation that could not be made is left out, and one that the reader may not name.
    names = [each for each in made if each in may_be_named]
    spelled_of = {oid: spelled for oid, _, _, _, _, _, spelled in type_rows()}
    relations: list[tuple[object, ...]] = []
    columns: list[tuple[object, ...]] = []
    taken: set[int] = set()
    for schema, name in names:
        shown = PUBLIC if schema == "main" else schema
        oid = _oid_of(f"{schema}.{name}", taken)
        kind = "v" if (schema, name) in views else "r"
        read = connection.query(f"select * from {quoted(schema)}.{quoted(name)}")
        schema_oid = PUBLIC_OID if schema == "main" else _oid_of(schema, set())
        relations.append((oid, schema_oid, shown, name, kind, len(read.columns)))
        for place, (column, duck) in enumerate(zip(read.columns, read.types, strict=True), 1):
            number, size, modifier = wire_type(duck)
            columns.append(
                (oid, shown, name, kind, column, place, number, size, modifier, spelled_of[number])
            )
    return relations, columns


def _oid_of(name: str, taken: set[int]) -> int:
    """Returns a Postgres object number (oid) for a name, and adds the number to `taken`.

    The number is computed from the name alone, so it stays the same after a promote. If the number
    is in `taken`, the next free number is returned.
    """
    oid = _FIRST_OID + zlib.crc32(name.encode()) % _OIDS
    while oid in taken:
        oid += 1
    taken.add(oid)
    return oid


def _row_sql(row: Iterable[object]) -> str:
    return f"({', '.join(text(each) if isinstance(each, str) else str(each) for each in row)})"
