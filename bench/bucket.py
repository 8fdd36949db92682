"""Compares a root in a bucket with a root in a folder: time of replays, and freshness.

    python bench --cell bucket

The bucket is on a real S3 server on this machine. Replays into the two roots are run in turns, and
these replays connect to the server directly. To measure the freshness of answers, a platform is run
for each root, one after the other, with the same broker. During this measurement, a proxy delays
each request to the bucket by 2 ms, as in a data centre.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cells import Cell, ensure_enough
from freshness import KEYS, RATES, Stretch, stretch
from ground import ground
from kappa_job import KappaJob
from living import Platform
from replays import Replay, in_turns, times
from screen import Report, spread_of, table

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from object_store import CREDENTIALS, ObjectStore, running_object_store

from demo.cluster.answering import answers
from kappa.base.process import start_tied
from kappa.kafka.broker.broker import HOST, free_ports
from kappa.kafka.broker_requests import wait_until

_ROUNDS = 3
_LIVE_EVENTS = 500_000
_WAIT_SECONDS = 0.002
FOLDER, BUCKET = "a folder", "a bucket"
_BROKER = """
[kafka]
bootstrap_servers = "{servers}"
"""
_BUCKET = """root = "{root}-{run}"
[storage]
endpoint = "{endpoint}"
"""


def main(home: Path, events: int) -> Report | None:
    """Measures the cell, and returns its report.

    Returns None if a result differs from the oracle's.
    """
    ensure_enough(events)
    os.environ.update(CREDENTIALS)
    (home / "run").mkdir(parents=True, exist_ok=True)
    with running_object_store(home / "run" / "s3") as server:
        cell = Cell("bucket", "totals", events, KEYS, _ROUNDS, ())
        settings = _settings(server, server.storage.endpoint)
        ways = {FOLDER: (KappaJob(_BROKER), cell), BUCKET: (KappaJob(settings), cell)}
        replays = in_turns(home, ways, _ROUNDS)
        if replays is None:
            return None
        with ground(home) as here, _waiting_before(server, home / "run" / "waits.log") as endpoint:
            roots = {FOLDER: _BROKER, BUCKET: _settings(server, endpoint)}
            fresh = {
                way: _fresh(home, root.replace("{servers}", here.log.bootstrap_servers))
                for way, root in roots.items()
            }
    if None in fresh.values():
        return None
    return _report(replays, {way: each for way, each in fresh.items() if each}, events)


@contextmanager
def _waiting_before(server: ObjectStore, log: Path) -> Iterator[str]:
    """Runs a proxy that delays requests to a server, and yields the proxy's endpoint."""
    port = free_ports(None)[0]
    program = Path(__file__).parent / "scripts" / "waits.py"
    given = [port, server.port, _WAIT_SECONDS]
    with log.open("wb") as output:
        proxy = start_tied([sys.executable, str(program), *map(str, given)], output=output)
    try:
        wait_until(lambda: answers(port, "/health"), "the proxy")
        yield f"http://{HOST}:{port}"
    finally:
        proxy.kill()
        proxy.wait()


def _settings(server: ObjectStore, endpoint: str | None) -> str:
    root = _BUCKET.replace("{root}", server.new_root()).replace("{endpoint}", str(endpoint))
    return f"{root}{_BROKER}"


def _fresh(home: Path, root: str) -> Stretch | None:
    """Measures the freshness of answers of a platform with the root settings `root`.

    Returns None if the served rows differ from the oracle's.
    """
    cell = Cell("bucket-live", "totals", _LIVE_EVENTS, KEYS, 1, ())
    platform = Platform(home, cell, root=root.replace("{run}", "live"))
    with platform.up():
        found = stretch(platform, RATES[0], "nothing")
        is_right = platform.is_right()
    shutil.rmtree(platform.folder)
    return found if is_right else None


def _report(
    replays: Mapping[str, Sequence[Replay]], fresh: Mapping[str, Stretch], events: int
) -> Report:
    walls = {way: [each.wall for each in found] for way, found in replays.items()}
    longer = times(walls[FOLDER], walls[BUCKET])
    p50 = {way: each.freshness.p50 for way, each in fresh.items()}
    more = (p50[BUCKET] - p50[FOLDER]) * 1_000
    rows = [(way, spread_of(walls[way], "{:.1f}"), f"{p50[way]:.2f}") for way in replays]
    rows.append(
        ("a bucket's cost (targets 1.3 times, 150 ms)", f"{longer} times", f"{more:.0f} ms")
    )
    note = (
        f"{events:,} events, {KEYS:,} keys; {_ROUNDS} rounds taken in turns.\n"
        f"Freshness at {RATES[0]:,} events/s; requests wait {_WAIT_SECONDS * 1_000:.0f} ms."
    )
    figures = table(("root in", "replay, seconds", "freshness p50, seconds"), rows)
    return Report(
        f"bench bucket, {events} events, {KEYS} keys: a replay into a bucket takes {longer}x as "
        f"long as into a folder; p50 {p50[FOLDER]:.2f} s, and {more:.0f} ms more",
        {way: {"replays": found, "live": fresh[way]} for way, found in replays.items()},
        f"{figures}\n\n{note}",
    )
