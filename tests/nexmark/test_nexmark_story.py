"""Nexmark's queries are right live, after kills, replays, promotes and undos.

Everything is real. After each chapter, the rows of every query equal the rows that DuckDB computes
from the bytes of the log.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from auction_events import KEYS, auction_events
from auction_oracle import Rows, answers, ensure_equal
from builds import interpreted
from testbed import Testbed, platform
from victims import jobs_of, kill

from kappa.kafka.producer import ProducedRecord
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.query import connect_reader
from kappa.state.build import table_path
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(900)]

SITE = Path(__file__).with_name("auction_site.py").read_text(encoding="utf-8")
SIDE = Path(__file__).with_name("side_input.csv")
# So often a job is killed until it is within a slice.
_ATTEMPTS = 5
# The same rows, by other code.
CHANGES = {
    'where("auction % 123 = 0")': 'where("auction = 123 * (auction div 123)")',
    "a.category = 10 and p.state in ('OR', 'ID', 'CA')": (
        "p.state in ('OR', 'ID', 'CA') and a.category between 10 and 10"
    ),
}


def test_the_queries_are_right_live_killed_replayed_and_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = auction_events(7_000)

    def send(bed: Testbed, count: int) -> None:
        with bed.log.producer() as producer:
            for each in islice(events, count):
                producer.send(each.topic, ProducedRecord(each.value, each.key, each.sent_ms))

    # Most of a job's first slice of so many tables is to compile their plans.
    monkeypatch.setenv(*interpreted().popitem())
    (tmp_path / "site" / "pipelines").mkdir(parents=True)
    shutil.copy(SIDE, tmp_path / "site" / "pipelines")
    with platform(tmp_path / "site", auction_site=SITE) as bed:
        send(bed, 2_000)
        bed.must("deploy", "--yes")
        ensure_right(bed)
        first = bed.live("auction_site")
        for count in (1, 60, 439):
            send(bed, count)
            ensure_right(bed)

        kill_within_a_slice(bed, first, lambda: send(bed, 500))
        ensure_right(bed)

        changed = SITE
        for before, after in CHANGES.items():
            assert before in changed
            changed = changed.replace(before, after)
        bed.declare("auction_site", changed)
        bed.must("deploy", "--yes")
        second = bed.live("auction_site")
        assert second != first
        ensure_right(bed)
        send(bed, 1_000)
        ensure_right(bed)

        bed.must("undo", "--yes")
        assert bed.live("auction_site") == first
        ensure_right(bed)
        send(bed, 1_000)
        ensure_right(bed)


def ensure_right(bed: Testbed) -> None:
    """Asserts that the whole log is served, and that all queries have the right rows."""
    end = bed.log.end(KEYS)
    bed.wait_until_folded("auction_site", end)
    wanted = answers(
        (each.topic, each.partition, each.offset, each.timestamp_ms, (each.value or b"").decode())
        for each in bed.log.records(KEYS, Offsets(), end)
    )
    with (
        pin_served(bed.store, lease_seconds=60) as pinned,
        connect_reader(pinned.snapshot, bed.store) as reader,
    ):

        def served(sql: str) -> Rows:
            rows = reader.rows(sql)
            return rows.columns, [*rows.rows]

        ensure_equal(served, wanted)


def kill_within_a_slice(bed: Testbed, build: str, send: Callable[[], None]) -> None:
    """Kills the job after a table's commit of a slice, before the slice's frontier is published."""
    committed = Path(table_path(bed.store, build, "bid"), "_delta_log")
    for _ in range(_ATTEMPTS):
        before = bed.frontier(build)
        assert before is not None
        (job,) = jobs_of(bed, build)
        send()
        bed.wait((committed / f"{before.versions['bid'] + 1:020}.json").exists, "a commit")

        assert kill(job)

        is_within = bed.frontier(build) == before
        bed.wait(lambda job=job: jobs_of(bed, build) not in ([], [job]), "its next job")
        if is_within:
            return
        # This process was late, and the slice was whole by then.
        ensure_right(bed)
    pytest.fail(f"none of {_ATTEMPTS} jobs was killed within a slice")
