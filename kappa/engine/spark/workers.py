"""The daemon of Spark's Python workers: PySpark's own, with five differences.

- Workers import the project's modules as the driver does. `spark.python.daemon.module` names this
  module, and `KAPPA_SOURCES` the folder (importer.py sets the variable). So a worker finds a
  function that a UDF calls under the name that the function has in the driver, whatever its module.
  The project's files are not on `sys.path`, so no file can hide the standard library.
- A worker ends in silence if the JVM has closed its socket. PySpark would print a traceback, and a
  healthy job's log would be full of tracebacks. The JVM closes resting workers, and workers of
  tasks that need no more rows.
- Workers on a cluster check that their Kappa is the job's, and find the code in the shipped files.
- Where workers decode, the daemon imports the decoder before the daemon forks. Otherwise each
  worker would take a second for the import.
- A worker does not print the limit of its memory: a log would have four such lines for each worker.
"""

from __future__ import annotations

import io
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark.worker
from pyspark import daemon
from pyspark.worker_util import setup_memory_limits

from kappa.code.importer import FOLDER_VARIABLE, open_sources
from kappa.code.sources import Sources
from kappa.engine.spark.cluster import ensure_executor
from kappa.engine.spark.shipped import SHIPPED, same_kappa, ship, take_compiled
from kappa.engine.spark.spark_settings import DECODING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kappa.engine.spark.cluster import SparkCluster

# The daemon's variable: the project's files change while the workers live (kappa dev).
_CHANGING = "KAPPA_SOURCES_CHANGE"
# PySpark raises the error instead of printing it. (pyspark/daemon.py, `worker`)
_RAISES = "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"
_worker = daemon.worker
_DECODER = (
    "kappa.records.decode.readers",
    "kappa.records.decode.to_files",
    "kappa.engine.read.source",
    "kappa.kafka.bulk",
)


def tell_workers(spark: SparkSession, *, change: bool = False) -> None:
    """Lets a session's workers import the sources that this process has opened.

    Workers have the environment of the JVM, which may have started before the sources were opened.
    The workers of a cluster have shipped sources. If the sources `change`, each task loads them
    again: a worker outlives a task, and would keep the modules of the task before.
    """
    environment = spark.sparkContext.environment
    if SHIPPED not in environment:
        environment[FOLDER_VARIABLE] = os.environ[FOLDER_VARIABLE]
        if change:
            environment[_CHANGING] = "1"


def begin_executors(
    spark: SparkSession, cluster: SparkCluster, into: Path, is_asked_to_stop: Callable[[], bool]
) -> None:
    """Ships the sources of this process to a cluster, and waits for the first executor.

    The shipped archive is written below `into`. Raises KappaError if the cluster gives no executor.
    """
    code = Path(os.environ[FOLDER_VARIABLE])
    spark.sparkContext.environment.update(ship(spark, code, into))
    begin_workers(spark)
    ensure_executor(spark, cluster, is_asked_to_stop)


def begin_workers(spark: SparkSession) -> None:
    """Starts the daemon of a session in a thread.

    The daemon imports while Spark makes its first plan. First call `tell_workers`: a daemon keeps
    the environment of its start.
    """
    threading.Thread(target=_begin, args=(spark,), name="workers", daemon=True).start()


def _begin(spark: SparkSession) -> None:
    # The first task of a slice reports an error of the daemon.
    with suppress(Exception):
        spark.range(0, 1, 1, 1).mapInArrow(_as_they_are, "id bigint").collect()


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Runs a task as PySpark's worker does; ends the worker if its socket is closed."""
    if os.environ.get(_CHANGING):
        open_sources(Sources(Path(os.environ[FOLDER_VARIABLE])))
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


def limit_memory(memory_limit_mb: int) -> None:
    """Limits the memory of a worker as PySpark does, and prints only a failure."""
    with redirect_stderr(io.StringIO()) as said:
        setup_memory_limits(memory_limit_mb)
    if "Failed" in said.getvalue():
        sys.stderr.write(said.getvalue())


if __name__ == "__main__":
    same_kappa()
    shipped = os.environ.get(SHIPPED)
    if shipped is not None:
        take_compiled(Path(shipped))
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        open_sources(Sources(Path(folder)))
    if os.environ.get(DECODING):
        for name in _DECODER:
            import_module(name)
    os.environ[_RAISES] = "1"
    daemon.worker = worker
    pyspark.worker.setup_memory_limits = limit_memory  # type: ignore[attr-defined]  # there is no door
    daemon.manager()
