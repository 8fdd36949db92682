"""What stands in a plan's way (a log that has lost its beginning, a clock): refused, or let through with that written down for ever; by a saved plan too.

The platform of this file is on a broker that is there already (`kafka.bootstrap_servers`), and runs none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from e2e_shop import V1, V2, order
from testbed import Testbed, platform

from kappa.log.broker import Broker
from kappa.log.client import Log

pytestmark = [pytest.mark.jvm]

# Each order is noted with the time at which it was folded.
NOTED = V2.replace("from kappa import", "from pyspark.sql import functions as F\nfrom kappa import").replace(
    '"amount", "at")}', '"amount", "at", F.current_timestamp().alias("noted"))}'
)


def lose(bed: Testbed, topic: str, partition: int, before: int) -> None:
    """Deletes a partition's records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": bed.log.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(20)


@pytest.fixture
def given(broker: Broker) -> Iterator[Broker]:
    """The session's broker, left without this shop's topics."""
    yield broker
    for name in ("orders", "items"):
        Log(broker.bootstrap_servers).delete(name)


def test_a_lost_beginning_is_refused_accepted_and_told_for_ever(tmp_path: Path, given: Broker) -> None:
    with platform(tmp_path / "gaps", f'[kafka]\nbootstrap_servers = "{given.bootstrap_servers}"\n', shop=V1) as bed:
        assert not bed.pids("kafka.Kafka")
        end = bed.log.produce([order(number, customer="ada") for number in range(10)], "orders").offsets
        ((_, partition, _),) = [each for each in end.items() if each[2]]
        lose(bed, "orders", partition, 4)

        refused = bed.kappa("deploy", "--yes")
        assert refused.code == 1
        assert f"orders partition {partition} begins at offset 4: a replay would miss what came before" in refused.err

        bed.must("plan", "--out", "plan.json", "--accept-gap")
        bed.must("deploy", "--plan", "plan.json")
        assert bed.rows("select customer, orders from by_customer") == [{"customer": "ada", "orders": 6}]
        assert bed.kappa("deploy", "--plan", "plan.json").code == 6

        # Of what serves nobody asks; a new build needs it anew, and both are told.
        assert bed.kappa("plan", "--detailed-exitcode").code == 0
        bed.declare("shop", NOTED)
        refused = bed.kappa("deploy", "--yes", "--accept-gap")
        assert refused.code == 1
        clock = f"pipelines/shop.py:{1 + NOTED[: NOTED.index('F.current')].count(chr(10))}"
        assert f"{clock} uses pyspark.sql.functions.current_timestamp, which reads the clock" in refused.err
        allowed = ("--accept-gap", "--allow", f"{clock}=it is for people to read")
        planned = bed.must("plan", *allowed, "-o", "json").json()
        (step,) = planned["steps"]
        # A broker that is not ours has its disk elsewhere.
        assert step["cost"]["bytes"] is None
        assert step["cost"]["disk_needed"] > 0
        assert any(line.startswith("+") for diff in step["diffs"] for line in diff["diff"].splitlines())
        bed.must("deploy", "--yes", *allowed)
        first, second = (each["accepted"] for each in bed.must("history", "-o", "json").json())
        for accepted in (first, second):
            assert [each.partition(" begins")[0] for each in accepted if each.startswith("gap: ")] == [f"gap: orders partition {partition}"]
        assert any(each.startswith(clock) and each.endswith(": it is for people to read") for each in second)
        # Small slices share a plan that is made once, and each of them has its own time all the same.
        for number in range(10, 12):
            bed.log.produce([order(number, customer="ada")], "orders")
            bed.wait_until_folded("shop", bed.log.end(["orders"]))
        assert bed.rows("select count(*) as orders, count(distinct noted) >= 3 as apart from order_log") == [{"orders": 8, "apart": True}]
    assert given.alive()
