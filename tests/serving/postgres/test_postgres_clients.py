"""Laws of the Postgres server, with the clients that people use, against a real server."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import pandas as pd
import psycopg
import pytest
import sqlalchemy as sa
from postgres_clients import PostgresThread, certificate_context
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.serving.query.sandbox.question import Allowance
from kappa.state.store import Store

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from object_store import ObjectStore

VALUES = """
select true as b, 1::smallint as i2, 2::int as i4, 3::bigint as i8, 1.5::float as f4,
    'infinity'::double as f8, 12.345::decimal(9, 3) as n, 'ä' as t, 'ab'::blob as y,
    date '2020-02-03' as d, time '01:02:03.5' as tm, timestamp '2020-02-03 04:05:06.7' as ts,
    timestamptz '2020-02-03 04:05:06+02' as tz, interval '2 days 03:04:05' as iv,
    uuid '00112233-4455-6677-8899-aabbccddeeff' as u, '{"a": 1}'::json as j,
    [1, 2, null]::bigint[] as l, ['a"b', 'c,d', null, ''] as lt, {'a': 1} as s, null as nu,
    170141183460469231731687303715884105727::hugeint as h, [[1], [2]] as ll
"""
# Without a zone, as a timestamp of SQL is.
LOCAL = datetime.fromisoformat("2020-02-03 01:05:06")
EXPECTED = (
    *(True, 1, 2, 3, 1.5, float("inf"), Decimal("12.345"), "ä", b"ab", date(2020, 2, 3)),
    *(time(1, 2, 3, 500000), LOCAL.replace(hour=4, microsecond=700000)),
    *(datetime(2020, 2, 3, 2, 5, 6, tzinfo=UTC), timedelta(days=2, seconds=11045)),
    *(UUID("00112233-4455-6677-8899-aabbccddeeff"), {"a": 1}, [1, 2, None]),
    *(['a"b', "c,d", None, ""], {"a": 1}, None, Decimal(2**127 - 1), [[1], [2]]),
)
SENT = (
    *(5, 2**40, 1.5, Decimal("1.25"), "x'y", b"\0\1", date(2020, 1, 2), time(1, 2, 3)),
    *(LOCAL, datetime(2020, 1, 2, 3, tzinfo=UTC), timedelta(days=1)),
    *(UUID(int=5), [1, 2], None, True, Decimal("-0.00012345"), Decimal("12345678901234567890.5")),
)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    platform = Platform(Store(tmp_path_factory.mktemp("postgres") / "root"))
    views = {"busy": "select carrier, flights * 2 as twice from delays where flights > 3"}
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES}, views)
    return platform


@pytest.fixture(scope="module")
def server(platform: Platform) -> Iterator[PostgresThread]:
    with PostgresThread(platform.store, Allowance(memory=256 << 20, seconds=20, rows=500)) as found:
        yield found


@pytest.fixture
def connection(server: PostgresThread) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    with psycopg.connect(server.dsn, autocommit=True) as found:
        yield found


Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.mark.parametrize("binary", [False, True])
def test_each_type_reaches_psycopg_as_it_is(connection: Connection, *, binary: bool) -> None:
    """Python gets the same value in text form and in binary form."""
    with connection.cursor(binary=binary) as cursor:
        assert cursor.execute(VALUES).fetchone() == EXPECTED


@pytest.mark.parametrize("mark", ["%t", "%b"])
def test_each_parameter_comes_back_as_it_was(connection: Connection, mark: str) -> None:
    """A parameter has the same value in text form and in binary form."""
    marks = ", ".join(f"{mark} as p{place}" for place in range(len(SENT)))

    assert connection.execute(f"select {marks}", SENT).fetchone() == SENT


def test_parameters_are_compared_as_columns_are(connection: Connection) -> None:
    """A parameter without a type gets the type of its operand, prepared or not."""
    asked = "select carrier from delays where flights = %s and carrier = any(%s) limit %s"
    for prepare in (False, True, True):
        found = connection.execute(asked, (3, ["UA", "x"], "1"), prepare=prepare)
        assert found.fetchall() == [("UA",)]


@pytest.mark.parametrize("binary", [False, True])
def test_a_cursor_gives_rows_in_parts(connection: Connection, *, binary: bool) -> None:
    """An SQL cursor gives the next rows each time, as psycopg's named cursors request."""
    with (
        connection.transaction(),
        connection.cursor(name="parts", binary=binary) as cursor,
    ):
        cursor.execute("select i from range(10) t(i) where i > %s", (1,))
        assert cursor.fetchone() == (2,)
        cursor.scroll(1)
        assert cursor.fetchmany(3) == [(4,), (5,), (6,)]
        assert cursor.fetchall() == [(7,), (8,), (9,)]


