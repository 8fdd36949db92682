"""A promote and an undo with Spark, seen by Postgres clients in transactions and an export.

Everything is real: the broker, the jobs, the server for Postgres clients, and `kappa export
--follow`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
from deltalake import DeltaTable
from meanwhile import Producing, beside
from ports import free_port
from postgres_clients import SwitchClient
from pyiceberg.catalog import load_catalog
from story_shop import FIRST, WITHOUT_AN_ITEM, Orders
from testbed import Testbed, platform

from kappa.base.duck import open_connection
from kappa.tables.views.exact_rows import rows_of

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(900)]

CLIENTS, OPEN_SECONDS = 16, 0.5
SETTINGS = """
[serve.postgres]
listen = "127.0.0.1:{port}"
[serve]
query_seconds = 120.0
"""
# Each order is in the log, and counts for its customer: else the answer is of two moments.
CUSTOMERS = "select coalesce(sum(orders), 0)::bigint from by_customer"
LOG = "select count(*) from order_log"


class Client(SwitchClient):
    """A client that adds up the orders of the log and of all customers."""

    def _look(
        self, connection: psycopg.Connection[Any], before: tuple[int, int]
    ) -> tuple[int, int]:
        (text,) = connection.execute("select kappa_snapshot()").fetchone()
        (customers,) = connection.execute(CUSTOMERS, prepare=True).fetchone()
        # Most switches come while the transaction is open, and the platform has the processors.
        self.stop.wait(OPEN_SECONDS)
        (logged,) = connection.execute(LOG, prepare=True).fetchone()
        connection.commit()
        snapshot = json.loads(text)
        offsets = snapshot["builds"]["shop"]["offsets"]["orders"]
        seen = snapshot["generation"], sum(offsets.values())
        if customers != logged:
            self.faults.append(f"mixed: {customers} and {logged} in {text}")
        if seen[0] < before[0] or seen[1] < before[1]:
            self.faults.append(f"backward: {seen} after {before}")
        return seen


def test_a_switch_is_one_moment_to_clients(tmp_path: Path) -> None:
    """16 clients see no error, nothing mixed and nothing older; a copy for engines follows."""
    port, lake = free_port(), tmp_path / "lake"
    settings = SETTINGS.format(port=port)
    with platform(tmp_path / "shop", settings, listen="127.0.0.1:0", shop=FIRST) as bed:
        bed.log.produce([record for _, record in Orders(1, 300)(0)], "orders")
        bed.must("deploy", "--yes")
        dsn, stop = f"postgresql://me@127.0.0.1:{port}/kappa", threading.Event()
        clients = [Client(dsn, stop) for _ in range(CLIENTS)]
        threads = [threading.Thread(target=each.run) for each in clients]
        with following(bed, lake) as exports, beside(Producing(bed, Orders(2))):
            for each in threads:
                each.start()
            try:
                bed.declare("shop", WITHOUT_AN_ITEM)
                bed.must("deploy", "--yes")
                wait_for_all(bed, clients)
                # Killed in between, wherever it is just then.
                exports[-1].send_signal(signal.SIGKILL)
                exports[-1].communicate()
                exports.append(start_export(bed, lake))
                bed.must("undo", "shop", "--yes")
                wait_for_all(bed, clients)
                bed.wait(lambda: copied_generation(lake) == 3, "the undo in the copies")
            finally:
                stop.set()
                for each in threads:
                    each.join()
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
        bed.must("export", "by_customer", "order_log", "--to", str(lake), "--iceberg")
        assert_copied(bed, lake)
        assert sorted({*json.loads((lake / "kappa-export.json").read_text())["tables"]}) == [
            "by_customer",
            "order_log",
        ]

    assert [fault for each in clients for fault in each.faults] == []
    assert all({1, 2, 3} == each.generations for each in clients), [
        each.generations for each in clients
    ]
    print(f"{sum(each.transactions for each in clients)} transactions")


@contextmanager
def following(bed: Testbed, lake: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Keeps a copy up to date within the block; the caller must restart a killed export."""
    started = [start_export(bed, lake)]
    try:
        yield started
    finally:
        for each in started:
            if each.poll() is None:
                each.send_signal(signal.SIGINT)
                _, said = each.communicate(timeout=60)
                assert each.returncode == 130, said
                assert "switched to generation" in said


def start_export(bed: Testbed, lake: Path) -> subprocess.Popen[str]:
    words = ("by_customer", "order_log", "--to", str(lake), "--follow", "--every", "0.2")
    return bed.start("export", *words, "--iceberg")


def wait_for_all(bed: Testbed, clients: list[Client]) -> None:
    """Waits until each client has seen the current generation, or has failed."""
    generation = bed.state().generation
    bed.wait(
        lambda: all(each.faults or generation in each.generations for each in clients),
        f"generation {generation} at each client",
    )


def copied_generation(lake: Path) -> int:
    """Returns the generation of the copies."""
    return int(json.loads((lake / "kappa-export.json").read_text())["generation"])


def assert_copied(bed: Testbed, lake: Path) -> None:
    """Asserts that readers of Delta, Polars and Iceberg get exactly the served rows."""
    with load_catalog(
        "kappa", type="sql", uri=f"sqlite:///{lake / 'iceberg' / 'catalog.db'}"
    ) as catalog:
        for name in ("by_customer", "order_log"):
            wanted = sorted(map(str, bed.rows(f"from {name}")))
            assert wanted
            for found in (
                DeltaTable(str(lake / name)).to_pyarrow_table(),
                pl.scan_delta(str(lake / name)).collect().to_arrow(),
                catalog.load_table(("kappa", name)).scan().to_arrow(),
            ):
                assert rows_in(found) == wanted
        catalog.engine.dispose()


def rows_in(found: Any) -> list[str]:
    with open_connection() as duck:
        duck.register("found", found)
        return sorted(str(row) for row in rows_of(duck, "from found"))
