"""Two pipelines whose candidates are promoted together (I1, I2, I3, I4).

No answer mixes the new build of one with the old build of the other. One pipeline declares
lateness, an identity and sketches: every build of it has the same rows.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from broker_options import set_topic_options
from e2e_shop import LEAN_1, LEAN_2, expected, order
from testbed import Testbed, platform

from kappa.kafka.producer import ProducedRecord
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.query import connect_reader
from kappa.state.journal.events import Served
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(900)]

# Of the clicks, what is late and what is sent again is decided by the log alone; sketches are
# folded of the others.
TILLS_1 = """
from kappa import Table, Topic, count, hll, kll, pipeline, theta
from pipelines.shop import ORDERS

CLICKS = Topic(
    "clicks", partitions=2, key="who",
    event="id string not null, who string not null, n bigint, at timestamp not null",
    event_time="at", lateness="1 hour", identity="id", identity_horizon="1 day",
)
SKETCHES = {"clicks": count(), "apart": hll("n"), "kinds": theta("n"), "half": kll("n", 0.5, k=8)}


@pipeline(
    reads={"orders": ORDERS, "clicks": CLICKS},
    writes=[
        Table("sold", keys=("item",), fold={"times": count()}),
        Table("clicked", keys=("who",), fold=SKETCHES),
    ],
)
def tills(orders, clicks):
    return {"sold": orders, "clicked": clicks}
