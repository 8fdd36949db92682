"""Two pipelines whose candidates are promoted together: no answer is of the one's new build and the other's old one (I1, I2, I3, I4)."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e_shop import V1, V2, expected, order
from testbed import Testbed, platform

from kappa.journal import Served
from kappa.offsets import Offsets
from serving.catalog import pin
from serving.query import connect

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

TILLS_1 = """
from kappa import Table, count, pipeline
from pipelines.shop import ORDERS


@pipeline(reads={"orders": ORDERS}, writes=[Table("sold", keys=("item",), fold={"times": count()})])
def tills(orders):
    return {"sold": orders}
"""
TILLS_2 = TILLS_1.replace('{"sold": orders}', '{"sold": orders.where("amount >= 0")}')
BOTH = "select (select count(*) from order_log), (select sum(times)::bigint from sold)"


@contextmanager
def busy(bed: Testbed) -> Iterator[list[tuple[int, frozenset[str], Offsets]]]:
    """Orders keep coming and questions keep being asked, until the end; gives generation, builds and offsets of each answer."""
    stop, seen, wrong = threading.Event(), list[tuple[int, frozenset[str], Offsets]](), list[BaseException]()

    def produce() -> None:
        number, log = 5_000, bed.log
        while not stop.wait(0.1):
            log.produce((order(each) for each in range(number, number + 20)), "orders")
            number += 20

    def ask() -> None:
        while not stop.wait(0.3):
            try:
                with pin(bed.store, lease_seconds=30) as pinned:
                    with connect(pinned.snapshot, bed.store) as reader:
                        ((logged, _),) = reader.rows(BOTH).rows
                    pinned.confirm()
                snapshot = pinned.snapshot
                frontier = snapshot.frontiers[snapshot.build_of("shop")]
                assert logged == sum(tally.decoded for tally in frontier.tally["orders"].values())
                seen.append((snapshot.generation, frozenset(snapshot.serving.values()), frontier.offsets))
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


def assert_right(bed: Testbed, *, shop: int, tills: int) -> None:
    """Both serve all there is, and it is what plain Python makes of the log."""
    end = bed.log.end(["orders"])
    for pipeline in ("shop", "tills"):
        bed.wait_until_folded(pipeline, end)
    with pin(bed.store, lease_seconds=60) as pinned:
        offsets = {name: pinned.snapshot.frontiers[pinned.snapshot.build_of(name)].offsets for name in ("shop", "tills")}
        with connect(pinned.snapshot, bed.store) as reader:
            customers = reader.rows("select customer, orders, amount, least, most from by_customer order by customer").rows
            sold = reader.rows("select item, times from sold").rows
        pinned.confirm()
    assert list(customers) == expected(bed.log.records(["orders"], Offsets(), offsets["shop"]), version=shop)["by_customer"]
    events = [json.loads(record.value or b"") for record in bed.log.records(["orders"], Offsets(), offsets["tills"])]
    assert dict(sold) == Counter(event["item"] for event in events if tills == 1 or (event["amount"] is not None and event["amount"] >= 0))


def test_both_are_switched_in_one_record_and_one_goes_back_alone(tmp_path: Path) -> None:
    with platform(tmp_path / "two", shop=V1, tills=TILLS_1) as bed:
        bed.log.produce((order(number) for number in range(1_000)), "orders")
        bed.must("deploy", "--yes")
        old = bed.state()
        bed.declare("shop", V2)
        bed.declare("tills", TILLS_2)
        bed.must("stage", "--yes")
        new = {rollout.pipeline: rollout.build for rollout in bed.state().active_rollouts}

        with busy(bed) as answers:
            for pipeline in new:
                bed.must("wait", pipeline)
            assert bed.state().serving == old.serving
            bed.must("promote", "shop", "tills", "--yes")
            bed.wait(lambda: bool(answers) and answers[-1][0] == old.generation + 1, "an answer of the new generation")

        now = bed.state()
        assert (now.serving, now.generation) == (new, old.generation + 1)
        record = now.served[-1]
        assert isinstance(record.event, Served)
        assert {each.receipt.pipeline: each.receipt.build for each in record.event.switched} == new
        assert {(generation, builds) for generation, builds, _ in answers} == {(old.generation, frozenset(old.serving.values())), (now.generation, frozenset(new.values()))}
        for (generation, _, offsets), (next_generation, _, next_offsets) in itertools.pairwise(answers):
            assert generation <= next_generation
            assert next_offsets.covers(offsets)
        assert_right(bed, shop=2, tills=2)

        bed.must("undo", "tills", "--yes")
        assert bed.state().serving == {"shop": new["shop"], "tills": old.serving["tills"]}
        assert_right(bed, shop=2, tills=1)
