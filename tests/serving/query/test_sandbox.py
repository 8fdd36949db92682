"""Laws of the sandbox: untrusted SQL reads only the snapshot's tables, within limits.

Whatever a query does, the server keeps running.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import wait_until
from house import SUPPORT
from late_fork_server import LATE_SECONDS
from served import DELAYS, PLANES, ROWS_OF_DELAYS, ROWS_OF_PLANES, Platform

from kappa.base.duck import open_connection
from kappa.base.errors import KappaError, UsageError
from kappa.base.sections import Role
from kappa.serving.access.roles import identity_of
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.query import answer_query
from kappa.serving.query.reader.client import Client, ClientLeft
from kappa.serving.query.reader.errors import TooMuch
from kappa.serving.query.reader.sql_rules import ensure_allowed
from kappa.serving.query.sandbox import confine, workers
from kappa.serving.query.sandbox.processes import ForkServer
from kappa.serving.query.sandbox.question import Allowance, Format, Question, Reply
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.build import table_path
from kappa.state.lease import sorted_leases
from kappa.state.store import Store

pytestmark = pytest.mark.slow

SECRET = "the-secret-of-another"
# Names in these texts: {secret} and {parquet} are files beside the root, {own} is one of the
# snapshot's own files, {port} is a listening port of this machine.
LOOKING_OUTSIDE = [
    "select * from read_csv('/etc/passwd')",
    "select * from read_csv('{secret}', header = false, columns = {{'a': 'varchar'}})",
    "select * from read_csv_auto('{secret}')",
    "select content from read_text('{secret}')",
    "select content from read_blob('{secret}')",
    "select * from read_json('{secret}')",
    "select * from read_json_objects('{secret}')",
    "select * from read_parquet('{parquet}')",
    "select * from parquet_scan(['{parquet}'])",
    "select * from parquet_metadata('{own}')",
    "select * from read_parquet('{own}')",
    "select * from sniff_csv('{secret}')",
    "select * from read_duckdb('{secret}')",
    "select * from glob('/etc/*')",
    "select * from '{parquet}'",
    "from '{secret}'",
    'select * from "{parquet}"',
    'select * from "{own}"',
    'select * from main."{parquet}"',
    "select * from query_table('{parquet}')",
    "select * from query('select * from read_text(''{secret}'')')",
    "from query_table(['delays'])",
    "select (select content from read_text('{secret}'))",
    "select * from delays where carrier in (select content from read_text('{secret}'))",
    "with t as (select * from read_text('{secret}')) select * from t",
    (
        "with recursive t(n) as "
        "(select 1 union all select count(*) from read_text('{secret}')) select * from t"
    ),
    "select * from range(2) r, lateral (select * from read_text('{secret}') limit r.range)",
    "select * from (select 1) union all select content from read_text('{secret}')",
    "SELECT * FROM \"read_text\"('{secret}')",
    "select * from system.main.read_text('{secret}')",
    "select /* ' */ * from ReAd_TeXt('{secret}') -- '",
    'with "{parquet}" as (select * from "{parquet}") select * from "{parquet}"',
    'with recursive "{own}" as (from "{own}" union from "{own}") from "{own}"',
    'with recursive "{own}" as (from "{own}" intersect from "{own}") from "{own}"',
    'with a as (from "{own}"), "{own}" as (select 1) from a',
    '(with "{own}" as (select 1) from "{own}") union all by name (from "{own}")',
    'select * from (with "{parquet}" as (select 1) select 1), "{parquet}"',
    "summarize '{parquet}'",
    "describe '{parquet}'",
    "select * from (describe from read_text('{secret}'))",
    "pivot '{parquet}' on a in ('x') using count(*)",
    (
        "select * from json_execute_serialized_sql("
        "json_serialize_sql('select * from read_text(''{secret}'')'))"
    ),
    "select * from read_csv('https://127.0.0.1:{port}/x.csv')",
    "select * from read_parquet('s3://127.0.0.1:{port}/x.parquet')",
    "select * from 'http://127.0.0.1:{port}/x.parquet'",
    "from 'hf://datasets/x/y.parquet'",
    "select * from read_text('/proc/self/environ')",
    "select * from read_blob('/proc/self/mem')",
]
LOOKING_AROUND = [
    "select current_setting('secret_directory')",
    "select getenv('HOME')",
    "select getvariable('x')",
    "select * from duckdb_secrets()",
    "select * from which_secret('s3://x', 's3')",
    "select * from duckdb_settings()",
    "select * from duckdb_views()",
    "select * from duckdb_views",
    "select sql from sqlite_master",
    "select * from information_schema.views",
    "select * from pg_catalog.pg_views",
    "select pg_get_viewdef(0)",
    "select * from duckdb_extensions()",
    "select * from duckdb_logs()",
    "with duckdb_views as (select * from duckdb_views) select * from duckdb_views",
    "select * from (with duckdb_views as (select 1) select 1) a, duckdb_views",
    (
        "with recursive duckdb_views as (select sql from duckdb_views union all "
        "select sql from duckdb_views where false) select * from duckdb_views"
    ),
    'with "duc\N{KELVIN SIGN}db_views" as (select 1) select * from duckdb_views',
    "with a as (from duckdb_views), duckdb_views as (select 1) from a",
    "select json_serialize_plan('select * from delays')",
    "select format_type(0, 0)",
    "select get_block_size('memory')",
    "show databases",
    "show tables",
    "show all tables",
    "pragma version",
    "pragma database_list",
    "pragma show_tables",
    "call duckdb_settings()",
    "from pragma_table_info('delays')",
    "select * from seq_scan('delays')",
    "select * from arrow_scan(1, 2, 3)",
    "select * from pandas_scan(1)",
    "select * from python_map_function(1)",
    "select * from _CONFIGURED",
    "select * from reader",
    "select * from test_all_types()",
    "select write_log('x')",
    "select nextval('s')",
    "explain analyze select * from delays",
    "execute x",
]
WRITING = [
    "copy (select 1) to '{folder}/written.csv'",
    "copy delays to '{own}' (format parquet)",
    "copy delays from '{secret}'",
    "attach '{folder}/written.db' as x",
    "attach ':memory:' as x",
    "attach 'http://127.0.0.1:{port}/x.db' as x",
    "export database '{folder}/written'",
    "import database '{folder}'",
    "create table t as select 1",
    "create temp table t as select 1",
    "create view v as select * from read_text('{secret}')",
    "create macro f() as table select * from read_text('{secret}')",
    "create secret s (type s3, key_id 'x', secret 'y')",
    "create or replace view delays as select 1",
    "insert into delays values ('x', 1)",
    "delete from delays",
    "drop view delays",
    "alter view delays rename to x",
    "install httpfs",
    "load '{secret}'",
    "load httpfs",
    "set enable_external_access = true",
    "set lock_configuration = false",
    "reset lock_configuration",
    "set memory_limit = '100GB'",
    "set temp_directory = '{folder}'",
    "pragma enable_profiling",
    "pragma disable_verification",
    "set variable x = 1",
    "begin",
    "checkpoint",
    "vacuum",
    "use system",
    "prepare x as select 1",
    "select 1; select 2",
    "select 1; copy (select 1) to '{folder}/written.csv'",
    "select 1 /* ; */ ; drop view delays -- ",
    "with t as (insert into delays values ('x', 1) returning *) select * from t",
    "select 1 into outfile '{folder}/written'",
    "",
    ";",
    "\x00",
]
ATTACKS = [*LOOKING_OUTSIDE, *LOOKING_AROUND, *WRITING]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    # The root's name contains characters with a meaning in DuckDB's patterns, URLs and SQL.
    platform = Platform(Store(tmp_path_factory.mktemp("sandbox") / "röot 1* it's #1?"))
    platform.serve(
        "flights",
        {DELAYS: ROWS_OF_DELAYS, PLANES: ROWS_OF_PLANES},
        views={"busy": "select * from delays where flights > 3"},
    )
    return platform


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Allowance(memory=256 << 20, seconds=20, rows=1000, bytes=1 << 20)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def unchecked() -> Iterator[Sandbox]:
    """Yields a sandbox without the first barrier, which is the check of the parser's tree."""
    with Sandbox(
        Allowance(memory=256 << 20, seconds=20, rows=1000, bytes=1 << 20),
        program=(str(SUPPORT / "unchecked_fork_server.py"),),
    ) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def tight() -> Iterator[Sandbox]:
    """Yields a sandbox with little memory."""
    with Sandbox(Allowance(memory=96 << 20, seconds=60)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def small() -> Iterator[Sandbox]:
    """Yields a sandbox with little time."""
    with Sandbox(Allowance(memory=256 << 20, seconds=1, rows=1000, bytes=1 << 20)) as sandbox:
        yield sandbox


class World:
    """The targets that an attack could reach, and a check that none was reached."""

    def __init__(self, folder: Path, platform: Platform) -> None:
        self.folder = folder
        self.platform = platform
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(0)
        (folder / "secret.csv").write_text(f"a\n{SECRET}\n", encoding="utf-8")
        pq.write_table(pa.table({"a": [SECRET]}), folder / "secret.parquet")
        self.own = next(Path(table_path(platform.store, "flights-1", "delays")).glob("*.parquet"))
        self.before = self.files()

    def files(self) -> dict[str, bytes]:
        roots = (self.folder, self.platform.store.folder)
        return {
            str(path): path.read_bytes()
            for root in roots
            for path in root.rglob("*")
            if path.is_file() and path.parent.name != "leases"
        }

    def told(self, attack: str) -> str:
        names = {
            "secret": self.folder / "secret.csv",
            "parquet": self.folder / "secret.parquet",
            "own": str(self.own).replace("'", "''"),
            "folder": self.folder,
        }
        return attack.format(**names, port=self.listener.getsockname()[1])

    def ensure_untouched(self) -> None:
        assert self.files() == self.before
        with pytest.raises(BlockingIOError):
            self.listener.accept()


@pytest.fixture(scope="module")
def world(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("outside"), platform)
    yield world
    world.listener.close()


class Answered:
    """A reply whose body has been read."""

    def __init__(self, reply: Reply) -> None:
        with reply.body:
            self.body = reply.body.read()
        assert len(self.body) == reply.size
        self.size = reply.size
        self.columns = reply.columns
        self.rows = reply.rows
        self.truncated = reply.truncated
        self.generation = reply.snapshot.generation


def asked(
    sandbox: Sandbox,
    platform: Platform,
    sql: str,
    form: Format = Format.JSON,
    rows: int | None = None,
) -> Answered:
    return Answered(sandbox.ask_query(platform.store, Question(sql, form, rows)))


def rows(answered: Answered) -> list[list[object]]:
    return [list(each.values()) for each in json.loads(answered.body)["rows"]]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_in_a_sentence_and_changes_nothing(
    sandbox: Sandbox, platform: Platform, world: World, attack: str
) -> None:
    with pytest.raises(UsageError) as told:
        asked(sandbox, platform, world.told(attack))

    assert not isinstance(told.value, TooMuch)
    assert "\n" not in told.value.message
    assert told.value.hint
    assert SECRET not in str(told.value)
    world.ensure_untouched()


@pytest.mark.parametrize(
    "attack",
    [
        each
        for each in (*LOOKING_OUTSIDE, *WRITING)
        if each.startswith(
            ("select", "from", "with", "copy", "attach", "install", "load", "export")
        )
    ],
)
def test_without_the_parsers_tree_duckdb_and_the_kernel_still_give_nothing_away(
    unchecked: Sandbox, platform: Platform, world: World, attack: str
) -> None:
    try:
        said = asked(unchecked, platform, world.told(attack)).body.decode()
    except KappaError as error:
        said = str(error)

    assert SECRET not in said
    assert "root:" not in said
    world.ensure_untouched()


@pytest.mark.parametrize(
    "sql",
    [
        "select * from delays, planes, busy",
        "from flights.delays",
        "with d as (from delays) select * from d, d as e",
        "select 1",
        "from busy order by carrier nulls last",
        "describe delays",
    ],
)
def test_what_may_be_read_is_answered_as_it_is_elsewhere(
    sandbox: Sandbox, platform: Platform, sql: str
) -> None:
    told = answer_query(platform.store, sql)
    found = asked(sandbox, platform, sql)

    assert rows(found) == [list(each) for each in told.rows]
    assert [(each["name"], each["type"]) for each in found.columns] == [
        *zip(told.columns, told.types, strict=True)
    ]
    assert (found.generation, found.rows) == (told.generation, len(told.rows))
    assert not found.truncated


@pytest.mark.parametrize(
    "sql",
    [
        (
            "with recursive t(n) as (select 1 union all select n + 1 from t where n < 5) "
            "select sum(n) from t"
        ),
        "select count(*) from range(10), generate_series(1, 2), unnest([1, 2, 3]) u(x)",
        (
            "with a as (select 1 as n), b as (select n + 1 as n from a) "
            "select sum(n) from (select * from a union all from b)"
        ),
        (
            "select list_transform([1, 2], x -> x + 1), ({'a': 1}).a, ('x').upper(), "
            "[y for y in [1, 2] if y > 1]"
        ),
        (
            "select carrier, row_number() over (order by flights) from delays "
            "qualify row_number() over (order by flights) = 1"
        ),
        "select count(*) from json_each('[1, 2]')",
        "select timestamptz '2013-01-01 00:00:00+01' at time zone 'Europe/Berlin'",
        "select count(*) from (pivot delays on carrier in ('UA') using sum(flights))",
        'select "select 1; drop" from (select 1 as "select 1; drop")',
    ],
)
def test_sql_that_looks_nowhere_else_is_let_through(
    sandbox: Sandbox, platform: Platform, sql: str
) -> None:
    assert asked(sandbox, platform, sql).rows == 1


def test_values_are_told_as_everywhere_and_in_each_form(
    sandbox: Sandbox, platform: Platform
) -> None:
    sql = (
        "select 'ÅÄ' as t, null as n, 1.50::decimal(9, 2) as d, "
        "timestamptz '2013-01-01 05:00:00Z' as at, 'NaN'::double as x, [1] as l, 'a' as t"
    )
    moment = datetime(2013, 1, 1, 5, tzinfo=UTC)

    document = json.loads(asked(sandbox, platform, sql).body)
    told = {"n": None, "d": "1.50", "at": "2013-01-01T05:00:00Z", "x": "NaN", "l": [1]}
    assert document["rows"] == [{"t": "ÅÄ", **told, "t_1": "a"}]
    assert (document["generation"], document["truncated"]) == (1, False)
    assert document["builds"]["flights"]["versions"]["delays"] == 0
    assert json.loads(asked(sandbox, platform, sql, Format.JSONL).body) == document["rows"][0]
    assert (
        asked(sandbox, platform, sql, Format.CSV).body.decode()
        == "t,n,d,at,x,l,t_1\nÅÄ,,1.50,2013-01-01T05:00:00Z,NaN,[1],a\n"
    )
    for table in (
        pa.ipc.open_stream(asked(sandbox, platform, sql, Format.ARROW).body).read_all(),
        pq.read_table(io.BytesIO(asked(sandbox, platform, sql, Format.PARQUET).body)),
    ):
        assert table.column_names == ["t", "n", "d", "at", "x", "l", "t_1"]
        assert [table[name][0].as_py() for name in ("t", "at", "l")] == ["ÅÄ", moment, [1]]


@pytest.mark.parametrize("odd", [0, 1])
def test_a_message_that_is_cut_within_a_character_is_told(
    sandbox: Sandbox, platform: Platform, odd: int
) -> None:
    # Python 3.11.2 loses such a message, and DuckDB's name of the error is left.
    text = f"'{',' + 'a' * odd + 'é' * 300}'"
    with pytest.raises(UsageError, match="Malformed JSON|InvalidInputException"):
        asked(sandbox, platform, f"select json_extract(t, '$') from (values ({text})) as texts(t)")


@pytest.mark.parametrize("form", Format)
def test_an_answer_that_has_too_many_rows_is_cut_and_says_so(
    sandbox: Sandbox, platform: Platform, form: Format
) -> None:
    whole = asked(sandbox, platform, "from range(1000)", form)
    cut = asked(sandbox, platform, "from range(1001)", form)
    endless = asked(sandbox, platform, "select * from range(1000000000000)", form, rows=3)

    assert [(each.rows, each.truncated) for each in (whole, cut, endless)] == [
        (1000, False),
        (1000, True),
        (3, True),
    ]


@pytest.mark.parametrize("form", Format)
def test_the_rows_of_a_union_of_joins_are_answered(
    sandbox: Sandbox, platform: Platform, form: Format
) -> None:
    """DuckDB 1.5 waits for ever for itself here if it returns rows while it computes them."""
    joined = "select k from range(1200000) as a(k) join range(1200000) as b(k) using (k)"
    reply = asked(sandbox, platform, f"{joined} union all {joined}", form)

    assert (reply.rows, reply.truncated) == (1000, True)


@pytest.mark.parametrize("form", Format)
def test_an_answer_that_has_too_many_bytes_is_cut_and_says_so(
    sandbox: Sandbox, platform: Platform, form: Format
) -> None:
    reply = asked(
        sandbox, platform, "select repeat(md5(range::varchar), 200) as x from range(900)", form
    )

    assert reply.truncated
    assert 0 <= reply.rows < 900
    assert reply.size <= sandbox.allowance.bytes + 10_000


def test_what_cannot_be_written_as_parquet_says_what_can_be_done(
    sandbox: Sandbox, platform: Platform
) -> None:
    with pytest.raises(UsageError) as told:
        asked(sandbox, platform, f"select 1{'0' * 38}::hugeint as i", Format.PARQUET)
    assert "column i holds 1000" in told.value.message
    assert "i::varchar" in told.value.message


@pytest.mark.parametrize(
    "sql",
    [
        "select length(lpad('x', 2000000000, 'y'))",
        "select length(repeat('x', 4000000000))",
        "select list(range) from range(100000000)",
        (
            "select count(*) from "
            "(select distinct range::varchar || repeat('x', 100) from range(20000000))"
        ),
    ],
)
def test_what_needs_too_much_memory_ends_in_its_own_process(
    tight: Sandbox, platform: Platform, sql: str
) -> None:
    with pytest.raises(TooMuch, match="memory") as told:
        asked(tight, platform, sql)

    assert "serve.query_memory" in told.value.hint
    assert asked(tight, platform, "select 1").rows == 1


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from range(100000000000)",
        "select count(*) from range(1000000) a, range(1000000) b where hash(a.range, b.range) = 1",
        "with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) from t",
        # It takes no time of a core.
        "select sleep_ms(3600000)",
    ],
)
def test_what_takes_too_long_is_ended_and_told_so(
    small: Sandbox, platform: Platform, sql: str
) -> None:
    begun = time.monotonic()
    with pytest.raises(TooMuch, match="took longer than 1 s") as told:
        asked(small, platform, sql)

    assert time.monotonic() - begun < 60
    assert "serve.query_seconds" in told.value.hint

    def is_answered() -> bool:
        # On a busy machine even that may take longer than a second.
        with suppress(TooMuch):
            return asked(small, platform, "select 1").rows == 1
        return False

    wait_until(is_answered, 60)


