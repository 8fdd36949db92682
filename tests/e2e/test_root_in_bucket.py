"""A platform with its root in a bucket, whose host is lost, or whose credentials expire."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from between import Between, proxy_before
from e2e_shop import LEAN_1, LEAN_2, order
from losing import Restarted
from meanwhile import Producing, beside
from object_store import ObjectStore, bucket_settings
from testbed import Testbed, platform
from victims import go_on, kill, stop

from kappa.base.sections import StorageSettings
from kappa.kafka.producer import ProducedRecord
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(900)]

RECORDS = 700
# Requests of a whole platform with one build, measured as 52.
IDLE_MINUTE = 80
NAMED = "does not let this client"
ASKED = "select sum(orders)::bigint as orders, sum(amount)::bigint as amount from by_customer"


def settings_for(kafka: Restarted, root: str, storage: StorageSettings) -> str:
    return bucket_settings(root, storage, kafka.broker.bootstrap_servers)


def forty_orders(turn: int) -> Iterator[tuple[str, ProducedRecord]]:
    """Yields the records that a producer sends in one turn."""
    for number in range(40 * turn, 40 * turn + 40):
        yield "orders", order(number)


@contextmanager
def denied(bed: Testbed, between: Between) -> Iterator[None]:
    """Makes the credentials expire within the block; the platform must report it in a log."""
    before = told(bed).count(NAMED)
    between.denied = "ExpiredToken"
    try:
        yield
        bed.wait(lambda: told(bed).count(NAMED) > before, "the reason in a log")
    finally:
        between.denied = ""


def told(bed: Testbed) -> str:
    """Returns the logs of the jobs and the supervisor as one text."""
    logs = sorted(bed.store.local.path("logs").glob("*.log"))
    return "".join(each.read_text(encoding="utf-8", errors="replace") for each in logs)


def assert_served(bed: Testbed, *, returns: bool = True) -> None:
    """Asserts that the whole log is served, with or without the negative orders."""
    end = bed.log.end(["orders"])
    bed.wait_until_folded("shop", end)
    ordered = [
        json.loads(each.value or b"")["amount"]
        for each in bed.log.records(["orders"], Offsets(), end)
    ]
    kept = [each for each in ordered if returns or each is None or each >= 0]
    (found,) = bed.rows(ASKED)
    assert found == {"orders": len(kept), "amount": sum(each or 0 for each in kept)}


@contextmanager
def served(folder: Path, settings: str) -> Iterator[Testbed]:
    """Yields a platform whose first records are served."""
    with platform(folder, settings, shop=LEAN_1) as bed:
        bed.log.produce((order(number) for number in range(RECORDS)), "orders")
        bed.must("deploy", "--yes")
        assert_served(bed)
        yield bed


def test_a_host_that_is_lost_is_followed_by_another_which_switches_and_undoes(
    kafka: Restarted, object_store: ObjectStore, tmp_path: Path
) -> None:
    settings = settings_for(kafka, object_store.new_root(), object_store.storage)
    with served(tmp_path / "shop", settings) as bed:
        for pid in bed.pids():
            kill(pid)
        shutil.rmtree(bed.store.local.folder)
        # Nothing here says that this is the host that had the root.
        refused = bed.kappa("up", "-d")
        assert (refused.code, "is claimed by host" in refused.err) == (6, True), refused
        bed.must("up", "-d", "--take-over")

        bed.declare("shop", LEAN_2)
        bed.must("replay", "shop", "--yes")
        assert_served(bed, returns=False)
        bed.must("undo", "--yes")
        assert_served(bed)


@pytest.mark.sweep
def test_a_host_that_stood_still_while_another_took_over_writes_nothing_that_is_seen(
    kafka: Restarted, object_store: ObjectStore, tmp_path: Path
) -> None:
    """Supervisor, jobs and servers are suspended in their work, and write nothing visible."""
    settings = settings_for(kafka, object_store.new_root(), object_store.storage)
    with served(tmp_path / "old", settings) as old:
        new = Testbed(tmp_path / "new", settings)
        new.declare("shop", LEAN_2)
        try:
            with beside(Producing(old, forty_orders)) as produced:
                old.wait(lambda: produced.acknowledged > 0, "an acknowledgement")
                stopped = [pid for pid in old.pids() if stop(pid)]
                refused = new.kappa("up", "-d")
                assert (refused.code, "is claimed by host" in refused.err) == (6, True), refused
                new.must("up", "-d", "--take-over")
                new.must("replay", "shop", "--yes")

                for pid in stopped:
                    go_on(pid)
                old.wait(lambda: not old.pids(), "the end of what had stood still")
            assert_served(new, returns=False)
            new.must("undo", "--yes")
            assert_served(new)
            assert "proved: " in new.must("prove", "shop").out
            assert new.must("doctor").code == 0
            new.must("down")
        finally:
            new.ensure_gone()


@pytest.mark.sweep
def test_an_idle_minute_takes_a_bounded_number_of_requests(
    kafka: Restarted, object_store: ObjectStore, tmp_path: Path
) -> None:
    with proxy_before(object_store.storage) as between:
        settings = settings_for(kafka, object_store.new_root(), between.storage)
        with served(tmp_path / "shop", settings):
            time.sleep(30)  # Upkeep of what was folded comes to its end.

            before = len(between.requests)
            time.sleep(60)
            found = between.requests[before:]
    kinds = Counter(
        re.sub(r"[0-9a-f-]{6,}|[0-9]{3,}", "N", each.partition("&")[0]) for each in found
    )
    print(len(found), kinds.most_common(30))
    assert len(found) <= IDLE_MINUTE, kinds


@pytest.mark.sweep
def test_credentials_that_expire_are_named_and_nothing_is_lost_once_they_are_renewed(
    kafka: Restarted, object_store: ObjectStore, tmp_path: Path
) -> None:
    with proxy_before(object_store.storage) as between:
        settings = settings_for(kafka, object_store.new_root(), between.storage)
        with served(tmp_path / "shop", settings) as bed:
            bed.log.produce((order(number) for number in range(RECORDS, 800)), "orders")
            with denied(bed, between):
                refused = bed.kappa("query", ASKED)
                assert (refused.code, NAMED in refused.err) == (1, True), refused
            assert_served(bed)

            bed.declare("shop", LEAN_2)
            asked = bed.start("replay", "shop", "--yes")
            bed.wait(lambda: bool(bed.state().active_rollouts), "the rollout")
            with denied(bed, between):
                out, err = asked.communicate(timeout=300)
                assert (asked.returncode, NAMED in err) == (1, True), (out, err)
            bed.wait(lambda: not bed.state().active_rollouts, "its end")
            assert_served(bed, returns=False)
