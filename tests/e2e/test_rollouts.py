"""Rollouts end to end: switched, undone, redone, killed in each phase, refused.

Everything is real, and no rollout is ever half done. Readers get no error (I4) and no mix (I2),
nothing goes back (I3), and the tables are right (I1).

One platform serves all tests of this file. Each test leaves the platform serving, and begins with
whatever state the test before has left.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest
from broker_options import clean_eagerly
from e2e_shop import V1, V2, item, order
from reading import (
    assert_right,
    how_long,
    producing,
    readers,
    the_same_all_the_while,
    version_of,
)
from testbed import Testbed, platform
from victims import jobs_of, kill, standing_still

from kappa.engine.job.legs import Legs
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.state.journal.events import Held
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(1200)]

# Tests here make a job stand still for as long as a busy machine takes to replay and compare.
SETTINGS = "[engine]\nlarge_rows = 0\nmaintenance_seconds = 5\nhung_seconds = 600\n"
# Where a supervisor is killed: in a promote, as it starts, and as it ends.
# tests/replay/platform/test_crashes.py kills at every effect of a promote.
FAILPOINTS = {
    "promote": ["journal.before_held", "journal.before_served", "journal.after_served"],
    "up": ["supervisor.before_ready", "supervisor.after_ready"],
    "down": ["supervisor.before_down", "supervisor.after_down"],
}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Yields the platform with orders and titles, before anything serves."""
    folder = tmp_path_factory.mktemp("rollouts") / "laden é"
    with platform(folder, SETTINGS, shop=V1) as bed:
        bed.log.produce((order(number) for number in range(2_000)), "orders")
        bed.log.produce(
            (item(number % 9, f"title {number}" if number % 4 else None) for number in range(40)),
            "items",
        )
        yield bed


@pytest.fixture
def bed(empty: Testbed) -> Testbed:
    """Returns the platform with a serving shop."""
    if "shop" not in empty.state().serving:
        empty.must("deploy", "--yes")
    return empty


def produce(bed: Testbed, count: int = 100) -> None:
    bed.log.produce((order(number) for number in range(count)), "orders")


def assert_served(bed: Testbed, *, version: int) -> None:
    """Asserts that the whole log is served, and that the tables equal plain Python (I1)."""
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    assert_right(bed, version=version)


def assert_right_at_the_end(bed: Testbed, build: str) -> None:
    """Asserts that a build has folded the whole log, and its tables equal plain Python (I1)."""
    end = bed.log.end(["orders", "items"])
    bed.wait(
        lambda: (found := bed.frontier(build)) is not None and found.offsets.covers(end),
        f"{build} at the end",
    )
    assert_right(bed, version=version_of(bed, build), build=build)


def version_served(bed: Testbed) -> int:
    return 2 if (bed.folder / "pipelines" / "shop.py").read_text(encoding="utf-8") == V2 else 1


def last(bed: Testbed) -> Rollout:
    return bed.state().rollouts[-1]


def ensure_pair(bed: Testbed) -> None:
    """Ensures that there is a build to which an undo can return."""
    if "shop" not in bed.state().idle:
        bed.must("replay", "shop", "--yes")


def job_of(bed: Testbed, build: str) -> int:
    (pid,) = bed.pids("kappa.engine.job.job", build, "tail")
    return pid


def see_all_gone(bed: Testbed) -> None:
    """Waits until all processes of a killed supervisor have ended with it."""
    started = ("kappa.replay.platform.supervisor", "kappa.engine.job.job", "kafka.Kafka", "java")
    bed.wait(lambda: not any(bed.pids(word) for word in started), "the end of all it started", 30)


def assert_gone_on_from(bed: Testbed, before: State) -> None:
    """Asserts that the next supervisor ends the rollout, and that the tables are right."""
    bed.must("up", "-d")
    bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
    after = bed.state()
    assert (last(bed).phase, after.generation) == (Phase.SERVED, before.generation + 1)
    produce(bed)
    assert_served(bed, version=version_served(bed))


