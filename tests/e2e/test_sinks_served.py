"""A sink on a real platform: promoted, undone, killed, retired, and read downstream."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from e2e_shop import LEAN_1, order, without_returns
from sinking import ensure_sent_once, records_of, rows_of_topic, served_records
from testbed import Testbed, platform

from kappa.serving.outlets.sinks.sink_status import read_sink_state

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(900)]

SHOP = LEAN_1
WITH_SINK = SHOP.replace("import Table,", "import Sink, Table,").replace(
    '        Table("order_log"),\n',
    '        Table("order_log"),\n        Sink("customers", of="by_customer"),\n',
)
KNOWN = """
from kappa import Table, Topic, pipeline

CUSTOMERS = Topic("customers", kind="compacted", key="customer", \
event="customer string not null, orders bigint, amount bigint, mean double")


@pipeline(reads={"customers": CUSTOMERS}, writes=[Table("known", latest=CUSTOMERS)])
def reader():
    return {}
"""
BOTH = "select customer, orders, amount, mean from {} order by all"


def ensure_sent(bed: Testbed) -> None:
    """Waits until the topic equals the served table; asserts that nothing was sent twice."""
    log = bed.log
    bed.wait_until_folded("shop", log.end(["orders"]))
    bed.wait(
        lambda: rows_of_topic(log, "customers") == served_records(bed.store, "by_customer"),
        "the topic",
    )
    ensure_sent_once(log, "customers")


def has_counted(bed: Testbed) -> bool:
    state = read_sink_state(bed.store, "customers")
    sent = 0 if state is None else state.written + state.deleted
    return sent == len(records_of(bed.log, "customers"))


def test_a_sink_goes_with_what_serves_and_another_pipeline_reads_it(tmp_path: Path) -> None:
    with platform(tmp_path, shop=SHOP) as bed:
        bed.log.produce((order(number) for number in range(300)), "orders")
        bed.must("deploy", "--yes")
        bed.declare("shop", WITH_SINK)
        planned = bed.kappa("plan").out
        assert "sink customers is new: the snapshot of by_customer, " in planned
        assert "replays nothing" in planned
        bed.must("deploy", "--yes")
        ensure_sent(bed)

        bed.declare("known", KNOWN)
        bed.must("deploy", "reader", "--yes")
        bed.wait(
            lambda: bed.rows(BOTH.format("known")) == bed.rows(BOTH.format("by_customer")),
            "the table downstream",
        )
        assert bed.rows("select count(*) as n from known")[0]["n"] > 10

        bed.declare("shop", without_returns(WITH_SINK))
        planned = bed.kappa("plan", "shop").out
        assert "pipeline reader reads sink customers" in planned
        before = len(records_of(bed.log, "customers"))
        bed.must("stage", "shop", "--yes")
        bed.must("wait", "shop")
        assert len(records_of(bed.log, "customers")) == before
        asked = bed.must("promote", "shop", "--yes").out
        ensure_sent(bed)
        sent = len(records_of(bed.log, "customers")) - before
        assert f"  sends: {sent:,} updates to customers\n" in asked

        # One that is killed has lost what it had not put by then.
        bed.wait(lambda: has_counted(bed), "the counts")
        (pid,) = bed.pids("kappa.serving.outlets.courier")
        os.kill(pid, signal.SIGKILL)
        bed.log.produce((order(number) for number in range(300, 400)), "orders")
        ensure_sent(bed)

        bed.must("undo", "shop", "--yes")
        ensure_sent(bed)
        bed.wait(lambda: has_counted(bed), "the counts of the undo")
        (sink,) = json.loads(bed.must("sinks", "-o", "json").out)
        assert (sink["sink"], sink["state"], sink["error"]) == ("customers", "follows", None)
        assert sink["switch"].startswith("undo to generation ")

        there = records_of(bed.log, "customers")
        bed.must("retire", "shop", "--yes")
        bed.wait(
            lambda: bed.must("sinks", "-o", "json").json()[0]["state"] == "ended", "the sink's end"
        )
        assert records_of(bed.log, "customers") == there
        bed.must("undo", "shop", "--yes")
        bed.log.produce((order(number) for number in range(400, 450)), "orders")
        ensure_sent(bed)
        bed.wait(
            lambda: bed.rows(BOTH.format("known")) == bed.rows(BOTH.format("by_customer")),
            "the table downstream",
        )
