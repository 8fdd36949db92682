"""Spark's settings in a session of Kappa, each with the reason."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kappa.base.process import cores_here
from kappa.base.sections import StorageSettings
from kappa.engine.spark.cluster import SparkCluster
from kappa.engine.spark.s3a import bucket_settings

# A variable of a JVM whose Python workers are to decode (workers.py).
DECODING = "KAPPA_DECODING"
# The module of the workers' daemon, which appears in the workers' command lines.
WORKERS = "kappa.engine.spark.workers"
# The system's limit (104 on macOS, 108 on Linux) without `/.`, a UUID, `.sock` and an end.
_SOCKET_FOLDER_BYTES = 104 - 44


def spark_settings(
    local_dir: Path,
    cores: int,
    worker_memory: str,
    cluster: SparkCluster | None = None,
    jars: Sequence[Path] = (),
    storage: StorageSettings | None = None,
) -> Mapping[str, str]:
    """Returns Spark's settings for a session that writes only to `local_dir` on this machine.

    Each Python worker may use `worker_memory` (`4g`). If `cluster` is None, tasks run on `cores`
    cores of this machine (0: all). Otherwise, tasks run on `cluster`, and the cluster's executors
    get the `jars`. `storage` is not None if the root is in a bucket.
    """
    local = {
        **_local_settings(local_dir, cores or cores_here(), worker_memory),
        **({} if storage is None else bucket_settings(storage)),
    }
    if cluster is None:
        return local
    return {
        **local,
        **cluster.settings(worker_memory, jars),
        f"spark.executorEnv.{DECODING}": "1",
    }


def _local_settings(local_dir: Path, cores: int, worker_memory: str) -> Mapping[str, str]:
    return {
        "spark.master": f"local[{cores}]",
        # By default local mode listens on the outer address.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # The history of the UI makes the heap grow.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.structuredLogging.enabled": "false",
        # Hadoop sets the modes of files by itself, and knows no umask of the process.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.warehouse.dir": str(local_dir / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # A snapshot of a small table in 50 tasks takes seconds.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.session.timeZone": "UTC",
        # A Python UDF gets times in the zone of its worker.
        "spark.executorEnv.TZ": "UTC",
        # The default of 200 costs seconds a batch on two cores.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        # Other readers do not read INT96, the default, as a timestamp.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Workers import a pipeline's modules from the same place as this process.
        "spark.python.daemon.module": WORKERS,
        # A function that takes more memory raises a MemoryError in its worker, and is named: no
        # other process is killed for the function.
        "spark.executor.pyspark.memory": worker_memory,
        # By TCP, each task of a worker waits 40 ms for its input: Nagle's algorithm and delayed
        # acknowledgements work against each other.
        "spark.python.unix.domain.socket.enabled": str(_has_unix_sockets()).lower(),
        "spark.python.unix.domain.socket.dir": str(_socket_folder(local_dir)),
        # Spark 4.2.0 waits forever for a UDF over Parquet: Spark sends the rows in a form that its
        # own workers do not read.
        "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
        # No part of a working slice is cut off after a time (engine.slice_seconds).
        "spark.sql.broadcastTimeout": "-1",
        # Batches for Python, for steps and the user's functions: large batches are the fastest way.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        # A tail waits for records by itself (engine/job/tail.py); Spark asks only before its first
        # record.
        "spark.sql.streaming.pollingDelay": "100ms",
        # Checkpoints are on a local disk, where rename is atomic: a third of the default's time per
        # micro-batch.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
    }


def _has_unix_sockets() -> bool:
    """Returns False in a confined process, whose system call filter forbids Unix sockets."""
    try:
        socket.socket(socket.AF_UNIX).close()
    except PermissionError:
        return False
    return True


def _socket_folder(local_dir: Path) -> Path:
    """Returns a path of the folder `tmp` in `local_dir` that is short enough for Unix sockets.

    If there is no such path, returns a new temporary folder.
    """
    folder = local_dir / "tmp"
    if len(os.fsencode(folder)) <= _SOCKET_FOLDER_BYTES:
        return folder
    if Path("/proc/self/fd").is_dir():
        # The workers and the JVM find the folder there as long as this process lives.
        return Path(f"/proc/{os.getpid()}/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}")
    return Path(tempfile.mkdtemp(prefix="kappa-"))