@pytest.mark.long
@pytest.mark.parametrize("command", ["deploy", pytest.param("replay", marks=pytest.mark.sweep)])
def test_a_rollout_goes_on_whoever_is_killed_in_each_of_its_phases(
    empty: Testbed, command: str
) -> None:
    """Kills the deploying command, the broker and the supervisor, at the first deploy and later."""
    bed, before = empty, empty.state()
    asked = bed.start(command, "shop", "--yes")
    bed.wait(
        lambda: (
            bed.state().active("shop") is not None
            and bool(bed.pids("kappa.engine.job.job", last(bed).build))
        ),
        "the candidate's job",
    )
    os.kill(bed.supervisor_pid, signal.SIGKILL)
    see_all_gone(bed)
    # Who asked goes too: what was asked for is in the journal.
    asked.kill()
    asked.communicate()

    bed.must("up", "-d")
    bed.wait(
        lambda: Legs(bed.store, last(bed).build).last() is not None, "the candidate's first slice"
    )
    (broker,) = bed.pids("kafka.Kafka")
    os.kill(broker, signal.SIGKILL)
    bed.wait(lambda: any(pid != broker for pid in bed.pids("kafka.Kafka")), "another broker")
    bed.wait(lambda: bed.log.wait_until_ready(1.0), "its answer")
    produce(bed)

    pid = bed.supervisor_pid
    bed.wait(lambda: last(bed).phase is not Phase.REPLAYING, "the verification")
    os.kill(pid, signal.SIGKILL)
    see_all_gone(bed)

    bed.must("up", "-d", KAPPA_FAIL="journal.before_served:kill")
    bed.wait(lambda: not bed.pids("kappa.replay.platform.supervisor"), "the failpoint")
    see_all_gone(bed)
    assert bed.state().generation == before.generation

    assert_gone_on_from(bed, before)
    end = bed.log.end(["orders", "items"])
    for idle in bed.state().idle.values():
        bed.wait(
            lambda idle=idle: (
                (found := bed.frontier(idle)) is not None and found.offsets.covers(end)
            ),
            "the build that served",
        )


def deploy_twice_at_once(bed: Testbed) -> None:
    """Deploys a change twice at once: one deploy wins, and the other one is refused."""
    generation = bed.state().generation
    bed.declare("shop", V2)

    both = [bed.start("deploy", "--yes"), bed.start("deploy", "--yes")]
    said = [each.communicate(timeout=600) for each in both]

    assert sorted(each.returncode for each in both) == [0, 6], said
    ((_, told),) = [words for words, each in zip(said, both, strict=True) if each.returncode == 6]
    assert "shop" in told
    assert bed.state().generation == generation + 1
    (deployed,) = [
        "".join(words) for words, each in zip(said, both, strict=True) if each.returncode == 0
    ]
    assert re.search(
        r"cost: [\d,]+ records in 5 partitions, [\d.]+ [kM]B; disk about [\d.]+ [kM]B \(", deployed
    ), deployed


@pytest.mark.parametrize(
    ("switches", "count"), [(2, 2), pytest.param(200, 16, marks=pytest.mark.sweep)]
)
@pytest.mark.timeout(7200)
def test_readers_see_no_error_no_mix_and_nothing_backward_through_switches(
    bed: Testbed, tmp_path: Path, switches: int, count: int
) -> None:
    """Under load, a change is deployed, undone and redone; each time the tables are right."""
    one = bed.state().rollouts[0].build
    with (
        readers(bed, count, rest_seconds=2.0, script=tmp_path / "reader.py") as seen,
        producing(bed),
        the_same_all_the_while(bed),
    ):
        if "shop" not in bed.state().idle:
            assert_right(bed, version=1)
            deploy_twice_at_once(bed)
            assert_right(bed, version=2)
        pair = {bed.live("shop"), bed.state().idle["shop"]}
        generation = bed.state().generation
        for switch in range(switches):
            before = bed.live("shop")
            bed.must("undo", "--yes")
            assert {bed.live("shop"), before} == pair
            if switch % 5 < 2:
                assert_right(bed, version=version_of(bed, bed.live("shop")))
                reached = str(bed.state().generation)
                bed.wait(
                    lambda reached=reached: any(tmp_path.glob(f"reader */{reached}")),
                    "a reader in this generation",
                )
    assert bed.state().generation == generation + switches

    assert bed.kappa("deploy", "--yes").code == 0
    assert bed.state().generation == generation + switches
    for build in pair:
        assert_right_at_the_end(bed, build)
    print(how_long(bed))
    for each in seen:
        assert each.faults == []
        assert each.queries > 0
        assert each.generations > 1
        assert each.counted == {build: [version_of(bed, build)] for build in each.counted}
    assert {build for each in seen for build in each.counted} == {one, *pair}
    queries = sum(each.queries for each in seen)
    print(f"{count} readers: {queries} queries, 0 errors, 0 mixed, 0 backward")


