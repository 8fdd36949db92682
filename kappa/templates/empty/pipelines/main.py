"""The smallest pipeline: each event of a topic becomes a row of a table."""

from pyspark.sql import DataFrame

from kappa import Table, Topic, pipeline

EVENTS = Topic("events", event="id string not null, happened_at timestamp not null")


@pipeline(reads={"events": EVENTS}, writes=[Table("events")])
def main(events: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each event."""
    return {"events": events.select("id", "happened_at")}
