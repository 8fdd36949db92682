"""Laws of the status as text: progress and counts agree, and a job's step is stated once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from journals import at, numbered, staged

from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.supervisor_report import RolloutWait, SupervisorReport
from kappa.replay.status.status import BuildStatus, Status, _with_state
from kappa.replay.status.status_text import status_listing
from kappa.state.build_status import SliceProgress

STATE = fold_records(numbered(staged("b")))
CANDIDATE = BuildStatus(
    *("flights", "candidate", "b", "v"),
    offsets=at(0),
    lag=5,
    fresh_at=None,
    folded=0,
    rejected=0,
    rollout=STATE.rollouts[0],
    rate=2.0,
)
WAITS = SupervisorReport({1: RolloutWait("its Spark to start", 2.0)})


def row(build: BuildStatus) -> dict[str, object]:
    return status_listing(Status(1, (build,)), datetime.now(UTC)).row_objects()[0]


@pytest.mark.parametrize(
    ("read", "state", "seconds"),
    [(0, "replaying, 0 % read", 2.5), (3, "replaying, 60 % read", 1.0)],
)
def test_the_share_is_of_what_is_read(read: int, state: str, seconds: float) -> None:
    """While nothing is folded yet, the state shows the share of the records that are read."""
    found = row(replace(CANDIDATE, slice=SliceProgress(1, 0, 1, 5, "read", read)))

    assert (found["state"], found["folded"], found["eta_seconds"]) == (state, 0, seconds)
    assert f"slice 1 of 1: {read} of 5 records read" in str(found["note"])


def test_all_is_read_and_no_time_is_left_to_tell() -> None:
    found = row(replace(CANDIDATE, slice=SliceProgress(1, 0, 1, 5, "function", 5)))

    assert (found["state"], found["eta_seconds"]) == ("replaying, 100 % read", None)
    assert "5 records read, folding" in str(found["note"])


def test_a_slice_says_more_than_a_wait() -> None:
    within = replace(CANDIDATE, slice=SliceProgress(1, 0, 1, 1, "read", 1))

    assert _with_state(CANDIDATE, STATE, WAITS, 60).waits_for == "its Spark to start"
    assert _with_state(within, STATE, WAITS, 60).waits_for == ""
    assert within.slice.text == "slice 1 of 1: 1 of 1 record read"
