"""Tests of the rows that the pipeline learner computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.learner import learner

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_a_model_predicts_before_it_learns() -> None:
    offer = {"shop": "books", "price": 50.0, "is_member": True, "bought": True}
    offers = [{**offer, "id": n, "happened_at": f"2026-01-31T14:0{n}:00Z"} for n in "123"]

    tables = tables_of(learner, {"offers_shown": offers})

    chances = sorted(row["chance"] for row in tables["predictions"])
    assert chances[0] == 0.5
    assert chances[0] < chances[1] < chances[2]
    (model,) = tables["models"]
    assert (model["price_weight"], model["shown"], model["bought"]) == (0.0, 3, 3)


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(learner, EVENTS)

    found = [(row["model_right"], row["baseline_right"]) for row in tables["accuracies"]]
    assert found == [
        *((31, 21), (44, 32), (36, 34), (40, 35), (45, 34), (43, 30), (40, 32), (24, 13)),
    ]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:5] for topic, events in EVENTS.items()}

    law_of_slices(learner, few, cuts=1, large=False)
