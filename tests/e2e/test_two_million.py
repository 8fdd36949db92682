"""A replay of 2 million events within limited memory.

Time and memory are printed, and the result is compared. No time is asserted. In `make test`,
`test_gaps.py` replays fewer events within the same memory.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest
from bidding import BIDDING, MOST_BYTES, bid, bidders, expected, watched
from testbed import platform

EVENTS = 2_000_000


@pytest.mark.jvm
@pytest.mark.sweep
@pytest.mark.timeout(1200)
def test_so_many_events_replay_within_bounded_memory(tmp_path: Path) -> None:
    with platform(tmp_path / "big", bidding=BIDDING) as bed:
        bed.log.produce((bid(number) for number in range(EVENTS)), "bids")
        begun = monotonic()
        with watched(bed.memory) as peak:
            bed.must("deploy", "--yes")
        took = monotonic() - begun

        assert bidders(bed) == expected(range(EVENTS))
        frontier = bed.frontier(bed.live("bidding"))
        assert frontier is not None
        assert sum(tally.decoded for tally in frontier.tally["bids"].values()) == EVENTS
        print(
            f"{EVENTS:,} events, deploy to serving in {took:.1f} s = {EVENTS / took:,.0f} events/s "
            f"with all start-up, peak RSS of all processes {peak.bytes / 2**30:.2f} GiB"
        )
        for line in bed.logs().splitlines():
            if "slice " in line:
                print(line)
        assert peak.bytes < MOST_BYTES
