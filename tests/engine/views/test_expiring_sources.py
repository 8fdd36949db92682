"""I11 if rows of a view's tables expire: the view loses only rows that followed from them."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kappa import Table, Topic, View, count, pipeline
from kappa.testing import Event, law_of_views

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

CLICKS = Topic("clicks", event="page string, at timestamp, ms bigint", partitions=2)


@pipeline(
    reads={"clicks": CLICKS},
    writes=[
        Table("raw", expire="at", after="7 minutes"),
        Table("pages", keys=("page", "at"), fold={"n": count()}, expire="at", after="5 minutes"),
        View("counted", "select page, count(*) as n, sum(ms) as ms from raw group by page",
             keys=("page",)),
        View("slowest", "select page, max(ms) as ms, min(ms) as least from raw group by page",
             keys=("page",)),
        View("both", "select page, r.ms, p.n from raw r join pages p using (page)", by=("page",)),
        View("per_count", "select n, count(*) as pages from pages group by n", keys=("n",)),
    ],
)  # fmt: skip
def clicked(clicks: DataFrame) -> dict[str, DataFrame]:
    minute = clicks.withColumn("at", clicks["at"])
    return {"raw": clicks, "pages": minute}


def some_clicks(seed: int) -> list[Event]:
    """Returns clicks on a few pages, at rising log times with gaps; some clicks are late."""
    draw, now, found = random.Random(seed), datetime(2024, 1, 1, tzinfo=UTC), list[Event]()
    for number in range(40):
        now += timedelta(minutes=draw.choice([0, 0, 0.5, 1, 4]))
        at = now - timedelta(minutes=draw.choice([0, 0, 1, 3, 6, 9]))
        click = {
            "page": draw.choice(["a", "b", None]),
            "at": draw.choice([at.isoformat(), None]) if number % 7 == 0 else at.isoformat(),
            "ms": draw.choice([1, 2, 3, None]),
        }
        milliseconds = int(now.timestamp() * 1000)
        found.append(Event(click, partition=draw.randrange(2), timestamp_ms=milliseconds))
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_views_over_rows_that_expire_are_their_queries_at_each_frontier(
    spark: SparkSession, tried: Counter[tuple[str, bool]], seed: int
) -> None:
    law_of_views(clicked, {"clicks": some_clicks(seed)}, cuts=1)

    assert {name for name, is_so in tried if is_so} == {view.name for view in clicked.views}
    assert not any(name for name, is_so in tried if not is_so)
