"""Measures queries over HTTP and by Postgres clients, compared with DuckDB and PostgreSQL.

    python bench --cell serve

The whole platform runs as users run it. One pipeline folds 1,000 events a second during the whole
measurement, so its frontier advances. Another pipeline has three tables, with 300,000 rows, with a
million rows, and with as many rows as there are events. 1, 4 and 16 clients run two queries in a
closed loop: one query reads the row of a random key, the other is a group by over the million rows.
The same queries are run with DuckDB on the same files. If PostgreSQL is installed, they are also
run on a copy of the tables with an index. All servers must return the same rows.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.request import Request, urlopen

import duckdb
import psycopg
from cells import Cell
from ground import say
from living import SCRIPTS, Platform
from screen import Report, table

from demo.processes.family import members
from kappa.base.errors import KappaError
from kappa.kafka.broker.broker import free_ports
from kappa.kafka.producer import ProducedRecord
from kappa.replay.rollout.fold import fold_records
from kappa.replay.status.run_records import served_at
from kappa.serving.query.reader.relations import tables_of
from kappa.state.build import read_birth
from kappa.state.frontier import Frontiers
from kappa.state.journal.journal import Journal

CLIENTS = (1, 4, 16)
RATE = 1_000
_SECONDS = 10.0
_TICK = os.sysconf("SC_CLK_TCK")
_FACTS = """
from kappa import Table, Topic, count, pipeline, sum_

FACTS = Topic("facts", key="k", partitions=4, event="k bigint not null, v bigint not null")
FOLD = {{"n": count(), "total": sum_("v")}}


@pipeline(
    reads={{"facts": FACTS}},
    writes=[
        Table("small", keys=("k",), fold=FOLD),
        Table("million", keys=("k",), fold=FOLD),
        Table("large", keys=("k",), fold=FOLD),
    ],
)
def facts(facts):
    return {{
        "small": facts.where("k < {small}"),
        "million": facts.where("k < {million}"),
        "large": facts,
    }}
