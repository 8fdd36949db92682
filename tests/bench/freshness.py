"""How fresh answers are: from when an event is sent until it is in the answer of a query. `python tests/bench --cell freshness`.

The whole platform runs as users run it, with totals by key over a topic that is archived: `kappa up`, `kappa deploy`. A producer sends at a
steady rate, and a probe asks a query again and again, each a process of its own; at each rate alone, and then, at the lowest, while a
candidate replays the whole log beside. A replay with nothing else going on says how fast that is alone, and a stream that does
nothing what a micro-batch takes here. No figure without its result: what is served in the end must be the oracle's.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq
from bids import Input, bids
from cells import PARTITIONS, TASKS, Cell
from ground import under
from kappa_job import warm_in
from oracle import Oracle
from rivals import read_parquet
from screen import Report

from demo.family import MARK, ensure_gone, members
from demo.freshness import Freshness, measure
from kappa.build import table_path
from kappa.delta import files
from kappa.errors import KappaError
from kappa.frontier import Frontiers
from kappa.journal import Journal
from kappa.log.client import Log
from kappa.log.sizes import partition_bytes
from kappa.offsets import Offsets
from kappa.settings import load_settings
from kappa.store import Store
from replay.rollout import fold
from replay.supervisor import running

TREE = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).with_name("scripts")
RATES = (1_000, 10_000)
KEYS = 16_384
_PIPELINE = "bench"
_SECONDS = 60.0
# From the first event of a producer on, everything is warm.
_WARM_SECONDS = 15.0
_PATIENCE_SECONDS = 900.0
_NAP_SECONDS = 0.1
_TICK = os.sysconf("SC_CLK_TCK")
# Whose CPU it is, by a word in the command of a process of its session.
_ROLES = {"kappa.engine.archiver": "archiver", "kappa.engine.job": "job", "kafka.Kafka": "broker"}
# The table's size is in the answer, so all of it is read.
_ASKED = "select count(*), sum(bids)::bigint from totals"
_SETTINGS = """
[engine]
maintenance_seconds = 10
[verify]
law_records = 0
[serve]
listen = ""
"""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stretch of live running: events a second, how fresh answers to them were, CPU seconds per event of jobs, and of the archiver, and answers a second."""

    rate: int
    beside: str
    freshness: Freshness
    job: float
    archiver: float
    answers: float


@dataclass(frozen=True, slots=True)
class Found:
    """All that was measured: seconds of an empty micro-batch, stretches, and warm replays in events a second, alone and beside live events."""

    events: int
    empty: float
    stretches: tuple[Stretch, ...]
    replay_alone: float
    replay_beside: float
    load: float


