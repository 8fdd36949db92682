"""The highest rate of a tail: which rates are tried, and which of them count as sustained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import rate
from rate import FlinkTail, Step, climb, highest_kept

from demo.judgement.freshness import Freshness


def _fresh(p99: float) -> Freshness:
    return Freshness(1_000, 0.2, 0.5, p99)


@pytest.mark.parametrize(
    ("limit", "ceiling", "tried", "kept"),
    [
        (30_000, 200_000, [5_000, 10_000, 20_000, 40_000, 30_000], 30_000),
        (29_999, 200_000, [5_000, 10_000, 20_000, 40_000, 30_000], 20_000),
        # All are kept: nothing is between the last two.
        (99_999, 12_000, [5_000, 10_000, 12_000], 12_000),
        (99_999, 3_000, [3_000], 3_000),
        (4_000, 200_000, [5_000], None),
    ],
)
def test_rates_double_up_to_one_that_is_not_kept(
    limit: int, ceiling: int, tried: list[int], kept: int | None
) -> None:
    steps = climb(lambda asked: Step(asked, asked, _fresh(0.5 if asked <= limit else 9.0)), ceiling)

    best = highest_kept(steps)

    assert [each.asked for each in steps] == tried
    assert (None if best is None else best.asked) == kept


@pytest.mark.parametrize(
    ("sent", "fresh", "is_kept"),
    [
        (9_600, _fresh(2.0), True),
        (9_600, _fresh(2.01), False),
        # Some were never seen, and the producer was the limit.
        (9_600, None, False),
        (9_400, _fresh(0.5), False),
    ],
)
def test_a_rate_is_kept_if_sent_and_seen_in_time(
    sent: float, fresh: Freshness | None, is_kept: bool
) -> None:
    assert Step(10_000, sent, fresh).is_kept is is_kept


def test_files_of_flink_are_seen_when_they_are_there(tmp_path: Path) -> None:
    tail = FlinkTail()
    tail._topic = "t"
    for name, rows in (("a", [(0, 3), (0, 4)]), ("b", [(1, 7)]), ("c", [(0, 2)])):
        lines = (json.dumps({"src_partition": p, "src_offset": o, "euros": 1}) for p, o in rows)
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    tail._appeared = {tmp_path / "b": 2.0, tmp_path / "a": 1.0}

    seen = tail.seen()
    tail._appeared[tmp_path / "c"] = 3.0
    later = tail.seen()

    assert [(at, dict(offsets.plain()["t"])) for at, offsets in seen] == [
        (1.0, {"0": 5}),
        (2.0, {"0": 5, "1": 8}),
    ]
    assert later[:2] == seen
    # A file with older rows takes nothing back.
    assert later[2][1] == seen[1][1]


def test_rates_are_reported_with_all_that_were_tried() -> None:
    steps = (Step(5_000, 5_000, _fresh(1.25)), Step(10_000, 8_000, None))

    told = rate._report({("kappa", "totals"): steps, ("flink", "projection"): "no pip"}, 9)

    assert told.line == (
        "bench rate, up to 9 events a second: kappa totals 5,000/s (p99 1.25 s); "
        "flink projection none/s"
    )
    assert (
        "| kappa | count, sum, min and max by key | 5,000 | 0.20 | 1.25 | 5,000: 1.25 s; 10,000: "
        "not all seen, 8,000 sent |"
    ) in told.page
    assert "| flink | a projection, row by row | none |  |  | no pip |" in told.page
