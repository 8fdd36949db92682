"""Plans over a log that has lost its beginning: refused, or allowed and recorded for ever.

The same rules apply to a saved plan. The platforms of this file use an existing broker
(`kafka.bootstrap_servers`) and run none of their own. That broker may also disappear.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from e2e_shop import LEAN_1, LEAN_2, order
from testbed import Testbed, platform

from kappa.base.settings import load_settings
from kappa.broker.broker import Broker
from kappa.java.jars import Jars
from kappa.java.java import Java
from kappa.log.client import Log
from kappa.state.offsets import Offsets
from replay.look.archive import archive_status

pytestmark = [pytest.mark.jvm]


def lose(bed: Testbed, topic: str, partition: int, before: int) -> None:
    """Deletes a partition's records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": bed.log.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(20)


def test_a_lost_beginning_is_refused_accepted_and_told_for_ever(
    tmp_path: Path, lent: str, broker: Broker
) -> None:
    # What served before a change is of no use here.
    with platform(tmp_path / "gaps", lent + '[rollout]\nsoak = "0s"\n', shop=LEAN_1) as bed:
        assert not bed.pids("kafka.Kafka")
        end = bed.log.produce(
            [order(number, customer="ada") for number in range(10)], "orders"
        ).offsets
        ((_, partition, _),) = [each for each in end.items() if each[2]]
        lose(bed, "orders", partition, 4)

        refused = bed.kappa("deploy", "--yes")
        assert refused.code == 1
        assert (
            f"orders partition {partition} begins at offset 4: a replay would miss what came before"
            in refused.out
        )

        bed.must("plan", "--out", "plan.json", "--accept-gap")
        bed.must("deploy", "--plan", "plan.json")
        assert bed.rows("select customer, orders from by_customer") == [
            {"customer": "ada", "orders": 6}
        ]
        assert bed.kappa("deploy", "--plan", "plan.json").code == 6

        # Of what serves nobody asks; a new build needs it anew.
        assert bed.kappa("plan", "--detailed-exitcode").code == 0
        bed.declare("shop", LEAN_2)
        refused = bed.kappa("deploy", "--yes")
        assert refused.code == 1
        assert f"orders partition {partition} begins at offset 4" in refused.out
        (step,) = bed.must("plan", "--accept-gap", "-o", "json").json()["steps"]
        # A broker that is not ours has its disk elsewhere.
        assert step["cost"]["bytes"] is None
        assert step["cost"]["disk_needed"] > 0
        assert any(
            line.startswith("+") for diff in step["diffs"] for line in diff["diff"].splitlines()
        )
        ((told,),) = (each["accepted"] for each in bed.must("history", "-o", "json").json())
        assert told.startswith(f"gap: orders partition {partition} begins")

        # From when it is archived on nothing is lost any more, whatever the topic loses.
        bed.declare("shop", LEAN_2.replace("partitions=3,", "partitions=3, archive=True,"))
        end = bed.log.produce(
            [order(number, customer="ada") for number in range(5)], "orders"
        ).offsets
        log, archive_end = bed.log, bed.log.end(["orders"])
        bed.wait(lambda: archived(bed, log, archive_end), "the archive of orders")
        (status,) = bed.must("archive", "status", "-o", "json").json()
        assert (status["state"], status["behind"], status["records"]) == ("following", 0, 11)
        assert [each["found"] for each in bed.must("archive", "verify", "-o", "json").json()] == [
            "as it should be"
        ]
        lose(bed, "orders", partition, end.at("orders", partition))
        (step,) = bed.must("plan", "--accept-gap", "-o", "json").json()["steps"]
        assert any(
            note.startswith(
                f"topic orders: offsets 4 to 14 of partition {partition} come from its archive"
            )
            for note in step["notes"]
        )
        bed.must("deploy", "--yes", "--accept-gap")
        assert bed.rows("select count(*) as n from order_log") == [{"n": 11}]
        (told,) = bed.rows("select amount, amounts, mean from by_customer")
        assert told["mean"] == told["amount"] / told["amounts"]
    assert broker.alive()


def archived(bed: Testbed, log: Log, end: Offsets) -> bool:
    """Looks as `kappa archive status` does, without a process each time that it is asked."""
    found = archive_status(load_settings(bed.folder), bed.store, {}, log)
    return any(
        each.mark is not None and Offsets({"orders": dict(each.mark.end)}).covers(end)
        for each in found
    )


@pytest.mark.fault
@pytest.mark.sweep
def test_a_broker_that_is_away_for_a_minute_is_waited_for_and_status_says_so(
    tmp_path: Path, jars: Jars, java: Java
) -> None:
    given = Broker.start(tmp_path / "theirs", jars, java)
    try:
        with platform(
            tmp_path / "away",
            f'[kafka]\nbootstrap_servers = "{given.bootstrap_servers}"\n',
            shop=LEAN_1,
        ) as bed:
            bed.log.produce((order(number, customer="ada") for number in range(50)), "orders")
            bed.must("deploy", "--yes")
            supervisor = bed.supervisor_pid
            given.stop()
            back = monotonic() + 60

            def told() -> dict[str, Any]:
                return bed.must("status", "-o", "json").json()

            away = told()
            bed.wait(lambda: monotonic() > back, "a whole minute")
            # What was folded is served all the while, and nothing has given up.
            assert bed.rows("select customer, orders from by_customer") == [
                {"customer": "ada", "orders": 50}
            ]
            for status in (away, told()):
                assert (
                    status["broker"]["error"]
                    == f"no Kafka broker answers at {given.bootstrap_servers}"
                )
                (build,) = status["builds"]
                assert (build["state"], build["behind"]) == ("serving", None)

            given = Broker.start(tmp_path / "theirs", jars, java)
            bed.log.produce((order(number, customer="ada") for number in range(50, 80)), "orders")
            bed.wait_until_folded("shop", bed.log.end(["orders"]))
            assert bed.rows("select customer, orders from by_customer") == [
                {"customer": "ada", "orders": 80}
            ]
            assert bed.supervisor_pid == supervisor
            bed.wait(lambda: not told()["builds"][0]["trouble"], "all being well again")
            assert told()["broker"]["error"] is None
    finally:
        given.stop()