class _Platform:
    """A project under the bench's home, and what runs of it."""

    def __init__(self, home: Path, cell: Cell) -> None:
        self.folder = home / "freshness"
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "pipelines").mkdir(parents=True)
        (self.folder / "kappa.toml").write_text(_SETTINGS, encoding="utf-8")
        self.cell = cell
        self.mark = secrets.token_hex(8)
        self.environment = {**os.environ, MARK: self.mark, "PYTHONPATH": os.pathsep.join([str(TREE), *filter(None, [os.environ.get("PYTHONPATH")])])}
        self.declare(0)
        self.store = Store(load_settings(self.folder).root_url)

    def declare(self, number: int) -> None:
        """Writes the pipeline, archived; of each number it is another version."""
        text = self.cell.fill(TASKS[self.cell.task].pipeline).replace('key="bidder",', 'key="bidder", archive=True,', 1)
        text = text.replace("def bench(bids):", f"def bench(bids):\n    version = {number}", 1)
        (self.folder / "pipelines" / f"{_PIPELINE}.py").write_text(text, encoding="utf-8")

    def kappa(self, *arguments: str) -> None:
        """Runs a command, which must succeed."""
        command = [sys.executable, "-P", "-m", "cli", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=_PATIENCE_SECONDS)
        if done.returncode != 0:
            raise KappaError(f"kappa {' '.join(arguments)} ended with {done.returncode}: {done.stdout} {done.stderr}")

    @property
    def log(self) -> Log:
        found = running(load_settings(self.folder))
        if found is None:
            raise KappaError("the platform has ended", hint=f"see {self.folder}/.kappa/logs")
        return Log(found.bootstrap_servers)

    @property
    def live(self) -> str:
        """The build that serves."""
        return fold(Journal(self.store).after(0)).serving[_PIPELINE]

    def frontier(self) -> Offsets:
        """Up to where what serves has come."""
        newest = Frontiers(self.store, self.live).newest()
        return Offsets() if newest is None else newest.offsets

    def wait_for(self, end: Offsets) -> None:
        """Waits until all of it serves."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.frontier().covers(end):
            if time.monotonic() > deadline:
                raise KappaError(f"what serves has not come to {end}")
            time.sleep(_NAP_SECONDS)

    @contextmanager
    def script(self, name: str, *arguments: str) -> Iterator[None]:
        """Runs a script beside the block; it ends with it, and must end well."""
        with (self.folder / f"{name}.log").open("wb") as said:
            process = subprocess.Popen([sys.executable, str(SCRIPTS / f"{name}.py"), *arguments], env=self.environment, stdin=subprocess.PIPE, stdout=said, stderr=said)
            assert process.stdin is not None
            try:
                yield
            finally:
                process.stdin.close()
                code = process.wait(_PATIENCE_SECONDS)
        if code != 0:
            raise KappaError(f"{name} ended with {code}: {(self.folder / f'{name}.log').read_text(errors='replace')[-500:]}")

    def cpu(self) -> Mapping[str, float]:
        """CPU seconds that living processes have taken, by role; children that were reaped count for who has reaped them."""
        taken: Counter[int] = Counter()
        roles: dict[int, str] = {}
        for member in members(self.mark):
            try:
                fields = Path(f"/proc/{member.pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            session = int(fields[3])
            taken[session] += sum(map(int, fields[11:15]))
            role = next((role for word, role in _ROLES.items() if word in member.command), None)
            if role is not None:
                roles[session] = role
        found: Counter[str] = Counter()
        for session, ticks in taken.items():
            found[roles.get(session, "other")] += ticks
        return {role: ticks / _TICK for role, ticks in found.items()}


def main(home: Path, events: int) -> Report | None:
    """Measures all of it; None where the result was not the oracle's."""
    cell = Cell("freshness", "totals", events, KEYS, 1, ())
    load = os.getloadavg()[0]
    platform = _Platform(home, cell)
    try:
        empty = _empty_batch(platform)
        _say(f"an empty micro-batch takes {empty * 1000:.0f} ms")
        platform.kappa("up", "-d")
        platform.kappa("topics", "create")
        log = platform.log
        log.produce(bids(0, events, KEYS), cell.topic)
        platform.kappa("deploy", "--yes")
        platform.wait_for(log.end([cell.topic]))
        _say(f"{events:,} events serve")
        stretches = [_stretch(platform, rate, "nothing", lambda: time.sleep(_SECONDS)) for rate in RATES]
        alone = _replay(platform, 1)
        rates: list[float] = []
        stretches.append(_stretch(platform, RATES[0], "a replay", lambda: rates.append(_replay(platform, 2))))
        facts, end = log.facts(cell.topic), log.end([cell.topic])
        assert facts is not None
        platform.wait_for(end)
        size = sum(partition_bytes(platform.store.folder, [cell.topic])[cell.topic].values())
        given = Input(cell.topic, facts.id, end, sum(last for _, _, last in end.items()), size)
        newest = Frontiers(platform.store, platform.live).newest()
        assert newest is not None
        path = table_path(platform.store, platform.live, "totals")
        wrong = Oracle(log.bootstrap_servers, given, cell, platform.folder / "oracle", _say).differences({"totals": read_parquet(files(path, newest.versions["totals"]))})
        platform.kappa("down")
    finally:
        ensure_gone(platform.mark)
    if wrong is not None:
        _say(f"no figure: what serves is not the oracle's: {wrong}")
        return None
    shutil.rmtree(platform.folder)
    found = Found(events, empty, tuple(stretches), alone, rates[0], load)
    return Report(_line(found), json.dumps(asdict(found), indent=1), _page(found))


def _empty_batch(platform: _Platform) -> float:
    folder = platform.folder / "empty"
    folder.mkdir()
    with (platform.folder / "empty.log").open("wb") as said:
        done = subprocess.run([sys.executable, str(SCRIPTS / "empty_batches.py"), str(folder)], env=platform.environment, stdout=subprocess.PIPE, stderr=said, check=True)
    return float(json.loads(done.stdout)["median"])