def test_a_deploy_of_the_kept_version_needs_no_replay(bed: Testbed) -> None:
    ensure_pair(bed)
    before = bed.state()
    other = V1 if version_served(bed) == 2 else V2
    if before.versions[before.idle["shop"]] == before.versions[before.serving["shop"]]:
        pytest.skip("both builds of the pair are of one version")
    bed.declare("shop", other)

    bed.must("deploy", "--yes")

    assert bed.live("shop") == before.idle["shop"]
    assert last(bed).switch
    assert_served(bed, version=version_served(bed))


@pytest.mark.long
def test_a_failed_check_swaps_nothing_and_the_exit_code_says_so(bed: Testbed) -> None:
    before, text = bed.state(), (bed.folder / "pipelines" / "shop.py").read_text(encoding="utf-8")
    bed.declare("shop", text.replace('checks=["orders > 0"', 'checks=["most < 0", "orders > 0"'))
    try:
        said = bed.kappa("deploy", "--yes")
    finally:
        bed.declare("shop", text)

    assert said.code == 4
    assert "most < 0" in said.err
    after = bed.state()
    assert (after.serving, after.idle, after.generation) == (
        before.serving,
        before.idle,
        before.generation,
    )
    failed = last(bed).build
    bed.wait(
        lambda: not bed.store.path(f"builds/{failed}/tables").exists() and not bed.pids(failed),
        "the end of the candidate",
    )
    produce(bed)
    assert_served(bed, version=version_served(bed))


@pytest.mark.long
def test_an_abandoned_candidate_leaves_nothing_and_the_live_build_goes_on(bed: Testbed) -> None:
    before = bed.state()
    deploying = bed.start("replay", "shop", "--yes")
    bed.wait(lambda: bed.state().active("shop") is not None, "the rollout")
    candidate = last(bed).build
    bed.wait(lambda: bool(bed.pids("kappa.engine.job.job", candidate)), "its job")

    bed.must("abandon", "shop")
    deploying.communicate(timeout=120)

    assert deploying.returncode == 6
    bed.wait(
        lambda: (
            not bed.store.path(f"builds/{candidate}/tables").exists() and not bed.pids(candidate)
        ),
        "the end of the candidate",
    )
    assert bed.state().serving == before.serving
    produce(bed)
    assert_served(bed, version=version_served(bed))


def offsets_of_item(bed: Testbed, number: int, end: Offsets) -> list[int]:
    return [
        record.offset
        for record in bed.log.records(["items"], Offsets(), end)
        if record.key == item(number, None).key
    ]


