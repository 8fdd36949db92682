"""Tests of the rows that the pipeline trending computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.trending import trending

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_a_word_counts_once_a_post_and_common_words_never() -> None:
    moment = "2026-01-31T14:00:00Z"
    post = {"id": "p", "author": "ada", "text": "The rain, the rain!", "happened_at": moment}

    tables = tables_of(trending, {"posts": [post]})

    assert [(row["word"], row["posts"]) for row in tables["word_hours"]] == [("rain", 1)]


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(trending, EVENTS)

    first = [row["word"] for row in tables["trending"] if row["place"] == 1]
    assert first == ["bread", "cat", "rain", "coffee", "train", "song"]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:4] for topic, events in EVENTS.items()}

    law_of_slices(trending, few, cuts=1, large=False)
