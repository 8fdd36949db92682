"""Sensors: readings per five minutes, late readings too, and alarms for silent sensors."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa import Table, Topic, View, avg_, count, max_, ordered, pipeline, sum_, tumble

MEASUREMENTS = Topic(
    "measurements",
    key="sensor",
    event="sensor string not null, celsius decimal(5,1) not null, happened_at timestamp not null",
)
# A sensor sends every minute; so long without a reading is silence.
SILENCE = timedelta(minutes=10)
# A reading that arrives so long after it was taken is late.
LATE_MINUTES = 5


def watch(state: dict[str, Any], reading: Any) -> Iterator[dict[str, Any]]:
    """Emits an alarm when a sensor has sent nothing for ten minutes, and when it sends again.

    `reading` is None if the step is woken because the ten minutes are over.
    """
    if reading is None:
        yield {"sensor": state["sensor"], "alarm": "silent", "raised_at": state["wake_at"]}
        state["wake_at"], state["is_silent"] = None, True
    else:
        arrived = reading["_timestamp"]
        if state["is_silent"]:
            yield {"sensor": reading["sensor"], "alarm": "back", "raised_at": arrived}
        state["last"], state["is_silent"] = arrived, False
        state["wake_at"] = arrived + SILENCE


@pipeline(
    reads={"measurements": MEASUREMENTS},
    writes=[
        Table(
            "celsius_by_5_minutes",
            keys=("sensor", "since"),
            fold={
                "readings": count(),
                "late": sum_("is_late"),
                "mean": avg_("celsius"),
                "highest": max_("celsius"),
            },
            checks=["late <= readings"],
        ),
        Table(
            "sensors",
            keys=("sensor",),
            fold=ordered(
                watch,
                state="last timestamp, is_silent boolean, wake_at timestamp",
                emits="alarms",
                on_time="wake_at",
            ),
        ),
        Table("alarms", emitted="sensor string, alarm string, raised_at timestamp"),
        View(
            "silent_sensors", "select sensor, last from sensors where is_silent", keys=("sensor",)
        ),
        View(
            "alarms_by_sensor",
            """
            select sensor, count(*) filter (alarm = 'silent') as silences, max(raised_at) as newest
            from alarms group by sensor
            """,
            keys=("sensor",),
        ),
    ],
)
def iot(measurements: DataFrame) -> dict[str, DataFrame]:
    """Returns all readings for two tables: one per five minutes, and one per sensor.

    The first table needs the time at which the five minutes of a reading began. For the second
    table, the step `watch` receives each sensor's readings in the order of arrival.
    """
    late = F.col("_timestamp") > F.col("happened_at") + F.expr(f"interval {LATE_MINUTES} minutes")
    return {
        "celsius_by_5_minutes": measurements.withColumn(
            "since", tumble("happened_at", "5 minutes")
        ).withColumn("is_late", late.cast("int")),
        "sensors": measurements,
    }
