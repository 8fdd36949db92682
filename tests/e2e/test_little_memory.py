"""A whole platform with little memory, with all settings that limit memory.

The heaps are limited, and so is the memory of checks and queries. In addition to its heap, a JVM
needs some 300 MiB for code and stacks: with a limit of half a gigabyte of data (`ulimit -d`),
Spark's JVM exits at its start.
"""

from __future__ import annotations

from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from e2e_shop import V1, V2, item, order
from reading import assert_right
from testbed import platform

from kappa.replay.status.run_records import served_at

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(900)]

# All that settings limit. A worker's limit is its address space, of which its libraries take most.
SETTINGS = """
[engine]
memory = "512m"
worker_memory = "3g"
spares = 0
[kafka]
heap = "256m"
[verify]
memory = "128m"
[serve]
query_memory = "256m"
"""
ORDERS = 60_000


def test_a_platform_with_little_memory_is_right(tmp_path: Path) -> None:
    """The platform deploys, replays, tails, answers and undoes, and no process lacks memory."""
    with platform(tmp_path / "shop", SETTINGS, listen="127.0.0.1:0", shop=V1) as bed:
        bed.log.produce((item(number, f"title {number}") for number in range(9)), "items")
        bed.log.produce((order(number) for number in range(ORDERS)), "orders")
        bed.must("deploy", "--yes")
        bed.declare("shop", V2)
        bed.must("deploy", "--yes")
        bed.log.produce((order(number) for number in range(500)), "orders")
        bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
        assert_right(bed, version=2)

        url = served_at(bed.store)
        assert url is not None
        counted = b"select sum(orders)::bigint from by_item"
        asked = Request(f"{url}/api/v1/query", counted, {"Content-Type": "application/sql"})
        with urlopen(asked, timeout=60) as answered:
            assert str(ORDERS + 500) in answered.read().decode()
        for words in (("status",), ("prove", "shop"), ("doctor",), ("query", counted.decode())):
            bed.must(*words)
        print(f"{bed.memory() >> 20} MiB in all processes together")
        bed.must("undo", "--yes")
        bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
        assert_right(bed, version=1)
        deaths = bed.store.path("logs/supervisor.log").read_text(encoding="utf-8")
        assert "is started again" not in deaths