def test_a_held_cursor_outlives_its_transaction(connection: Connection) -> None:
    """A cursor WITH HOLD gives the rows of its transaction after the commit."""
    with connection.transaction():
        connection.execute("declare kept cursor with hold for select i from range(4) t(i)")
        assert connection.execute("fetch 1 from kept").fetchall() == [(0,)]
    assert connection.execute("fetch all from kept").fetchall() == [(1,), (2,), (3,)]
    connection.execute("close kept")


def test_rows_are_copied_in_three_forms(connection: Connection) -> None:
    """COPY TO STDOUT gives text, CSV and binary, in the same form as Postgres."""
    asked = "copy (select flights, carrier from delays order by 1) to stdout (format {})"
    with connection.cursor() as cursor:
        with cursor.copy(asked.format("binary")) as copy:
            copy.set_types(["int8", "text"])
            assert [*copy.rows()] == [(3, "UA"), (4, "ÅÄ"), (5, None)]
        with cursor.copy(asked.format("csv, header")) as copy:
            assert b"".join(copy) == "flights,carrier\n3,UA\n4,ÅÄ\n5,\n".encode()
        with cursor.copy("copy (select e'a\\tb\\\\', null) to stdout") as copy:
            assert b"".join(copy) == b"a\\tb\\\\\t\\N\n"


def test_several_questions_are_sent_at_once(connection: Connection) -> None:
    """A pipeline's answers come in order, and an error ends only its own part."""
    with connection.pipeline() as pipeline:
        first, second = connection.execute("select 1"), connection.execute("select %s", (2,))
        pipeline.sync()
        connection.execute("selec")
        with pytest.raises(psycopg.errors.SyntaxError):
            pipeline.sync()
    assert (first.fetchone(), second.fetchone()) == ((1,), (2,))
    assert connection.execute("select 3").fetchone() == (3,)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("selec 1", "42601"),
        ("select * from nothing", "42P01"),
        ("select nothing from delays", "42703"),
        ("select nothing(1)", "42883"),
        ("select 'x'::int", "22P02"),
        ("select 1 = any('{{1}}')", "22P02"),
        ("insert into delays values (1)", "25006"),
        ("/* x */ DROP TABLE delays", "25006"),
        ("create table copied as select 1", "25006"),
        ("truncate delays", "25006"),
        ("call pragma_version()", "25006"),
        ("explain select 1", "0A000"),
        ("copy delays from stdin", "25006"),
        ("copy delays to '/tmp/x'", "25006"),
        ("select * from read_text('/etc/passwd')", "42501"),
        ("select * from range(1000)", "54000"),
        ("fetch all from nothing", "34000"),
        ("set kappa.generation = 99", "42000"),
        ("listen x", "0A000"),
    ],
)
def test_each_mistake_has_its_code(connection: Connection, sql: str, code: str) -> None:
    """An error has the SQLSTATE to which clients react, and the connection stays usable."""
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(sql).fetchall()

    assert refused.value.sqlstate == code
    assert connection.execute("select 1").fetchone() == (1,)


def test_a_failed_transaction_waits_for_its_end(connection: Connection) -> None:
    """After an error, a transaction answers nothing until it ends, which is a rollback."""
    connection.execute("begin")
    with pytest.raises(psycopg.errors.SyntaxError):
        connection.execute("selec")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        connection.execute("select 1")
    assert connection.execute("commit").statusmessage == "ROLLBACK"
    assert connection.execute("select 1").fetchone() == (1,)


def test_a_cut_answer_is_told_behind_its_rows(connection: Connection) -> None:
    """A reader of the first rows gets them; a reader of all rows gets an error at the limit."""
    with connection.transaction(), connection.cursor(name="many") as cursor:
        cursor.execute("select * from range(1000)")
        assert len(cursor.fetchmany(500)) == 500
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="more than the 500 rows"):
            cursor.fetchall()


