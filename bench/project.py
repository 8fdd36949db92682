"""A small project on a whole platform: runs commands, sends events, and checks served rows."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from demo.processes.family import MARK, ensure_gone
from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.code.task import SPARES, spare_sockets
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.replay.status.run_records import running
from kappa.serving.query.query import answer_query
from kappa.state.store import Store

TREE = Path(__file__).resolve().parents[1]
_PATIENCE_SECONDS = 300.0
# A deploy replays all of a large log.
_COMMAND_SECONDS = 900.0
_NAP_SECONDS = 0.01
_EMPTY_SESSION = """
from pyspark.sql import SparkSession
SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
"""
_PIPELINE = """
from kappa import Table, Topic, count, pipeline, sum_

VISITS = Topic("{name}", key="path", event="path string not null, ms int")
FOLD = {{"visits": count(), "ms": sum_("ms")}}


@pipeline(reads={{"visits": VISITS}}, writes=[Table("hits_{name}", keys=("path",), fold=FOLD)])
def {name}(visits):
    return {{"hits_{name}": visits.where("ms >= {least}")}}
"""


class Project:
    """A project whose pipelines count the visits of 50 pages, and sum the visits' milliseconds.

    Each pipeline ignores visits that are shorter than a minimum.
    """

    def __init__(self, folder: Path, settings: str = "") -> None:
        """Creates the project's folder, after deleting an old one. Nothing is started yet."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "pipelines").mkdir(parents=True)
        (folder / "kappa.toml").write_text(f'[serve]\nlisten = ""\n{settings}', encoding="utf-8")
        self.folder = folder
        self.mark = secrets.token_hex(8)
        self.environment = {**os.environ, MARK: self.mark, "PYTHONPATH": str(TREE)}
        self.store = Store(load_settings(folder).root_url)
        self._sent: list[tuple[str, str, int]] = []
        self._least: dict[str, int] = {}

    def declare(self, name: str, *, least: int = 0) -> None:
        """Writes a pipeline's file. A different `least` gives a different version of the pipeline.

        The pipeline ignores visits of fewer than `least` milliseconds.
        """
        self._least[name] = least
        (self.folder / "pipelines" / f"{name}.py").write_text(
            _PIPELINE.format(name=name, least=least), encoding="utf-8"
        )

    def send(self, name: str, events: int) -> None:
        """Sends `events` events to the topic `name`, and waits until they are acknowledged."""
        begun = len(self._sent)
        sent = [(name, f"/{number % 50}", number) for number in range(begun, begun + events)]
        self.log.produce(
            (
                ProducedRecord(f'{{"path":"{path}","ms":{ms}}}'.encode(), key=path.encode())
                for _, path, ms in sent
            ),
            name,
        )
        self._sent += sent

    def kappa(self, *arguments: str) -> float:
        """Runs a command, and returns the seconds that it took. Raises KappaError if it fails."""
        begun = time.monotonic()
        self.typed(*arguments)
        return time.monotonic() - begun

    def typed(self, *arguments: str) -> str:
        """Runs a command and returns its output. Raises KappaError if the command fails."""
        return typed(self.folder, self.environment, *arguments)

    @property
    def log(self) -> Log:
        """Returns a client of the broker."""
        return log_of(self.folder)

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Ends all processes of the project when the block ends."""
        try:
            yield
            self.kappa("down")
        finally:
            ensure_gone(self.mark)

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Waits until `until` returns True.

        Raises KappaError after five minutes, with `what` in its message.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not until():
            if time.monotonic() > deadline:
                raise KappaError(f"{what} did not come", hint=f"see {self.folder}/.kappa/logs")
            time.sleep(_NAP_SECONDS)

    def wait_for_spares(self, count: int = 1) -> None:
        """Waits until `count` spares are warm."""
        self.wait(lambda: len([*spare_sockets(self.store.path(SPARES))]) >= count, "the spares")

    def seconds_until_seen(self, *names: str) -> float:
        """Sends an event to each pipeline. Returns the seconds until queries show all of them."""
        before, begun = {name: self._visits(name) for name in names}, time.monotonic()
        for name in names:
            self.send(name, 1)
        for name in names:
            self.wait(lambda name=name: self._visits(name) > before[name], "the event's sight")
        return time.monotonic() - begun

    def wrong(self, name: str) -> str | None:
        """Compares the served rows with DuckDB's result over the events.

        Returns a text with the difference, or None if the rows are equal.
        """
        columns = f"select path, visits::bigint as visits, ms::bigint as ms from hits_{name}"
        served = sorted(answer_query(self.store, columns).rows)
        with duckdb.connect() as oracle:
            oracle.execute("create table sent (name text, path text, ms bigint)")
            oracle.executemany("insert into sent values (?, ?, ?)", self._sent)
            wanted = oracle.execute(
                "select path, count(*), sum(ms)::bigint from sent where name = ? and ms >= ?"
                " group by path order by path",
                [name, self._least[name]],
            ).fetchall()
        return None if served == wanted else f"{len(served)} rows for {len(wanted)}"

    def _visits(self, name: str) -> int:
        (row,) = answer_query(self.store, f"select sum(visits)::bigint from hits_{name}").rows
        return int(row[0])


def typed(folder: Path, environment: Mapping[str, str], *arguments: str) -> str:
    """Runs a command in a project's folder and returns its output.

    Raises KappaError if the command fails.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cli", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=_COMMAND_SECONDS,
    )
    if done.returncode != 0:
        raise KappaError(
            f"kappa {' '.join(arguments)} ended with {done.returncode}: {done.stdout} {done.stderr}"
        )
    return done.stdout


def log_of(folder: Path) -> Log:
    """Returns a client of the broker that a project's running platform uses.

    Raises KappaError if the platform is not running.
    """
    found = running(load_settings(folder))
    if found is None:
        raise KappaError("the platform has ended", hint=f"see {folder}/.kappa/logs")
    return Log(found.bootstrap_servers)


def empty_session() -> float:
    """Starts an empty Spark session with PySpark, and returns the duration in seconds."""
    return seconds_of(sys.executable, "-c", _EMPTY_SESSION)


def seconds_of(*command: str) -> float:
    """Runs a program and returns its duration in seconds. The program must succeed."""
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return time.monotonic() - begun


def private_and_shared(pids: Sequence[int]) -> tuple[int, int]:
    """Returns the private bytes of the given processes, and their share of shared memory in bytes.

    Both numbers are sums over the processes. Memory that several processes share is divided among
    them. See proc_pid_smaps(5).
    """
    private = shared = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
            name, _, size = line.partition(":")
            if name == "Pss":
                shared += int(size.split()[0]) * 1024
            elif name.startswith("Private_") and name != "Private_Hugetlb":
                private += int(size.split()[0]) * 1024
    return private, shared - private
