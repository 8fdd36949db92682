"""Page hits in overlapping windows and in sessions of visitors, and sessions by landing page."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, count, count_distinct, hop, ordered, pipeline, session

PAGE_HITS = Topic(
    "page_hits",
    partitions=2,
    key="visitor",
    event="visitor string not null, page string not null, happened_at timestamp not null",
)
PAUSE = "30 minutes"


def follow(state: dict[str, Any], hit: Any) -> Iterator[dict[str, Any]]:
    """Emits a visitor's session when the visitor's next hit comes after a pause of 30 minutes."""
    ended = session(state, hit["happened_at"], PAUSE)
    if ended is not None:
        yield {
            "visitor": hit["visitor"],
            "since": ended["since"],
            "until": ended["last"],
            "landing": ended["landing"],
            "hits": ended["hits"],
        }
    state["landing"] = state["landing"] or hit["page"]
    state["hits"] = (state["hits"] or 0) + 1


@pipeline(
    reads={"page_hits": PAGE_HITS},
    writes=[
        Table(
            "page_windows",
            keys=("page", "since"),
            fold={"hits": count(), "visitors": count_distinct("visitor")},
            checks=["visitors <= hits"],
        ),
        Table(
            "visitors",
            keys=("visitor",),
            fold=ordered(
                follow,
                state="since timestamp, last timestamp, landing string, hits bigint",
                emits="page_sessions",
            ),
        ),
        Table(
            "page_sessions",
            emitted="visitor string, since timestamp, until timestamp, landing string, hits bigint",
        ),
        View(
            "landings",
            """
            select landing, count(*) as sessions, count(*) filter (hits = 1) as bounced,
                sum(hits)::bigint as hits, max(hits) as longest
            from page_sessions group by landing
            """,
            keys=("landing",),
        ),
        View(
            "busiest_pages",
            """
            select since, page, hits, visitors from page_windows
            qualify row_number() over (partition by since order by hits desc, page) = 1
            """,
            keys=("since",),
        ),
    ],
)
def sessions(page_hits: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each hit and window of ten minutes, and a row for each hit.

    A hit is in two windows, since a window begins every five minutes. The step `follow` folds the
    hits to sessions.
    """
    since = F.explode(hop("happened_at", "10 minutes", every="5 minutes"))
    return {"page_windows": page_hits.withColumn("since", since), "visitors": page_hits}
