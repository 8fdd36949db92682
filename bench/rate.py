"""Finds the highest rate of events at which a tail keeps its results fresh.

    python bench --cell rate [--events CEILING]

The rate is doubled until the p99 of freshness is above two seconds, or until the ceiling is
reached. If a rate was too high, a rate between the last two is tried. Kappa runs as users run it,
with three tasks in turn: counts and sums by key, appended rows, and a maintained view; a probe
queries the task's last table or view (living.py). Spark Structured Streaming into Delta executes
the first two tasks. PyFlink into files executes the second task only, because its file sink does
not accept rows that change. An event counts as seen by a rival when the rival's table or file
contains the event; no query is run. The rows that each program has written at the end must equal
the oracle's.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import duckdb
import pyarrow.parquet as pq
from bids import Input, bids
from cells import KAPPA, PARTITIONS, TASKS, Cell
from ground import Ground, ground, say
from living import ASKED, TREE, Platform, running_script
from oracle import Oracle
from rivals import Attempt, Command, FlinkSql, NotThereError, Rival, SparkScript, read_files
from screen import Report, table

from demo.judgement.freshness import Freshness, measure
from demo.judgement.reckoning import answers_in, sent_in
from demo.processes.family import MARK, ensure_gone
from kappa.base.errors import KappaError
from kappa.base.process import start_tied
from kappa.declare.topic import Topic
from kappa.state.offsets import Offsets

Answers = Sequence[tuple[float, Offsets]]

LIMIT_SECONDS = 2.0
FIRST_RATE = 5_000
# No other cell's topic has so many keys and events.
_KEYS = 16_000
# What a live table has folded before.
_SERVED = 200_000
_WARM_SECONDS = 15.0
_SECONDS = 30.0
# A producer that sends less than so much of what is asked is the limit itself.
_SENT_SHARE = 0.95
# Each tenth event is in the ledger (scripts/flood.py).
_EACH = 10
_PATIENCE_SECONDS = 600.0
_NAP_SECONDS = 0.05
_LOOK_SECONDS = 1.0
# By task: what the probe asks of Kappa.
_QUERIES = {
    "totals": ASKED,
    "projection": "select count(*) from euros",
    "stages": "select count(*), sum(spread)::bigint from spread",
}


@dataclass(frozen=True, slots=True)
class Step:
    """The measurement at one rate: the rates requested and sent, and the freshness of the events.

    `asked` and `sent` are in events per second. `freshness` is None if some events were never seen.
    """

    asked: int
    sent: float
    freshness: Freshness | None

    @property
    def is_sent(self) -> bool:
        """Returns True if the producer was able to send at the requested rate."""
        return self.sent >= _SENT_SHARE * self.asked

    @property
    def is_kept(self) -> bool:
        """Returns True if the tail kept its results fresh at this rate."""
        fresh = self.freshness
        return self.is_sent and fresh is not None and fresh.p99 <= LIMIT_SECONDS

    def __str__(self) -> str:
        seen = (
            "not all of them were seen"
            if self.freshness is None
            else f"{self.freshness}, p99 {self.freshness.p99:.2f} s"
        )
        short = "" if self.is_sent else f", and only {self.sent:,.0f} were sent"
        return f"{self.asked:,} a second: {seen}{short}"


def climb(measured: Callable[[int], Step], ceiling: int) -> tuple[Step, ...]:
    """Measures doubled rates until a rate is too high or the ceiling is reached.

    If the last rate was too high and is not the first, a rate halfway between the last two is also
    measured. Returns all steps in the order of measurement.
    """
    steps = [measured(min(FIRST_RATE, ceiling))]
    while steps[-1].is_kept and steps[-1].asked < ceiling:
        steps.append(measured(min(2 * steps[-1].asked, ceiling)))
    if not steps[-1].is_kept and len(steps) > 1:
        steps.append(measured((steps[-1].asked + steps[-2].asked) // 2))
    return tuple(steps)


def highest_kept(steps: Sequence[Step]) -> Step | None:
    """Returns the step with the highest rate at which results were fresh, or None."""
    return max((each for each in steps if each.is_kept), key=lambda each: each.asked, default=None)


def main(home: Path, events: int) -> Report | None:
    """Measures rates up to `events` per second. Returns None if Kappa's rows are wrong."""
    found = _kappas(home, events)
    if found is None:
        return None
    found |= _rivals(home, events)
    return _report(found, events)


def _kappas(home: Path, ceiling: int) -> dict[tuple[str, str], tuple[Step, ...]] | None:
    platform = Platform(home, Cell("rate", "totals", _SERVED, _KEYS, 1, ()))
    found = {}
    with platform.up():
        for number, task in enumerate(_QUERIES):
            if number:
                platform.turn_to(task, number)
            say(f"{KAPPA}, {TASKS[task].what}")
            found[KAPPA, task] = climb(partial(_step_of_kappa, platform, task), ceiling)
            if not platform.is_right():
                return None
    shutil.rmtree(platform.folder)
    return found