@pytest.mark.parametrize(
    "sql",
    [
        "select " + "(" * 100_000 + "1" + ")" * 100_000,
        "select " + "-" * 1 + " - ".join(["1"] * 50_000),
        "select " + "[" * 3000 + "]" * 3000,
    ],
)
def test_sql_that_is_nested_without_end_ends_no_server(
    sandbox: Sandbox, platform: Platform, sql: str
) -> None:
    with pytest.raises(KappaError):
        asked(sandbox, platform, sql)
    assert asked(sandbox, platform, "select 1").rows == 1


def asked_as(reader: str, sandbox: Sandbox, platform: Platform, sql: str) -> Answered:
    """Returns the answer for a reader of all tables, whose token has this name."""
    question = Question(sql, reader=identity_of(f"token {reader}", {Role.READ}))
    return Answered(sandbox.ask_query(platform.store, question))


def waiting(sandbox: Sandbox) -> list[int]:
    """Returns the process ids of the workers that wait for a query."""
    opened = sandbox._workers._opened.values()
    return [worker.pid for each in opened for worker in each.waiting]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_worker_answers_one_query_after_the_other(platform: Platform) -> None:
    """A worker is used again until it has answered a given number of queries."""
    with Sandbox(Allowance(seconds=60)) as sandbox:
        asked(sandbox, platform, "select 1")
        (pid,) = waiting(sandbox)
        sandbox._workers._most_queries = 3
        for _ in range(2):
            assert waiting(sandbox) == [pid]
            assert asked(sandbox, platform, "from delays").rows == 3

        assert waiting(sandbox) == []
        wait_until(lambda: is_gone(pid))
        asked(sandbox, platform, "select 1")
        assert waiting(sandbox) != [pid]


