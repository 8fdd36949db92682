"""A whole live platform, for cells that measure Kappa as users run it.

The platform is started by `kappa up` and `kappa deploy`. A producer sends events at a steady rate
(scripts/paced.py), and a probe repeats a query (scripts/probe.py). The pipeline computes the
bench's totals by key, or another task. All files are in one folder. The platform's processes are
identified by a mark in their environment.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bids import Input, bids
from cells import PARTITIONS, TASKS, Cell
from ground import say
from oracle import Oracle, Rows
from project import log_of, typed

from demo.processes.family import MARK, ensure_gone, members
from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.code.task import SPARES, spare_sockets
from kappa.kafka.broker.broker import partition_bytes
from kappa.kafka.client import Log
from kappa.replay.rollout.fold import fold_records
from kappa.serving.query.reader.relations import tables_of
from kappa.state.build import read_birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import open_store

TREE = Path(__file__).resolve().parents[1]
SCRIPTS = Path(__file__).with_name("scripts")
PIPELINE = "bench"
_PATIENCE_SECONDS = 900.0
_NAP_SECONDS = 0.1
_NEARLY = 50_000
_TICK = os.sysconf("SC_CLK_TCK")
_JOB = "kappa.engine.job.job"
# Whose CPU it is, by a word in the command of a process of its session.
_ROLES = {
    "kappa.engine.archive.archiver": "archiver",
    _JOB: "job",
    "kappa.serving.outlets.courier": "courier",
    "kafka.Kafka": "broker",
    # The bench's own producer and probe.
    "/bench/scripts/": "load",
}
# A job of another build than that which serves.
CANDIDATE = "candidate"
# The table's size is in the answer, so all of it is read.
ASKED = "select count(*), sum(bids)::bigint from totals"
_SETTINGS = """
[engine]
maintenance_seconds = 10
[verify]
law_records = 0
[serve]
listen = "{listen}"
# What is kept to look back on goes again within the run, and is not taken for what grows.
[history]
every_seconds = 10
keep_seconds = 120
# So often that a minute has its share of it.
[archive]
every_seconds = 5
# What was replaced folds no more beside what is measured.
[rollout]
soak = "1s"
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """The CPU seconds and resident bytes of some processes.

    Pages that processes share are counted in each process.
    """

    cpu: float
    resident: int


