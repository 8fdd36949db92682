"""Any process is really killed in any phase of a rollout: it ends, and everything is right.

The phase is that of the journal and of the candidate's legs. A suspended process makes the phase
last, so that no clock decides what is hit. Eight readers, an HTTP client and a producer continue
throughout: no error (I4), no mix (I2), nothing goes back (I3), and the tables are right (I1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from subprocess import Popen

import pytest
from e2e_shop import V1, item, order, orders_and_a_title, without_returns
from meanwhile import Asking, Producing, beside
from reading import assert_right, readers, version_of
from testbed import PATIENCE_SECONDS, Testbed, platform
from victims import (
    ARCHIVER,
    BROKER,
    CANDIDATE,
    HTTP,
    LIVE,
    SUPERVISOR,
    VERIFIER,
    jobs_of,
    kill,
    pids_of,
    standing_still,
)

from kappa.base.settings import load_settings
from kappa.engine.job.legs import LegKind, Legs
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.status.run_records import running

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault, pytest.mark.timeout(900)]

READERS = 8
ARCHIVED_1 = V1.replace('Topic("orders", ', 'Topic("orders", archive=True, ', 1)
ARCHIVED_2 = without_returns(ARCHIVED_1)
# So that the records of a test are enough for a catch-up.
SETTINGS = """
[engine]
tail_records = 1000
maintenance_seconds = 5
[archive]
every_seconds = 2
"""


class At(StrEnum):
    """The phase of a rollout in which a process is killed."""

    STAGED = "staged"
    REPLAYING = "replaying"
    ALIGNING = "aligning"
    VERIFYING = "verifying"
    READY = "ready"
    HOLDING = "holding"
    SERVED = "served"


ALWAYS = (SUPERVISOR, LIVE, CANDIDATE, ARCHIVER, HTTP, BROKER)
CASES = [
    (at, victim) for at in At for victim in (*ALWAYS, *((VERIFIER,) if at is At.VERIFYING else ()))
]


@dataclass(frozen=True, slots=True)
class Shop:
    """The platform, and the client of its HTTP server."""

    bed: Testbed
    http: Asking


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Yields a build of each version, one of which serves.

    At the end, everything that the readers saw must be right.
    """
    folder = tmp_path_factory.mktemp("kills")
    with platform(folder / "shop", SETTINGS, listen="127.0.0.1:0", shop=ARCHIVED_1) as bed:
        bed.log.produce((order(number) for number in range(2_000)), "orders")
        bed.log.produce((item(number, f"title {number}") for number in range(9)), "items")
        bed.must("deploy", "--yes")
        bed.declare("shop", ARCHIVED_2)
        bed.must("deploy", "--yes")
        with (
            readers(bed, READERS, rest_seconds=2.0, script=folder / "reader.py") as seen,
            beside(Producing(bed, orders_and_a_title)) as produced,
            beside(Asking(bed)) as http,
        ):
            yield Shop(bed, http)
        versions = {build: version_of(bed, build) for build in bed.state().versions}
        print(
            f"{READERS} readers: {sum(each.queries for each in seen)} queries; HTTP: "
            f"{http.answers} answers, {http.away} times away; {produced.acknowledged} records, "
            f"{produced.outages} outages"
        )
        assert [fault for each in seen for fault in each.faults] == []
        assert http.faults == []
        for each in seen:
            assert each.counted == {build: [versions[build]] for build in each.counted}
            assert each.generations > 1 or bed.state().generation == 2


def last(bed: Testbed) -> Rollout:
    return bed.state().rollouts[-1]