@pytest.mark.parametrize(
    "sql", ["from nowhere", "select 'x'::int", "select * from read_text('/etc/passwd')"]
)
def test_the_first_error_ends_the_worker(platform: Platform, sql: str) -> None:
    with Sandbox(Allowance(seconds=60)) as sandbox:
        asked(sandbox, platform, "select 1")
        (pid,) = waiting(sandbox)
        with pytest.raises(UsageError):
            asked(sandbox, platform, sql)

        assert waiting(sandbox) == []
        wait_until(lambda: is_gone(pid))
        assert asked(sandbox, platform, "select 1").rows == 1


def test_a_newer_frontier_ends_the_workers_before(tmp_path: Path) -> None:
    """The next query reads the newer frontier, in another process."""
    platform = Platform(Store(tmp_path))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    with Sandbox(Allowance(seconds=60)) as sandbox:
        assert rows(asked(sandbox, platform, "select count(*) from delays")) == [[3]]
        (pid,) = waiting(sandbox)
        platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)

        assert rows(asked(sandbox, platform, "select count(*) from delays")) == [[6]]
        wait_until(lambda: is_gone(pid))
        assert len(waiting(sandbox)) == 1


def test_queries_at_a_new_frontier_share_a_worker(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query waits for a busy worker for as long as a new worker would take."""
    monkeypatch.setattr(workers, "_MOST_WAIT", 60.0)
    with Sandbox(Allowance(seconds=60)) as sandbox, ThreadPoolExecutor(4) as threads:
        sandbox._workers._opening_seconds = 60.0
        asking = [threads.submit(asked, sandbox, platform, "from delays") for _ in range(8)]

        assert [each.result().rows for each in asking] == [3] * 8
        assert len(waiting(sandbox)) == 1


def test_two_readers_never_share_a_process(platform: Platform) -> None:
    with Sandbox(Allowance(seconds=60)) as sandbox:
        pids = []
        for reader in ("one", "two", "one"):
            before = set(waiting(sandbox))
            asked_as(reader, sandbox, platform, "select 1")
            pids.append(set(waiting(sandbox)) - before)

    assert [len(each) for each in pids] == [1, 1, 0]


# Queries that are allowed, and might leave something for a later query.
LEAVING = [
    "select setseed(0.25)",
    "select setseed(0.25), random() from range(3)",
    "with delays as (select 'evil' as carrier, 0 as flights) from delays",
    "with main as (select 1) select 1 as delays",
    "select * from delays order by random()",
    "select list(r) from (select random() as r from range(100000))",
    "select count(*) from range(300000) a join range(300000) b using (range)",
    "select repeat('x', 1000000)",
    "describe delays",
    "summarize delays",
    "select * from (values (1), (2)) as delays(carrier)",
    "select current_query(), current_query_id(), current_transaction_id()",
    "select * from (pivot delays on carrier in ('UA') using sum(flights))",
    "from range(1000000)",
]
HONEST = {
    "from delays order by carrier nulls last": [["UA", 3], ["ÅÄ", 4], [None, 5]],
    "select count(*) from busy": [[2]],
    "select current_setting_of from (select 1 as current_setting_of)": [[1]],
}


@pytest.mark.parametrize("left", LEAVING)
def test_nothing_passes_from_a_query_to_the_next(
    sandbox: Sandbox, platform: Platform, left: str
) -> None:
    """Two readers ask in turns; each answer is as if no other query had been asked."""
    with open_connection() as duck:
        duck.execute("select setseed(0.25)")
        seeded = [list(row) for row in duck.execute("select random()").fetchall()]
    for reader in ("one", "two", "one"):
        for sql, wanted in HONEST.items():
            asked_as(reader, sandbox, platform, left)
            assert rows(asked_as(reader, sandbox, platform, sql)) == wanted
        asked_as(reader, sandbox, platform, left)
        assert rows(asked_as(reader, sandbox, platform, "select random()")) != seeded


@pytest.mark.long
def test_hostile_queries_between_honest_ones(
    sandbox: Sandbox, unchecked: Sandbox, platform: Platform, world: World
) -> None:
    """Two readers send each attack between honest queries, with and without the first barrier."""

    def attack_as(reader: str, among: Sandbox) -> None:
        for number, attack in enumerate(ATTACKS):
            try:
                said = str(asked_as(reader, among, platform, world.told(attack)).body)
            except KappaError as error:
                said = str(error)
            assert SECRET not in said
            sql, wanted = [*HONEST.items()][number % len(HONEST)]
            assert rows(asked_as(reader, among, platform, sql)) == wanted, attack

    with ThreadPoolExecutor(4) as threads:
        for each in [
            threads.submit(attack_as, reader, among)
            for reader in ("one", "two")
            for among in (sandbox, unchecked)
        ]:
            each.result()
    world.ensure_untouched()


def test_each_query_has_the_whole_time_and_memory(platform: Platform) -> None:
    """Queries that use nearly the whole allowance are answered one after the other."""
    large = "select count(distinct range::varchar || 'some more text') from range(1000000)"
    with Sandbox(Allowance(memory=256 << 20, seconds=20)) as sandbox:
        for _ in range(4):
            assert rows(asked(sandbox, platform, large)) == [[1_000_000]]


def test_a_worker_that_was_killed_or_is_lost_with_all_others_is_replaced(
    sandbox: Sandbox, platform: Platform
) -> None:
    sandbox.start_processes()
    asked(sandbox, platform, "select 1")
    for child in tuple(sandbox._workers._spares):
        os.kill(child.pid, signal.SIGKILL)
    for pid in waiting(sandbox):
        os.kill(pid, signal.SIGKILL)
    assert asked(sandbox, platform, "select 1").rows == 1

    assert sandbox._workers._fork_server is not None
    sandbox._workers._fork_server._process.kill()
    sandbox._workers._fork_server._process.wait()
    assert asked(sandbox, platform, "select 1").rows == 1


def test_a_process_that_is_killed_at_work_is_told_of(tight: Sandbox, platform: Platform) -> None:
    tight.start_processes()
    pid = tight._workers._spares[0].pid

    def ticks() -> int:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])

    def kill_at_work() -> None:
        # So much of a core is used by its query alone.
        wait_until(lambda: ticks() > before + 50, 50)
        os.kill(pid, signal.SIGKILL)

    before = ticks()
    killing = threading.Thread(target=kill_at_work)
    killing.start()
    # No worker waits for this reader: the query has a new one.
    with pytest.raises(TooMuch, match="SIGKILL"):
        asked_as("alone", tight, platform, "select count(*) from range(100000000000)")
    killing.join()


def test_a_query_ends_when_its_client_leaves(platform: Platform) -> None:
    """A query ends when its client leaves, whether it is running or waiting in line."""
    asleep = Question("select sleep_ms(3600000)")
    with Sandbox(Allowance(seconds=60, at_once=1)) as sandbox, ThreadPoolExecutor(2) as threads:
        first, second = Client(), Client()
        working = threads.submit(sandbox.ask_query, platform.store, asleep, client=first)
        wait_until(lambda: not sandbox._slots._value)
        waiting = threads.submit(sandbox.ask_query, platform.store, asleep, client=second)
        begun = time.monotonic()
        second.leave_now()
        assert isinstance(waiting.exception(), ClientLeft)
        first.leave_now()
        assert isinstance(working.exception(), ClientLeft)
        with pytest.raises(ClientLeft):
            sandbox.ask_query(platform.store, asleep, client=first)

        assert asked(sandbox, platform, "select 1").rows == 1
        assert time.monotonic() - begun < 20


def test_a_late_answer_of_the_fork_server_names_no_other_child() -> None:
    """A late answer of the fork server for an abandoned child is not given to a later request."""
    nursery = ForkServer((str(SUPPORT / "late_fork_server.py"),), start_seconds=LATE_SECONDS / 3)
    given_up = 0
    while True:
        try:
            child = nursery.make_child()
        except KappaError:
            given_up += 1
            continue
        break
    signal.pidfd_send_signal(child.handle, signal.SIGKILL)

    child.way.settimeout(10)
    assert child.way.recv(1) == b"", "the process at the other end of this child's way is dead"
    assert given_up > 0
    child.end_process()
    nursery.end_server()


def test_the_folder_of_a_killed_server_is_deleted_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = str(SUPPORT / "late_fork_server.py")
    code = (
        "from kappa.serving.query.sandbox.processes import ForkServer\n"
        f"server = ForkServer(({program!r},))\n"
        "print('ready', flush=True)\ninput()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()
    (left,) = tmp_path.iterdir()

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    server = ForkServer((program,))
    try:
        (folder,) = tmp_path.iterdir()
        assert folder != left
    finally:
        server.end_server()
    assert list(tmp_path.iterdir()) == []


def test_many_ask_at_once_and_nothing_is_left_of_it(sandbox: Sandbox, platform: Platform) -> None:
    found: list[object] = []

    def ask(number: int) -> None:
        found.append(rows(asked(sandbox, platform, f"select {number} + count(*) * 0 from delays")))

    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(str(each) for each in found) == sorted(f"[[{number}]]" for number in range(12))
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) <= before + 8
    # The pin that queries share is given up when no query has come for a moment.
    wait_until(lambda: sorted_leases(platform.store, time.time()) == ((), ()))


def test_a_snapshot_that_is_kept_answers_again_what_it_answered(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    platform = Platform(Store(tmp_path))
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS})
    with pin_served(platform.store, lease_seconds=60) as pinned:
        platform.advance("flights-1", DELAYS, ROWS_OF_DELAYS)
        kept = Answered(
            sandbox.ask_pinned(platform.store, pinned, Question("select count(*) from delays"))
        )

    assert rows(kept) == [[3]]
    assert rows(asked(sandbox, platform, "select count(*) from delays")) == [[6]]


def test_a_view_that_cannot_be_made_costs_a_stranger_only_the_queries_that_name_it(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    platform = Platform(Store(tmp_path))
    views = {"top": "select carier from delays", "file": "from 'c.csv'"}
    platform.serve("flights", {DELAYS: ROWS_OF_DELAYS}, views=views)

    assert rows(asked(sandbox, platform, "select count(*) from delays")) == [[3]]
    with pytest.raises(UsageError, match=r'view top of pipeline flights.*"carier" not found'):
        asked(sandbox, platform, "from top")
    with pytest.raises(UsageError, match="view file of pipeline flights cannot be read"):
        asked(sandbox, platform, "from flights.file")


def test_where_nothing_serves_the_hint_says_so(sandbox: Sandbox, tmp_path: Path) -> None:
    platform = Platform(Store(tmp_path))

    assert rows(asked(sandbox, platform, "select 1")) == [[1]]
    with pytest.raises(UsageError) as told:
        asked(sandbox, platform, "from delays")
    assert "kappa deploy" in told.value.hint


def test_a_confined_process_reads_its_files_and_can_do_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("own", encoding="utf-8")
    (tmp_path / "other").write_text("other", encoding="utf-8")
    attempts: dict[str, Callable[[], object]] = {
        "own": lambda: (tmp_path / "own").read_text(encoding="utf-8"),
        "other": lambda: (tmp_path / "other").read_text(encoding="utf-8"),
        "passwd": lambda: Path("/etc/passwd").read_text(encoding="utf-8"),
        "environ": lambda: Path("/proc/self/environ").read_text(encoding="utf-8"),
        "list": lambda: list(tmp_path.iterdir()),
        "write": lambda: (tmp_path / "own").write_text("x", encoding="utf-8"),
        "new": lambda: (tmp_path / "new").write_text("x", encoding="utf-8"),
        "unlink": (tmp_path / "own").unlink,
        "rename": lambda: (tmp_path / "own").rename(tmp_path / "new"),
        "mkdir": (tmp_path / "new").mkdir,
        "chmod": lambda: (tmp_path / "own").chmod(0o777),
        "tcp": socket.socket,
        "udp": lambda: socket.socket(type=socket.SOCK_DGRAM),
        "unix": socket.socketpair,
        "fork": os.fork,
        "exec": lambda: os.execv("/bin/true", ["true"]),
        "kill": lambda: os.kill(os.getppid(), signal.SIGTERM),
        "chroot": lambda: os.chroot("/"),
        "limits": lambda: __import__("resource").setrlimit(7, (5, 5)),
        "thread": lambda: threading.Thread(target=lambda: None).start(),
    }
    assert outcomes(tmp_path, attempts) == {name: name in {"own", "thread"} for name in attempts}


def outcomes(folder: Path, attempts: dict[str, Callable[[], object]]) -> dict[str, bool]:
    """Runs each attempt in a confined child of this process; returns which ones succeed."""
    way, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = {}
        try:
            confine.limit_process(memory=1 << 28, cpu_seconds=5)
            confine.confine_process([str(folder / "own")])
            for name, attempt in attempts.items():
                try:
                    attempt()
                    told[name] = True
                except (OSError, ValueError):
                    told[name] = False
        # Any error is reported to the parent.
        except BaseException as error:  # noqa: BLE001
            told[repr(error)] = True
        os.write(end, json.dumps(told).encode())
        os._exit(0)
    os.close(end)
    os.waitpid(pid, 0)
    with os.fdopen(way, "rb") as pipe:
        return json.loads(pipe.read())


def test_a_tree_that_is_no_query_is_refused() -> None:
    for tree in (
        {"error": True},
        {"error": False, "statements": []},
        {"error": False, "statements": [{}, {}]},
        {},
    ):
        with pytest.raises(UsageError):
            ensure_allowed(tree, {("main", "delays")})
