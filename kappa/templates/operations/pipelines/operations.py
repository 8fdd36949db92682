"""Operations: latencies and counts of services, requests to web servers, and silent services."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import (
    Alert,
    Table,
    Text,
    Topic,
    View,
    count,
    kll,
    max_,
    ordered,
    pipeline,
    sum_,
    tumble,
)

# Lines as StatsD's clients send them: `checkout.request:320|ms`, `search.queries:5|c|@0.1`.
STATS = Topic(
    "stats",
    key="service",
    event="""
        service string not null, name string not null, value decimal(15,3) not null,
        kind string not null, rate decimal(6,5) default 1
    """,
    format=Text(
        r"(?P<service>[\w-]{1,60})\.(?P<name>[\w.-]{1,100}):(?P<value>[0-9]+(?:\.[0-9]+)?)"
        r"\|(?P<kind>ms|c)(?:\|@(?P<rate>0\.[0-9]*[1-9]|1))?"
    ),
)
# Lines of the access log of Apache or nginx.
HITS = Topic(
    "hits",
    event="at timestamp not null, path string, status int not null, bytes bigint",
    format="access-log",
)
# A service sends statistics every ten seconds; so long without one is silence.
SILENCE = timedelta(minutes=2)
# So long are minutes kept: a table of each minute grows forever otherwise.
KEPT = "90 days"
# A minute is slow if one request in a hundred takes longer than so many milliseconds.
SLOW_MS = 500


def watch(state: dict[str, Any], stat: Any) -> Iterator[dict[str, Any]]:
    """Emits an event when a service has sent nothing for two minutes, and when it sends again.

    `stat` is None if the step is woken because the two minutes are over.
    """
    if stat is None:
        yield {"service": state["service"], "event": "silent", "happened_at": state["wake_at"]}
        state["wake_at"], state["is_silent"] = None, True
    else:
        arrived = stat["_timestamp"]
        if state["is_silent"]:
            yield {"service": stat["service"], "event": "back", "happened_at": arrived}
        state["last"], state["is_silent"] = arrived, False
        state["wake_at"] = arrived + SILENCE


@pipeline(
    reads={"stats": STATS, "hits": HITS},
    writes=[
        Table(
            "latencies",
            keys=("service", "name", "since"),
            fold={
                "requests": count(),
                "median_ms": kll("value", 0.5),
                "p99_ms": kll("value", 0.99),
                "slowest_ms": max_("value"),
            },
            expire="since",
            after=KEPT,
        ),
        Table(
            "counts",
            keys=("service", "name", "since"),
            fold={"total": sum_("total")},
            expire="since",
            after=KEPT,
        ),
        Table(
            "route_hits",
            keys=("route", "since"),
            fold={"hits": count(), "errors": sum_("is_error"), "bytes": sum_("bytes")},
            checks=["errors <= hits"],
            expire="since",
            after=KEPT,
        ),
        Table(
            "services",
            keys=("service",),
            fold=ordered(
                watch,
                state="last timestamp, is_silent boolean, wake_at timestamp",
                emits="silences",
                on_time="wake_at",
            ),
        ),
        Table("silences", emitted="service string, event string, happened_at timestamp"),
        View(
            "slow_minutes",
            f"select service, name, since, p99_ms from latencies where p99_ms > {SLOW_MS}",
            keys=("service", "name", "since"),
        ),
        View(
            "silent_services",
            "select service, last from services where is_silent",
            keys=("service",),
        ),
        # A message when a service falls silent, and when it is back. The receiver is Kappa's own
        # page; to="https://..." is a webhook.
        Alert("silent-service", of="silent_services", to="page", on=["insert", "delete"]),
    ],
)
def operations(stats: DataFrame, hits: DataFrame) -> dict[str, DataFrame]:
    """Returns latencies, counts and hits, each with its minute, and all statistics.

    The minute of a latency or a count is the minute of its arrival. The minute of a hit is the
    minute of the request. The step `watch` receives all statistics.
    """
    arrived = stats.withColumn("since", tumble("_timestamp", "1 minute"))
    # A name that nobody has is no route: strangers try thousands.
    route = F.when(F.col("status") == 404, "(not found)").otherwise(
        F.regexp_extract("path", "^(/[^/?]*)", 1)
    )
    return {
        "latencies": arrived.where("kind = 'ms'"),
        "counts": arrived.where("kind = 'c'").withColumn(
            # A counter that is sampled stands for more.
            "total",
            (F.col("value") / F.col("rate")).cast("decimal(18,3)"),
        ),
        "route_hits": hits.withColumn("since", tumble("at", "1 minute"))
        .withColumn("route", F.coalesce(route, F.lit("(no request)")))
        .withColumn("is_error", (F.col("status") >= 500).cast("int")),
        "services": stats,
    }
