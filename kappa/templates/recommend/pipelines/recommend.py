"""Recommendations: for each item, the items that were most often viewed in the same sessions."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from kappa import Table, Topic, View, ordered, pipeline, session

ITEM_VIEWS = Topic(
    "item_views",
    partitions=2,
    key="visitor",
    event="visitor string not null, item string not null, happened_at timestamp not null",
)
PAUSE = "30 minutes"
# A visitor who looks at everything says nothing of what belongs together.
MOST_ITEMS = 20


def browse(state: dict[str, Any], view: Any) -> Iterator[dict[str, Any]]:
    """Emits each pair of items that a visitor views in one session: (a, b) and (b, a)."""
    session(state, view["happened_at"], PAUSE)
    items = state["items"] or []
    if view["item"] in items or len(items) == MOST_ITEMS:
        return
    for other in items:
        yield {"item": view["item"], "other": other}
        yield {"item": other, "other": view["item"]}
    state["items"] = [*items, view["item"]]


@pipeline(
    reads={"item_views": ITEM_VIEWS},
    writes=[
        Table(
            "visitors",
            keys=("visitor",),
            fold=ordered(
                browse,
                state="since timestamp, last timestamp, items array<string>",
                emits="viewed_pairs",
            ),
        ),
        Table("viewed_pairs", emitted="item string, other string"),
        View(
            "pair_counts",
            "select item, other, count(*) as sessions from viewed_pairs group by item, other",
            keys=("item", "other"),
        ),
        View(
            "recommendations",
            """
            select item, row_number() over (
                    partition by item order by sessions desc, other
                ) as place, other, sessions
            from pair_counts
            qualify place <= 3
            """,
            keys=("item", "place"),
            by=("item",),
        ),
    ],
)
def recommend(item_views: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each view of an item. The step `browse` folds the rows by visitor."""
    return {"visitors": item_views}
