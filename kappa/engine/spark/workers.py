"""The daemon of Spark's Python workers: PySpark's own daemon, with five differences.

- Workers import the project's modules in the same way as the driver. `spark.python.daemon.module`
  names this module, and `KAPPA_SOURCES`, which importer.py sets, names the folder. So if a UDF
  calls a function, a worker finds this function under the same name as in the driver, whatever
  the name of its module is. The project's files are not on `sys.path`, so no file can hide a
  module of the standard library.
- A worker exits silently if the JVM has closed its socket. PySpark would print a traceback, and
  the log of a healthy job would be full of tracebacks: the JVM closes the sockets of idle workers,
  and of workers whose tasks need no more rows.
- Workers on a cluster check that they run the same Kappa as the job, and import the code from the
  shipped files.
- If workers decode, the daemon imports the decoder before it forks workers. Otherwise the import
  would take a second in each worker.
- A worker does not print its memory limit. Otherwise the log would have four such lines per worker.
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
from kappa.engine.spark.spark_settings import DECODING
from kappa.engine.spark.worker_archive import SHIPPED, same_kappa, ship, take_compiled

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
    "kappa.records.decode.parquet_decoder",
    "kappa.engine.read.source",
    "kappa.kafka.bulk_reader",
)


def tell_workers(spark: SparkSession, *, change: bool = False) -> None:
    """Makes a session's workers import the sources that this process has opened.

    The workers inherit the environment of the JVM, and the JVM may have started before the sources
    were opened. The workers of a cluster use shipped sources instead. If `change` is True, the
    sources may change, and each task loads them again: a worker runs several tasks, and would
    otherwise still use the modules that an earlier task has loaded.
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

    The sources are packed into a zip file in the folder `into`. Returns early if `is_asked_to_stop`
    returns True. Raises KappaError if the cluster provides no executor.
    """
    code = Path(os.environ[FOLDER_VARIABLE])
    spark.sparkContext.environment.update(ship(spark, code, into))
    begin_workers(spark)
    ensure_executor(spark, cluster, is_asked_to_stop)


def begin_workers(spark: SparkSession) -> None:
    """Starts the daemon of a session's Python workers, in a background thread.

    The daemon imports its modules while Spark makes its first plan. `tell_workers` must be called
    before this function, since the environment of the daemon does not change after its start.
    """
    threading.Thread(target=_begin, args=(spark,), name="workers", daemon=True).start()


def _begin(spark: SparkSession) -> None:
    # The first task of a slice reports an error of the daemon.
    with suppress(Exception):
        spark.range(0, 1, 1, 1).mapInArrow(_as_they_are, "id bigint").collect()


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Runs a worker as PySpark does, but ends silently if the JVM has closed the socket.

    Returns the worker's exit code.
    """
    if os.environ.get(_CHANGING):
        open_sources(Sources(Path(os.environ[FOLDER_VARIABLE])))
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


def limit_memory(memory_limit_mb: int) -> None:
    """Limits the memory of a worker as PySpark does, but prints only failures."""
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