def test_the_snapshot_that_was_read_is_named(connection: Connection) -> None:
    """A session names its snapshot, and reads the past generation that it has set."""
    (shown,) = connection.execute("show kappa.snapshot").fetchone() or ("",)
    (called,) = connection.execute("select kappa_snapshot()").fetchone() or ("",)
    connection.execute("set kappa.generation = 1")

    assert json.loads(shown)["builds"]["flights"]["offsets"] == {"flights": {"0": 12}}
    assert json.loads(called) == json.loads(shown)
    assert connection.execute("select count(*) from delays").fetchone() == (3,)


def test_asyncpg_reads_types_and_cursors(server: PostgresThread) -> None:
    """asyncpg asks for each type and sends everything in binary form; it reads and copies."""

    async def ask() -> None:
        connection = await asyncpg.connect(**server.words, database="kappa")
        found = await connection.fetchrow(VALUES)
        assert tuple(found)[:15] == EXPECTED[:15]
        assert (found["l"], found["lt"]) == ([1, 2, None], ['a"b', "c,d", None, ""])
        rows = await connection.fetch(
            "select carrier from delays where flights > $1 and carrier = $2", 2, "UA"
        )
        assert [tuple(each) for each in rows] == [("UA",)]
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            cursor = connection.cursor("select i from range(25) t(i)", prefetch=10)
            assert [each[0] async for each in cursor] == [*range(25)]
        copied = io.BytesIO()
        await connection.copy_from_query("select 1, 'a'", output=copied, format="csv")
        assert copied.getvalue() == b"1,a\n"
        await connection.reset()
        await connection.close()

    asyncio.run(ask())


def test_psycopgs_async_client_reads(server: PostgresThread) -> None:
    """psycopg's asyncio connection reads the same as its other connection."""

    async def ask() -> list[tuple[Any, ...]]:
        async with await psycopg.AsyncConnection.connect(server.dsn) as connection:
            found = await connection.execute("select flights from delays order by 1")
            return await found.fetchall()

    assert asyncio.run(ask()) == [(3,), (4,), (5,)]


def test_sqlalchemy_reflects_the_tables(server: PostgresThread) -> None:
    """SQLAlchemy finds schemas, tables, views and columns, and pandas reads through it."""
    engine = sa.create_engine(server.dsn.replace("postgresql://", "postgresql+psycopg://"))
    found, metadata = sa.inspect(engine), sa.MetaData()
    metadata.reflect(engine, views=True)
    delays = metadata.tables["delays"]
    with engine.connect() as connection:
        asked = sa.select(delays.c.carrier).where(delays.c.flights > 4)
        rows = connection.execute(asked).fetchall()
    frame = pd.read_sql_table("delays", engine).sort_values("flights")

    assert (found.default_schema_name, found.get_view_names()) == ("public", ["busy"])
    assert sorted(found.get_table_names()) == ["delays", "planes", "rejects"]
    assert [(each["name"], str(each["type"])) for each in found.get_columns("delays")] == [
        ("carrier", "TEXT"),
        ("flights", "BIGINT"),
    ]
    assert found.get_pk_constraint("delays")["constrained_columns"] == []
    assert rows == [(None,)]
    assert frame.flights.tolist() == [3, 4, 5]
    # The inspector connects again for each thing that it is asked for.
    engine.dispose()


def test_adbc_reads_arrow_and_objects(server: PostgresThread) -> None:
    """ADBC's driver, which copies in binary form, gives Arrow tables with the columns' types."""
    import adbc_driver_postgresql.dbapi as adbc

    with adbc.connect(server.dsn) as connection, connection.cursor() as cursor:
        cursor.execute("select carrier, 1.5::decimal(4, 2) as d from delays order by flights")
        table = cursor.fetch_arrow_table()
        cursor.execute("select carrier from delays where flights = $1", (3,))
        assert cursor.fetchall() == [("UA",)]
        schema = connection.adbc_get_table_schema("delays")

    assert table.to_pylist()[0] == {"carrier": "UA", "d": "1.50"}
    assert [str(each.type) for each in schema] == ["string", "int64"]