@pytest.mark.long
def test_a_key_whose_record_was_cleaned_away_is_set_aside_then_right(
    bed: Testbed,
) -> None:
    """The broker's cleaner has really run between two builds (law 5).

    Keys whose records were cleaned away are set aside, counted, and right again before the switch.
    """
    bed.log.produce((item(number, f"old {number}") for number in range(9)), "items")
    live = bed.live("shop")
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    before = bed.log.end(["items"])
    old = offsets_of_item(bed, 3, before)[-1]

    # The live build stands still before what is written now; the cleaner takes what it has read.
    with standing_still(job_of(bed, live)):
        clean_eagerly(bed.log.bootstrap_servers, "items")
        written = iter(range(10_000))

        def cleaned() -> bool:
            bed.log.produce((item(3, f"new {next(written)}") for _ in range(2)), "items")
            return old not in offsets_of_item(bed, 3, before)

        bed.wait(cleaned, "the cleaner")
        replaying = bed.start("replay", "shop", "--yes")
        # A candidate past all of it is held at once; the stopped live build acknowledges nothing.
        bed.wait(
            lambda: any(each.verified is not None for each in bed.state().active_rollouts),
            "the end of its verification",
        )
        (rollout,) = bed.state().active_rollouts
        assert rollout.verified is not None
        assert rollout.verified.verdict == "passed"
        (items,) = [each for each in rollout.verified.differences if each.table == "items"]
        # Both sides are right up to there, and differ: the one has the old title, the other none.
        assert (items.unsettled, items.equal, items.rows_before, items.rows_after) == (
            1,
            True,
            8,
            8,
        )
        assert bed.live("shop") == live
    out, err = replaying.communicate(timeout=300)

    assert replaying.returncode == 0, (out, err, bed.logs())
    assert bed.live("shop") == rollout.build
    assert_served(bed, version=version_served(bed))
    assert any(row["title"].startswith("new") for row in bed.rows("select title from items"))


@pytest.mark.long
def test_no_hold_is_begun_while_the_kept_build_is_behind(bed: Testbed) -> None:
    ensure_pair(bed)
    before = bed.state()
    with standing_still(job_of(bed, before.idle["shop"])):
        produce(bed)
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
        undoing = bed.start("undo", "--yes")
        bed.wait(lambda: last(bed).id > before.last, "the rollout")
        produce(bed)
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
        assert last(bed).phase is Phase.READY
        assert not any(
            isinstance(record.event, Held) for record in Journal(bed.store).after(before.last)
        )

    out, err = undoing.communicate(timeout=300)

    assert undoing.returncode == 0, (out, err, bed.logs())
    assert bed.live("shop") == before.idle["shop"]


@pytest.mark.long
def test_a_live_job_that_is_killed_while_it_is_held_stops_no_promote(bed: Testbed) -> None:
    ensure_pair(bed)
    before = bed.state()
    live, idle = before.serving["shop"], before.idle["shop"]
    end = bed.log.end(["orders", "items"])
    bed.wait(
        lambda: all(
            (found := bed.frontier(build)) is not None and found.offsets.covers(end)
            for build in (live, idle)
        ),
        "both at the end",
    )
    killed = job_of(bed, live)
    with standing_still(killed):
        undoing = bed.start("undo", "--yes")
        bed.wait(lambda: last(bed).phase is Phase.HOLDING, "the hold")
        os.kill(killed, signal.SIGKILL)
    out, err = undoing.communicate(timeout=300)

    assert undoing.returncode == 0, (out, err, bed.logs())
    assert bed.live("shop") == idle
    bed.wait(lambda: bool(bed.pids("kappa.engine.job.job", live)), "the killed job's successor")
    produce(bed)
    bed.wait(
        lambda: (
            (found := bed.frontier(live)) is not None
            and found.offsets.covers(bed.log.end(["orders"]))
        ),
        "the build that was killed",
    )
    bed.declare(
        "shop",
        V1 if bed.state().versions[idle] == bed.state().versions[before.rollouts[0].build] else V2,
    )
    assert_served(bed, version=version_served(bed))


