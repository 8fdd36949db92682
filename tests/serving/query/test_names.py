"""Laws of the parser's wall: a query passes if DuckDB finds all its names in itself.

DuckDB itself is the oracle. It binds each query over the allowed relation alone: a name that it
does not find there would be one of its own, or another's, in a real connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from nested_sql import ALLOWED, HIDDEN, queries

from kappa.base.errors import UsageError
from kappa.serving.query.reader.allowed import REFUSED_FUNCTIONS, ensure_allowed

CATALOGUE = {("main", ALLOWED)}


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(f"create view {ALLOWED} as select 1 as n")
        yield connection


def tree(connection: duckdb.DuckDBPyConnection, sql: str) -> object:
    found = connection.execute("select json_serialize_sql(?)", [sql]).fetchone()
    assert found is not None
    return json.loads(found[0])


def passes(connection: duckdb.DuckDBPyConnection, sql: str) -> bool:
    try:
        ensure_allowed(tree(connection, sql), CATALOGUE)
    except UsageError:
        return False
    return True


def finds_all_names(connection: duckdb.DuckDBPyConnection, sql: str) -> bool | None:
    """Returns True if DuckDB binds a query, False if a name is missing, None of other errors."""
    try:
        connection.execute(f"explain {sql}").fetchall()
    except duckdb.CatalogException:
        return False
    except duckdb.Error as error:
        # It has looked in the catalogue first, and found nothing there.
        return False if "Circular reference to CTE" in str(error) else None
    return True


@pytest.mark.law
@given(sql=queries())
def test_a_query_passes_exactly_if_all_its_names_are_its_own_or_allowed(
    oracle: duckdb.DuckDBPyConnection, sql: str
) -> None:
    expected = finds_all_names(oracle, sql)

    if expected is not None:
        assert passes(oracle, sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # A recursive query has its name in its second member only.
        ("with recursive {x} as (select n from {x} union all select n from {x}) from {x}", False),
        ("with recursive {x} as (select 1 as n union all select n from {x}) from {x}", True),
        ("with recursive {x} as (select 1 as n intersect select n from {x}) from {x}", False),
        ("with recursive {x} as (from {x}) from {x}", False),
        ("with recursive y as (select 1 as n union from {x}), {x} as (from y) from y", False),
        # A name is known to the queries behind it, and to those around it.
        ("with y as (from {x}), {x} as (select 1 as n) from y", False),
        ("with {x} as (select 1 as n), y as (from {x}) from y", True),
        ("with {x} as (from {x}) from {x}", False),
        ("with {x} as (select 1 as n), y as (with {x} as (from {x}) from {x}) from y", True),
        ("from (with {x} as (select 1 as n) from {x}) y, {x}", False),
        ("(with {x} as (select 1 as n) from {x}) union all (from {x})", False),
        ("with {x} as (select 1 as n) (from {x}) union all (from {x})", True),
        ("with {x} as (select 1 as n) select (select n from {x}) from ok", True),
        ("with y as (from {x}) from (with {x} as (select 1 as n) from y)", False),
        # A name with a schema is never one of the query's own, but of all rows of a recursion.
        ("with {x} as (select 1 as n) from main.{x}", False),
        (
            "with recursive y as (select 1 as n union all select n from recurring.y) from y",
            True,
        ),
        ("with y as (select 1 as n) from recurring.y", False),
        # Only letters of ASCII have a case.
        ("with {X} as (select 1 as n) from {x}", True),
        ('with "\N{KELVIN SIGN}" as (select 1 as n) from k', False),
        ("from Ok", True),
        ('from "o\N{KELVIN SIGN}"', False),
    ],
)
@pytest.mark.parametrize("name", [HIDDEN, "absent"])
def test_a_name_is_that_of_its_scope(
    oracle: duckdb.DuckDBPyConnection, sql: str, name: str, *, expected: bool
) -> None:
    sql = sql.format(x=name, X=name.upper())

    assert passes(oracle, sql) is expected
    assert finds_all_names(oracle, sql) is expected


@pytest.mark.parametrize("schema", ["", "main."])
def test_a_system_view_is_not_read_as_one_of_the_querys_own(
    oracle: duckdb.DuckDBPyConnection, schema: str
) -> None:
    sql = (
        "with recursive duckdb_views as (select sql from {0}duckdb_views union all "
        "select sql from duckdb_views where false) select * from duckdb_views"
    )
    assert oracle.execute(sql.format(schema)).fetchone() is not None

    assert not passes(oracle, sql.format(schema))


@pytest.mark.slow
def test_no_function_that_passes_tells_a_path_or_reads_a_table(tmp_path: Path) -> None:
    """Each function is called with names, queries and numbers of relations."""
    secret = tmp_path / "a-file-of-ours.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"copy (select 1 as n) to '{secret}'")
        connection.execute(f"create view ok as select * from '{secret}'")
        connection.execute("set variable ok = 'a-file-of-ours'")
        oid = connection.execute("select view_oid from duckdb_views() where not internal")
        numbers = [str(oid.fetchall()[0][0]), "0"]
        texts = ["'ok'", "'memory'", "'select * from ok'", f"'{secret.parent}/*'"]
        query = "json_serialize_sql('select * from ok')"
        arguments = ["", *texts, *numbers, query, "n", "'main', 'ok'", f"{numbers[0]}, 'ok'"]
        functions = connection.execute(
            "select distinct function_name from duckdb_functions() where function_type in "
            "('scalar', 'macro', 'aggregate') and regexp_matches(function_name, '^[a-z_0-9]+$') "
            "order by 1"
        ).fetchall()
        told = set()
        for (name,) in functions:
            # Sleeping is ended by the server's clock.
            if "sleep" in name or not passes(connection, f"select {name}()"):
                continue
            for given_to_it in arguments:
                sql = f"select {name}({given_to_it})::varchar from (select 1 as n) as ok"
                try:
                    found = connection.execute(sql).fetchall()
                except duckdb.Error:
                    continue
                without_its_arguments = str(found).replace(f"{secret.parent}/*", "")
                if name != "current_query" and "a-file-of-ours" in without_its_arguments:
                    told.add(name)
        assert not told

        # A macro's tables are not in the tree of a query that calls it.
        macros = connection.execute(
            "select distinct function_name, macro_definition from duckdb_functions() "
            "where function_type = 'macro' and macro_definition is not null"
        ).fetchall()
        reading = {name for name, each in macros if not passes(connection, f"select {each}")}
        assert reading <= REFUSED_FUNCTIONS
