"""Laws of the SQL that a stranger, a view and a check may use.

A stranger's query passes if DuckDB finds all names within the query. DuckDB itself is the oracle:
DuckDB binds each query over the allowed relation alone. A name that DuckDB does not find there
would be a name of DuckDB's own, or of another relation, in a real connection.

Declared views and checks use only the tables of the pipeline, and have exactly one answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from msgspec.structs import replace
from nested_sql import ALLOWED, HIDDEN, queries
from served import DELAYS, PLANES

from kappa.base.duck import DuckError, open_connection
from kappa.base.errors import UsageError
from kappa.base.fork_call import call_within
from kappa.serving.query.reader.errors import explain_error
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.sql_rules import (
    CHANGING_FUNCTIONS,
    REFUSED_FUNCTIONS,
    ensure_allowed,
)
from kappa.serving.query.reader.views import make_views, unreadable_sql, view_refusals
from kappa.tables.shape import REJECTS_BIRTH

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
    """Binds a query: True if that succeeds, False if a name is missing, None on other errors."""
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


TABLES = (DELAYS, PLANES, REJECTS_BIRTH)


@pytest.mark.parametrize(
    "sql",
    [
        "select carrier, flights / 2 as half from delays",
        "from delays join other using (carrier)",
        "with busy as (from delays where flights > 3) from busy",
        "select reason, count(*) from rejects group by all",
        "select count(*) from delays, range(3)",
        (
            "select date '2013-01-01' + interval 1 day as day, "
            "age(timestamp '2013-01-01', timestamp '2012-01-01')"
        ),
        "select distinct carrier from delays order by carrier limit 3",
        "select json_group_array(carrier) from delays",
        "select 'now()' as \"random()\" -- now()",
    ],
)
def test_a_view_may_read_its_pipelines_tables_and_views(sql: str) -> None:
    assert view_refusals(TABLES, {"v": sql, "other": "from delays"}) == {}


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("from 'c.csv'", "c.csv"),
        ("from delays join 'c.csv' using (carrier)", "c.csv"),
        ("select content from read_text('/etc/hostname')", "read_text"),
        ("from read_parquet('x.parquet')", "read_parquet"),
        ("select (select count(*) from glob('*'))", "glob"),
        ("from orders", "orders"),
        ("from other.delays", "other.delays"),
        ("from main.delays", "main.delays"),
        ("from duckdb_settings()", "duckdb_settings"),
        ("from duckdb_views", "duckdb_views"),
        ("select getenv('HOME')", "getenv"),
        ("select random()", "random()"),
        ("select main.RANDOM()", "random()"),
        ("from delays order by random() limit 1", "random()"),
        ("select now()", "now()"),
        ("select get_current_timestamp()", "get_current_timestamp()"),
        ("select current_date", "current_date"),
        ("select current_timestamp - interval 1 day", "current_timestamp"),
        ("select localtimestamp", "localtimestamp"),
        ("select age(timestamp '2013-01-01')", "age()"),
        ("select ago(interval 1 day)", "ago()"),
        ("select uuid()", "uuid()"),
        ("select nextval('s')", "nextval"),
        ("from delays using sample 10 rows", "a sample"),
        ("from delays tablesample 10%", "a sample"),
        ("select sum(flights) filter (where random() > 0.5) from delays", "random()"),
        ("select 1; select 2", "more than one statement"),
        ("pivot delays on carrier using sum(flights)", "pivot looks for its columns"),
        ("drop view delays", "drop"),
        ("from delays d asof join delays p using (carrier, flights)", "by using"),
        ("from delays d asof right join delays p on d.flights >= p.flights", "asof right join"),
    ],
)
def test_a_view_that_names_anything_else_is_refused_by_that_name(sql: str, names: str) -> None:
    for found in (view_refusals(TABLES, {"v": sql}), unreadable_sql(TABLES, {"v": sql})):
        assert found.keys() == {"v"}
        assert names in found["v"].message
        assert found["v"].hint


def test_no_null_fulfils_the_asof_join_of_a_view_that_is_not_kept() -> None:
    """No null satisfies an as-of join, whether a view's rows are stored or computed on reading."""
    sql = (
        "select t.id, p.cents from trades t asof left join prices p"
        " on t.symbol = p.symbol and t.day >= p.since"
    )
    with open_reader(None, served=True) as reader:
        reader.run_command("create table prices (symbol varchar, since int, cents int)")
        reader.run_command("insert into prices values ('a', 1, 10), ('a', null, 99), (null, 1, 98)")
        reader.run_command("create table trades (id int, symbol varchar, day int)")
        reader.run_command("insert into trades values (1, 'a', 2), (2, 'a', null), (3, null, 2)")

        assert make_views(reader, {"v": sql}) == {}

        assert reader.rows("from v order by id").rows == ((1, 10), (2, None), (3, None))
        reader.run_command("drop view v")
        reader.run_command("drop table trades")
        reader.run_command("drop table prices")


def test_a_view_itself_is_no_table_that_it_might_have_meant() -> None:
    (refused,) = view_refusals(TABLES, {"gone_on": "from gone_one"}).values()

    assert "there is no table gone_one" in refused.message
    assert "gone_on" not in refused.hint


def test_a_check_is_held_to_what_a_view_is_held_to() -> None:
    good = (
        "flights > 0 -- now()",
        "carrier in (select carrier from other)",
        "flights <= (select count(*) from rejects) + 10",
        "date '2013-01-01' < date '2014-01-01'",
    )
    bad = {
        "flights < random() * 9": "random() gives another value each time, and a check has one",
        "current_date > date '2013-01-01'": "current_date",
        "carrier in (from 'known.csv')": "known.csv",
        "(select content from read_text('/etc/hostname')) <> ''": "read_text",
        "flights in (select flights from other.delays)": "other.delays",
        "getenv('HOME') is null": "getenv",
        "true) from delays; select (true": "more than one statement",
        "flights > nothing": "nothing",
    }
    table = replace(DELAYS, checks=(*good, *bad))

    found = unreadable_sql((table, PLANES, REJECTS_BIRTH), {"other": "from delays"})

    assert found.keys() == {f"delays: {condition}" for condition in bad}
    for condition, names in bad.items():
        assert names in found[f"delays: {condition}"].message
        assert found[f"delays: {condition}"].hint


def test_every_function_of_duckdb_that_changes_is_known() -> None:
    """All of DuckDB's functions that change their result are known; new versions may add more."""
    found = open_connection().execute(
        "select distinct function_name from duckdb_functions() where "
        "function_type in ('scalar', 'aggregate') and stability <> 'CONSISTENT'"
    )

    assert {name for (name,) in found.fetchall()} - {"error"} <= CHANGING_FUNCTIONS


def test_a_query_that_the_memory_of_its_process_ends_says_so() -> None:
    def ask() -> str:
        with open_connection() as duck:
            try:
                duck.execute("select count(distinct hash(range)) from range(90000000)")
            except DuckError as error:
                return explain_error(error, served=True).hint
        return "it had enough"

    assert "give the process more memory" in call_within(ask, seconds=60, memory=64 << 20)
