"""The broker's cleaner has really run between two builds: what it took away is set aside, counted, and made good before the switch (law 5)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from e2e_shop import ASKED, V1, expected, item, order
from testbed import Testbed, platform

from kappa.offsets import Offsets
from replay.rollout import Phase

pytestmark = [pytest.mark.jvm, pytest.mark.timeout(900)]

# A segment is rolled by the next record after a moment, and cleaned as soon as it is rolled.
EAGER = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.0001", "min.compaction.lag.ms": "0"}


def clean_eagerly(bed: Testbed, topic: str) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in EAGER.items()]
    admin = AdminClient({"bootstrap.servers": bed.log.bootstrap_servers})
    for done in admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)]).values():
        done.result(20)


def offsets_of_item(bed: Testbed, number: int, end: Offsets) -> list[int]:
    return [record.offset for record in bed.log.records(["items"], Offsets(), end) if record.key == item(number, None).key]


def test_a_key_whose_record_was_cleaned_away_is_set_aside_and_right_after_the_switch(tmp_path: Path) -> None:
    with platform(tmp_path / "cleaned", shop=V1) as bed:
        bed.log.produce((order(number) for number in range(300)), "orders")
        clean_eagerly(bed, "items")
        bed.log.produce((item(number, f"old {number}") for number in range(9)), "items")
        bed.must("deploy", "--yes")
        live = bed.live("shop")
        bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
        before = bed.log.end(["items"])
        (old,) = offsets_of_item(bed, 3, before)

        # The live build stands still before what is written now, and the cleaner takes what it has read.
        (job,) = bed.pids("kappa.engine.job", live, "tail")
        os.kill(job, signal.SIGSTOP)
        try:
            written = iter(range(10_000))

            def cleaned() -> bool:
                bed.log.produce((item(3, f"new {next(written)}") for _ in range(2)), "items")
                return old not in offsets_of_item(bed, 3, before)

            bed.wait(cleaned, "the cleaner")
            replaying = bed.start("replay", "shop", "--yes")
            bed.wait(lambda: bool(bed.state().active_rollouts) and bed.state().active_rollouts[0].phase is Phase.READY, "the end of its verification")
            (rollout,) = bed.state().active_rollouts
            assert rollout.verified is not None
            assert rollout.verified.verdict == "passed"
            (items,) = [each for each in rollout.verified.differences if each.table == "items"]
            # Both sides are right up to there, and differ: the one has the old title, the other none.
            assert (items.unsettled, items.equal, items.rows_before, items.rows_after) == (1, True, 8, 8)
            assert bed.live("shop") == live
        finally:
            os.kill(job, signal.SIGCONT)
        out, err = replaying.communicate(timeout=300)

        assert replaying.returncode == 0, (out, err, bed.logs())
        assert bed.live("shop") == rollout.build
        end = bed.log.end(["orders", "items"])
        bed.wait_until_folded("shop", end)
        rows = [tuple(row.values()) for row in bed.rows(ASKED["items"])]
        assert rows == expected(bed.log.records(["orders", "items"], Offsets(), end), version=1)["items"]
        assert any(title.startswith("new") for _, title in rows)
