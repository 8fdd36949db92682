"""The law of transactions: one snapshot, whatever is published, promoted or undone meanwhile."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from msgspec.structs import replace
from postgres_clients import PostgresThread, SwitchClient
from served import Platform, serve_build

from kappa.base.clock import now
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth

pytestmark = [pytest.mark.slow, pytest.mark.long]

CLIENTS, SWITCHES = 16, 6
LEFT = TableBirth("lefts", (("n", "bigint"), ("version", "bigint")), keys=("n",))
RIGHT = TableBirth("rights", (("n", "bigint"), ("version", "bigint")), keys=("n",))
# Both tables of a frontier have the same rows, of one version: all else is a mixed answer.
ASKED = "select count(*), min(version), max(version) from {}"


class Steps:
    """Two builds of a pipeline that publish, one of which serves."""

    def __init__(self, store: Store) -> None:
        self.platform = Platform(store)
        self.builds: list[str] = []
        for version in (1, 2):
            rows = pa.table({"n": [0], "version": [version]})
            self.platform.serve("pair", {LEFT: rows, RIGHT: rows})
            self.builds.append(f"pair-{version}")

    def publish(self, version: int) -> None:
        """Adds a row to both tables of a build, with one frontier."""
        build = self.builds[version - 1]
        frontiers = Frontiers(self.platform.store, build)
        last = frontiers.newest()
        assert last is not None
        number = last.number + 1
        rows = pa.table({"n": [number], "version": [version]})
        for table in (LEFT, RIGHT):
            self.platform._write(build, table, rows)
        versions = {**last.versions, "lefts": last.versions["lefts"] + 1}
        versions["rights"] += 1
        offsets = Offsets({"flights": {0: 12 * number}})
        self.platform._publish(
            replace(Frontier(number, build, 1, offsets, versions, now()), hold=last.hold), last
        )

    def serve(self, version: int) -> None:
        """Makes a build serve, by a promote or an undo."""
        serve_build(self.platform.store, "pair", self.builds[version - 1])


class Reader(SwitchClient):
    """A client that looks at both tables."""

    def _look(
        self, connection: psycopg.Connection[tuple[object, ...]], before: tuple[int, int]
    ) -> tuple[int, int]:
        (text,) = connection.execute("select kappa_snapshot()").fetchone() or ("",)
        left = connection.execute(ASKED.format("lefts")).fetchone()
        right = connection.execute(ASKED.format("rights"), prepare=True).fetchone()
        connection.commit()
        snapshot = json.loads(str(text))
        build = snapshot["builds"]["pair"]
        count = build["versions"]["lefts"] + 1
        version = int(str(build["build"]).rpartition("-")[2])
        if not left == right == (count, version, version):
            self.faults.append(f"mixed: {left} {right} in {text}")
        now_seen = (snapshot["generation"], count)
        if now_seen[0] < before[0] or (now_seen[0] == before[0] and count < before[1]):
            self.faults.append(f"backward: {now_seen} after {before}")
        return now_seen


def test_transactions_hold_across_switches(tmp_path: Path) -> None:
    """16 clients in transactions see no error, no mixed answer, and no answer that goes back."""
    steps, stop = Steps(Store(tmp_path / "root")), threading.Event()
    allowance = Allowance(memory=256 << 20, seconds=60, at_once=4)
    with PostgresThread(steps.platform.store, allowance) as server:
        readers = [Reader(server.dsn, stop) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=each.run) for each in readers]
        for each in threads:
            each.start()
        for switch in range(SWITCHES):
            seen = [each.transactions for each in readers]
            for version in (1, 2):
                steps.publish(version)
            # A promote, then its undo, and so on.
            steps.serve(1 + switch % 2)
            wait_for_all(readers, seen, stop)
        stop.set()
        for each in threads:
            each.join()

    assert [fault for each in readers for fault in each.faults] == []
    assert all(len(each.generations) > 1 for each in readers)


def wait_for_all(readers: list[Reader], seen: list[int], stop: threading.Event) -> None:
    """Waits until each reader has ended one more transaction, or has failed."""
    while any(
        each.transactions < before + 1 and not each.faults
        for each, before in zip(readers, seen, strict=True)
    ):
        stop.wait(0.05)
