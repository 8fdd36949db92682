"""An A/B test: the variant that each person saw, and how many people bought within an hour.

The rates of the variants have confidence bounds.
"""

from pyspark.sql import DataFrame

from kappa import Table, Topic, View, count, first, pipeline

EXPOSURES = Topic(
    "exposures",
    partitions=2,
    key="person",
    event="person string not null, variant string not null, happened_at timestamp not null",
)
CONVERSIONS = Topic(
    "conversions",
    partitions=2,
    key="person",
    event="id string not null, person string not null, happened_at timestamp not null",
)


@pipeline(
    reads={"exposures": EXPOSURES, "conversions": CONVERSIONS},
    writes=[
        Table(
            "exposed_people",
            keys=("person",),
            fold={
                "variant": first("variant"),
                "exposed_at": first("happened_at"),
                "exposures": count(),
            },
        ),
        Table("conversions"),
        View(
            "people",
            """
            select e.person, e.variant, e.exposed_at, min(c.happened_at) as converted_at
            from exposed_people e
            left join conversions c on c.person = e.person
                and c.happened_at between e.exposed_at and e.exposed_at + interval '1 hour'
            group by e.person, e.variant, e.exposed_at
            """,
            keys=("person",),
        ),
        View(
            "variants",
            """
            select variant, count(*) as people, count(converted_at) as converted
            from people group by variant
            """,
            keys=("variant",),
            checks=["converted <= people"],
        ),
        View(
            # Wilson's interval, which holds for few people too: 19 of 20 such intervals have the
            # true rate.
            "variant_rates",
            """
            select variant, people, converted, round(rate, 3) as rate,
                round((rate + z2 / (2 * people) - spread) / (1 + z2 / people), 3) as low,
                round((rate + z2 / (2 * people) + spread) / (1 + z2 / people), 3) as high
            from (
                select *, converted / people as rate, 1.96 * 1.96 as z2,
                    1.96 * sqrt(rate * (1 - rate) / people + z2 / (4 * people * people)) as spread
                from variants
            )
            """,
        ),
    ],
)
def ab_test(exposures: DataFrame, conversions: DataFrame) -> dict[str, DataFrame]:
    """Returns a row for each exposure of a person to a variant, and a row for each conversion.

    The exposures are folded by person, to the first variant that each person saw.
    """
    return {
        "exposed_people": exposures,
        "conversions": conversions.select("id", "person", "happened_at"),
    }