class Platform:
    """A project in the bench's folder, and the platform that runs it."""

    def __init__(self, home: Path, cell: Cell, *, listen: str = "", root: str = "") -> None:
        """Creates the project's folder. Nothing is started yet.

        `listen` is the address of the HTTP server, or "" for none. `root` contains lines of
        kappa.toml for a root that is not a folder, and for other settings of the cell.
        """
        self.folder = home / cell.name
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "pipelines").mkdir(parents=True)
        (self.folder / "kappa.toml").write_text(
            root + _SETTINGS.format(listen=listen), encoding="utf-8"
        )
        self.cell = cell
        self.mark = secrets.token_hex(8)
        self.environment = {
            **os.environ,
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(
                [str(TREE), *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }
        self.declare(0)
        self.store = open_store(load_settings(self.folder))

    def declare(self, number: int, *, archived: bool = False) -> None:
        """Writes the pipeline's file. Each `number` results in another version of the pipeline."""
        text = self.cell.fill(TASKS[self.cell.task].pipeline).replace(
            'key="bidder",', f'key="bidder", archive={archived},', 1
        )
        text = text.replace("def bench(bids):", f"def bench(bids):\n    version = {number}", 1)
        (self.folder / "pipelines" / f"{PIPELINE}.py").write_text(text, encoding="utf-8")

    def kappa(self, *arguments: str) -> str:
        """Runs a command and returns its output. Raises KappaError if the command fails."""
        return typed(self.folder, self.environment, *arguments)

    def turn_to(self, task: str, number: int) -> None:
        """Deploys another task's pipeline, and waits until the earlier build's job has ended."""
        self.cell = replace(self.cell, task=task)
        self.declare(number)
        # What readers of the one before had may be gone.
        self.kappa("deploy", "--yes", "--allow-breaking")
        self.wait_for_all()
        self._wait_for_rest()

    def _wait_for_rest(self) -> None:
        """Waits until one job runs, that of the serving build, and a spare is warm."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(self._jobs()) > 1 or not any(spare_sockets(self.store.local.path(SPARES))):
            if time.monotonic() > deadline:
                raise KappaError(f"{len(self._jobs())} jobs run, and a spare is not ready")
            time.sleep(_NAP_SECONDS)

    def _jobs(self) -> list[int]:
        return [each.pid for each in members(self.mark) if _JOB in each.command]

    @property
    def log(self) -> Log:
        return log_of(self.folder)

    @property
    def live(self) -> str:
        """Returns the build that serves."""
        return fold_records(Journal(self.store).after(0)).serving[PIPELINE]

    @contextmanager
    def up(self) -> Iterator[None]:
        """Runs the platform during the block, with the cell's events served.

        All processes of the platform are ended after the block.
        """
        try:
            self.kappa("up", "-d")
            self.kappa("topics", "create")
            self.log.produce(bids(0, self.cell.events, self.cell.keys), self.cell.topic)
            self.kappa("deploy", "--yes")
            self.wait_for_all()
            self._wait_for_rest()
            yield
            self.kappa("down")
        finally:
            ensure_gone(self.mark)

    def frontier(self) -> Frontier:
        """Returns the newest frontier of the build that serves."""
        newest = Frontiers(self.store, self.live).newest()
        assert newest is not None
        return newest

    def end(self) -> Offsets:
        """Returns the end offsets of the topic."""
        return self.log.end([self.cell.topic])

    def wait_for_all(self) -> None:
        """Waits until all events that are in the topic now are served."""
        end, deadline = self.end(), time.monotonic() + _PATIENCE_SECONDS
        while not self.frontier().offsets.covers(end):
            if time.monotonic() > deadline:
                raise KappaError(f"what serves has not come to {end}")
            time.sleep(_NAP_SECONDS)

    def archive_all(self) -> None:
        """Declares an archive for the topic, and waits until nearly the whole topic is archived."""
        self.declare(0, archived=True)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (
            behind := json.loads(self.kappa("archive", "status", "-o", "json"))[0]["behind"]
        ) is None or behind > _NEARLY:
            if time.monotonic() > deadline:
                raise KappaError(f"the archive is {behind} offsets behind")
            time.sleep(1.0)

    def served(self, table: str) -> str:
        """Returns SQL for the rows of a table as they are served now."""
        birth = read_birth(self.store, self.live)
        return f"({tables_of(birth, self.frontier(), self.store)[table].sql})"

    def is_right(self) -> bool:
        """Returns True if all served rows equal the oracle's. Prints any difference."""
        wrong = self.wrong()
        if wrong is not None:
            say(f"no figure: what serves is not the oracle's: {wrong}")
        return wrong is None

    def wrong(self, found: Rows | None = None) -> str | None:
        """Waits until all events are served, and compares the served rows with the oracle's rows.

        If `found` is given, its rows are compared instead of the served rows. Returns a text with
        the difference, or None if the rows are equal.
        """
        self.wait_for_all()
        log, topic, newest = self.log, self.cell.topic, self.frontier()
        facts = log.facts(topic)
        assert facts is not None
        size = sum(partition_bytes(self.store.local.folder, [topic]).get(topic, {}).values())
        given = Input(
            topic,
            facts.id,
            newest.offsets,
            sum(last for _, _, last in newest.offsets.items()),
            size,
        )
        # It consumes the log once per folder, and the log grows.
        oracle = self.folder / f"oracle-{newest.build}-{newest.number}"
        return Oracle(log.bootstrap_servers, given, self.cell, oracle, say).differences(
            found or {table: self.served(table) for table in TASKS[self.cell.task].wanted}
        )

    @contextmanager
    def live_events(
        self,
        rate: int,
        ledger: Path,
        answers: Path,
        query: str = ASKED,
        *,
        producer: str = "paced",
    ) -> Iterator[None]:
        """Sends events at a steady rate and repeats a query during the block.

        `producer` names the script that sends the events. This script writes the file `ledger`, and
        the probe writes the file `answers`.
        """
        with self.script("probe", str(self.folder), PIPELINE, str(answers), query) as probe:
            with self.sent_events(rate, ledger, producer=producer):
                yield
            # However late the last one is seen, it counts.
            self.wait_for_all()
            end, deadline = self.end(), time.monotonic() + _PATIENCE_SECONDS
            # A probe that has ended is told by `script`.
            while probe.poll() is None and not _last_answer(answers).covers(end):
                if time.monotonic() > deadline:
                    raise KappaError(f"no answer has come to {end}")
                time.sleep(_NAP_SECONDS)

    def sent_events(
        self, rate: int, ledger: Path, *, producer: str = "paced"
    ) -> AbstractContextManager[object]:
        """Sends events at a steady rate during the block.

        `producer` names the script that sends the events. This script records the sent events in
        the file `ledger`.
        """
        servers, cell = self.log.bootstrap_servers, self.cell
        where = (servers, cell.topic, str(PARTITIONS), str(cell.keys))
        return self.script(producer, *where, str(rate), str(ledger))

    def script(self, name: str, *arguments: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Runs a script during the block, with the platform's environment."""
        return running_script(self.folder, self.environment, name, *arguments)

    def taken(self) -> Mapping[str, Taken]:
        """Returns the CPU time and memory of the running processes, by role.

        The CPU time of a process includes that of its children that have exited.
        """
        live = f"--build {self.live} "
        ticks: Counter[int] = Counter()
        resident: Counter[int] = Counter()
        roles: dict[int, str] = {}
        for member in members(self.mark):
            try:
                fields = (
                    Path(f"/proc/{member.pid}/stat")
                    .read_text(encoding="utf-8", errors="replace")
                    .rpartition(")")[2]
                    .split()
                )
            except OSError:
                continue
            # Each of the platform's children leads a session (proc_pid_stat(5)).
            session = int(fields[3])
            ticks[session] += sum(map(int, fields[11:15]))
            resident[session] += member.resident
            role = next((role for word, role in _ROLES.items() if word in member.command), None)
            if role is not None:
                is_live = role != "job" or live in member.command
                roles[session] = role if is_live else CANDIDATE
        own = {
            role: [session for session in ticks if roles.get(session) == role]
            for role in (*_ROLES.values(), CANDIDATE)
        }
        return {
            role: Taken(
                sum(ticks[each] for each in sessions) / _TICK,
                sum(resident[each] for each in sessions),
            )
            for role, sessions in own.items()
        }


@contextmanager
def running_script(
    folder: Path, environment: Mapping[str, str], name: str, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a script during the block. Raises KappaError if its exit code is not 0.

    The script must exit when its standard input is closed.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
        )
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()
            code = process.wait(_PATIENCE_SECONDS)
    if code != 0:
        raise KappaError(f"{name} ended with {code}: {log.read_text(errors='replace')[-500:]}")


def _last_answer(answers: Path) -> Offsets:
    """Returns the offsets of the newest complete answer in the probe's file.

    The last line of the file may be incomplete, so the line before it is used.
    """
    lines = answers.read_text(encoding="utf-8").splitlines() if answers.exists() else []
    return Offsets.parse(json.loads(lines[-2])["offsets"]) if len(lines) > 1 else Offsets()