"""
_GROUPED = "select k % 100 as part, sum(total)::bigint as total from million group by 1 order by 1"


@dataclass(frozen=True, slots=True)
class Loop:
    """The measurements of one closed loop: server, query, number of clients, latencies in seconds.

    `who` is the server: `kappa` for HTTP, `wire` for Kappa's server for Postgres clients, and
    `duckdb` or `postgres` for comparison. `cpu` is the CPU time per answer in seconds, summed over
    all processes that answer, or None if it is not known.
    """

    who: str
    what: str
    clients: int
    a_second: float
    p50: float
    p99: float
    cpu: float | None


def main(home: Path, events: int) -> Report | None:
    """Measures all closed loops. Returns None if the servers returned different rows."""
    sizes = {
        "small": min(300_000, events),
        "million": min(1_000_000, events),
        "large": events,
    }
    cell = Cell("serve", "totals", sizes["small"], sizes["small"], 1, ())
    port, _ = free_ports(None)
    wire = f'[serve.postgres]\nlisten = "127.0.0.1:{port}"\n'
    platform = Platform(home, cell, listen="127.0.0.1:0", root=wire)
    dsn = f"postgresql://bench@127.0.0.1:{port}/kappa"
    loops: list[Loop] = []
    with platform.up():
        _serve_facts(platform, sizes)
        views, url = _views_of(platform, sizes), served_at(platform.store)
        assert url is not None, "the platform serves HTTP"
        with _postgres(views, sizes) as pg:
            if wrong := _difference(url, dsn, views, pg, sizes):
                say(f"no figure: {wrong}")
                return None
            with platform.sent_events(RATE, platform.folder / "sent.parquet"):
                time.sleep(_SECONDS)
                for what, keys, sql in _questions(sizes):
                    for clients in CLIENTS:
                        loops += _all_ways(platform, url, dsn, views, pg, what, keys, sql, clients)
    shutil.rmtree(platform.folder)
    return _report(sizes, loops)


def _questions(sizes: Mapping[str, int]) -> Iterator[tuple[str, int, str]]:
    for name in ("small", "large"):
        yield f"a row of {sizes[name]:,}", sizes[name], f"select * from {name} where k = {{key}}"
    yield f"group by over {sizes['million']:,}", 1, _GROUPED


def _serve_facts(platform: Platform, sizes: Mapping[str, int]) -> None:
    (platform.folder / "pipelines" / "facts.py").write_text(_FACTS.format(**sizes))
    platform.kappa("topics", "create")
    platform.log.produce(
        (
            ProducedRecord(b'{"k":%d,"v":%d}' % (k, k * 7 % 1000), key=b"%d" % k)
            for k in range(sizes["large"])
        ),
        "facts",
    )
    platform.kappa("deploy", "--yes")
    say(f"{sizes['large']:,} rows serve")


def _views_of(platform: Platform, sizes: Mapping[str, int]) -> str:
    """Returns SQL statements that create views in DuckDB over the served files."""
    build = fold_records(Journal(platform.store).after(0)).serving["facts"]
    newest = Frontiers(platform.store, build).newest()
    assert newest is not None
    tables = tables_of(read_birth(platform.store, build), newest, platform.store)
    return "; ".join(f"create view {name} as {tables[name].sql}" for name in sizes)


def _difference(url: str, dsn: str, views: str, pg: Path | None, sizes: Mapping[str, int]) -> str:
    """Compares some rows of all servers. Returns a text with the difference, or ""."""
    with duckdb.connect() as duck:
        duck.execute(views)
        for name, rows in sizes.items():
            keys = ", ".join(str(rows * part // 7) for part in range(7))
            for sql in (
                f"select k, n, total from {name} where k in ({keys}) order by k",
                f"select count(*) as n, sum(total)::bigint as total from {name}",
            ):
                wanted = [[int(each) for each in row] for row in duck.execute(sql).fetchall()]
                for who, found in (
                    ("kappa", _asked(url, sql)),
                    ("kappa's Postgres", _asked_by_wire(dsn, sql)),
                    ("postgres", wanted if pg is None else _psql(pg, sql)),
                ):
                    if found != wanted:
                        return f"{who} gives {found} for {wanted}: {sql}"
    return ""


def _asked(url: str, sql: str) -> list[list[int]]:
    request = Request(f"{url}/api/v1/query", sql.encode(), {"Content-Type": "application/sql"})
    with urlopen(request) as answer:
        rows = json.load(answer)["rows"]
    return [[int(each) for each in row.values()] for row in rows]


def _asked_by_wire(dsn: str, sql: str) -> list[list[int]]:
    with psycopg.connect(dsn) as connection:
        return [[int(each) for each in row] for row in connection.execute(sql).fetchall()]


def _all_ways(
    platform: Platform,
    url: str,
    dsn: str,
    views: str,
    pg: Path | None,
    what: str,
    keys: int,
    sql: str,
    clients: int,
) -> Iterator[Loop]:
    yield _loop(what, clients, "kappa", url, keys, sql, lambda: _server_cpu(platform))
    yield _loop(what, clients, "wire", dsn, keys, sql, lambda: _server_cpu(platform))
    yield _loop(what, clients, "duckdb", views, keys, sql)
    if pg is not None:
        yield _bench_postgres(pg, what, clients, keys, sql)


def _loop(
    what: str,
    clients: int,
    way: str,
    target: str,
    keys: int,
    sql: str,
    cpu: Callable[[], float] | None = None,
) -> Loop:
    before = None if cpu is None else cpu()
    done = subprocess.run(
        [
            sys.executable,
            str(SCRIPTS / "ask_load.py"),
            *(way, target, str(clients), str(_SECONDS), str(keys), sql),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    took: dict[str, Any] = json.loads(done.stdout)
    if took["errors"] or not took["answers"]:
        raise KappaError(f"{way} gave no answer: {took['errors']}")
    # The second that warms up has as many answers as any other.
    asked = took["answers"] * (1 + 1 / _SECONDS)
    used = took["cpu"] / took["answers"] if cpu is None else (cpu() - (before or 0.0)) / asked
    found = Loop(
        way, what, clients, took["answers"] / took["seconds"], took["p50"], took["p99"], used
    )
    say(_told(found))
    return found


def _server_cpu(platform: Platform) -> float:
    """Returns the CPU seconds that the server and its query processes have used so far."""
    (server,) = [
        each.pid for each in members(platform.mark) if "kappa.replay.platform.serve" in each.command
    ]
    fields = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            fields[int(entry.name)] = stat.rpartition(")")[2].split()
    family = {server}
    while more := {pid for pid, each in fields.items() if int(each[1]) in family} - family:
        family |= more
    # A worker that has ended counts for the process that has forked it.
    return sum(sum(map(int, fields[pid][11:15])) for pid in family if pid in fields) / _TICK


@contextmanager
def _postgres(views: str, sizes: Mapping[str, int]) -> Iterator[Path | None]:
    """Runs PostgreSQL with copies of the tables during the block. Yields the folder of its socket.

    Yields None if PostgreSQL is not installed on this machine.
    """
    tools = [shutil.which(each) for each in ("initdb", "postgres", "psql", "pgbench")]
    if not all(tools):
        say("PostgreSQL is not measured: this machine lacks initdb, postgres, psql or pgbench")
        yield None
        return
    # PostgreSQL refuses to run as root, and another user does not get into the bench's folder.
    user: dict[str, Any] = {} if os.getuid() else {"user": "postgres"}
    folder = Path(mkdtemp(prefix="kappa-postgres-"))
    if user:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    subprocess.run(
        ["initdb", "-D", str(data), "-A", "trust", "-U", "bench"],
        check=True,
        stdout=subprocess.DEVNULL,
        **user,
    )
    with (folder / "log").open("wb") as said:
        process = subprocess.Popen(
            [
                "postgres",
                "-D",
                str(data),
                "-k",
                str(folder),
                "-h",
                "",
                "-c",
                "shared_buffers=512MB",
            ],
            stdout=said,
            stderr=said,
            **user,
        )
    try:
        deadline = time.monotonic() + 60
        while not (folder / ".s.PGSQL.5432").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise KappaError("PostgreSQL does not start", hint=f"see {folder / 'log'}")
            time.sleep(0.1)
        with duckdb.connect() as duck:
            duck.execute(views)
            for name in sizes:
                rows = folder / f"{name}.csv"
                duck.execute(f"copy (select k, n, total from {name}) to '{rows}' (header false)")
                _psql(folder, f"create table {name} (k bigint, n bigint, total bigint)")
                _psql(folder, f"\\copy {name} from '{rows}' csv")
                _psql(folder, f"create unique index on {name} (k)")
                _psql(folder, f"vacuum analyze {name}")
        yield folder
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _psql(pg: Path, sql: str) -> list[list[int]]:
    done = subprocess.run(
        ["psql", "-h", str(pg), "-U", "bench", "-d", "postgres", "-qAtc", sql],
        check=True,
        capture_output=True,
        text=True,
    )
    return [[int(each) for each in line.split("|")] for line in done.stdout.splitlines()]


def _bench_postgres(pg: Path, what: str, clients: int, keys: int, sql: str) -> Loop:
    script, log = pg / "script.sql", pg / "took"
    text = sql.replace("{key}", ":key")
    script.write_text(f"\\set key random(0, {keys - 1})\n{text};\n", encoding="utf-8")
    for old in pg.glob("took.*"):
        old.unlink()
    subprocess.run(
        [
            *("pgbench", "-h", str(pg), "-U", "bench", "-n", "-M", "prepared"),
            *("-c", str(clients), "-T", str(int(_SECONDS)), "-f", str(script)),
            *("-l", "--log-prefix", str(log), "postgres"),
        ],
        check=True,
        capture_output=True,
    )
    taken = sorted(
        int(line.split()[2]) / 1e6
        for each in pg.glob("took.*")
        for line in each.read_text(encoding="utf-8").splitlines()
    )
    found = Loop(
        "postgres",
        what,
        clients,
        len(taken) / _SECONDS,
        taken[len(taken) // 2],
        taken[len(taken) * 99 // 100],
        None,
    )
    say(_told(found))
    return found


def _told(loop: Loop) -> str:
    cpu = "" if loop.cpu is None else f", {loop.cpu * 1e3:.1f} ms of CPU each"
    return (
        f"{loop.who}, {loop.what}, {loop.clients} clients: {loop.a_second:,.0f} a second, p50 "
        f"{loop.p50 * 1e3:.1f} ms, p99 {loop.p99 * 1e3:.1f} ms{cpu}"
    )


def _report(sizes: Mapping[str, int], loops: list[Loop]) -> Report:
    heading = (
        *("question", "clients", "who", "answers/s", "p50, ms", "p99, ms", "CPU ms/answer"),
        "answers/s of a core",
    )
    rows = (
        (
            *(each.what, str(each.clients), each.who, f"{each.a_second:,.0f}"),
            *(f"{each.p50 * 1e3:.1f}", f"{each.p99 * 1e3:.1f}"),
            *(
                ("", "")
                if each.cpu is None
                else (f"{each.cpu * 1e3:.1f}", f"{1 / max(each.cpu, 1e-6):,.0f}")
            ),
        )
        for each in loops
    )
    kappa = [each for each in loops if each.who in {"kappa", "wire"}]
    line = "; ".join(
        f"{each.who}, {each.what}, {each.clients} clients: p50 {each.p50 * 1e3:.1f} ms, p99 "
        f"{each.p99 * 1e3:.1f} ms, {1 / max(each.cpu or 0.0, 1e-6):.0f}/s of a core"
        for each in kappa
    )
    return Report(
        f"bench serve, {sizes['large']} rows: {line}",
        {"rows": sizes, "loops": loops},
        f"{table(heading, rows, words=(0, 2))}\n\nBeside it {RATE:,} events a second.",
    )
