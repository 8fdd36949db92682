"""Nexmark's queries have the rows of the oracle, wherever the log is cut."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from auction_events import AUCTION, BID, PERSON, auction_events

from kappa.declare.pipeline import Pipeline
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "explain" / "nexmark.md"


def cuts(end: Offsets, draw: random.Random, count: int) -> Iterator[Offsets]:
    """Yields this many positions in the log, random for each partition, and then its end."""
    drawn = {
        (topic, partition): sorted(draw.randrange(last + 1) for _ in range(count))
        for topic, partition, last in end.items()
    }
    for number in range(count):
        yield Offsets(
            {
                topic: {partition: drawn[topic, partition][number] for partition in parts}
                for topic, parts in end.next.items()
            }
        )
    yield end


@pytest.fixture
def site(interpreted: SparkSession) -> Iterator[Pipeline]:
    """Sends the pipeline's functions to workers by value, because they cannot import its file."""
    import auction_site
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(auction_site)
    yield auction_site.auction_site
    cloudpickle.unregister_pickle_by_value(auction_site)


@pytest.mark.long
@pytest.mark.jvm
def test_all_queries_are_right_at_each_frontier_wherever_the_log_is_cut(
    site: Pipeline, tmp_path: Path
) -> None:
    """Slices are computed in the job and on Spark; the page's table is right for the last one."""
    from nexmark_log import ensure_answered, memory_log
    from nexmark_table import EVENTS, table

    from kappa.engine.children.rehearsal import Rehearsal, local_pipeline

    log = memory_log(auction_events(EVENTS))
    with local_pipeline(site) as made:
        built = Rehearsal(tmp_path, made, log, driver_rows=2_000)
        by_spark = set()
        for number, end in enumerate(cuts(log.end, random.Random(28), 2)):
            if number == 1:
                built.die_before_the_frontier_of(end)
                built.begin(driver_rows=2_000)
            by_spark.add(built.fold(end).distance > 2_000)
            answered = ensure_answered(built, log, end)
        built.close()

    assert by_spark == {True, False}
    told = "\n".join(table(built.birth, answered))
    assert told in PAGE.read_text(encoding="utf-8"), told


def test_events_are_the_same_for_a_seed_and_of_the_kinds_that_nexmark_has() -> None:
    made = [*auction_events(1_000, seed=3)]

    assert made == [*auction_events(1_000, seed=3)]
    assert made != [*auction_events(1_000, seed=4)]
    assert Counter(each.topic for each in made) == {PERSON: 20, AUCTION: 60, BID: 920}
