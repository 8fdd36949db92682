"""The bench cell of the bucket: its report of replays and freshness, in a bucket and a folder."""

from __future__ import annotations

import bucket
from freshness import Stretch
from replays import Replay

from demo.judgement.freshness import Freshness


def live(p50: float) -> Stretch:
    return Stretch(1_000, "nothing", Freshness(60_000, p50, 2 * p50, 3 * p50), 0.0, 0.0, 10.0)


def test_a_bucket_is_told_as_times_of_a_folder_and_as_milliseconds_more() -> None:
    told = bucket._report(
        {
            bucket.FOLDER: [Replay(10.0, None), Replay(20.0, None)],
            bucket.BUCKET: [Replay(15.0, None), Replay(22.0, None)],
        },
        {bucket.FOLDER: live(0.5), bucket.BUCKET: live(0.625)},
        5_000_000,
    )

    assert told.line == (
        "bench bucket, 5000000 events, 16384 keys: a replay into a bucket takes 1.30 (1.10-1.50)x "
        "as long as into a folder; p50 0.50 s, and 125 ms more"
    )
    assert "| a bucket | 18.5 (15.0-22.0) | 0.62 |" in told.page