def test_duckdb_attaches_the_server(server: PostgresThread) -> None:
    """DuckDB's Postgres reader lists and reads the tables, and sends its filter along."""
    import duckdb
    import duckdb_extension_postgres_scanner as extension

    folder = Path(extension.__file__).parent
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as duck:
        duck.execute(f"load '{next(folder.rglob('*.duckdb_extension'))}'")
        duck.execute(f"attach '{server.dsn}' as kappa (type postgres, read_only)")
        found = duck.execute("select carrier from kappa.delays where flights < 4").fetchall()
        sent = duck.execute("from postgres_query('kappa', 'select sum(twice) as n from busy')")
        assert (found, sent.fetchall()) == ([("UA",)], [(18,)])


@pytest.mark.skipif(shutil.which("psql") is None, reason="not run: psql is not installed")
def test_psql_shows_tables_and_copies(server: PostgresThread) -> None:
    """psql's own commands list and describe tables and views, and copy rows."""
    said = server.psql(r"\d", r"\dt flights.*", r"\d delays", r"\d+ busy", r"\dn", r"\l", r"\du")
    copied = server.psql(r"\copy delays to stdout csv header")

    assert "ERROR" not in said
    for line in ("public | delays  | table | kappa", "flights | planes", "carrier | text", "twice"):
        assert line in said
    assert copied.splitlines()[:2] == ["carrier,flights", "UA,3"]


def test_the_password_is_asked_for_by_tls_too(platform: Platform, tmp_path: Path) -> None:
    """A client that requests TLS gets it, and a wrong password is refused with its code."""
    with PostgresThread(platform.store, tls=certificate_context(tmp_path)) as server:
        told = {**server.words, "sslrootcert": str(tmp_path / "server.pem")}
        with psycopg.connect(**told, sslmode="verify-full") as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("select 1").fetchone() == (1,)
        for password in ("wrong", ""):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(**{**told, "password": password})


# What Grafana sends to know its source (its postgresMetaQuery.ts), and Metabase (its postgres.clj,
# as its HoneySQL is written).
GRAFANA_TABLES = """SELECT
    CASE WHEN
          quote_ident(table_schema) IN (
          SELECT
            CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END
          FROM
            generate_series(
              array_lower(string_to_array(current_setting('search_path'),','),1),
              array_upper(string_to_array(current_setting('search_path'),','),1)
            ) as i,
            string_to_array(current_setting('search_path'),',') s
          )
      THEN quote_ident(table_name)
      ELSE quote_ident(table_schema) || '.' || quote_ident(table_name)
    END AS "table"
    FROM information_schema.tables
    WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog')
    ORDER BY 1"""
GRAFANA_COLUMNS = """SELECT quote_ident(column_name) AS "column", data_type AS "type"
    FROM information_schema.columns
    WHERE
      CASE WHEN array_length(parse_ident('delays'),1) = 2
        THEN quote_ident(table_schema) = (parse_ident('delays'))[1]
          AND quote_ident(table_name) = (parse_ident('delays'))[2]
        ELSE quote_ident(table_name) = 'delays' AND table_schema = 'public'
      END"""
METABASE_TABLES = """SELECT "n"."nspname" AS "schema", "c"."relname" AS "name",
    CASE "c"."relkind" WHEN 'r' THEN 'TABLE' WHEN 'p' THEN 'PARTITIONED TABLE'
        WHEN 'v' THEN 'VIEW' WHEN 'f' THEN 'FOREIGN TABLE' WHEN 'm' THEN 'MATERIALIZED VIEW'
        ELSE NULL END AS "type",
    "d"."description" AS "description", "stat"."n_live_tup" AS "estimated_row_count"
    FROM "pg_catalog"."pg_class" AS "c"
    INNER JOIN "pg_catalog"."pg_namespace" AS "n" ON "c"."relnamespace" = "n"."oid"
    LEFT JOIN "pg_catalog"."pg_description" AS "d" ON ("c"."oid" = "d"."objoid")
        AND ("d"."objsubid" = 0) AND ("d"."classoid" = 'pg_class'::regclass)
    LEFT JOIN "pg_stat_user_tables" AS "stat" ON ("n"."nspname" = "stat"."schemaname")
        AND ("c"."relname" = "stat"."relname")
    WHERE ("c"."relnamespace" = "n"."oid") AND ("n"."nspname" !~ '^pg_')
        AND ("n"."nspname" <> 'information_schema') AND (c.relkind in ('r', 'p', 'v', 'f', 'm'))
        AND ("n"."nspname" IN ('public'))
    ORDER BY "type" ASC, "schema" ASC, "name" ASC"""
