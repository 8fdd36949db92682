"""Measures freshness: the time from sending an event until a query's answer contains the event.

    python bench --cell freshness

The whole platform runs as users run it, with totals by key: `kappa up`, `kappa deploy`. A producer
sends events at a steady rate, and a probe repeats a query; both are separate processes. The cell
measures each rate alone, the lowest rate while a candidate replays the whole topic, and the highest
rate while the topic is archived. A replay without live events is measured for comparison. The CPU
time of each process shows which share of the machine a replay gets while events arrive. The rows
served at the end must equal the oracle's.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from cells import Cell
from ground import say
from kappa_job import warm_in
from living import ASKED, CANDIDATE, Platform, Taken
from screen import Report, table

from demo.judgement.freshness import Freshness, measure
from demo.judgement.reckoning import answers_in, sent_in
from kappa.base.errors import KappaError
from kappa.replay.rollout.fold import fold_records
from kappa.state.journal.journal import Journal

RATES = (1_000, 10_000)
KEYS = 16_384
_SECONDS = 60.0
# From the first event of a producer on, everything is warm.
_WARM_SECONDS = 15.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """A measured period with live events: the rate, the freshness, and the costs.

    `beside` describes the work that ran in parallel. `job` and `archiver` are CPU seconds per
    event. `answers` is the number of answers per second. `cores` contains CPU seconds per second,
    by role.
    """

    rate: int
    beside: str
    freshness: Freshness
    job: float
    archiver: float
    answers: float
    cores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay of the whole topic: its warm events per second, and its CPU seconds per second."""

    rate: float
    cores: float


@dataclass(frozen=True, slots=True)
class Found:
    """All measurements of one run of the cell."""

    events: int
    stretches: tuple[Stretch, ...]
    alone: Replay
    beside: Replay


def main(home: Path, events: int) -> Report | None:
    """Measures all periods and replays.

    Returns None if the served rows differ from the oracle's.
    """
    platform = Platform(home, Cell("freshness", "totals", events, KEYS, 1, ()))
    replays: list[Replay] = []
    with platform.up():
        say(f"{events:,} events serve")
        stretches = [stretch(platform, rate, "nothing") for rate in RATES]
        alone = _replay(platform, 1)
        stretches.append(
            stretch(platform, RATES[0], "a replay", lambda: replays.append(_replay(platform, 2)))
        )
        platform.archive_all()
        stretches.append(stretch(platform, RATES[-1], "the archiver"))
        if not platform.is_right():
            return None
    shutil.rmtree(platform.folder)
    found = Found(events, tuple(stretches), alone, replays[0])
    return Report(_line(found), found, _page(found))


def stretch(
    platform: Platform,
    rate: int,
    beside: str,
    meanwhile: Callable[[], object] = lambda: time.sleep(_SECONDS),
    *,
    query: str = ASKED,
) -> Stretch:
    """Sends live events at a rate, and measures their freshness after a warm-up.

    The measured period lasts while `meanwhile` runs, by default for a minute. `beside` describes
    `meanwhile`. The probe repeats the query `query`. Raises KappaError if some events never
    appeared in an answer.
    """
    name = f"{rate}-{secrets.token_hex(2)}"
    ledger, answers = platform.folder / f"{name}.parquet", platform.folder / f"{name}.jsonl"
    with platform.live_events(rate, ledger, answers, query):
        time.sleep(_WARM_SECONDS)
        before, since = platform.taken(), time.monotonic()
        meanwhile()
        after, until = platform.taken(), time.monotonic()
    sent, seen = sent_in(pq.read_table(ledger)), answers_in(answers)
    fresh = measure(sent, seen, topic=platform.cell.topic, since=since, until=until)
    events, asked = (
        sum(since <= at < until for each in sent.values() for _, at in each),
        sum(since <= at < until for at, _ in seen),
    )
    if fresh is None or fresh.events != events:
        raise KappaError(
            f"{events} events were sent, and {0 if fresh is None else fresh.events} of them "
            "seen in an answer"
        )
    used = {
        role: after[role].cpu - before[role].cpu for role in ("job", "archiver", "broker", "load")
    }
    own = {role: used[role] / events for role in ("job", "archiver")}
    cores = {role: seconds / (until - since) for role, seconds in used.items()}
    found = Stretch(
        rate, beside, fresh, own["job"], own["archiver"], asked / (until - since), cores
    )
    say(
        f"{rate:,} a second beside {beside}: {fresh}, p99 {fresh.p99:.2f} s; CPU us an event: "
        f"job {own['job'] * 1e6:.0f}, archiver {own['archiver'] * 1e6:.0f}; {_cores_text(cores)}"
    )
    return found


