"""Facts with two times: the time from which a fact is true, and the time when it became known."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, latest, pipeline

FACTS = Topic(
    "facts",
    partitions=2,
    key="entity",
    event="""
        entity string not null, property string not null, value string,
        valid_from timestamp not null
    """,
)
WORK = Topic(
    "work",
    key="customer",
    event="""
        id string not null, customer string not null, hours decimal(8,2) not null,
        happened_at timestamp not null
    """,
)


@pipeline(
    reads={"facts": FACTS, "work": WORK},
    writes=[
        # All that was ever said, with the time at which it was said: its record's time.
        Table("said_facts"),
        # What is believed now: of a fact that was said again, the newest. `said` tells a fact that
        # was taken back from a fact that was never said.
        Table(
            "known_facts",
            keys=("entity", "property", "valid_from"),
            fold={"said": latest("said")},
        ),
        Table("work"),
        View(
            "invoice_items",
            """
            select w.id, w.customer, w.happened_at, w.hours, r.rate,
                (w.hours * r.rate)::decimal(18,2) as amount
            from work w
            asof left join (
                select entity, valid_from, max(said.value)::decimal(8,2) as rate
                from known_facts where property = 'rate' and said.value is not null
                group by entity, valid_from
            ) r on r.entity = w.customer and w.happened_at >= r.valid_from
            """,
            keys=("customer", "id"),
            by=("customer",),
        ),
        View(
            "invoices",
            """
            select customer, count(*) as items, sum(hours) as hours, sum(amount) as amount
            from invoice_items group by customer
            """,
            keys=("customer",),
        ),
    ],
)
def facts(facts: DataFrame, work: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each fact, with the time at which the fact became known.

    Also returns a row for each piece of work, for the invoices.
    """
    known = facts.withColumnRenamed("_timestamp", "known_at")
    return {
        "said_facts": known.select("entity", "property", "value", "valid_from", "known_at"),
        "known_facts": facts.withColumn(
            "said", F.struct("value", F.col("_timestamp").alias("known_at"))
        ),
        "work": work.select("id", "customer", "hours", "happened_at"),
    }
