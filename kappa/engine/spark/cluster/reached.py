"""Whether a cluster can be used: its master answers, and it gives an executor.

If not, that is one sentence. Spark itself would try a master for a minute and report no reason, and
wait for an executor for ever.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kappa.base.errors import KappaError, Unreachable
from kappa.engine.spark.cluster.cluster import SparkCluster

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

_CONNECT_SECONDS = 5.0
# A worker starts an executor's JVM in a few seconds; one on Kubernetes may fetch its image first.
_EXECUTOR_SECONDS = 120.0
_NAP_SECONDS = 0.1
_AGAIN = "the job is started again by itself"


def ensure_master(cluster: SparkCluster) -> None:
    """Raises Unreachable if no master of a cluster takes a connection."""
    refused: list[str] = []
    for host, port in _addresses(cluster.master):
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
    """Waits until a session has an executor, or its job is asked to stop.

    Some task has to be under way that wants one. Raises KappaError if the cluster gives none.
    """
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001  # PySpark does not list executors
    deadline = time.monotonic() + patience_seconds
    # The driver is one of those listed.
    while not is_asked_to_stop() and len(context.statusTracker().getExecutorInfos()) < 2:
        if context.isStopped() or time.monotonic() > deadline:
            raise KappaError(
                f"the Spark cluster {cluster.master} has given no executor in "
                f"{patience_seconds:g} s",
                hint="see its page for workers with free cores and memory, and whether they reach "
                f"engine.driver_host, {cluster.driver_host}; {_AGAIN}",
            )
        time.sleep(_NAP_SECONDS)


def not_begun(error: Py4JJavaError) -> KappaError:
    """Returns the error of a session that Spark refuses to begin, while its JVM still runs."""
    reason = str(error.java_exception.getMessage()).removeprefix("requirement failed: ")
    return KappaError(
        f"Spark's session does not begin: {reason}",
        hint=f"mend engine.conf in kappa.toml, if it has the setting; {_AGAIN}",
    )


def _addresses(master: str) -> list[tuple[str, int]]:
    if master.startswith("spark://"):
        parts = (each.rpartition(":") for each in master.removeprefix("spark://").split(","))
        return [(host, int(port)) for host, _, port in parts]
    url = master.removeprefix("k8s://")
    found = urlsplit(url if re.match(r"\w+://", url) else f"https://{url}")
    return [(found.hostname or "", found.port or (80 if found.scheme == "http" else 443))]
