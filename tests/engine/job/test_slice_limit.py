"""A slice that is not folded in time ends its job, which is named with it."""

from __future__ import annotations

import threading

import pytest

from kappa.base.errors import KappaError
from kappa.engine.function.failure import Hoarded
from kappa.engine.job.slice_limit import SliceLimit
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

PIECE = Slice(2, 7, Offsets({"t": {0: 10}}), Offsets({"t": {0: 20}}))


def test_a_slice_that_takes_too_long_ends_the_process_and_is_named(
    capfd: pytest.CaptureFixture[str],
) -> None:
    ended = threading.Event()

    with SliceLimit(0.01, "pipelines/shop.py:12", end=ended.set).over(PIECE):
        assert ended.wait(10)

    said = capfd.readouterr().err
    assert "slice 2/7 (t:0=10 to t:0=20) is not folded after 0.01 s" in said
    assert "pipelines/shop.py:12" in said
    assert "engine.slice_seconds" in said


def test_a_function_that_takes_too_much_memory_is_named_with_its_slice() -> None:
    with (
        pytest.raises(
            KappaError, match=r"^slice 2/7 \(t:0=10 to t:0=20\) is not folded: here: "
        ) as told,
        SliceLimit(10, "here").over(PIECE),
    ):
        raise Hoarded("here: pipeline p took more memory", hint="engine.worker_memory")

    assert told.value.hint == "engine.worker_memory"


def test_one_that_is_folded_in_time_ends_nothing() -> None:
    ended = threading.Event()
    for seconds in (1.0, float("inf")):
        with SliceLimit(seconds, "here", end=ended.set).over(PIECE):
            pass

    assert not ended.wait(1.5)
