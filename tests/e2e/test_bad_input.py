"""Invalid input: each record is folded, or rejected with a reason (I6, I10).

Every command reports what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from e2e_shop import LEAN_1, order
from testbed import Testbed, platform

from kappa.kafka.producer import ProducedRecord
from kappa.serving.outlets.alerts.outbox import shown_messages

pytestmark = [pytest.mark.jvm]
TOPICS = ["orders"]
# The producers call the customer a buyer now, and say where they bought.
ORDER = {
    "type": "object",
    "required": ["buyer"],
    "properties": {
        "buyer": {"type": "string"},
        "item": {"type": ["string", "null"], "maxLength": 20},
        "amount": {"type": ["integer", "null"]},
        "at": {"type": "integer", "x-kappa-type": "timestamp"},
        "channel": {"type": "string", "enum": ["shop", "web"], "default": "shop"},
    },
}
# And each order is noted with the time at which it was folded.
RENAMED = (
    LEAN_1.replace(
        'key="customer", '
        'event="customer string not null, item string, amount bigint, at timestamp"',
        'key="buyer", event=Path("schemas/order.json"), was={"buyer": "customer"}',
    )
    .replace(
        "from kappa",
        "from pathlib import Path\nfrom pyspark.sql import functions as F\nfrom kappa",
        1,
    )
    .replace(
        "    return {", '    orders = orders.withColumnRenamed("buyer", "customer")\n    return {'
    )
    .replace(
        '"amount", "at")}', '"amount", "at", "channel", F.current_timestamp().alias("noted"))}'
    )
)


def clock_of(text: str) -> str:
    """Returns the place where the code reads the clock, in the form that `--allow` takes."""
    return f"pipelines/shop.py:{1 + text[: text.index('F.current')].count(chr(10))}"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory, lent: str) -> Iterator[Testbed]:
    """Yields a shop that serves, without orders yet."""
    # What served before a change is of no use here.
    settings = lent + '[rollout]\nsoak = "0s"\n[notify]\nto = "page"\n'
    with platform(tmp_path_factory.mktemp("input") / "wröng", settings, shop=LEAN_1) as bed:
        assert "serves" in bed.must("deploy", "--yes").out
        yield bed


def assert_tally_adds_up(bed: Testbed) -> None:
    """Asserts I6: per partition, the counts of outcomes add up to the number of offsets."""
    frontier = bed.frontier(bed.live("shop"))
    assert frontier is not None
    for topic, partition, offset in frontier.offsets.items():
        if offset:
            tally = frontier.tally[topic][partition]
            assert (
                tally.decoded + tally.duplicate + tally.rejected + tally.tombstone + tally.absent
                == offset
            )


def _mended_and_redriven_it_is_folded_once(bed: Testbed) -> None:
    (bad,) = bed.must("rejects", "list", "shop", "--reason", "wrong_type", "-o", "json").json()
    place = f"orders:{bad['partition']}:{bad['offset']}"
    exported = bed.must("rejects", "export", "shop", "-").out.splitlines()
    assert len(exported) == 12
    mended = "".join(line.replace('"amount": "7"', '"amount": 7') + "\n" for line in exported)

    asked = bed.kappa("rejects", "redrive", "-", given=mended)
    assert (asked.code, asked.out.splitlines()[0]) == (7, "1 record to topic orders"), asked
    sent = bed.must("rejects", "redrive", "-", "--yes", given=mended)
    assert "11 of the lines are as they were rejected" in sent.out
    bed.wait_until_folded("shop", bed.log.end(TOPICS))
    mine = "select orders, amount from by_customer where customer = 'a'"
    assert bed.rows(mine) == [{"orders": 1, "amount": 7}]
    shown = bed.must("rejects", "show", place).out
    assert f"redriven   folded at orders:{bad['partition']}:" in shown
    assert "build      " + bed.live("shop") in shown

    again = bed.must("rejects", "redrive", "-", "--yes", given=mended)
    assert "0 records acknowledged" in again.err.splitlines()[-1]
    # Sent all the same, it is a duplicate.
    twice = next(line for line in mended.splitlines() if '"amount": 7' in line)
    bed.must("produce", "orders", "-", "--envelope", given=twice + "\n")
    bed.wait_until_folded("shop", bed.log.end(TOPICS))
    assert bed.rows(mine) == [{"orders": 1, "amount": 7}]
    frontier = bed.frontier(bed.live("shop"))
    assert frontier is not None
    assert frontier.tally["orders"][bad["partition"]].duplicate == 1
    assert_tally_adds_up(bed)


def test_what_is_not_valid_is_rejected_with_its_reason_and_the_rest_is_folded(
    bed: Testbed,
) -> None:
    wrong = {
        "malformed_json": b'{"customer": "a"',
        "not_an_object": b"[1, 2]",
        "missing_field": b'{"item": "x"}',
        "wrong_type": b'{"customer": "a", "amount": "7"}',
        "out_of_range": b'{"customer": "a", "amount": 9223372036854775808}',
        "repeated_field": b'{"customer": "a", "customer": "a"}',
        "not_utf8": b'{"customer": "\xff"}',
        "lone_surrogate": b'{"customer": "a", "item": "\\ud800"}',
        "bad_format": b'{"customer": "a", "at": "yesterday"}',
    }
    assert bed.rows("select count(*) as n from by_customer") == [{"n": 0}]
    log = bed.log
    log.produce([ProducedRecord(value, key=b"a") for value in wrong.values()], "orders")
    log.produce(
        [
            ProducedRecord(b'{"customer": "a"}'),
            ProducedRecord(None, key=b"a"),
            ProducedRecord(b'{"customer": "a"}', key=b"b"),
        ],
        "orders",
    )
    same = 1_700_000_000_000
    valid = [
        ProducedRecord(record.value, key=record.key, timestamp_ms=same)
        for record in (order(1), order(1), order(2, customer="ß\u200b漢字"))
    ]
    log.produce(valid, "orders")
    bed.wait_until_folded("shop", log.end(TOPICS))

    reasons = {row["reason"] for row in bed.must("rejects", "shop", "-o", "json").json()}
    assert reasons >= {*wrong, "null_key", "null_value", "key_mismatch"}
    (status,) = bed.must("status", "-o", "json").json()["builds"]
    drifts = {each["name"]: each["proof"] for each in status["drift"]}
    assert {"wrong_type amount", "missing_field customer", "malformed_json"} <= drifts.keys()
    assert drifts["wrong_type amount"].startswith("orders:")
    bed.wait(lambda: shown_messages(bed.store, "kappa"), "notices of drift")
    told = {json.loads(each.body)["op"] for each in shown_messages(bed.store, "kappa")}
    assert told == {"drift"}
    assert bed.rows("select customer, orders from by_customer order by orders desc") == [
        {"customer": "cust-1 é✈", "orders": 2},
        {"customer": "ß\u200b漢字", "orders": 1},
    ]
    assert_tally_adds_up(bed)
    _mended_and_redriven_it_is_folded_once(bed)

    slips = [
        (2, "nope", ["produce", "nope", "-"]),
        (2, "nope", ["query", "select * from nope"]),
        (2, "nope", ["deploy", "nope", "--yes"]),
        (2, "served before", ["undo", "--yes"]),
        (7, "--yes", ["replay", "shop"]),
    ]
    for (code, said, command), told in zip(
        slips, bed.at_once(*(command for _, _, command in slips), given="{}\n"), strict=True
    ):
        assert told.code == code, (command, told)
        assert said in told.err, (command, told)
    assert bed.state().generation == 1


@pytest.mark.long
def test_an_open_transaction_is_waited_for_and_named(bed: Testbed) -> None:
    before, folded = bed.log.end(["orders"]), bed.rows("select count(*) as n from order_log")
    producer = Producer(
        {"bootstrap.servers": bed.log.bootstrap_servers, "transactional.id": "shop", "log_level": 0}
    )
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(3):
        producer.produce("orders", b'{"customer": "never"}', key=b"never", partition=1)
    producer.flush()
    # What comes after it in the other partitions is folded.
    bed.log.produce([ProducedRecord(b"no order", partition=0)], "orders")
    bed.wait_until_folded("shop", bed.log.end(TOPICS))

    (status,) = bed.must("status", "-o", "json").json()["builds"]
    assert status["behind"] == 3
    assert (
        "3 offsets of orders partition 1 are held back by a transaction that is open since offset "
        f"{before.at('orders', 1)}" in status["note"]
    )

    producer.abort_transaction()
    bed.wait(
        lambda: bed.log.end(TOPICS).equals(bed.log.high_watermark(TOPICS)),
        "the end of the transaction",
    )
    bed.wait_until_folded("shop", bed.log.end(TOPICS))
    (status,) = bed.must("status", "-o", "json").json()["builds"]
    assert status["behind"] == 0
    assert "transaction" not in status["note"]
    assert bed.rows("select count(*) as n from order_log") == folded
    assert_tally_adds_up(bed)


@pytest.mark.long
def test_a_candidate_that_rejects_too_much_is_stopped_and_what_serves_goes_on(bed: Testbed) -> None:
    before = bed.state().generation
    bed.log.produce([ProducedRecord(b"{", key=b"a") for _ in range(5)], "orders")
    bed.log.produce([ProducedRecord(b"[1, 2]", key=b"a")], "orders")
    bed.wait_until_folded("shop", bed.log.end(TOPICS))
    bed.declare("shop", LEAN_1.replace("    writes=[", "    max_rejects=3,\n    writes=["))

    stopped = bed.kappa("replay", "shop", "--yes")

    assert (stopped.code, bed.state().generation) == (1, before), stopped
    assert "a replay reads all rejects again" in stopped.out
    assert "max_rejects is 3: malformed_json " in stopped.err
    assert "; for example orders:" in stopped.err
    assert "kappa deploy shop" in stopped.err


@pytest.mark.long
def test_old_events_are_read_with_the_new_declaration(bed: Testbed) -> None:
    """Old events are folded with the new declaration, once findings are allowed by name."""
    log, before = bed.log, sum(row["orders"] for row in bed.rows("select orders from by_customer"))
    log.produce(
        [
            *(order(3, customer="old") for _ in range(20)),
            *(ProducedRecord(b"{", key=b"old") for _ in range(30)),
        ],
        "orders",
    )
    newer = {"buyer": "new", "item": "x", "amount": 1, "at": 1_700_000_000_000}
    log.produce(
        [
            ProducedRecord(json.dumps({**newer, **more}).encode(), key=b"new")
            for more in ({}, {"channel": "web"}, {"customer": "other"}, {"channel": "fax"})
        ],
        "orders",
    )
    bed.wait_until_folded("shop", log.end(TOPICS))
    (bed.folder / "schemas").mkdir()
    (bed.folder / "schemas" / "order.json").write_text(json.dumps(ORDER), encoding="utf-8")
    bed.declare("shop", RENAMED)

    plan = bed.kappa("plan").out
    assert "records of topic orders, at the beginning, in the middle and at the end of" in plan
    assert "malformed_json, such as partition" in plan
    assert "events: field buyer of topic orders is renamed: it reads customer, too" in plan
    assert "more than 50% of the records that were sampled" in plan
    refused = bed.kappa("deploy", "--yes")
    assert refused.code == 1
    assert "--allow 'unreadable:orders=REASON'" in refused.out
    half = ("--allow", "unreadable:orders=half of them were a mistake of ours")
    refused = bed.kappa("deploy", "--yes", *half)
    assert refused.code == 1
    assert (
        f"{clock_of(RENAMED)} uses pyspark.sql.functions.current_timestamp, which reads the clock"
        in refused.out
    )
    bed.must("deploy", "--yes", *half, "--allow", f"{clock_of(RENAMED)}=it is for people to read")

    # Those that were rejected for their names are read by the new declaration, and the fax is not.
    assert (
        sum(row["orders"] for row in bed.rows("select orders from by_customer")) == before + 20 + 3
    )
    assert {
        row["channel"]: row["n"]
        for row in bed.rows("select channel, count(*) as n from order_log group by channel")
    } == {"shop": before + 20 + 2, "web": 1}
    faxes = [
        row
        for row in bed.must("rejects", "shop", "-o", "json").json()
        if row["reason"] == "against_schema"
    ]
    assert [row["detail"] for row in faxes] == [
        'channel is the text "fax", and the schema says enum ["shop", "web"]'
    ]
    accepted = bed.must("history", "-o", "json").json()[-1]["accepted"]
    assert [each.rpartition(": ")[2] for each in accepted] == [
        "half of them were a mistake of ours",
        "it is for people to read",
    ]
    assert any(each.startswith(clock_of(RENAMED)) for each in accepted)
    # Small slices share a plan that is made once, and each of them has its own time all the same.
    for number in range(2):
        bed.log.produce(
            [ProducedRecord(json.dumps({**newer, "amount": number}).encode(), key=b"new")], "orders"
        )
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
    assert bed.rows("select count(distinct noted) >= 3 as apart from order_log") == [
        {"apart": True}
    ]
