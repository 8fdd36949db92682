"""The hosts of My Connect: metrics per five minutes, and an alert for an overloaded host."""

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
    """Folds metrics by the five minutes in which they were measured, and by host."""
    return {
        "metrics_by_5_minutes": metrics.withColumn("since", tumble("measured_at", "5 minutes")),
        "host_metrics": metrics,
    }