def _step_of_kappa(platform: Platform, task: str, rate: int) -> Step:
    name = f"{task}-{rate}"
    ledger, answers = platform.folder / f"{name}.parquet", platform.folder / f"{name}.jsonl"
    with platform.live_events(rate, ledger, answers, _QUERIES[task], producer="flood"):
        since, until = _let_run()
    return _step(rate, ledger, answers_in(answers), platform.cell.topic, since, until)


def _let_run() -> tuple[float, float]:
    """Waits for a warm-up and then for the measured period. Returns the period's begin and end."""
    time.sleep(_WARM_SECONDS)
    since = time.monotonic()
    time.sleep(_SECONDS)
    return since, time.monotonic()


def _step(
    rate: int, ledger: Path, answers: Answers, topic: str, since: float, until: float
) -> Step:
    sent = sent_in(pq.read_table(ledger))
    noted = sum(since <= at < until for each in sent.values() for _, at in each)
    fresh = measure(sent, answers, topic=topic, since=since, until=until)
    is_whole = fresh is not None and fresh.events == noted
    found = Step(rate, noted * _EACH / (until - since), fresh if is_whole else None)
    say(str(found))
    return found


class Tail(Rival, Protocol):
    """A rival that follows a topic until it is killed."""

    def seen(self) -> Answers:
        """Returns pairs of a time and the offsets in the rival's table then, in order of time."""

    @contextmanager
    def watched(self, folder: Path) -> Iterator[None]:
        """Records, during the block, the offsets that the rival's table contains at each time."""


class SparkTail(SparkScript):
    """The plain Spark script as a tail: one batch follows the other without a pause."""

    tasks = frozenset({"totals", "projection"})

    def __init__(self) -> None:
        super().__init__(batch=0)

    def more(self, attempt: Attempt) -> Sequence[str]:
        return [*super().more(attempt), "tail"]

    def seen(self) -> Answers:
        return answers_in(self._told) if self._told.exists() else ()

    @contextmanager
    def watched(self, folder: Path) -> Iterator[None]:
        # It tells of each batch itself.
        self._told = folder / "answers.jsonl"
        yield


class FlinkTail(FlinkSql):
    """PyFlink's SQL as a tail: it writes into files, with a checkpoint every second."""

    tasks = frozenset({"projection"})

    def __init__(self) -> None:
        self._topic = ""
        # When each file was there, and the offsets that it has.
        self._appeared: dict[Path, float] = {}
        self._offsets: dict[Path, dict[int, int]] = {}

    def more(self, attempt: Attempt) -> Sequence[str]:
        return [*super().more(attempt), "tail"]

    def seen(self) -> Answers:
        appeared = sorted(self._appeared.items(), key=lambda each: each[1])
        self._read([file for file, _ in appeared if file not in self._offsets])
        ends, found = dict[int, int](), list[tuple[float, Offsets]]()
        for file, at in appeared:
            for partition, end in self._offsets[file].items():
                ends[partition] = max(end, ends.get(partition, 0))
            found.append((at, Offsets({self._topic: dict(ends)})))
        return found

    @contextmanager
    def watched(self, folder: Path) -> Iterator[None]:
        self._appeared, self._offsets = {}, {}
        ends = threading.Event()
        (written,) = TASKS["projection"].wanted
        looking = threading.Thread(target=self._look, args=(folder / written, ends))
        looking.start()
        try:
            yield
        finally:
            ends.set()
            looking.join()

    def prepare(self, attempt: Attempt) -> Command:
        self._topic = attempt.cell.topic
        return super().prepare(attempt)

    def _look(self, folder: Path, ends: threading.Event) -> None:
        while not ends.wait(_NAP_SECONDS):
            now = time.monotonic()
            for entry in os.scandir(folder) if folder.exists() else ():
                # A file that is not closed yet is hidden.
                if not entry.name.startswith("."):
                    self._appeared.setdefault(Path(entry.path), now)

    def _read(self, new: Sequence[Path]) -> None:
        self._offsets |= {file: {} for file in new}
        if not new:
            return
        rows = read_files(
            "read_json",
            [str(file) for file in new],
            "format = 'newline_delimited', filename = true, "
            "columns = {src_partition: 'int', src_offset: 'bigint'}",
        )
        with duckdb.connect() as duck:
            for name, partition, end in duck.execute(
                f"select filename, src_partition, max(src_offset) + 1 from {rows} group by all"
            ).fetchall():
                self._offsets[Path(name)][partition] = end


def _rivals(home: Path, ceiling: int) -> dict[tuple[str, str], tuple[Step, ...] | str]:
    """Measures the rivals, and maps (rival, task) to the measured steps.

    If a rival has no figures for a task, the value is a text with the reason.
    """
    found: dict[tuple[str, str], tuple[Step, ...] | str] = {}
    with ground(home) as here:
        for name, tail in (("spark", SparkTail()), ("flink", FlinkTail())):
            for task in (each for each in _QUERIES if each in tail.tasks):
                say(f"{name}, {TASKS[task].what}")
                try:
                    tail.set_up(home)
                    found[name, task] = _climb_of(tail, task, here, ceiling)
                except (NotThereError, KappaError) as error:
                    found[name, task] = f"{error}"
                    say(f"no figure of {name}: {error}")
    return found