METABASE_COLUMNS = """SELECT "c"."column_name" AS "name",
    CASE WHEN "c"."udt_schema" IN ('public', 'pg_catalog') THEN FORMAT('%s', "c"."udt_name")
        ELSE FORMAT('"%s"."%s"', "c"."udt_schema", "c"."udt_name") END AS "database-type",
    "pk"."column_name" IS NOT NULL AS "pk?",
    COL_DESCRIPTION(CAST(CAST(FORMAT('%I.%I', CAST("c"."table_schema" AS TEXT),
        CAST("c"."table_name" AS TEXT)) AS REGCLASS) AS OID), "c"."ordinal_position")
        AS "field-comment"
    FROM "information_schema"."columns" AS "c"
    LEFT JOIN (SELECT "tc"."table_schema", "tc"."table_name", "kc"."column_name"
        FROM "information_schema"."table_constraints" AS "tc"
        INNER JOIN "information_schema"."key_column_usage" AS "kc"
            ON ("tc"."constraint_name" = "kc"."constraint_name")
            AND ("tc"."table_schema" = "kc"."table_schema")
            AND ("tc"."table_name" = "kc"."table_name")
        WHERE "tc"."constraint_type" = 'PRIMARY KEY') AS "pk"
        ON ("c"."table_schema" = "pk"."table_schema") AND ("c"."table_name" = "pk"."table_name")
        AND ("c"."column_name" = "pk"."column_name")
    WHERE (c.table_schema !~ '^information_schema|catalog_history|pg_')
        AND ("c"."table_schema" IN ('public')) AND ("c"."table_name" IN ('delays'))"""
TABLES_OF_FLIGHTS = ["flights.busy", "flights.delays", "flights.planes", "flights.rejects"]


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        (
            GRAFANA_TABLES,
            sorted([("busy",), ("delays",), ("planes",), ("rejects",)])
            + [(name,) for name in TABLES_OF_FLIGHTS],
        ),
        (GRAFANA_COLUMNS, [("carrier", "text"), ("flights", "bigint")]),
        ("SELECT current_setting('server_version_num')::int/100 as version", [(1600,)]),
        (
            METABASE_TABLES,
            [
                ("public", "delays", "TABLE", None, None),
                ("public", "planes", "TABLE", None, None),
                ("public", "rejects", "TABLE", None, None),
                ("public", "busy", "VIEW", None, None),
            ],
        ),
        (METABASE_COLUMNS, [("carrier", "text", False, None), ("flights", "int8", False, None)]),
        ("show timezone;", [("UTC",)]),
    ],
    ids=["grafana tables", "grafana columns", "version", "metabase tables", "metabase", "zone"],
)
def test_dashboards_learn_what_they_ask(
    connection: Connection, asked: str, rows: list[tuple[object, ...]]
) -> None:
    """The questions of Grafana and Metabase about their source are answered."""
    found = connection.execute(asked.encode()).fetchall()

    assert sorted(found, key=str) == sorted(rows, key=str)


@pytest.mark.long
def test_the_catalogue_of_a_root_in_a_bucket(object_store: ObjectStore, tmp_path: Path) -> None:
    """Names, columns and rows of tables in a bucket are the same as on a disk."""
    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path / "local")
    Platform(store).serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        {"busy": "select carrier, flights * 2 as twice from delays where flights > 3"},
    )
    with PostgresThread(store) as server:
        said = server.psql("\\dt", "\\d delays", "\\dv")
        assert re.search(r"public \| delays +\| table", said), said
        assert re.search(r"carrier +\| text", said), said
        assert re.search(r"public \| busy +\| view", said), said
        with psycopg.connect(server.dsn) as connection:
            asked = (
                "select table_name, column_name, data_type from information_schema.columns "
                "where table_schema = 'public' order by table_name, ordinal_position"
            )
            found = connection.execute(asked).fetchall()
            assert ("delays", "flights", "bigint") in found
            assert {name for name, _, _ in found} >= {"busy", "delays", "planes"}
            rows = connection.execute("select * from delays order by flights").fetchall()
            assert rows == [("UA", 3), ("ÅÄ", 4), (None, 5)]
