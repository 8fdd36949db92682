"""Compares a replay on a Spark cluster with a replay on this machine's cores.

    python bench --cell cluster

The cluster is Spark's own standalone cluster on this machine: a master and two workers with one
core each. The executors start with the replay. So both replays use the same cores, and the
difference is the cost of the cluster: more JVMs, and the transfer of rows, code and jars between
processes. The replays are run in turns.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cells import Cell, ensure_enough
from freshness import KEYS
from kappa_job import KappaJob
from replays import Replay, in_turns, times
from screen import Report, spread_of, table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from spark_cluster import spark_cluster

from kappa.kafka.broker.broker import HOST

_ROUNDS = 2
_WORKERS = 2
HERE, THERE = f"local[{_WORKERS}]", f"{_WORKERS} workers of a core"
# Both decode all of the log in Spark's workers.
_HERE = f"[engine]\ncores = {_WORKERS}\ndriver_rows = 50000\n"
_THERE = """
[engine]
driver_rows = 50000
master = "{master}"
driver_host = "{host}"
[engine.conf]
"spark.cores.max" = "{cores}"
"spark.executor.cores" = "1"
"spark.executor.memory" = "1g"
"""


def main(home: Path, events: int) -> Report | None:
    """Measures the cell, and returns its report.

    Returns None if a result differs from the oracle's.
    """
    ensure_enough(events)
    cell = Cell("cluster", "totals", events, KEYS, _ROUNDS, ())
    with spark_cluster(home / "run" / "spark-cluster", workers=_WORKERS) as cluster:
        settings = _THERE.format(master=cluster.url, host=HOST, cores=_WORKERS)
        ways = {HERE: (KappaJob(_HERE), cell), THERE: (KappaJob(settings), cell)}
        found = in_turns(home, ways, _ROUNDS)
        folded = len(cluster.applications(ended=True))
    if found is None:
        return None
    assert folded == _ROUNDS, f"{folded} of {_ROUNDS} replays were folded on the cluster"
    return _report(found, events)


def _report(found: Mapping[str, Sequence[Replay]], events: int) -> Report:
    walls = {way: [each.wall for each in replays] for way, replays in found.items()}
    rates = {
        way: [each.warm.rate for each in replays if each.warm is not None]
        for way, replays in found.items()
    }
    longer, slower = times(walls[HERE], walls[THERE]), times(rates[THERE], rates[HERE])
    rows = [
        (way, spread_of(walls[way], "{:.1f}"), spread_of(rates[way], "{:,.0f}")) for way in found
    ]
    rows.append(("times as long on the cluster (target 1.3)", longer, slower))
    note = f"{events:,} events, {KEYS:,} keys; {_ROUNDS} rounds taken in turns."
    return Report(
        f"bench cluster, {events} events, {KEYS} keys: a replay on {THERE} takes {longer}x as long "
        f"as on {HERE}, warm {slower}x",
        found,
        f"{table(('tasks run on', 'seconds', 'events/s, warm'), rows)}\n\n{note}",
    )