"""
TILLS_2 = TILLS_1.replace('"sold": orders,', '"sold": orders.where("amount >= 0"),')
BOTH = "select (select count(*) from order_log), (select sum(times)::bigint from sold)"


@dataclass
class Clicks:
    """A producer of clicks, some of them late, some sent again, also by the next producer."""

    accepted: dict[str, tuple[str, int]] = field(default_factory=dict)
    late: int = 0
    duplicate: int = 0

    def produce(self, bed: Testbed, count: int) -> None:
        first, now_ms = len(self.accepted) + self.late, int(time.time() * 1000)
        records = []
        for number in range(first, first + count):
            late, who = number % 10 == 0, f"visitor {number % 3}"
            event = {
                "id": f"click {number}",
                "who": who,
                "n": number % 40,
                "at": now_ms - (2 * 3_600_000 if late else 0),
            }
            self.late += late
            self.accepted |= {} if late else {f"click {number}": (who, number % 40)}
            records.append(ProducedRecord(json.dumps(event).encode(), key=who.encode()))
        # By another time, too: it is the identity that says that it is the same.
        again = [(id_, *self.accepted[id_]) for id_ in list(self.accepted)[::7]]
        records += [
            ProducedRecord(
                json.dumps({"id": id_, "who": who, "n": n, "at": now_ms}).encode(), key=who.encode()
            )
            for id_, who, n in again
        ]
        self.duplicate += len(again)
        bed.log.produce(records, "clicks")

    def expected(self) -> list[tuple[str, int, int, int]]:
        """Counts clicks and things per visitor; sketches are exact for so few values."""
        by_who: dict[str, list[int]] = {}
        for who, n in self.accepted.values():
            by_who.setdefault(who, []).append(n)
        return sorted(
            (who, len(found), len(set(found)), len(set(found))) for who, found in by_who.items()
        )


@contextmanager
def busy(bed: Testbed) -> Iterator[list[tuple[int, frozenset[str], Offsets]]]:
    """Produces orders and asks queries; yields each answer's generation, builds and offsets."""
    stop, seen, wrong = (
        threading.Event(),
        list[tuple[int, frozenset[str], Offsets]](),
        list[BaseException](),
    )

    def produce() -> None:
        number, log = 5_000, bed.log
        while not stop.wait(2):
            log.produce((order(each) for each in range(number, number + 100)), "orders")
            number += 100

    def ask() -> None:
        while not stop.wait(0.3):
            try:
                with pin_served(bed.store, lease_seconds=30) as pinned:
                    with connect_reader(pinned.snapshot, bed.store) as reader:
                        ((logged, _),) = reader.rows(BOTH).rows
                    pinned.confirm_kept()
                snapshot = pinned.snapshot
                frontier = snapshot.frontiers[snapshot.serving["shop"]]
                assert logged == sum(tally.decoded for tally in frontier.tally["orders"].values())
                seen.append(
                    (snapshot.generation, frozenset(snapshot.serving.values()), frontier.offsets)
                )
            except BaseException as error:  # noqa: BLE001  # told by the test's own thread
                wrong.append(error)
                return

    threads = [threading.Thread(target=produce), threading.Thread(target=ask)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong


def assert_right(bed: Testbed, clicks: Clicks, *, shop: int, tills: int) -> None:
    """Asserts that both pipelines serve the whole log, and that the tables equal plain Python."""
    bed.wait_until_folded("shop", bed.log.end(["orders"]))
    bed.wait_until_folded("tills", bed.log.end(["orders", "clicks"]))
    with pin_served(bed.store, lease_seconds=60) as pinned:
        offsets = {
            name: pinned.snapshot.frontiers[pinned.snapshot.serving[name]].offsets
            for name in ("shop", "tills")
        }
        with connect_reader(pinned.snapshot, bed.store) as reader:
            customers = reader.rows(
                "select customer, orders, amount, least, most from by_customer order by customer"
            ).rows
            sold = reader.rows("select item, times from sold").rows
            clicked = reader.rows("select who, clicks, apart, kinds from clicked order by who").rows
        pinned.confirm_kept()
    assert list(clicked) == clicks.expected()
    assert (
        list(customers)
        == expected(bed.log.records(["orders"], Offsets(), offsets["shop"]), version=shop)[
            "by_customer"
        ]
    )
    events = [
        json.loads(record.value or b"")
        for record in bed.log.records(["orders"], Offsets(), offsets["tills"])
    ]
    assert dict(sold) == Counter(
        event["item"]
        for event in events
        if tills == 1 or (event["amount"] is not None and event["amount"] >= 0)
    )


def told_of_clicks(bed: Testbed) -> dict[str, tuple[int, int]]:
    """Returns the counts of late and duplicate records in the status, for each build of tills."""
    return {
        each["build"]: (each["late"], each["duplicate"])
        for each in bed.must("status", "-o", "json").json()["builds"]
        if each["pipeline"] == "tills"
    }


def stamped_by(bed: Testbed, topic: str, who: str) -> None:
    set_topic_options(bed.log.bootstrap_servers, topic, {"message.timestamp.type": who})


def test_both_are_switched_in_one_record_and_one_goes_back_alone(tmp_path: Path, lent: str) -> None:
    """Late records, duplicates and sketches are the same in every replay."""
    with platform(tmp_path / "two", lent, shop=LEAN_1, tills=TILLS_1) as bed:
        clicks = Clicks()
        bed.log.produce((order(number) for number in range(1_000)), "orders")
        stamped_by(bed, "clicks", "CreateTime")
        refused = bed.kappa("plan")
        assert refused.code == 1
        assert "topic clicks" in refused.out
        assert "LogAppendTime" in refused.out
        stamped_by(bed, "clicks", "LogAppendTime")
        clicks.produce(bed, 100)
        bed.must("deploy", "--yes")
        old = bed.state()
        # What the live build folds as it comes, its successor folds at once.
        clicks.produce(bed, 50)
        bed.wait_until_folded("tills", bed.log.end(["clicks"]))
        bed.declare("shop", LEAN_2)
        bed.declare("tills", TILLS_2)
        bed.must("stage", "--yes")
        new = {rollout.pipeline: rollout.build for rollout in bed.state().active_rollouts}

        for pipeline in new:
            bed.must("wait", pipeline)
        with busy(bed) as answers:
            bed.wait(lambda: bool(answers), "an answer of the old generation")
            assert bed.state().serving == old.serving
            bed.must("promote", "shop", "tills", "--yes")
            bed.wait(
                lambda: bool(answers) and answers[-1][0] == old.generation + 1,
                "an answer of the new generation",
            )

        now = bed.state()
        assert (now.serving, now.generation) == (new, old.generation + 1)
        record = now.served[-1]
        assert isinstance(record.event, Served)
        assert {each.receipt.pipeline: each.receipt.build for each in record.event.switched} == new
        assert {(generation, builds) for generation, builds, _ in answers} == {
            (old.generation, frozenset(old.serving.values())),
            (now.generation, frozenset(new.values())),
        }
        for (generation, _, offsets), (next_generation, _, next_offsets) in itertools.pairwise(
            answers
        ):
            assert generation <= next_generation
            assert next_offsets.covers(offsets)
        clicks.produce(bed, 50)
        assert_right(bed, clicks, shop=2, tills=2)

        bed.must("undo", "tills", "--yes")
        assert bed.state().serving == {"shop": new["shop"], "tills": old.serving["tills"]}
        assert_right(bed, clicks, shop=2, tills=1)
        end = bed.log.end(["orders", "clicks"])
        bed.wait(
            lambda: (found := bed.frontier(new["tills"])) is not None and found.offsets.covers(end),
            "the build that served",
        )
        assert min(clicks.late, clicks.duplicate) > 10
        assert told_of_clicks(bed) == dict.fromkeys(
            [old.serving["tills"], new["tills"]], (clicks.late, clicks.duplicate)
        )
