"""The freshness of answers: from sending an event until a query's answer has it.

    python bench --cell freshness

The whole platform runs as users run it, with totals by key: `kappa up`, `kappa deploy`. A producer
sends at a steady rate, and a probe asks a query again and again, each in a process of its own. The
cell runs each rate alone, the lowest beside a candidate that replays the whole log, and the highest
while the topic is archived. A replay alone gives the replay's own rate. What is served in the end
must equal the oracle.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.parquet as pq
from cells import Cell
from ground import say, under
from kappa_job import warm_in
from living import ASKED, Platform
from screen import Report

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


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stretch of live running: its rate and company, its freshness, and its costs.

    `job` and `archiver` are CPU seconds per event; `answers` is answers a second.
    """

    rate: int
    beside: str
    freshness: Freshness
    job: float
    archiver: float
    answers: float


@dataclass(frozen=True, slots=True)
class Found:
    """All that was measured; replays are warm, in events a second."""

    events: int
    stretches: tuple[Stretch, ...]
    replay_alone: float
    replay_beside: float
    load: float


def main(home: Path, events: int) -> Report | None:
    """Measures all of it; None where the result was not the oracle's."""
    platform = Platform(home, Cell("freshness", "totals", events, KEYS, 1, ()))
    load = os.getloadavg()[0]
    rates: list[float] = []
    with platform.up():
        say(f"{events:,} events serve")
        stretches = [stretch(platform, rate, "nothing") for rate in RATES]
        alone = _replay(platform, 1)
        stretches.append(
            stretch(platform, RATES[0], "a replay", lambda: rates.append(_replay(platform, 2)))
        )
        platform.archive_all()
        stretches.append(stretch(platform, RATES[-1], "the archiver"))
        wrong = platform.wrong(say)
    if wrong is not None:
        say(f"no figure: what serves is not the oracle's: {wrong}")
        return None
    shutil.rmtree(platform.folder)
    found = Found(events, tuple(stretches), alone, rates[0], load)
    return Report(_line(found), json.dumps(asdict(found), indent=1), _page(found))


def stretch(
    platform: Platform,
    rate: int,
    beside: str,
    meanwhile: Callable[[], object] = lambda: time.sleep(_SECONDS),
    *,
    query: str = ASKED,
) -> Stretch:
    """Sends live events at a rate while `meanwhile` runs, after a time to warm up.

    Without that they are sent for a minute. The probe asks the `query`.
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
    own = {role: (after[role].cpu - before[role].cpu) / events for role in ("job", "archiver")}
    found = Stretch(rate, beside, fresh, own["job"], own["archiver"], asked / (until - since))
    say(
        f"{rate:,} a second beside {beside}: {fresh}, p99 {fresh.p99:.2f} s; CPU us an event: "
        f"job {own['job'] * 1e6:.0f}, archiver {own['archiver'] * 1e6:.0f}"
    )
    return found


def _replay(platform: Platform, number: int) -> float:
    """Replays the whole log into a candidate, abandons it, and returns its warm events a second."""
    platform.declare(number)
    platform.kappa("stage", "--yes")
    platform.kappa("wait")
    (rollout,) = [
        each for each in fold_records(Journal(platform.store).after(0)).rollouts if each.waits
    ]
    platform.kappa("abandon")
    warm = warm_in(
        (platform.store.folder / "logs" / f"{rollout.build}.log").read_text(errors="replace")
    )
    if warm is None:
        raise KappaError(f"the replay of {rollout.build} had one slice", hint="give more events")
    say(f"a replay: {warm.rate:,.0f} events a second, warm")
    return warm.rate


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
        f"replay keeps {found.replay_beside / found.replay_alone:.2f} of its rate"
    )
    return (
        f"bench freshness, {found.events} events: {'; '.join(parts)}; {ratio}; CPU with the "
        f"archiver {(archived.job + archived.archiver) / archived.job:.2f}x; load {found.load:.1f}"
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
    lines = ["| " + " | ".join(heading) + " |", "|---:|---|" + "---:|" * (len(heading) - 2)]
    for each in found.stretches:
        fresh = each.freshness
        figures = (
            f"{fresh.p50:.2f}",
            f"{fresh.p95:.2f}",
            f"{fresh.p99:.2f}",
            f"{each.answers:.1f}",
            f"{each.job * 1e6:.0f}",
            f"{each.archiver * 1e6:.0f}",
        )
        lines.append(
            "| " + " | ".join((f"{each.rate:,}", each.beside, f"{fresh.events:,}", *figures)) + " |"
        )
    alone, beside = found.replay_alone, found.replay_beside
    lines += [
        "",
        (
            f"A replay of the whole log, warm: {alone:,.0f} events a second alone, {beside:,.0f} "
            f"beside live events ({beside / alone:.2f})."
        ),
        under(found.load),
    ]
    return "\n".join(lines)
