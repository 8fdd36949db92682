"""Laws of a platform at rest: no job runs, and whoever needs a job has it within seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from asking import Server, problem
from e2e_shop import LEAN_1, LEAN_2, order
from testbed import PATIENCE_SECONDS, Testbed, platform

from kappa.records.lines.envelope import envelope_line
from kappa.serving.query.pin.moments import parse_offsets, written_offsets
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.long, pytest.mark.jvm]

COUNTED = "select sum(orders)::bigint as n from by_customer"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("resting") / "shop"
    with platform(folder, "[engine]\nrest_after = 1\n", whole=True, shop=LEAN_1) as bed:
        bed.log.produce((order(number) for number in range(50)), "orders")
        bed.must("deploy", "--yes")
        yield bed


def wait_until_at_rest(bed: Testbed) -> None:
    bed.wait(lambda: not bed.pids("kappa.engine.job.job"), "the end of all jobs")


def test_the_next_record_wakes_a_build_that_rests(bed: Testbed) -> None:
    wait_until_at_rest(bed)
    before = bed.rows(COUNTED)[0]["n"]

    acknowledged = bed.log.produce((order(number) for number in range(50, 60)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)

    assert bed.rows(COUNTED)[0]["n"] == before + 10
    wait_until_at_rest(bed)


def written(bed: Testbed, first: int, *flags: str) -> str:
    """Produces ten orders as a user does, and returns the write token."""
    lines = "\n".join(envelope_line(order(number)) for number in range(first, first + 10))
    told = bed.must("produce", "orders", "-", "--envelope", "-o", "json", *flags, given=lines)
    return str(told.json()["token"])


def test_who_waits_for_a_write_reads_it_at_once_also_from_a_build_that_rested(bed: Testbed) -> None:
    wait_until_at_rest(bed)
    before = bed.rows(COUNTED)[0]["n"]
    patience = ("--timeout", str(PATIENCE_SECONDS))

    written(bed, 100, "--wait", *patience)
    assert bed.rows(COUNTED)[0]["n"] == before + 10

    wait_until_at_rest(bed)
    token = written(bed, 110)
    found = bed.must("query", COUNTED, "--after", token, *patience, "-o", "json").json()
    assert found["rows"] == [{"n": before + 20}]
    assert Offsets.parse(found["builds"]["shop"]["offsets"]).covers(parse_offsets(token))

    with Server(bed.store, Allowance(wait_seconds=PATIENCE_SECONDS)) as server:
        token = written(bed, 120)
        assert server.query(COUNTED, Kappa_After=token).document["rows"] == [{"n": before + 30}]

        # All there is was folded, and this is one record more.
        end = bed.log.end(["orders"])
        beyond = written_offsets(Offsets({"orders": {0: end.at("orders", 0) + 1}}))
        late = bed.kappa("query", COUNTED, "--after", beyond, "--timeout", "0.1")
        assert (late.code, late.out) == (5, "")
        assert f"shows orders:0={end.at('orders', 0)}, not yet {beyond}" in late.err
        assert problem(server.query(COUNTED, Kappa_After=beyond, Kappa_Wait="0.1"))[0] == 504

    bed.must("pause", "shop")
    token = written(bed, 130)
    late = bed.kappa("query", COUNTED, "--after", token, "--timeout", "0.1")
    assert (late.code, "kappa resume shop" in late.err) == (5, True)
    bed.must("resume", "shop")
    found = bed.must("query", COUNTED, "--after", token, *patience, "-o", "json").json()
    assert found["rows"] == [{"n": before + 40}]
    wait_until_at_rest(bed)


def test_a_platform_that_comes_up_starts_no_job_that_has_nothing_to_do(bed: Testbed) -> None:
    bed.must("down")
    bed.must("up", "-d")
    log = bed.store.folder / "logs" / "supervisor.log"
    live = bed.live("shop")
    bed.wait(
        lambda: log.read_text().rpartition(" up: ")[2].count(f"build {live} rests") == 1, "rest"
    )

    acknowledged = bed.log.produce((order(number) for number in range(60, 70)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)

    begun = log.read_text().rpartition(" up: ")[2]
    assert begun.index(f"build {live} wakes") < begun.index(f"the job of build {live}")


def test_what_rests_can_be_replaced_and_what_was_kept_has_all_after_an_undo(bed: Testbed) -> None:
    wait_until_at_rest(bed)
    first, total = bed.live("shop"), bed.rows(COUNTED)[0]["n"]
    bed.declare("shop", LEAN_2)
    bed.must("deploy", "--yes")
    changed = bed.rows(COUNTED)[0]["n"]
    assert changed < total
    wait_until_at_rest(bed)

    acknowledged = bed.log.produce((order(number) for number in range(70, 80)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)
    # The build that is kept for an undo leaves a few records unread.
    kept = bed.frontier(first)
    assert kept is not None
    assert not kept.offsets.covers(acknowledged.offsets)
    assert not bed.pids("kappa.engine.job.job", first)
    status = {each["build"]: each for each in bed.must("status", "-o", "json").json()["builds"]}
    assert status[first]["role"] == "idle"
    assert not status[first]["trouble"]
    assert "rests, and folds in turns" in status[first]["note"]
    # A comparison has it fold what there is.
    bed.must("diff", "shop")
    kept = bed.frontier(first)
    assert kept is not None
    assert kept.offsets.covers(acknowledged.offsets)
    wait_until_at_rest(bed)
    acknowledged = bed.log.produce((order(number) for number in range(80, 85)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)

    bed.must("undo", "--yes")

    assert bed.live("shop") == first
    assert bed.rows(COUNTED)[0]["n"] == total + 15
