"""Measures the cost of maintained views: for a slice, for freshness, and for a replay.

    python bench --cell views

First, slices touch 300 keys of large tables under a view (touched.py). Second, a platform serves
totals by key, with and without a view over them, while events are sent at a steady rate and a probe
queries the totals or the view (living.py). Third, a new build replays the bids and auctions of
Nexmark's query 4, with and without its two views. The measurements with and without views are made
in turns, and give ratios. The stored rows must always equal DuckDB's result.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cells import Cell, ensure_enough
from freshness import KEYS, RATES, stretch
from ground import say
from kappa_job import KappaJob
from living import ASKED, Platform
from replays import in_turns, times
from screen import Report, spread_of, table
from touched import KEYS as TOUCHED
from touched import seconds_added

_ROUNDS = 3
# What a live table has folded before does not change what a slice costs there.
_MOST_SERVED = 500_000
# What the probe asks: the last stage.
_QUERIES = {
    "totals": ASKED,
    "stages": "select count(*), sum(spread)::bigint from spread",
}
_REPLAYED = ("auctions", "q4")


@dataclass(frozen=True, slots=True)
class Added:
    """All measurements of the cell, in seconds.

    `slices` contains the seconds that the view adds to each slice over tables of `rows` rows, by
    the kind of auctions that get bids (`open` or `any`). `fresh` contains the medians of freshness,
    and `replays` contains the durations of replays of `events` events; both are by task, with an
    element per round.
    """

    rows: int
    events: int
    slices: Mapping[str, Sequence[float]]
    fresh: Mapping[str, Sequence[float]]
    replays: Mapping[str, Sequence[float]]


def main(home: Path, events: int) -> Report | None:
    """Measures slices, freshness and replays.

    The tables under the slices have two rows for each of the `events` events. Returns None if any
    rows differ from the oracle's.
    """
    ensure_enough(events)
    if (slices := seconds_added(home, 2 * events)) is None:
        return None
    if (fresh := _fresh(home, min(events, _MOST_SERVED))) is None:
        return None
    kappa = KappaJob()
    ways = {task: (kappa, Cell("views", task, events, KEYS, _ROUNDS, ())) for task in _REPLAYED}
    if (replayed := in_turns(home, ways, _ROUNDS)) is None:
        return None
    replays = {task: [each.wall for each in replayed[task]] for task in _REPLAYED}
    return _report(Added(2 * events, events, slices, fresh, replays))


def _fresh(home: Path, events: int) -> Mapping[str, Sequence[float]] | None:
    platform = Platform(home, Cell("views", "totals", events, KEYS, _ROUNDS, ()))
    found: dict[str, list[float]] = {task: [] for task in _QUERIES}
    number = 0
    with platform.up():
        for _ in range(_ROUNDS):
            for task, query in _QUERIES.items():
                platform.turn_to(task, number := number + 1)
                say(f"{task} serves")
                live = stretch(platform, RATES[0], "nothing", query=query)
                if not platform.is_right():
                    return None
                found[task].append(live.freshness.p50)
    shutil.rmtree(platform.folder)
    return found


def _report(found: Added) -> Report:
    lately, random = (
        spread_of([seconds * 1000 for seconds in found.slices[which]], "{:.0f}")
        for which in ("open", "any")
    )
    fresh, views_fresh = (spread_of(found.fresh[task], "{:.2f}") for task in _QUERIES)
    replay, views_replay = (spread_of(found.replays[task], "{:.1f}") for task in _REPLAYED)
    fresher, longer = (times(*of.values()) for of in (found.fresh, found.replays))
    slices = len(found.slices["open"])
    answers = f"freshness at {RATES[0]:,} events a second, p50, s: totals, and a view over them"
    replayed = f"replay of {found.events:,} events, s: bids and auctions, and query 4's two views"
    rows = (
        (f"{TOUCHED} auctions opened lately: the view adds to a slice, ms", "", "", lately, "150"),
        (f"{TOUCHED} auctions, any of all: likewise", "", "", random, ""),
        (answers, fresh, views_fresh, fresher, "1.5"),
        (replayed, replay, views_replay, longer, "1.3"),
    )
    head = ("what", "without", "with", "added, or so many times", "target")
    note = (
        f"Medians of {slices} slices, over tables of {found.rows:,} bids and as many auctions, "
        f"and of {len(found.replays[_REPLAYED[0]])}\n"
        "rounds taken in turns; least and most in brackets."
    )
    line = (
        f"bench views, {found.rows} rows, {found.events} events: a view adds to a slice of "
        f"{TOUCHED} keys {lately} ms, of random ones {random} ms; freshness with a second stage "
        f"{fresher}x; a replay with views {longer}x"
    )
    return Report(line, found, f"{table(head, rows)}\n\n{note}")
