"""Tests of the rows that the pipeline main computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, some_events, tables_of
from pipelines.main import main

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_each_event_is_a_row() -> None:
    tables = tables_of(main, EVENTS)

    assert [row["id"] for row in tables["events"]] == ["e1", "e2"]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    law_of_slices(main, some_events(main, 4), cuts=1, large=False)
