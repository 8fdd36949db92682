"""Page hits: the number of visits to each page, and the time of the last visit."""

from pyspark.sql import DataFrame

from kappa import Table, Topic, count, max_, pipeline

EVENT = "visitor string not null, page string not null, happened_at timestamp not null"
VISITS = Topic("visits", partitions=2, key="visitor", event=EVENT)
HITS = Table("page_hits", keys=("page",), fold={"hits": count(), "last": max_("happened_at")})


@pipeline(reads={"visits": VISITS}, writes=[HITS])
def web(visits: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each visit. The table counts the rows of each page."""
    return {"page_hits": visits}
