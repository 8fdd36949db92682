"""Durations and sizes are read in the form of settings, and written for people."""

from __future__ import annotations

import pytest

from kappa.base.units import (
    duration,
    exact_duration,
    growth,
    memory,
    pace_text,
    parse_duration,
    parse_memory,
    seconds_left,
    size,
)


@pytest.mark.parametrize(
    ("text", "milliseconds", "words"),
    [
        ("5 minutes", 300_000, "5 minutes"),
        ("1 hour", 3_600_000, "1 hour"),
        ("90s", 90_000, "90 seconds"),
        ("2 Days", 172_800_000, "2 days"),
        ("10m", 600_000, "10 minutes"),
        ("1500 ms", 1_500, "1500 milliseconds"),
        ("0 seconds", 0, "0 milliseconds"),
    ],
)
def test_durations_are_read_and_written(text: str, milliseconds: int, words: str) -> None:
    assert parse_duration(text) == milliseconds
    assert exact_duration(milliseconds) == words


@pytest.mark.parametrize(
    "text",
    ["", "5", "minutes", "-5 minutes", "5 fortnights", "1.5 hours", "5 minutes and a bit", None, 5],
)
def test_what_is_no_duration_is_none(text: object) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (99, "99 s"), (720, "12 min"), (12_000, "3 h 20 min"), (259_200, "3 days")],
)
def test_times_are_told_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (18_300_000, "18.3 MB"), (5_000_000_000_000, "5.0 TB")],
)
def test_sizes_are_told_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_memory_is_read_and_written_as_settings_have_it() -> None:
    assert parse_memory("512m") == 512 * 2**20
    assert memory(parse_memory("2g")) == "2048m"


@pytest.mark.parametrize(
    ("before", "now", "total", "rate", "left", "told"),
    [
        (100, 300, 500, 100, 2, "100/s, 2 s left"),
        # A slice that begins again has read less than before.
        (300, 0, 500, 0, None, ""),
        # What was read may be past the end that was asked for earlier.
        (100, 600, 500, 250, 0, ""),
    ],
)
def test_no_rate_or_rest_is_negative(
    before: int, now: int, total: int, rate: float, left: float | None, told: str
) -> None:
    assert growth(before, now, 2.0) == rate
    assert seconds_left(now, total, rate) == left
    assert pace_text(now, total, rate) == told
    assert (seconds_left(now, total, None), seconds_left(now, total, -5.0)) == (None, None)