@pytest.mark.long
def test_a_reader_stays_pinned_through_ten_promotes_in_which_jobs_are_killed(bed: Testbed) -> None:
    """In each promote, the job of the live build or of the kept build is killed, alternately."""
    ensure_pair(bed)
    generation = bed.state().generation
    with the_same_all_the_while(bed) as assert_same:
        for turn in range(10):
            live, idle = bed.live("shop"), bed.state().idle["shop"]
            produce(bed)
            asked = bed.start("undo", "--yes")
            # What waits for an acknowledgement gets it from the next job, or without one.
            kill(max(jobs_of(bed, (live, idle)[turn % 2])))
            out, err = asked.communicate(timeout=300)
            assert asked.returncode == 0, (out, err, bed.logs())
            assert (bed.live("shop"), bed.state().generation) == (idle, generation + turn + 1)
            assert_same()
    for build in (bed.live("shop"), bed.state().idle["shop"]):
        assert_right_at_the_end(bed, build)


@pytest.mark.long
def test_a_pause_outlives_a_restart_and_a_retired_pipeline_is_undone(bed: Testbed) -> None:
    version, live = version_served(bed), bed.live("shop")
    bed.must("pause", "shop")
    bed.wait(lambda: not bed.pids("kappa.engine.job.job", live), "the end of its job")
    shown = bed.frontier(live)
    produce(bed)

    bed.must("down")
    bed.must("up", "-d")
    rows = bed.must("status", "-o", "json").json()["builds"]
    (paused,) = [row for row in rows if row["role"] == "live"]
    assert paused["state"] == "serving, paused"
    assert paused["paused_since"]
    assert bed.rows("select count(*) from order_log")
    refused = bed.kappa("replay", "shop", "--yes")
    assert refused.code == 1
    assert "resume it first: kappa resume shop" in refused.out
    assert not bed.pids("kappa.engine.job.job", live)
    assert bed.frontier(live) == shown

    bed.must("resume", "shop")
    assert_served(bed, version=version)

    plan = bed.must("retire", "shop", "--yes").out
    assert "table order_log: " in plan
    told = bed.kappa("query", "select count(*) from order_log")
    assert told.code == 2
    assert "pipeline shop was retired at generation" in told.err
    assert "kappa undo shop brings it back until" in told.err
    produce(bed)
    bed.must("undo", "shop", "--yes")
    assert bed.live("shop") == live
    assert_served(bed, version=version)


def test_all_that_was_written_below_the_root_is_for_its_user_alone(bed: Testbed) -> None:
    """Everything below the root is private, also files of the broker, JVMs, writers and logs."""
    root, open_to_others = bed.store.folder, []
    below = (Path(at, name) for at, *names in os.walk(root) for name in chain(*names))
    for path in chain([root], below):
        # It may be gone by now.
        with suppress(FileNotFoundError):
            if path.stat().st_mode & 0o077:
                open_to_others.append(path)

    assert open_to_others == []


@pytest.mark.sweep
@pytest.mark.parametrize("point", FAILPOINTS["promote"])
def test_a_supervisor_killed_at_an_effect_of_a_promote_is_followed_by_the_next(
    bed: Testbed, point: str
) -> None:
    before = bed.state()
    bed.must("down")
    bed.must("up", "-d", KAPPA_FAIL=f"{point}:kill")
    deploying = bed.start("replay", "shop", "--yes")
    bed.wait(lambda: not bed.pids("kappa.replay.platform.supervisor"), "the failpoint")
    see_all_gone(bed)
    deploying.kill()
    deploying.communicate()

    assert_gone_on_from(bed, before)


@pytest.mark.sweep
@pytest.mark.parametrize("point", [*FAILPOINTS["up"], *FAILPOINTS["down"]])
def test_a_supervisor_killed_as_it_comes_up_or_goes_down_is_followed_by_the_next(
    bed: Testbed, point: str
) -> None:
    before = bed.state()
    bed.must("down")
    # One that dies as it comes up is told of by the command, where it sees it in time.
    came = bed.kappa("up", "-d", KAPPA_FAIL=f"{point}:kill")
    if point in FAILPOINTS["down"]:
        assert came.code == 0, came
        bed.must("down")
    see_all_gone(bed)

    bed.must("up", "-d")

    produce(bed)
    assert_served(bed, version=version_served(bed))
    assert (bed.state().serving, bed.state().generation) == (before.serving, before.generation)
