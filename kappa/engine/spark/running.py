"""Orders to a session that runs, beside its work."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
