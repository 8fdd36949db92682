"""Nexmark's queries, their ways and rows: the table of docs/explain/nexmark.md.

    python tests/nexmark/nexmark_table.py [EVENTS]

It folds this many events in this process, compares all queries with the oracle, and prints the
table. A second table has the cost of each maintained view in the slice of the last thousand events.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from auction_events import auction_events
from auction_oracle import ANSWERS, Rows
from auction_site import auction_site
from nexmark_log import ensure_answered, put

from kappa.base.clock import Stopwatch
from kappa.engine.children.rehearsal import MemoryLog, Rehearsal, local_pipeline
from kappa.state.build import Birth
from kappa.state.table import TableBirth
from kappa.tables.views.ways import ways_of

# As many as the page tells of.
EVENTS = 5_000
LAST = 1_000
_ASKED = {
    "q0": "the bids as they are",
    "q1": "the bids in euros",
    "q2": "the bids on each 123rd auction",
    "q3": "who sells in Oregon, Idaho or California in category 10",
    "q4": "the mean winning price of each category",
    "q5": "the auctions with the most bids in windows of 10 seconds, each 2 seconds",
    "q6": "the mean price of a seller's last winning bids, at each of them",
    "q7": "the highest bids of each 10 seconds",
    "q8": "who came and opened an auction within the same 10 seconds",
    "q9": "the winning bid of each auction",
    "q10": "the bids with their day and minute, for a log of files",
    "q11": "the bids of each session of a bidder; 10 seconds without one end it",
    "q12": "the bids of each bidder in each 10 seconds of the log's time",
    "q13": "the bids with the value that a file has for the auction",
    "q14": "bids of middle prices, with the time of day and a count of letters",
    "q15": "bids, and distinct bidders and auctions, per day and rank of price",
    "q16": "the same per channel and day",
    "q17": "bids and prices per auction and day",
    "q18": "the last bid of each bidder on each auction",
    "q19": "the ten highest bids of each auction",
    "q20": "bids with their auction, of category 10",
    "q21": "bids with the number of their channel, by its name or the URL",
    "q22": "bids with the folders of their URL",
    "q23": "bids of people who sell, with the person and each of the auctions",
}


def table(birth: Birth, answered: Mapping[str, Rows]) -> Iterator[str]:
    """Yields the lines of the table, for queries whose rows are right."""
    yield "| query | asks for | kept as | way | rows | equal |"
    yield "|---|---|---|---|---:|---|"
    tables, ways = {each.name: each for each in birth.tables}, ways_of(birth.tables)
    for name in ANSWERS:
        _, rows = answered[name]
        way = ways.get(name, "")
        yield f"| {name} | {_ASKED[name]} | {_kept(tables[name])} | {way} | {len(rows):,} | yes |"


def _kept(kept: TableBirth) -> str:
    keys = ", ".join(f"`{key}`" for key in kept.keys or kept.by)
    if kept.view is not None:
        read = ", ".join(f"`{name}`" for name in kept.reads)
        return f"maintained view over {read}; {'keys' if kept.keys else 'by'} {keys}"
    if kept.steps_over:
        return f"ordered fold; keys {keys}"
    return f"folded; keys {keys}" if kept.keys else "appended"


def costs(watch: Stopwatch) -> Iterator[str]:
    """Yields the lines of the table of costs, in milliseconds."""
    yield "| view | ms |"
    yield "|---|---:|"
    for step, seconds in watch.seconds.items():
        if step.startswith("view "):
            yield f"| {step.removeprefix('view ')} | {seconds * 1000:.0f} |"


def main(events: int) -> None:
    """Folds all events but the last in one slice, then the last ones; prints both tables."""
    log, made_events = MemoryLog(), [*auction_events(events)]
    put(log, made_events[:-LAST])
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder, local_pipeline(auction_site) as made:
        built = Rehearsal(Path(folder), made, log, driver_rows=events)
        built.fold(log.end)
        put(log, made_events[-LAST:])
        built.fold(log.end, watch)
        answered = ensure_answered(built, log, log.end)
        print("\n".join([*table(built.birth, answered), "", *costs(watch)]))
        built.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else EVENTS)
