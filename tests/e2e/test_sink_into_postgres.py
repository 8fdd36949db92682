"""A sink's topic is copied to a real PostgreSQL by a real Kafka Connect.

Pipeline, table and settings are those of docs/howto/kafka-connect.md. PostgreSQL has the served
rows after a promote and an undo, although the connector is killed meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from connects import Connect, ensure_connect, ensure_jdbc_sink
from databases import RunningDatabase, running_database
from house import HOUSE
from testbed import Testbed, platform

from kappa.base.java.jars import Jars
from kappa.kafka.producer import ProducedRecord

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(900)]

PAGE = (HOUSE / "docs" / "howto" / "kafka-connect.md").read_text(encoding="utf-8")
HERE = "select customer, orders, spent::varchar as spent, epoch_us(last_order) as at from customers"
THERE = (
    "select customer, orders, spent::text as spent,"
    " (extract(epoch from last_order) * 1000000)::bigint as at from customers"
)
WITHOUT_ONE = "customer not like 'cust-3 %'"


def block(kind: str) -> str:
    """Returns the page's first code block in this language."""
    found = re.search(rf"```{kind}( no-run)?\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[2]


def settings_of(text: str) -> dict[str, str]:
    """Returns the settings of a properties file, with continued lines joined."""
    lines = text.replace("\\\n", "").splitlines()
    return dict(line.split("=", 1) for line in lines if line)


def order(number: int) -> ProducedRecord:
    customer = f"cust-{number % 17} é'✈"
    event = {
        "customer": customer,
        "amount": number / 4 - 20,
        "placed": f"2026-01-31T12:00:00.{number:06}Z",
    }
    return ProducedRecord(json.dumps(event).encode(), key=customer.encode())


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["customer"]))


def ensure_same(bed: Testbed, database: RunningDatabase, connect: Connect) -> int:
    """Waits until PostgreSQL has the served rows, and returns their number."""
    bed.wait_until_folded("shop", bed.log.end(["orders"]))
    bed.wait(
        lambda: ordered(bed.rows(HERE)) == ordered(database.rows(THERE)),
        f"the rows in PostgreSQL; {connect.log()}",
    )
    return len(bed.rows(HERE))


@pytest.fixture
def database() -> Iterator[RunningDatabase]:
    with running_database(block("sql")) as running:
        yield running


@pytest.fixture
def connect(database: RunningDatabase, jars: Jars, tmp_path: Path) -> Iterator[Connect]:
    program, plugin = ensure_connect(), ensure_jdbc_sink()
    if program is None or plugin is None:
        pytest.skip("not run: no sink connector for JDBC, since its jars cannot be fetched")
    folder = tmp_path / "connect"
    folder.mkdir()
    connector = settings_of(block("properties"))
    connector["connection.url"] = connector["connection.url"].replace("5432", str(database.port))
    made = Connect(program, folder, jars, "", connector)
    made.worker["plugin.path"] = str(plugin)
    yield made
    made.kill()


def test_postgres_has_what_is_served_across_a_switch(
    tmp_path: Path, database: RunningDatabase, connect: Connect
) -> None:
    shop = block("python")
    with platform(tmp_path, shop=shop) as bed:
        bed.log.produce(map(order, range(300)), "orders")
        bed.must("deploy", "--yes")
        connect.bootstrap_servers = bed.log.bootstrap_servers
        connect.start(flush_ms=3_600_000)
        assert ensure_same(bed, database, connect) == 17

        # It has noted no position: so what it has sent before the kill comes again.
        connect.kill()
        fewer = shop.replace('": orders}', f'": orders.where({WITHOUT_ONE!r})}}')
        assert fewer != shop
        bed.declare("shop", fewer)
        bed.must("deploy", "--yes")
        bed.log.produce(map(order, range(300, 400)), "orders")
        connect.start(flush_ms=500)
        assert ensure_same(bed, database, connect) == 16

        bed.must("undo", "shop", "--yes")
        bed.log.produce(map(order, range(400, 450)), "orders")
        assert ensure_same(bed, database, connect) == 17
        connect.stop()
        bed.must("undo", "shop", "--yes")
        connect.start(flush_ms=500)
        assert ensure_same(bed, database, connect) == 16
