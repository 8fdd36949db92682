"""A log that lost its end under a running platform: what people see, and both ways to continue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from losing import Restarted
from testbed import Testbed, platform

from kappa.base.java.jars import Jars
from kappa.base.java.java import Java

pytestmark = [pytest.mark.jvm, pytest.mark.fault, pytest.mark.sweep]

SHOP = """
from kappa import Table, Topic, count, pipeline, sum_

ORDERS = Topic("orders", event="customer string not null, amount bigint", partitions=2)


@pipeline(
    reads={"orders": ORDERS},
    writes=[
        Table("totals", keys=("customer",), fold={"orders": count(), "amount": sum_("amount")}),
        Table("order_log"),
    ],
)
def shop(orders):
    return {"totals": orders, "order_log": orders}
"""


@pytest.fixture
def kafka(jars: Jars, java: Java, tmp_path: Path) -> Iterator[Restarted]:
    running = Restarted(tmp_path / "kafka", jars, java)
    yield running
    running.broker.stop()


def produce(kafka: Restarted, *amounts: int) -> None:
    kafka.produce("orders", *(json.dumps({"customer": "ada", "amount": n}) for n in amounts))


def assert_serves(bed: Testbed, kafka: Restarted, *amounts: int) -> None:
    """Asserts that the serving build has folded the whole log, with exactly these orders."""
    bed.wait_until_folded("shop", kafka.log.end(["orders"]))
    rows = bed.rows("select amount from order_log order by amount")
    assert [row["amount"] for row in rows] == sorted(amounts)
    assert bed.rows("select orders, amount from totals") == [
        {"orders": len(amounts), "amount": sum(amounts)}
    ]


def hint_when_stopped(bed: Testbed, lost: str) -> str:
    """Waits until the live job has stopped; returns the note of `kappa status`."""

    def live() -> dict[str, str]:
        found = bed.must("status", "-o", "json").json()["builds"]
        (build,) = (each for each in found if each["role"] == "live")
        return dict(build)

    bed.wait(lambda: live()["state"] == "stopped", "the end of the job")
    why = live()["note"]
    assert f"the log has lost its end, which build {bed.live('shop')} has folded: {lost}" in why
    assert lost in bed.must("status").out
    refused = bed.kappa("prove", "shop")
    assert refused.code == 1
    assert (
        "pipeline shop is not provable: the log has lost its end, which the build has folded: "
        f"{lost}" in refused.err
    )
    return why


def test_it_is_told_and_a_replay_or_a_branch_goes_on(tmp_path: Path, kafka: Restarted) -> None:
    """The log is shorter than what readers saw, and later longer."""
    settings = f'[kafka]\nbootstrap_servers = "{kafka.broker.bootstrap_servers}"\n'
    kafka_root = tmp_path / "project"
    with platform(kafka_root, settings, shop=SHOP) as bed:
        produce(kafka, 1, 2, 4, 8, 16)
        bed.must("deploy", "--yes")
        assert_serves(bed, kafka, 1, 2, 4, 8, 16)

        kafka.lose("orders", batches=2)
        hint_when_stopped(bed, "orders partition 0 was cut at offset 3 and has lost offsets 3 to 4")
        bed.must("replay", "shop", "--yes")
        assert_serves(bed, kafka, 1, 2, 4)

        produce(kafka, 32, 64)
        assert_serves(bed, kafka, 1, 2, 4, 32, 64)
        kafka.lose("orders")
        produce(kafka, 128, 256, 512)
        why = hint_when_stopped(bed, "orders partition 0 was cut at offset 4 and has lost offset 4")
        (start,) = re.findall(r"kappa branch shop --from (\S+)", why)
        assert start == "orders:0=4,orders:1=0"
        bed.must("branch", "shop", "--from", start, "--yes")
        assert_serves(bed, kafka, 1, 2, 4, 32, 128, 256, 512)
        proved = bed.must("prove", "shop").out
        assert "equal" in proved
