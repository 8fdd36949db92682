"""Plans for a log that has lost its beginning: refused, or allowed and recorded permanently.

The same rules apply to a saved plan. The platforms of this file use an existing broker
(`kafka.bootstrap_servers`) and run none of their own. That broker may also disappear.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from bidding import BIDDING, MOST_BYTES, bid, bidders, expected, watched
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from e2e_shop import LEAN_1, order
from testbed import Testbed, platform

from kappa.base.java.jars import Jars
from kappa.base.java.java import Java
from kappa.base.settings import load_settings
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.replay.status.archive import archive_status
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.jvm, pytest.mark.sweep]

# More than a job decodes in its own process; tests/e2e/test_two_million.py replays many more.
EVENTS, PARTITION = 60_000, 2
BIDDING_2 = BIDDING.replace("count, pipeline", "avg_, count, pipeline").replace(
    '"price": sum_("price")', '"price": sum_("price"), "mean": avg_("price")'
)


def lose(bed: Testbed, topic: str, partition: int, before: int) -> None:
    """Deletes a partition's records before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": bed.log.bootstrap_servers})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(20)


def test_a_lost_beginning_is_refused_accepted_and_told_for_ever(
    tmp_path: Path, lent: str, broker: Broker
) -> None:
    """Many events are replayed within limited memory, from the log and from an archive."""
    # What served before a change is of no use here.
    with platform(tmp_path / "gaps", lent + '[rollout]\nsoak = "0s"\n', bidding=BIDDING) as bed:
        assert not bed.pids("kafka.Kafka")
        bed.log.produce((bid(number) for number in range(EVENTS)), "bids")
        wanted = expected(range(EVENTS))
        for record in bed.log.records(["bids"], Offsets(), Offsets({"bids": {PARTITION: 4}})):
            event = json.loads(record.value or b"")
            wanted[event["bidder"]][0] -= 1
            wanted[event["bidder"]][1] -= event["price"]
        lose(bed, "bids", PARTITION, 4)

        refused = bed.kappa("deploy", "--yes")
        assert refused.code == 1
        assert (
            f"bids partition {PARTITION} begins at offset 4: a replay would miss what came before"
            in refused.out
        )

        bed.must("plan", "--out", "plan.json", "--accept-gap")
        with watched(lambda: bed.memory() + resident(broker.pid)) as peak:
            bed.must("deploy", "--plan", "plan.json")
        assert_all_is_served(bed, wanted, EVENTS - 4)
        assert bed.kappa("deploy", "--plan", "plan.json").code == 6

        # Of what serves nobody asks; a new build needs it anew.
        assert bed.kappa("plan", "--detailed-exitcode").code == 0
        bed.declare("bidding", BIDDING_2)
        refused = bed.kappa("deploy", "--yes")
        assert refused.code == 1
        assert f"bids partition {PARTITION} begins at offset 4" in refused.out
        (step,) = bed.must("plan", "--accept-gap", "-o", "json").json()["steps"]
        # A broker that is not ours has its disk elsewhere.
        assert step["cost"]["bytes"] is None
        assert step["cost"]["disk_needed"] > 0
        assert any(
            line.startswith("+") for diff in step["diffs"] for line in diff["diff"].splitlines()
        )
        ((told,),) = (each["accepted"] for each in bed.must("history", "-o", "json").json())
        assert told.startswith(f"gap: bids partition {PARTITION} begins")

        # From when it is archived on nothing is lost any more, whatever the topic loses.
        bed.declare("bidding", BIDDING_2.replace("partitions=4,", "partitions=4, archive=True,"))
        produce_and_want(bed, range(EVENTS, EVENTS + 5), wanted)
        log, end = bed.log, bed.log.end(["bids"])
        bed.wait(lambda: archived(bed, log, end), "the archive of bids")
        (status,) = bed.must("archive", "status", "-o", "json").json()
        assert (status["state"], status["behind"], status["records"]) == (
            "following",
            0,
            EVENTS - 4 + 5,
        )
        partitions = bed.must("archive", "verify", "-o", "json").json()
        assert [each["found"] for each in partitions] == ["as it should be"] * 4
        end = ensure_a_killed_tail_goes_on_without_what_it_has_folded(bed, log, end, wanted)
        (step,) = bed.must("plan", "--accept-gap", "-o", "json").json()["steps"]
        (note,) = (each for each in step["notes"] if "come from its archive" in each)
        assert note.startswith("topic bids: offsets 0 to ")
        last = end.at("bids", PARTITION) - 1
        assert f", 4 to {last} of partition {PARTITION}, 0 to " in note
        with watched(lambda: bed.memory() + resident(broker.pid)) as again:
            bed.must("deploy", "--yes", "--accept-gap")
        assert_all_is_served(bed, wanted, EVENTS - 4 + 10)
        (told,) = bed.rows("select count(*) as n from bidders where mean = price / bids")
        assert told["n"] == len(wanted)
        assert max(peak.bytes, again.bytes) < MOST_BYTES
    assert broker.alive()


def ensure_a_killed_tail_goes_on_without_what_it_has_folded(
    bed: Testbed, log: Log, end: Offsets, wanted: dict[int, list[int]]
) -> Offsets:
    """Kills a tail at its log's end; its last batch is planned again, without the records.

    Five more bids are produced, added to `wanted` and archived. Returns the end after these bids.
    """
    (tail,) = bed.pids("kappa.engine.job.job", "tail")
    os.kill(tail, signal.SIGKILL)
    lose(bed, "bids", PARTITION, end.at("bids", PARTITION))
    bed.wait_until_folded("bidding", end)
    produce_and_want(bed, range(EVENTS + 5, EVENTS + 10), wanted)
    end = log.end(["bids"])
    bed.wait_until_folded("bidding", end)
    bed.wait(lambda: archived(bed, log, end), "the archive of bids")
    return end


def produce_and_want(bed: Testbed, numbers: range, wanted: dict[int, list[int]]) -> None:
    bed.log.produce((bid(number) for number in numbers), "bids")
    for bidder, (bids, price) in expected(numbers).items():
        wanted[bidder] = [wanted[bidder][0] + bids, wanted[bidder][1] + price]


def assert_all_is_served(bed: Testbed, wanted: dict[int, list[int]], events: int) -> None:
    assert bidders(bed) == wanted
    frontier = bed.frontier(bed.live("bidding"))
    assert frontier is not None
    assert sum(tally.decoded for tally in frontier.tally["bids"].values()) == events


def resident(pid: int) -> int:
    """Returns the resident memory of a process in bytes."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def archived(bed: Testbed, log: Log, end: Offsets) -> bool:
    """Returns True if the archive has reached `end`; checks without a new process."""
    found = archive_status(load_settings(bed.folder), bed.store, {}, log)
    return any(
        each.mark is not None and Offsets({"bids": dict(each.mark.end)}).covers(end)
        for each in found
    )


@pytest.mark.fault
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
