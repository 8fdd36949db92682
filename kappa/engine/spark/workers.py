"""The daemon of Spark's Python workers: PySpark's own, with four differences.

- Workers import the project's modules as the driver does. `spark.python.daemon.module` names this
  module, and `KAPPA_SOURCES` the folder (importer.py sets it). So a worker finds a function that a
  UDF calls under the name it has in the driver, whatever module it is in. It does so without a
  `sys.path` on which the project's files could hide the standard library.
- A worker ends in silence if the JVM has closed its socket. PySpark prints a traceback then, and a
  healthy job's log would be full of them. The JVM closes workers that rest, and those of tasks that
  need no more rows.
- On a cluster they make sure that their Kappa is the job's, and find the code in what was shipped.
- Where they are to decode, the daemon imports the decoder before it forks them. Each would take a
  second for it.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import daemon

from kappa.code.importer import FOLDER_VARIABLE, open_sources
from kappa.code.sources import Sources
from kappa.engine.spark.reached import ensure_executor
from kappa.engine.spark.shipped import SHIPPED, same_kappa, ship, take_compiled
from kappa.engine.spark.spark_settings import DECODING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kappa.engine.spark.cluster import SparkCluster

# PySpark raises what it would print. (pyspark/daemon.py, `worker`)
_RAISES = "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"
_worker = daemon.worker
_DECODER = (
    "kappa.records.decode.readers",
    "kappa.records.decode.to_files",
    "kappa.engine.read.source",
    "kappa.kafka.bulk",
)


def tell_workers(spark: SparkSession) -> None:
    """Lets workers of a session import what this process has opened since its JVM was started.

    They have the environment of the JVM; those of a cluster have what was shipped to them.
    """
    environment = spark.sparkContext.environment
    if SHIPPED not in environment:
        environment[FOLDER_VARIABLE] = os.environ[FOLDER_VARIABLE]


def begin_executors(
    spark: SparkSession, cluster: SparkCluster, into: Path, is_asked_to_stop: Callable[[], bool]
) -> None:
    """Ships what this process has opened to a cluster, and waits for the first executor.

    What is shipped is written below `into`. Raises KappaError if the cluster gives no executor.
    """
    code = Path(os.environ[FOLDER_VARIABLE])
    spark.sparkContext.environment.update(ship(spark, code, into))
    begin_workers(spark)
    ensure_executor(spark, cluster, is_asked_to_stop)


def begin_workers(spark: SparkSession) -> None:
    """Starts the daemon of a session in a thread: it imports while Spark makes its first plan.

    They have been told what to import (`tell_workers`): the environment is part of a daemon.
    """
    threading.Thread(target=_begin, args=(spark,), name="workers", daemon=True).start()


def _begin(spark: SparkSession) -> None:
    # The first task of a slice reports what is wrong with it.
    with suppress(Exception):
        spark.range(0, 1, 1, 1).mapInArrow(_as_they_are, "id bigint").collect()


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Runs one task as PySpark's worker does; ends the worker if its socket is closed."""
    try:
        return _worker(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return 1


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
    daemon.manager()
