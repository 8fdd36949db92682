"""Orders and questions to a session that runs, beside its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.base.process import bytes_moved
from kappa.engine.spark.spark_settings import WORKERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# It logs the error that ends a stream.
_STREAMS = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


def activate(spark: SparkSession) -> None:
    """Makes a session that another thread has begun the active one of this thread, too.

    Spark reads it, and a user's function may ask for it.
    """
    # PySpark does it so itself; it has no public way.
    sessions = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")  # noqa: SLF001
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def hush_streams(spark: SparkSession) -> None:
    """Keeps Spark's words on why a stream has failed out of the log: for errors of our own."""
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
    log4j.core.config.Configurator.setLevel(_STREAMS, log4j.Level.OFF)


def progress_of_tasks(spark: SparkSession) -> object:
    """Returns something that changes while the tasks under way do their work.

    It is made of the classes that the JVM has loaded (a cold start is mostly that), of the bytes of
    files that it has moved, of those that Python's workers here have, and of the tasks that are
    done of each stage. Of a worker elsewhere it has the last alone. A function that never returns
    changes nothing here: its task reads no more rows once the pipe to its worker is full.
    """
    context = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001  # PySpark has no door to these
    assert jvm is not None, "a session that runs has one"
    classes = jvm.java.lang.management.ManagementFactory.getClassLoadingMXBean()
    files = jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics()
    stages = context._jsc.sc().statusStore().activeStages()  # noqa: SLF001
    return (
        classes.getTotalLoadedClassCount(),
        bytes_moved(WORKERS),
        [(each.getBytesRead(), each.getBytesWritten()) for each in files],
        [
            # The rows of a task under way stay 0 here (Spark 4.2), though executors tell them.
            (stage.stageId(), stage.attemptId(), stage.numCompleteTasks())
            for stage in map(stages.apply, range(stages.size()))
        ],
    )
