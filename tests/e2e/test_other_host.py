"""A platform with its root in a bucket, whose host is lost with its folder: another goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from e2e_shop import LEAN_1, LEAN_2, order
from losing import Restarted
from object_store import ObjectStore
from testbed import Testbed, platform
from victims import kill

pytestmark = [pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(900)]

SETTINGS = """
root = "{root}"
[storage]
endpoint = "{endpoint}"
[kafka]
bootstrap_servers = "{bootstrap_servers}"
"""
RECORDS = 700
ASKED = "select sum(orders)::bigint as orders, sum(amount)::bigint as amount from by_customer"


def amounts_of(count: int) -> list[int | None]:
    return [json.loads(order(number).value or b"")["amount"] for number in range(count)]


def assert_served(bed: Testbed, amounts: list[int | None]) -> None:
    bed.wait_until_folded("shop", bed.log.end(["orders"]))
    (found,) = bed.rows(ASKED)
    assert found == {"orders": len(amounts), "amount": sum(each or 0 for each in amounts)}


def test_a_host_that_is_lost_is_followed_by_another_which_switches_and_undoes(
    kafka: Restarted, object_store: ObjectStore, tmp_path: Path
) -> None:
    settings = SETTINGS.format(
        root=object_store.new_root(),
        endpoint=object_store.storage.endpoint,
        bootstrap_servers=kafka.broker.bootstrap_servers,
    )
    with platform(tmp_path / "shop", settings, shop=LEAN_1) as bed:
        bed.log.produce((order(number) for number in range(RECORDS)), "orders")
        bed.must("deploy", "--yes")
        every = amounts_of(RECORDS)
        assert_served(bed, every)

        for pid in bed.pids():
            kill(pid)
        shutil.rmtree(bed.store.local.folder)
        # Nothing here says that this is the host that had the root.
        refused = bed.kappa("up", "-d")
        assert (refused.code, "is claimed by host" in refused.err) == (1, True), refused
        bed.must("up", "-d", "--take-over")

        bed.declare("shop", LEAN_2)
        bed.must("replay", "shop", "--yes")
        assert_served(bed, [each for each in every if each is None or each >= 0])
        bed.must("undo", "--yes")
        assert_served(bed, every)