def _climb_of(tail: Tail, task: str, here: Ground, ceiling: int) -> tuple[Step, ...]:
    cell = Cell("rate", task, ceiling, _KEYS, 1, ())
    log, folder = here.log, here.home / "run" / f"rate-{task}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log.delete(cell.topic)
    columns = "auction bigint not null, bidder bigint not null"
    facts = log.create(Topic(cell.topic, partitions=PARTITIONS, event=columns))
    log.produce(bids(0, _SERVED, _KEYS), cell.topic)
    given = Input(cell.topic, facts.id, log.end([cell.topic]), _SERVED, 0)
    attempt = Attempt(cell, given, log.bootstrap_servers, folder)
    command, mark = tail.prepare(attempt), secrets.token_hex(8)
    environment = {**os.environ, **command.environment, MARK: mark}
    with (folder / "output.log").open("wb") as output:
        process = start_tied(command.arguments, output=output, environment=environment)
        try:
            with tail.watched(folder):
                _wait_for_all(tail, folder, here, cell.topic, process)
                step = partial(_step_of, tail, folder, here, cell.topic, process)
                steps = climb(step, ceiling)
        finally:
            process.kill()
            process.wait()
            ensure_gone(mark)
    end = log.end([cell.topic])
    given = Input(cell.topic, facts.id, end, sum(last for _, _, last in end.items()), 0)
    oracle = Oracle(log.bootstrap_servers, given, cell, folder / "oracle", say)
    wrong = oracle.differences(tail.result(attempt))
    if wrong is not None:
        raise NotThereError(f"its result is not the oracle's: {wrong}")
    log.delete(cell.topic)
    shutil.rmtree(folder)
    return steps


def _step_of(
    tail: Tail,
    folder: Path,
    here: Ground,
    topic: str,
    process: subprocess.Popen[bytes],
    rate: int,
) -> Step:
    ledger = folder / f"{rate}.parquet"
    given = (here.log.bootstrap_servers, topic, str(PARTITIONS), str(_KEYS), str(rate))
    environment = {**os.environ, "PYTHONPATH": str(TREE)}
    with running_script(folder, environment, "flood", *given, str(ledger)):
        since, until = _let_run()
    answers = _wait_for_all(tail, folder, here, topic, process)
    return _step(rate, ledger, answers, topic, since, until)


def _wait_for_all(
    tail: Tail, folder: Path, here: Ground, topic: str, process: subprocess.Popen[bytes]
) -> Answers:
    """Waits until a rival's table or file contains all events that are in the topic now.

    Returns the result of `Tail.seen`. Raises NotThereError if the rival exits, or takes longer than
    ten minutes.
    """
    end, deadline = here.log.end([topic]), time.monotonic() + _PATIENCE_SECONDS
    while not ((answers := tail.seen()) and answers[-1][1].covers(end)):
        if process.poll() is not None:
            said = (folder / "output.log").read_text(errors="replace").strip().splitlines()
            raise NotThereError(f"it ended with {process.returncode}: {said[-1:]}")
        if time.monotonic() > deadline:
            raise NotThereError(f"it has not come to the topic's end in {_PATIENCE_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    return answers


def _report(found: Mapping[tuple[str, str], tuple[Step, ...] | str], ceiling: int) -> Report:
    heading = ("who", "task", "highest rate kept", "p50 there, s", "p99 there, s", "all rates")
    rows, parts = list[tuple[str, ...]](), []
    for (who, task), steps in found.items():
        best = None if isinstance(steps, str) else highest_kept(steps)
        fresh = None if best is None else best.freshness
        rate = "none" if best is None else f"{best.asked:,}"
        cells = (who, TASKS[task].what, rate)
        cells += ("", "") if fresh is None else (f"{fresh.p50:.2f}", f"{fresh.p99:.2f}")
        tried = steps if isinstance(steps, str) else "; ".join(map(_told, steps))
        rows.append((*cells, tried))
        seen = "" if fresh is None else f" (p99 {fresh.p99:.2f} s)"
        parts.append(f"{who} {task} {rate}/s{seen}")
    note = (
        f"A rate is kept if its p99 is at most {LIMIT_SECONDS:g} s. Rates up to {ceiling:,} "
        f"were tried, {_SECONDS:.0f} s each."
    )
    measured = {f"{who} {task}": steps for (who, task), steps in found.items()}
    return Report(
        f"bench rate, up to {ceiling} events a second: {'; '.join(parts)}",
        {"ceiling": ceiling, "steps": measured},
        f"{table(heading, rows, words=(0, 1, 5))}\n\n{note}",
    )


def _told(step: Step) -> str:
    """Describes the result of a step in a few words: the rate, and the p99 of freshness."""
    p99 = "not all seen" if step.freshness is None else f"{step.freshness.p99:.2f} s"
    return f"{step.asked:,}: {p99}{'' if step.is_sent else f', {step.sent:,.0f} sent'}"
