"""Applies the oracle, the verdict and freshness to a run at the end of the story.

oracle.py, verdict.py and freshness.py contain the computations. This module returns their results
as findings for display.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from demo.judgement.freshness import Freshness, measure
from demo.judgement.oracle import ASKED, Oracle, compare
from demo.judgement.verdict import Verdict
from kappa.serving.query.pin.catalog import pin_build
from kappa.serving.query.query import connect_reader
from kappa.state.offsets import Offsets
from kappa.state.store import Store

_LEASE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A condition that must be met, whether it was met, and a text with the observation."""

    what: str
    held: bool
    seen: str


def compared(store: Store, oracle: Oracle, version: int, build: str) -> Finding:
    """Compares a build at its newest frontier with the rows that version 1 or 2 must have."""
    with (
        pin_build(store, build, lease_seconds=_LEASE_SECONDS) as pinned,
        connect_reader(pinned.snapshot, store) as served,
    ):
        comparisons = [
            compare(table, served.rows(sql).rows, oracle.rows(table, version))
            for table, sql in ASKED.items()
        ]
        pinned.confirm_kept()
    wrong = [
        f"{each.table}: missing {', '.join(each.missing) or 'none'}; "
        f"unexpected {', '.join(each.unexpected) or 'none'}"
        for each in comparisons
        if not each.equal
    ]
    rows = sum(each.rows for each in comparisons)
    return Finding(
        f"version {version}: every table and view equals the independent computation, row by row",
        not wrong,
        "; ".join(wrong) or f"{rows:,} rows of {len(comparisons)}",
    )


def judged(verdict: Verdict) -> Finding:
    """Converts the reader's verdict to a finding."""
    seen = (
        f"{verdict.queries:,} queries, {verdict.errors} errors, {verdict.mixed} mixed answers, "
        f"{verdict.backward} backward answers, {verdict.switches} switches seen"
    )
    return Finding(
        "the reader found nothing wrong, from its first query to its last",
        verdict.clean,
        "; ".join([seen, *verdict.faults]),
    )


def replayed_there(applications: Sequence[str], builds: Mapping[int, str]) -> Finding:
    """Checks that the builds of both versions were replayed on the Spark cluster.

    `applications` are the names of the cluster's applications; the name of a replay is its build.
    """
    return Finding(
        "both versions were replayed on the Spark cluster",
        set(builds.values()) <= {*applications},
        f"its applications: {', '.join(applications) or 'none'}",
    )


def seen_fresh(records: Path, *, topic: str, since: float, until: float) -> Freshness | None:
    """Measures the freshness of events sent between `since` and `until`.

    `records` is the folder with the producer's ledger and the reader's log. Returns None if none of
    the events was ever visible.
    """
    ledger = pq.read_table(
        records / "ledger.parquet",
        columns=["topic", "partition", "offset", "sent_at"],
        filters=[("topic", "=", topic)],
    )
    return measure(
        sent_in(ledger),
        answers_in(records / "answers.jsonl"),
        topic=topic,
        since=since,
        until=until,
    )


def sent_in(ledger: pa.Table) -> dict[int, list[tuple[int, float]]]:
    """Maps each partition to the offsets and sending times in a ledger of one topic.

    The ledger has the columns `partition`, `offset` and `sent_at`.
    """
    sent: dict[int, list[tuple[int, float]]] = {}
    for partition, offset, at in zip(
        *(ledger[name].to_pylist() for name in ("partition", "offset", "sent_at")), strict=True
    ):
        sent.setdefault(partition, []).append((offset, at))
    return sent


def answers_in(log: Path) -> list[tuple[float, Offsets]]:
    """Returns the time and the offsets of each answer, from a reader's log of JSON lines."""
    with log.open(encoding="utf-8") as lines:
        return [(line["at"], Offsets.parse(line["offsets"])) for line in map(json.loads, lines)]