def _stretch(platform: _Platform, rate: int, beside: str, meanwhile: Callable[[], object]) -> Stretch:
    """Live events at a rate, for as long as `meanwhile` takes after a while in which all warms up."""
    name = f"{rate}-{secrets.token_hex(2)}"
    ledger, answers = platform.folder / f"{name}.parquet", platform.folder / f"{name}.jsonl"
    with (
        platform.script("paced", platform.log.bootstrap_servers, platform.cell.topic, str(PARTITIONS), str(KEYS), str(rate), str(ledger)),
        platform.script("probe", str(platform.store.folder), _PIPELINE, str(answers), _ASKED),
    ):
        time.sleep(_WARM_SECONDS)
        before, since = platform.cpu(), time.monotonic()
        meanwhile()
        after, until = platform.cpu(), time.monotonic()
    platform.wait_for(platform.log.end([platform.cell.topic]))
    sent: dict[int, list[tuple[int, float]]] = {}
    for partition, offset, at in zip(*(column.to_pylist() for column in pq.read_table(ledger).columns), strict=True):
        sent.setdefault(partition, []).append((offset, at))
    with answers.open(encoding="utf-8") as lines:
        seen = [(line["at"], Offsets.parse(line["offsets"])) for line in map(json.loads, lines)]
    # What was sent last may have had no answer before the probe ended.
    fresh = measure(sent, seen, topic=platform.cell.topic, since=since, until=until - 2.0)
    if fresh is None:
        raise KappaError(f"none of the events at {rate} a second was ever seen in an answer")
    events, asked = rate * (until - since), sum(since <= at < until for at, _ in seen)
    own = {role: (after.get(role, 0.0) - before.get(role, 0.0)) / events for role in ("job", "archiver")}
    found = Stretch(rate, beside, fresh, own["job"], own["archiver"], asked / (until - since))
    _say(f"{rate:,} a second beside {beside}: {fresh}, p99 {fresh.p99:.2f} s; CPU us an event: job {own['job'] * 1e6:.0f}, archiver {own['archiver'] * 1e6:.0f}")
    return found


def _replay(platform: _Platform, number: int) -> float:
    """Replays the whole log into a candidate, which is then abandoned; its slices after the first in events a second."""
    platform.declare(number)
    platform.kappa("stage", "--yes")
    platform.kappa("wait")
    (rollout,) = [each for each in fold(Journal(platform.store).after(0)).rollouts.values() if each.waits]
    platform.kappa("abandon")
    warm = warm_in((platform.store.folder / "logs" / f"{rollout.build}.log").read_text(errors="replace"))
    if warm is None:
        raise KappaError(f"the replay of {rollout.build} had one slice", hint="give more events")
    _say(f"a replay: {warm.rate:,.0f} events a second, warm")
    return warm.rate


def _line(found: Found) -> str:
    first, *_, beside = found.stretches
    parts = [
        f"{each.rate}/s beside {each.beside}: p50 {each.freshness.p50:.2f} s ({each.freshness.p50 / found.empty:.1f} empty batches), p99 {each.freshness.p99:.2f} s"
        for each in found.stretches
    ]
    ratio = f"p99 beside a replay {beside.freshness.p99 / first.freshness.p99:.2f}x; the replay keeps {found.replay_beside / found.replay_alone:.2f} of its rate"
    return f"bench freshness, {found.events} events: {'; '.join(parts)}; {ratio}; CPU with the archive {max(_with_archive(found)):.2f}x; load {found.load:.1f}"


def _page(found: Found) -> str:
    heading = ("events a second", "beside", "events", "p50, s", "p95, s", "p99, s", "p50 in empty micro-batches", "answers/s", "CPU us/event, job", "CPU us/event, archiver")
    lines = ["| " + " | ".join(heading) + " |", "|---:|---|" + "---:|" * (len(heading) - 2)]
    for each in found.stretches:
        fresh = each.freshness
        figures = (
            f"{fresh.p50:.2f}",
            f"{fresh.p95:.2f}",
            f"{fresh.p99:.2f}",
            f"{fresh.p50 / found.empty:.1f}",
            f"{each.answers:.1f}",
            f"{each.job * 1e6:.0f}",
            f"{each.archiver * 1e6:.0f}",
        )
        lines.append("| " + " | ".join((f"{each.rate:,}", each.beside, f"{fresh.events:,}", *figures)) + " |")
    alone, beside = found.replay_alone, found.replay_beside
    lines += [
        "",
        f"An empty micro-batch takes {found.empty * 1000:.0f} ms here. A replay of the whole log, warm: {alone:,.0f} events a second alone, {beside:,.0f} beside live events ({beside / alone:.2f}).",
        under(found.load),
    ]
    return "\n".join(lines)


def _with_archive(found: Found) -> Sequence[float]:
    """How many times as much CPU the live job takes with the archiver beside it, of each stretch without a replay."""
    return [(each.job + each.archiver) / each.job for each in found.stretches if each.beside == "nothing"]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
