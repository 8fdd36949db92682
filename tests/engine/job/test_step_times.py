"""The times of a tail's steps: what is recorded, and how long the newest record has waited."""

from __future__ import annotations

import pytest
from journals import frontier
from msgspec.structs import replace

from kappa.base.clock import Stopwatch
from kappa.engine.job import tail
from kappa.engine.job.tail import _Report, _waited_seconds
from kappa.state.build_status import StepTimes
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

AT = Offsets({"t": {0: 10, 1: 5}})


class ScriptedWatch(Stopwatch):
    """A stopwatch with given times."""

    @property
    def seconds(self) -> dict[str, float]:
        return {
            "read": 0.5, "topics": 0.25, "function": 1.0, "commit": 0.25, "view a": 1.0,
            "view b": 2.0, "frontier": 0.125,
        }  # fmt: skip


def test_steps_are_put_under_their_public_names() -> None:
    put: list[StepTimes] = []
    report = _Report(put.append)

    report.add(Slice(1, 0, Offsets(), AT), ScriptedWatch(), 0.75)

    (times,) = put
    assert times.seconds == {
        "wait": 0.75, "read": 0.5, "commit": 0.5, "function": 1.0, "views": 3.0, "publish": 0.125
    }  # fmt: skip
    assert times.slices == 1


def test_a_slice_without_records_leaves_the_times() -> None:
    put: list[StepTimes] = []

    _Report(put.append).add(Slice(1, 0, AT, AT), ScriptedWatch(), None)

    assert put == []


def test_a_full_disk_stops_no_report() -> None:
    def full(_: StepTimes) -> None:
        raise OSError(28, "No space left on device")

    _Report(full).add(Slice(1, 0, Offsets(), AT), ScriptedWatch(), 0.1)


@pytest.mark.parametrize(
    ("ages", "start", "waited"),
    [
        # The newest record of the slice's partitions counts, less the time of folding.
        ({0: 9.0, 1: 5.0}, Offsets(), 4.0),
        ({0: 9.0, 1: 5.0}, Offsets({"t": {0: 3, 1: 5}}), 8.0),
        # A clock ahead of this one, no record, and a record that has waited for a replay to end.
        ({0: -2.0}, Offsets(), 0.0),
        ({0: 9.0, 1: 5.0}, AT, None),
        ({0: 61.0}, Offsets(), None),
    ],
)
def test_a_wait_is_that_of_the_newest_record(
    monkeypatch: pytest.MonkeyPatch, ages: dict[int, float], start: Offsets, waited: float | None
) -> None:
    monkeypatch.setattr(tail.time, "time", lambda: 2e6)
    log_time = {"t": {part: int((2e6 - age) * 1000) for part, age in ages.items()}}
    newest = replace(frontier("b", 2), offsets=AT, log_time=log_time)

    assert _waited_seconds(newest, start, 1.0, since=2e6 - 60) == waited
