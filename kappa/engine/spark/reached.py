"""The checks that a cluster's master answers and gives an executor.

A failed check is reported in a sentence. Spark itself would try a master for a minute and report no
reason, and would wait for an executor forever.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError, Unreachable
from kappa.base.section.cluster import addresses
from kappa.engine.spark.cluster import SparkCluster

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

_CONNECT_SECONDS = 5.0
# A worker starts an executor's JVM in a few seconds; a worker on Kubernetes may fetch its image
# first.
_EXECUTOR_SECONDS = 120.0
_NAP_SECONDS = 0.1
_AGAIN = "the job is started again by itself"


def ensure_master(cluster: SparkCluster) -> None:
    """Raises Unreachable if no master of a cluster accepts a connection."""
    refused: list[str] = []
    for host, port in addresses(cluster.master, cluster.conf):
        try:
            socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
        except OSError as error:
            refused.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    raise Unreachable(
        f"the Spark cluster {cluster.master} does not answer: {', '.join(refused)}",
        hint=f"start its master, or mend engine.master in kappa.toml; {_AGAIN}",
    )


def ensure_executor(
    spark: SparkSession,
    cluster: SparkCluster,
    is_asked_to_stop: Callable[[], bool],
    *,
    patience_seconds: float = _EXECUTOR_SECONDS,
) -> None:
    """Waits until a session has an executor, or the job is asked to stop.

    A task that needs an executor must be under way. Raises KappaError if the cluster gives no
    executor.
    """
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  # PySpark does not list executors
    deadline = time.monotonic() + patience_seconds
    while not is_asked_to_stop():
        if context.isStopped():
            raise KappaError(
                f"the Spark cluster {cluster.master} has ended the application before it gave an "
                "executor",
                hint=f"see its page, and above what Spark has logged, for the reason; {_AGAIN}",
            )
        # The driver is in the list, too.
        if len(context.statusTracker().getExecutorInfos()) > 1:
            return
        if time.monotonic() > deadline:
            raise KappaError(
                f"the Spark cluster {cluster.master} has given no executor in "
                f"{patience_seconds:g} s",
                hint="see its page for workers with free cores and memory, and whether they reach "
                f"engine.driver_host, {cluster.driver_host}; {_AGAIN}",
            )
        time.sleep(_NAP_SECONDS)


def not_begun(error: Py4JJavaError) -> KappaError:
    """Returns the error of a session that Spark refuses to begin, while the JVM still runs."""
    cause = error.java_exception
    reason = str(cause.getMessage() or cause.toString()).removeprefix("requirement failed: ")
    # Spark names the setting if the address belongs to another machine, and names nothing if the
    # text is not an address.
    is_of_address = "bindAddress" in reason or "UnresolvedAddress" in reason
    return KappaError(
        f"Spark's session does not begin: {reason}",
        hint=(
            "engine.driver_host in kappa.toml has to be an address of this machine, or "
            "spark.driver.bindAddress in engine.conf where workers reach it by another"
            if is_of_address
            else "mend engine.conf in kappa.toml, if it has the setting"
        )
        + f"; {_AGAIN}",
    )
