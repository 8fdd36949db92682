"""Reports of bench cells without rivals: their ratios follow from their figures; their probe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import changes
import collect
import day
import freshness
import pytest
import startup
from changes import Promoted, Reach, Sending
from day import Look
from freshness import Found, Replay, Stretch
from living import SCRIPTS, TREE
from screen import placed
from served import DELAYS, ROWS_OF_DELAYS, Platform

from demo.judgement.freshness import Freshness
from kappa.state.store import Store

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "performance.md").read_text(
    encoding="utf-8"
)


def test_freshness_is_reported_in_seconds_and_beside_a_replay() -> None:
    fresh, fresher = Freshness(60_000, 0.5, 0.9, 2.0), Freshness(6_000, 0.2, 0.3, 1.0)
    stretches = (
        Stretch(1_000, "nothing", fresher, 40e-6, 0.0, 9.5),
        Stretch(1_000, "a replay", fresh, 90e-6, 0.0, 4.0, {"job": 0.75, "load": 0.5}),
        Stretch(9_000, "the archiver", fresher, 40e-6, 10e-6, 8.0),
    )
    found = Found(5_000_000, stretches, Replay(200_000, 1.6), Replay(150_000, 0.9))

    assert freshness._line(found) == (
        "bench freshness, 5000000 events: "
        "1000/s beside nothing: p50 0.20 s, p99 1.00 s; "
        "1000/s beside a replay: p50 0.50 s, p99 2.00 s; "
        "9000/s beside the archiver: p50 0.20 s, p99 1.00 s; "
        "p99 beside a replay 2.00x; the replay keeps 0.75 of its rate; "
        "CPU with the archiver 1.25x"
    )
    page = freshness._page(found)
    assert "| 9,000 | the archiver | 6,000 | 0.20 | 0.30 | 1.00 | 8.0 | 40 | 10 |" in page
    assert "150,000 beside live events (0.75), on 1.60 and 0.90 cores" in page
    assert "Beside it took job 0.75, load 0.50 (the producer and the probe)" in page


def test_changes_are_told_beside_a_query_and_by_rows_a_second() -> None:
    query, subscriber = Freshness(60_000, 0.4, 0.9, 2.0), Freshness(60_000, 0.5, 1.0, 3.0)
    found = changes.Found(
        2_000_000,
        (Reach(1_000, query, subscriber),),
        Promoted(1_000_000, 8.0, 5.0),
        Sending(10_000, 10_001.0, 9_600.0, 40e-6, 1.5, 0.8),
    )

    assert changes._line(found) == (
        "bench changes, 2000000 events: 1000/s to a query p50 0.40 s, to a subscriber 0.50 s "
        "(1.25x); a promote of 1000000 rows in 8.0 s, 125000 rows/s; a sink beside 10000 events/s "
        "9600 rows/s (0.96 of the events), 1.5 s behind at most"
    )
    assert "| 1,000 | 60,000 | 0.40, 2.00 | 0.50, 3.00 | 1.25 |" in changes._page(found)


def test_a_day_is_told_by_the_medians_of_its_first_and_its_last_quarter() -> None:
    looks = [Look(number, 10 + number, 100, 2**20, 0, 5, 2**30, 0.02) for number in range(8)]

    told = day._report(looks, 20)

    assert "| files of the table | 10 | 16 | 17 | 1.57 |" in told.page
    assert "| its checkpoint, MiB | 0.00 | 0.00 | 0.00 | - |" in told.page
    assert "7 slices of live events" in told.line


def test_what_is_collected_is_told_by_the_events_of_a_core() -> None:
    def took(connections: int, batch: int, cpu: float) -> collect.Stretched:
        return collect.Stretched(connections, batch, 1_000 * max(1, batch), 1.0, cpu, 0.01, 0.02)

    found = [took(*each, cpu) for each in collect.STRETCHES for cpu in (0.1, 0.2, 0.4)]

    told = collect._report(found, 3)

    assert "1: 5,000 (2,500-10,000)/s of a core" in told.line
    assert "100: 500,000 (250,000-1,000,000)/s of a core" in told.line
    assert "| 1 | 64 | 5,000 (2,500-10,000) | 200.0 (100.0-400.0) | 1,000 | 10.0 | 20.0 |" in (
        told.page
    )
    assert "A single event costs 1.00 times the CPU of" in told.page


def test_a_start_is_told_in_seconds_and_in_empty_machines() -> None:
    told = startup._report([4.0, 6.0, 5.0], [0.5, 0.5, 0.5], {"imports": 0.25})

    assert (
        "first slice after 5.00 (4.00-6.00) s, 10.0 (8.0-12.0) empty JVMs; its steps in s: "
        "imports 0.25"
    ) in told.line
    assert "| imports | 0.25 |" in told.page


@pytest.mark.slow
def test_the_probe_writes_what_its_answers_have_folded(tmp_path: Path) -> None:
    Platform(Store(tmp_path)).serve("bench", {DELAYS: ROWS_OF_DELAYS})
    (tmp_path / "kappa.toml").write_text(f'root = "{tmp_path}"', encoding="utf-8")
    probe = [sys.executable, str(SCRIPTS / "probe.py"), str(tmp_path), "bench", "/dev/stdout"]

    with subprocess.Popen(
        [*probe, "select count(*) from delays"],
        env={**os.environ, "PYTHONPATH": str(TREE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        process.stdin.close()

    assert line["offsets"] == {"flights": {"0": 12}}
    assert process.returncode == 0


@pytest.mark.parametrize(
    "cell",
    [
        "archive",
        "startup",
        "freshness",
        "collect",
        "changes",
        "day",
        "queries",
        "tables",
        "views",
        "standard",
        "keys",
        "warm",
        "large",
        "huge",
        "projection",
        "windows",
        "latest",
        "short",
        "loop",
        "nexmark",
        "rate",
    ],
)
def test_the_document_has_a_place_for_each_cell(cell: str) -> None:
    assert "told" in placed(DOCUMENT, cell, "told")
