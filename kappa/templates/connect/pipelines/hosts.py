"""Metrics of the hosts of My Connect per five minutes, and an alert for an overloaded host."""

from pathlib import Path

from pyspark.sql import DataFrame

from kappa import Alert, Table, Topic, View, avg_, count, latest, max_, pipeline, tumble

METRICS = Topic("metrics", key="host", event=Path("schemas/metric.json"))


@pipeline(
    reads={"metrics": METRICS},
    writes=[
        Table(
            "metrics_by_5_minutes",
            keys=("host", "name", "since"),
            fold={"samples": count(), "mean": avg_("value"), "highest": max_("value")},
        ),
        Table(
            "host_metrics",
            keys=("host", "name"),
            fold={"value": latest("value"), "measured_at": latest("measured_at")},
        ),
        View(
            "overloaded_hosts",
            """
            select host, value as cpu_percent, measured_at from host_metrics
            where name = 'cpu_percent' and value >= 85
            """,
            keys=("host",),
        ),
        # A message when a host becomes overloaded, and when that is over. The receiver is Kappa's
        # own page; to="https://..." is a webhook.
        Alert("overloaded-host", of="overloaded_hosts", to="page", on=["insert", "delete"]),
    ],
)
def hosts(metrics: DataFrame) -> dict[str, DataFrame]:
    """Returns all metrics for two tables: one per five minutes, and one of the latest values.

    The first table needs the time at which the five minutes of a measurement began.
    """
    return {
        "metrics_by_5_minutes": metrics.withColumn("since", tumble("measured_at", "5 minutes")),
        "host_metrics": metrics,
    }
