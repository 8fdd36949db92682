"""Laws of declared views: they use their pipeline's own tables alone, and have one answer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from served import DELAYS, PLANES

from kappa.base.duck import DuckError, open_connection
from kappa.base.forked import call_within
from kappa.serving.query.reader.explained import explained
from kappa.serving.query.reader.opened import open_reader
from kappa.serving.query.reader.repeatable import CHANGING_FUNCTIONS
from kappa.serving.query.reader.views import make_views, unreadable, view_refusals
from kappa.tables.shape import REJECTS_BIRTH

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
    for found in (view_refusals(TABLES, {"v": sql}), unreadable(TABLES, {"v": sql})):
        assert found.keys() == {"v"}
        assert names in found["v"].message
        assert found["v"].hint


def test_no_null_fulfils_the_asof_join_of_a_view_that_is_not_kept() -> None:
    """A declared view has one meaning, whether its rows are stored or computed at reading."""
    sql = (
        "select t.id, p.cents from trades t asof left join prices p"
        " on t.symbol = p.symbol and t.day >= p.since"
    )
    with open_reader(None, served=True) as reader:
        reader.command("create table prices (symbol varchar, since int, cents int)")
        reader.command("insert into prices values ('a', 1, 10), ('a', null, 99), (null, 1, 98)")
        reader.command("create table trades (id int, symbol varchar, day int)")
        reader.command("insert into trades values (1, 'a', 2), (2, 'a', null), (3, null, 2)")

        assert make_views(reader, {"v": sql}) == {}

        assert reader.rows("from v order by id").rows == ((1, 10), (2, None), (3, None))
        reader.command("drop view v")
        reader.command("drop table trades")
        reader.command("drop table prices")


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

    found = unreadable((table, PLANES, REJECTS_BIRTH), {"other": "from delays"})

    assert found.keys() == {f"delays: {condition}" for condition in bad}
    for condition, names in bad.items():
        assert names in found[f"delays: {condition}"].message
        assert found[f"delays: {condition}"].hint


def test_every_function_of_duckdb_that_changes_is_known() -> None:
    """Another DuckDB may bring further ones."""
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
                return explained(error, served=True).hint
        return "it had enough"

    assert "give the process more memory" in call_within(ask, seconds=60, memory=64 << 20)
