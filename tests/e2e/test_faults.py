"""Faults end, and it heals (I9): kill -9 of jobs between their steps and of the supervisor in each phase; then all converges (I7)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from e2e_shop import V1, V2, item, order
from test_readers import assert_right
from testbed import Testbed, platform

from kappa.journal import Failed, Held, Journal, Served
from kappa.log.client import ProducedRecord
from replay.rollout import Phase

pytestmark = [pytest.mark.jvm, pytest.mark.fault]
TOPICS = ["orders", "items"]


def produce(bed: Testbed, first: int, count: int) -> None:
    log = bed.log
    log.produce((order(number) for number in range(first, first + count)), "orders")
    log.produce((item(number % 9, None if number % 4 == 0 else f"title {number}") for number in range(first, first + 20)), "items")


def assert_tally_adds_up(bed: Testbed) -> None:
    """I6: per partition, what became of the offsets adds up to their number."""
    frontier = bed.frontier(bed.live("shop"))
    assert frontier is not None
    for topic, partition, offset in frontier.offsets.items():
        if offset:
            tally = frontier.tally[topic][partition]
            assert tally.decoded + tally.duplicate + tally.rejected + tally.tombstone + tally.absent == offset


@pytest.mark.parametrize("point", ["job.before_first_commit", "job.between_tables", "job.before_frontier", "job.before_checkpoint"])
def test_a_job_killed_between_two_of_its_steps_folds_nothing_twice_and_nothing_never(tmp_path: Path, point: str) -> None:
    with platform(tmp_path / "killed", shop=V1) as bed:
        produce(bed, 0, 500)
        bed.must("down")
        bed.must("up", "-d", KAPPA_FAIL=f"{point}:kill:2")
        bed.must("deploy", "--yes")
        build = bed.live("shop")
        log_file = bed.store.path(f"logs/{build}.log")
        for round_ in range(1, 4):
            produce(bed, round_ * 1_000, 300)
            bed.wait_until_folded("shop", bed.log.end(TOPICS))
        bed.wait(lambda: f"failpoint {point}: killed" in log_file.read_text(encoding="utf-8"), f"a death at {point}")

        bed.must("down")
        bed.must("up", "-d")
        produce(bed, 9_000, 100)
        bed.wait_until_folded("shop", bed.log.end(TOPICS))

        assert bed.live("shop") == build
        assert_right(bed, version=1)
        assert_tally_adds_up(bed)


@pytest.mark.timeout(1200)
def test_a_supervisor_killed_in_any_phase_is_answered_by_the_next_up(tmp_path: Path) -> None:
    with platform(tmp_path / "phases", shop=V1) as bed:
        produce(bed, 0, 500)
        bed.must("deploy", "--yes")
        for number, point in enumerate(["promote.before_hold", "promote.before_served", "promote.after_served"]):
            bed.must("down")
            bed.must("up", "-d", KAPPA_FAIL=f"{point}:kill")
            bed.declare("shop", V2 if number % 2 == 0 else V1)
            said = bed.kappa("deploy", "--yes")
            # Killed after the switch, the command may have seen it: both are the truth.
            assert said.code == 1 or (said.code == 0 and point == "promote.after_served"), said
            bed.wait(lambda: not bed.pids(), f"the end of all that the supervisor started, {bed.pids()}")
            bed.must("up", "-d")
            bed.wait(lambda number=number: bed.state().generation == number + 2, "the rollout going on by itself")
            produce(bed, 1_000 * (number + 1), 100)
            bed.wait_until_folded("shop", bed.log.end(TOPICS))
            assert_right(bed, version=2 if number % 2 == 0 else 1)

        bed.declare("shop", V1)
        deploy = bed.start("replay", "shop", "--yes")
        bed.wait(lambda: any(rollout.phase is Phase.REPLAYING for rollout in bed.state().active_rollouts), "a replay")
        os.kill(bed.supervisor_pid, signal.SIGKILL)
        _, told = deploy.communicate(timeout=120)
        assert deploy.returncode == 1, told
        assert "kappa up -d" in told
        bed.wait(lambda: not bed.pids(), "the end of all that the supervisor started")
        bed.must("up", "-d")
        bed.wait(lambda: bed.state().generation == 5, "the replay going on by itself")
        assert_right(bed, version=1)


def test_of_two_deploys_one_wins_a_failed_check_swaps_nothing_and_a_dead_live_job_stops_no_promote(tmp_path: Path) -> None:
    with platform(tmp_path / "rivals", shop=V1) as bed:
        produce(bed, 0, 500)
        bed.must("plan", "-o", "json")
        rivals = [bed.start("deploy", "--yes") for _ in range(2)]
        said = [(rival.communicate(timeout=240)[1], rival.returncode) for rival in rivals]
        assert sorted(code for _, code in said) == [0, 6], said
        assert any("rollout" in text for text, code in said if code == 6)
        first = bed.live("shop")

        bed.declare("shop", V1.replace('checks=["orders > 0"]', 'checks=["orders > 0", "amount > 100000"]'))
        failed = bed.kappa("deploy", "--yes")
        assert failed.code == 4, failed
        assert bed.live("shop") == first
        assert_right(bed, version=1)

        bed.declare("shop", V2)
        (live,) = (pid for pid in bed.pids("kappa.engine.job", first))
        deploy = bed.start("deploy", "--yes")
        bed.wait(lambda: len(bed.state().active_rollouts) == 1, "the rollout")
        os.kill(live, signal.SIGKILL)
        _, told = deploy.communicate(timeout=240)
        assert deploy.returncode == 0, told
        assert_right(bed, version=2)
        held = [record for record in Journal(bed.store).after(0) if isinstance(record.event, Held | Served | Failed)]
        assert isinstance(held[-1].event, Served)


def test_what_is_not_valid_is_rejected_with_its_reason_and_everything_else_is_folded(tmp_path: Path) -> None:
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
    with platform(tmp_path / "wröng", shop=V1) as bed:
        empty = bed.must("deploy", "--yes")
        assert "serves" in empty.out
        assert bed.rows("select count(*) as n from by_customer") == [{"n": 0}]
        log = bed.log
        log.produce([ProducedRecord(value, key=b"a") for value in wrong.values()], "orders")
        log.produce([ProducedRecord(b'{"customer": "a"}'), ProducedRecord(None, key=b"a"), ProducedRecord(b'{"customer": "a"}', key=b"b")], "orders")
        same = 1_700_000_000_000
        valid = [ProducedRecord(record.value, key=record.key, timestamp_ms=same) for record in (order(1), order(1), order(2, customer="ß\u200b漢字"))]
        log.produce(valid, "orders")
        bed.wait_until_folded("shop", log.end(TOPICS))

        reasons = {row["reason"] for row in bed.must("rejects", "shop", "-o", "json").json()}
        assert reasons >= {*wrong, "null_key", "null_value", "key_mismatch"}
        assert bed.rows("select customer, orders from by_customer order by orders desc") == [{"customer": "cust-1 é✈", "orders": 2}, {"customer": "ß\u200b漢字", "orders": 1}]
        assert_tally_adds_up(bed)

        for code, said, command in [
            (2, "nope", ["produce", "nope", "-"]),
            (2, "nope", ["query", "select * from nope"]),
            (2, "nope", ["deploy", "nope", "--yes"]),
            (2, "undo", ["undo", "--yes"]),
            (7, "--yes", ["replay", "shop"]),
        ]:
            told = bed.kappa(*command, given="{}\n")
            assert told.code == code, (command, told)
            assert said in told.err, (command, told)
        assert bed.state().generation == 1
