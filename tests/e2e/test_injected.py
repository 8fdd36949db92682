"""strace makes calls of the operating system fail under a running platform.

The platform heals, and reports what failed (I7, I9, I10).
`tests/replay/platform/test_disk_faults.py` tests the same without processes, many times.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import strace
from e2e_shop import V1, V2, order
from reading import assert_right
from testbed import Said, Testbed, platform

from kappa.base.errors import ExitCode
from kappa.base.process import process_id
from kappa.state.lease import Lease, ensure_lease, lease_name

pytestmark = [
    pytest.mark.jvm,
    pytest.mark.sweep,
    pytest.mark.fault,
    pytest.mark.skipif(strace.why_not() is not None, reason=f"not run: {strace.why_not()}"),
]
SEED = 26
TURNS, ATTACHED, ATTACHED_SECONDS = 6, 5, 10.0
COUNT = "select count(*) as n from order_log"
# So many calls fail before a process is let go, if it lives for so long.
STRUCK = 3
ENDS = {ExitCode.OK, ExitCode.FAILED, ExitCode.CONFLICT}
# What is younger is not collected.
HOURS = 7200.0


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """Yields a shop that serves its second version, and keeps its first."""
    folder = tmp_path_factory.mktemp("injected") / "shop"
    with platform(folder, "[engine]\nmaintenance_seconds = 1\n", shop=V1) as bed:
        produce(bed)
        bed.must("deploy", "--yes")
        bed.declare("shop", V2)
        bed.must("deploy", "--yes")
        yield bed


def produce(bed: Testbed, count: int = 100) -> None:
    bed.log.produce((order(number) for number in range(count)), "orders")


def version_served(bed: Testbed) -> int:
    """Returns the served version, according to the code that folds its rows."""
    build = bed.state().folded_by(bed.live("shop"))
    code = bed.store.path(f"builds/{build}/code/pipelines/shop.py").read_text(encoding="utf-8")
    return 2 if "amount >= 0" in code else 1


def assert_all_right(bed: Testbed) -> None:
    """Asserts that the whole log is served, and that the tables equal plain Python (I1)."""
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    assert_right(bed, version=version_served(bed))


def assert_a_sentence(said: Said) -> None:
    """Asserts that a command ended with a documented exit code.

    If it failed, it must print one line with the reason, and at most one hint.
    """
    assert said.code in ENDS
    assert "Traceback" not in said.out + said.err
    if said.code:
        _, error, rest = said.err.rpartition("error: ")
        assert error
        first, *hints = rest.strip().splitlines()
        assert first
        assert len(hints) <= 1
        assert all(hint.startswith("hint: ") for hint in hints)


# What a turn begins with, and what is so once the command was typed again without a fault.
Prepare = Callable[[Testbed, int], Callable[[], bool]]


def an_undo(bed: Testbed, _turn: int) -> Callable[[], bool]:
    wanted, generation = bed.state().idle["shop"], bed.state().generation
    return lambda: (bed.live("shop"), bed.state().generation) == (wanted, generation + 1)


def a_switch(bed: Testbed, _turn: int) -> Callable[[], bool]:
    """Declares the version that is kept; returns a check that the kept build serves."""
    wanted, generation = bed.state().idle["shop"], bed.state().generation
    bed.declare("shop", V1 if version_served(bed) == 2 else V2)
    return lambda: (bed.live("shop"), bed.state().generation) == (wanted, generation + 1)


def a_deploy(bed: Testbed, turn: int) -> Callable[[], bool]:
    """Declares another view, which needs a new build but no replay; returns a check for it."""
    text = V1 if version_served(bed) == 1 else V2
    bed.declare("shop", text.replace("::bigint as orders", f"::bigint + {turn} as orders"))
    generation = bed.state().generation
    return lambda: bed.state().generation == generation + 1


def a_query(bed: Testbed, _turn: int) -> Callable[[], bool]:
    rows = bed.rows(COUNT)
    return lambda: bed.kappa("query", COUNT, "-o", "json").json()["rows"] == rows


def a_collection(bed: Testbed, turn: int) -> Callable[[], bool]:
    """Creates what a killed process leaves: a lease, half a file, and a folder without a build.

    Returns a check that all of it is gone.
    """
    lease = Lease(1, "somebody", time.time() - HOURS, {})
    ensure_lease(bed.store, lease)
    left = [bed.store.path(f"journal/x.json#{turn}"), bed.store.path(f"builds/shop-{turn}")]
    left[0].write_bytes(b"{")
    left[1].mkdir()
    (left[1] / "birth.json").write_bytes(b"{}")
    for path in (left[0], left[1] / "birth.json", left[1]):
        os.utime(path, (time.time() - HOURS,) * 2)
    left.append(bed.store.path(lease_name(lease.id)))
    return lambda: not any(path.exists() for path in left)


COMMANDS: dict[str, tuple[list[str], Prepare]] = {
    "undo": (["undo", "--yes"], an_undo),
    "switch": (["deploy", "--yes"], a_switch),
    "deploy": (["deploy", "--yes"], a_deploy),
    "query": (["query", COUNT, "-o", "json"], a_query),
    "gc": (["gc"], a_collection),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.timeout(1200)
def test_a_command_whose_calls_fail_says_so_and_is_typed_again(
    bed: Testbed, tmp_path: Path, name: str
) -> None:
    command, prepare = COMMANDS[name]
    # What it calls if nothing fails.
    prepare(bed, 0)
    usual = strace.struck(bed, command, tmp_path / "usual")
    assert usual.code == 0, usual
    bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
    calls = strace.calls_below(bed.store.folder, tmp_path / "usual")
    struck = 0
    for turn in range(1, TURNS + 1):
        injection = strace.drawn(random.Random(f"{SEED} {name} {turn}"), calls)
        reached = prepare(bed, turn)

        said = strace.struck(bed, command, tmp_path / "struck", injection)

        hits = strace.injected(tmp_path / "struck")
        struck += bool(hits)
        what = f"seed {SEED}, turn {turn}: {injection} {hits[:1]}"
        print(f"{name}, {what}: {said.code} {said.err.strip().splitlines()[-2:]}")
        try:
            assert_a_sentence(said)
            bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
            assert said.code or reached(), "it said that it did it"
            # What it says that it could not do may be done all the same: the journal decides.
            if not reached():
                bed.must(*command)
            assert reached()
        except AssertionError as error:
            raise AssertionError(f"{what}: {said}") from error
    assert struck >= TURNS // 2
    produce(bed)
    assert_all_right(bed)


def pid_of(bed: Testbed, whom: str) -> int:
    """Returns the process of the supervisor, or of the job that folds the live build."""
    if whom == "supervisor":
        return bed.supervisor_pid
    words = ("kappa.engine.job.job", bed.state().folded_by(bed.live("shop")), "tail")
    bed.wait(lambda: len(bed.pids(*words)) == 1, "the live job")
    (pid,) = bed.pids(*words)
    return pid


# What each calls meanwhile: the job folds, the supervisor switches.
CALLS = {
    "job": ("openat", "fsync", "link", "unlink", "pread64", "mkdir"),
    "supervisor": ("openat", "fsync", "link", "write"),
}


@pytest.mark.parametrize("whom", CALLS)
@pytest.mark.timeout(1200)
def test_a_process_whose_calls_fail_for_a_while_heals(
    bed: Testbed, tmp_path: Path, whom: str
) -> None:
    supervisor, struck = bed.supervisor_pid, 0
    for turn in range(ATTACHED):
        draw = random.Random(f"{SEED} {whom} {turn}")
        pid = pid_of(bed, whom)
        named = process_id(pid)
        assert named is not None
        call = CALLS[whom][turn % len(CALLS[whom])]
        # On and on, but not each: it would be a machine on which nothing can run.
        when = f"{draw.randrange(1, 4)}+{draw.randrange(2, 7)}"
        injection = strace.Injection(call, draw.choice(strace.ERRORS[call]), when)
        into = tmp_path / f"{whom}{turn}"
        generation = bed.state().generation

        with strace.attached(pid, into, [injection]):
            undo = bed.start("undo", "--yes") if whom == "supervisor" else None
            deadline = time.monotonic() + ATTACHED_SECONDS
            while (
                named.alive()
                and len(strace.injected(into)) < STRUCK
                and (undo is None or undo.poll() is None)
                and time.monotonic() < deadline
            ):
                produce(bed, 20)
        hits = strace.injected(into)
        struck += bool(hits)
        what = f"{whom}, seed {SEED}, turn {turn}: {injection} {len(hits)} {hits[:1]}"
        print(f"{what}: {'lives' if named.alive() else 'ended'}")

        produce(bed, 20)
        try:
            if undo is not None:
                out, err = undo.communicate(timeout=240)
                assert_a_sentence(Said(undo.returncode, out, err))
                bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
                assert bed.state().generation == generation + 1
            assert_all_right(bed)
            assert bed.supervisor_pid == supervisor
        except AssertionError as error:
            raise AssertionError(what) from error
    assert struck >= ATTACHED - 1
