"""Functions that activate a running Spark session, silence its streams, or observe its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.base.process import bytes_moved
from kappa.engine.spark.spark_settings import WORKERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# This class logs the error that ends a stream.
_STREAMS = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"


def activate(spark: SparkSession) -> None:
    """Makes a session of another thread the active session of this thread too.

    Spark uses the active session, and a user's function may ask Spark for the active session.
    """
    # PySpark activates sessions in the same way; there is no public way.
    sessions = getattr(spark._jvm, "org.apache.spark.sql.classic.SparkSession")  # noqa: SLF001
    sessions.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def hush_streams(spark: SparkSession) -> None:
    """Switches off Spark's log messages about a failed stream.

    Kappa calls this function if a stream fails because of one of Kappa's own errors, since Kappa
    reports such an error anyway.
    """
    log4j = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
    log4j.core.config.Configurator.setLevel(_STREAMS, log4j.Level.OFF)


def progress_of_tasks(spark: SparkSession) -> object:
    """Returns a value that changes as long as the running tasks make progress.

    The value contains the number of classes that the JVM has loaded (a cold start mostly loads
    classes), the bytes of files that the JVM has read and written, the bytes that Python workers on
    this machine have read and written, and the number of finished tasks per stage. For workers on
    other machines, only the number of finished tasks changes. If a user's function never returns,
    the value soon stays the same: the function's task reads no more rows once the pipe to the
    Python worker is full.
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
            # The rows of a task under way stay 0 here (Spark 4.2), though executors report them.
            (stage.stageId(), stage.attemptId(), stage.numCompleteTasks())
            for stage in map(stages.apply, range(stages.size()))
        ],
    )