def _cores_text(cores: Mapping[str, float]) -> str:
    """Returns a text with the number of cores that each role uses."""
    return "cores: " + ", ".join(f"{role} {taken:.2f}" for role, taken in cores.items())


def _replay(platform: Platform, number: int) -> Replay:
    """Replays the whole topic into a candidate, measures this, and abandons the candidate."""
    platform.declare(number)
    platform.kappa("stage", "--yes")
    # A process that has ended tells no more what it took, so its job is looked at meanwhile.
    looks: list[tuple[float, Taken]] = []
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(platform.kappa, "wait")
        while not waiting.done():
            taken = platform.taken()[CANDIDATE]
            looks += [(time.monotonic(), taken)] if taken.resident else []
            time.sleep(_LOOK_SECONDS)
        waiting.result()
    (rollout,) = [
        each for each in fold_records(Journal(platform.store).after(0)).rollouts if each.waits
    ]
    platform.kappa("abandon")
    warm = warm_in(
        (platform.store.folder / "logs" / f"{rollout.build}.log").read_text(errors="replace")
    )
    if warm is None:
        raise KappaError(f"the replay of {rollout.build} had one slice", hint="give more events")
    if not looks:
        raise KappaError("the replay ended before it was looked at", hint="give more events")
    # The catch-up's workers end before the job does, and take their CPU time with them.
    (begun, first), (ended, last) = looks[0], max(looks, key=lambda look: look[1].cpu)
    cores = (last.cpu - first.cpu) / max(ended - begun, _LOOK_SECONDS)
    say(f"a replay: {warm.rate:,.0f} events a second, warm, on {cores:.2f} cores")
    return Replay(warm.rate, cores)


def _line(found: Found) -> str:
    alone = {each.rate: each for each in found.stretches if each.beside == "nothing"}
    beside, archived = (
        next(each for each in found.stretches if each.beside == what)
        for what in ("a replay", "the archiver")
    )
    parts = [
        (
            f"{each.rate}/s beside {each.beside}: p50 {each.freshness.p50:.2f} s, p99 "
            f"{each.freshness.p99:.2f} s"
        )
        for each in found.stretches
    ]
    ratio = (
        f"p99 beside a replay {beside.freshness.p99 / alone[beside.rate].freshness.p99:.2f}x; the "
        f"replay keeps {found.beside.rate / found.alone.rate:.2f} of its rate"
    )
    return (
        f"bench freshness, {found.events} events: {'; '.join(parts)}; {ratio}; CPU with the "
        f"archiver {(archived.job + archived.archiver) / archived.job:.2f}x"
    )


def _page(found: Found) -> str:
    heading = (
        "events a second",
        "beside",
        "events",
        "p50, s",
        "p95, s",
        "p99, s",
        "answers/s",
        "CPU us/event, job",
        "CPU us/event, archiver",
    )
    rows = (
        (
            f"{each.rate:,}",
            each.beside,
            f"{fresh.events:,}",
            f"{fresh.p50:.2f}",
            f"{fresh.p95:.2f}",
            f"{fresh.p99:.2f}",
            f"{each.answers:.1f}",
            f"{each.job * 1e6:.0f}",
            f"{each.archiver * 1e6:.0f}",
        )
        for each in found.stretches
        for fresh in (each.freshness,)
    )
    alone, beside = found.alone, found.beside
    live = next(each for each in found.stretches if each.beside == "a replay")
    replays = (
        f"A replay of the whole log, warm: {alone.rate:,.0f} events a second alone, "
        f"{beside.rate:,.0f} beside live events ({beside.rate / alone.rate:.2f}), on "
        f"{alone.cores:.2f} and {beside.cores:.2f} cores. Beside it took "
        f"{_cores_text(live.cores).removeprefix('cores: ')} (the producer and the probe)."
    )
    return f"{table(heading, rows, words=(1,))}\n\n{replays}"
