"""The bench cell of the cluster: its report of replays on a cluster and on one machine."""

from __future__ import annotations

import cluster
from figures import Warm
from replays import Replay


def test_a_replay_on_the_cluster_is_told_as_times_of_one_here_round_by_round() -> None:
    told = cluster._report(
        {
            cluster.HERE: [Replay(10.0, Warm(4_000, 4.0)), Replay(20.0, Warm(4_000, 8.0))],
            cluster.THERE: [Replay(15.0, Warm(4_000, 5.0)), Replay(22.0, Warm(4_000, 8.0))],
        },
        5_000_000,
    )

    assert told.line == (
        "bench cluster, 5000000 events, 16384 keys: a replay on 2 workers of a core takes "
        "1.30 (1.10-1.50)x as long as on local[2], warm 1.12 (1.00-1.25)x"
    )
    assert "| 2 workers of a core | 18.5 (15.0-22.0) | 650 (500-800) |" in told.page