def wait_closely(until: Callable[[], bool], what: str) -> None:
    """Waits for a state that may last only a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def candidates_pid(bed: Testbed, build: str) -> int:
    return max(jobs_of(bed, build))


def leg_of(bed: Testbed, build: str) -> LegKind | None:
    found = Legs(bed.store, build).last()
    return None if found is None else found.kind


@contextmanager
def kept_at(bed: Testbed, at: At) -> Iterator[Popen[str]]:
    """Begins a rollout and keeps it in a phase within the block; yields the command."""
    before, live = bed.state(), bed.live("shop")
    if at in {At.HOLDING, At.SERVED}:
        with kept_in_switch(bed, at) as asked:
            yield asked
        return
    if at is At.READY:
        # The kept build's version would not wait for a yes: it is no candidate.
        number = before.generation
        bed.declare("shop", ARCHIVED_2.replace("amount >= 0", f"amount + {number} >= {number}"))
        asked = bed.start("stage", "shop", "--yes")
    else:
        bed.declare("shop", ARCHIVED_1 if version_of(bed, live) == 2 else ARCHIVED_2)
        asked = bed.start("replay", "shop", "--yes")
    bed.wait(lambda: last(bed).id > before.last, "the rollout")
    build = last(bed).build
    if at is At.READY:
        bed.wait(lambda: last(bed).waits, "a candidate that waits for a yes")
        yield asked
        return
    if at is At.VERIFYING:
        wait_closely(lambda: bool(pids_of(bed, VERIFIER, {})), "the verification")
        (brake,) = pids_of(bed, VERIFIER, {})
    else:
        leg = {At.STAGED: None, At.REPLAYING: LegKind.CATCH_UP, At.ALIGNING: LegKind.ALIGNMENT}[at]
        wait_closely(lambda: bool(jobs_of(bed, build)) and leg_of(bed, build) is leg, at)
        brake = candidates_pid(bed, build)
    with standing_still(brake):
        assert last(bed).phase is (Phase.VERIFYING if at is At.VERIFYING else Phase.REPLAYING)
        assert at is At.VERIFYING or leg_of(bed, build) is leg
        yield asked


@contextmanager
def kept_in_switch(bed: Testbed, at: At) -> Iterator[Popen[str]]:
    """Does the same with an undo, which begins where a replay ends."""
    before, live = bed.state(), bed.live("shop")
    if at is At.SERVED:
        asked = bed.start("undo", "shop", "--yes")
        wait_closely(lambda: bed.state().generation > before.generation, "the switch")
        yield asked
        return
    # The live build acknowledges no hold while its job stands still.
    with standing_still(candidates_pid(bed, live)):
        asked = bed.start("undo", "shop", "--yes")
        bed.wait(lambda: last(bed).phase is Phase.HOLDING, "the hold")
        yield asked


def ensure_up(bed: Testbed) -> None:
    settings = load_settings(bed.folder)
    bed.wait(lambda: running(settings) is None, "the end of the supervisor")
    bed.must("up", "-d")


@pytest.mark.parametrize(("at", "victim"), CASES, ids=[f"{at}-{who}" for at, who in CASES])
def test_a_rollout_ends_well_whoever_is_killed_in_whichever_phase(
    shop: Shop, at: At, victim: str
) -> None:
    bed, before, live = shop.bed, shop.bed.state(), shop.bed.live("shop")
    bed.wait(lambda: all(pids_of(bed, each, {}) for each in (ARCHIVER, HTTP, BROKER)), "all of it")
    began = time.monotonic()
    with kept_at(bed, at) as asked:
        rollout = last(bed)
        (killed, *more) = pids_of(bed, victim, {LIVE: live, CANDIDATE: rollout.build})
        assert not more
        assert kill(killed)
        assert last(bed).phase is rollout.phase
        if victim == SUPERVISOR:
            ensure_up(bed)
    if at is At.READY:
        bed.wait(lambda: bed.log.wait_until_ready(1.0), "the broker")
        bed.must("promote", "shop", "--yes")
    bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")

    assert (last(bed).id, last(bed).phase, last(bed).reason) == (rollout.id, Phase.SERVED, "")
    assert bed.state().generation == before.generation + 1
    assert bed.live("shop") == rollout.build
    seconds = time.monotonic() - began
    out, err = asked.communicate(timeout=PATIENCE_SECONDS)
    assert "Traceback" not in err, err
    # Who follows a rollout is told that nobody brings it on, or that the broker is away.
    assert asked.returncode == 0 or victim in {SUPERVISOR, BROKER}, (out, err)
    bed.wait(lambda: bed.log.wait_until_ready(1.0), "the broker")
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    assert_right(bed, version=version_of(bed, rollout.build))
    answers = shop.http.answers
    bed.wait(lambda: shop.http.answers > answers, "an answer over HTTP")
    print(f"{at} {victim}: {seconds:.1f} s")
