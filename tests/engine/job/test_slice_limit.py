"""A slice without progress ends its job, is named, and is folded in parts next time (I9)."""

from __future__ import annotations

import errno
import threading
import time
from itertools import count

import pytest

from kappa.base.errors import KappaError
from kappa.engine.function.failure import Hoarded
from kappa.engine.job.slice_limit import SliceLimit
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

PIECE = Slice(2, 7, Offsets({"t": {0: 10}}), Offsets({"t": {0: 20}}))


def test_a_slice_without_progress_is_given_up_and_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ended, given_up = threading.Event(), list[Slice]()
    limit = SliceLimit(
        0.05,
        "pipelines/shop.py:12",
        signs=lambda: "the same",
        give_up=given_up.append,
        end=ended.set,
    )

    with limit.over(PIECE):
        assert ended.wait(10)

    (said,) = capfd.readouterr().err.splitlines()
    assert " ERROR kappa: slice 2/7 (t:0=10 to t:0=20) made no progress for 0.05 s" in said
    assert "pipelines/shop.py:12" in said
    assert "engine.slice_seconds" in said
    assert given_up == [PIECE]


@pytest.mark.slow
def test_a_slice_that_works_is_not_ended() -> None:
    """The limit counts the seconds since the last sign of progress, not those of the slice."""
    ended, counted = threading.Event(), count()
    is_stuck = threading.Event()
    limit = SliceLimit(0.3, "here", signs=lambda: is_stuck.is_set() or next(counted), end=ended.set)

    with limit.over(PIECE):
        assert not ended.wait(0.9)
        is_stuck.set()
        assert ended.wait(10)


def test_a_sign_that_never_answers_is_none() -> None:
    """A JVM that hangs may block the thread that asks it for ever, so no answer is no progress."""
    ended = threading.Event()

    def hanging() -> object:
        return ended.wait(60)

    with SliceLimit(0.05, "here", signs=hanging, end=ended.set).over(PIECE):
        assert ended.wait(10)


@pytest.mark.slow
def test_a_job_that_stood_still_is_not_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job is not ended if its machine slept, or gave it no CPU time."""
    ended, clock = threading.Event(), count(step=1_000)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))

    with SliceLimit(30, "here", end=ended.set).over(PIECE):
        assert not ended.wait(1.2)


def test_a_slice_that_cannot_be_noted_ends_its_job_all_the_same() -> None:
    ended = threading.Event()

    def full(_piece: Slice) -> None:
        raise OSError(errno.ENOSPC, "full")

    with SliceLimit(0.05, "here", give_up=full, end=ended.set).over(PIECE):
        assert ended.wait(10)


def test_a_function_that_takes_too_much_memory_is_named_with_its_slice() -> None:
    with (
        pytest.raises(
            KappaError, match=r"^slice 2/7 \(t:0=10 to t:0=20\) is not folded: here: "
        ) as told,
        SliceLimit(10, "here").over(PIECE),
    ):
        raise Hoarded("here: pipeline p took more memory", hint="engine.worker_memory")

    assert told.value.hint == "engine.worker_memory"


@pytest.mark.slow
def test_one_that_is_folded_in_time_ends_nothing() -> None:
    ended = threading.Event()
    for seconds in (0.3, float("inf")):
        with SliceLimit(seconds, "here", end=ended.set).over(PIECE):
            pass

    assert not ended.wait(0.6)
