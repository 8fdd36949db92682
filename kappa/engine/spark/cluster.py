"""A Spark cluster that folds bounded legs, and the settings of its sessions.

YARN's own settings are part of Spark's settings, as `spark.hadoop.yarn.*`. So no Hadoop
configuration folder is needed, and paths without a scheme refer to this machine's file system.

This module checks that a master answers and that an executor starts, and reports a failed check
with its reason. Spark itself would try to reach a master for a minute and report no reason, and
would wait for an executor forever.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.base.cluster_rules import (
    CORES_MAX,
    EXECUTOR_CORES,
    HEAP,
    HEAP_UNLESS_SET,
    INSTANCES,
    IS_DYNAMIC,
    MAX_INSTANCES,
    YARN,
    addresses,
)
from kappa.base.errors import KappaError, Unreachable
from kappa.base.java.jars import spark_home
from kappa.base.units import memory, parse_memory

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.sql import SparkSession

    from kappa.base.settings import Settings

# The number of tasks of a shuffle if the number of cores is not set; Spark joins small tasks.
_PARALLELISM = 16
# The path of a socket in this folder must be short (unix(7)), and exist on each machine.
_SOCKETS = "/tmp"  # noqa: S108  # a socket has a name by chance, and is for its user alone
# Spark's allowance for a JVM beside the heap: a tenth of the heap, and at least this much.
_SHARE, _LEAST = 10, "384m"
_JARS, _ARCHIVE = "spark.yarn.jars", "spark.yarn.archive"


@dataclass(frozen=True, slots=True)
class SparkCluster:
    """A cluster, with the URL of its master and Spark's settings for its sessions.

    Workers connect to this machine at `driver_host`.
    """

    master: str
    driver_host: str
    # The settings may include secrets.
    conf: Mapping[str, str] = field(repr=False)
    # Options of the executors' JVMs, if the project sets none.
    jvm: Sequence[str] = ()

    @property
    def python(self) -> str:
        """Returns the path of the workers' Python.

        This is the path of this process's Python, unless the project sets another path.
        """
        return self.conf.get("spark.pyspark.python", sys.executable)

    @property
    def parallelism(self) -> int:
        """Returns the number of tasks for a shuffle."""
        cores = int(self.conf.get(INSTANCES, 0)) * self._executor_cores
        return int(self.conf.get(CORES_MAX, cores)) or _PARALLELISM

    @property
    def cores(self) -> int:
        """Returns the number of cores that tasks may use at once, or 0 if the number is unknown."""
        is_dynamic = self.conf.get(IS_DYNAMIC, "").strip().lower() == "true"
        executors = int(self.conf.get(MAX_INSTANCES if is_dynamic else INSTANCES, 0))
        return int(self.conf.get(CORES_MAX, executors * self._executor_cores))

    def settings(self, worker_memory: str, jars: Sequence[Path]) -> Mapping[str, str]:
        """Returns the settings by which a session on the cluster differs from a local session.

        Executors get the `jars` from the driver, so workers need no folder of jars. `worker_memory`
        is the memory per Python worker (`4g`).
        """
        given = self.conf.get("spark.executor.extraJavaOptions")
        # If two options set the same, a JVM uses the last.
        options = (*((given,) if given else self.jvm), "-Duser.timezone=UTC")
        shipped = filter(None, (*map(str, jars), self.conf.get("spark.jars")))
        # Spark divides the memory among the cores of an executor.
        workers = parse_memory(worker_memory) * self._executor_cores
        return {
            "spark.driver.bindAddress": self.driver_host,
            "spark.python.unix.domain.socket.dir": _SOCKETS,
            "spark.sql.shuffle.partitions": str(self.parallelism),
            "spark.default.parallelism": str(self.parallelism),
            # Otherwise a pod of Kubernetes has no memory for Python's workers (Spark 4.2.0).
            "spark.kubernetes.resource.type": "python",
            **(on_yarn(self.conf, beside=workers) if self.master == YARN else {}),
            **self.conf,
            "spark.master": self.master,
            "spark.driver.host": self.driver_host,
            "spark.jars": ",".join(shipped),
            "spark.executor.extraJavaOptions": " ".join(options),
            "spark.executor.pyspark.memory": memory(workers),
        }

    @property
    def _executor_cores(self) -> int:
        return int(self.conf.get(EXECUTOR_CORES, 1))


def cluster_of(settings: Settings) -> SparkCluster | None:
    """Returns the Spark cluster that a project configures, or None if there is none."""
    engine = settings.engine
    return SparkCluster(engine.master, engine.driver_host, engine.conf) if engine.master else None


def on_yarn(conf: Mapping[str, str], *, beside: int) -> Mapping[str, str]:
    """Returns the settings that a session needs on YARN, in addition to the project's `conf`.

    `beside` is the memory, in bytes, that Python workers need in addition to an executor's JVM.
    YARN kills containers that use more memory than requested. If an application was not started by
    `spark-submit`, Spark does not know that the application has Python workers.
    """
    heap = parse_memory(conf.get(HEAP, HEAP_UNLESS_SET))
    jvms_own = max(heap // _SHARE, parse_memory(_LEAST))
    # Nodes have Spark at the same path as this machine, or the project gives the place. Otherwise
    # all of Spark would be sent to each node for each leg.
    spark = {} if {_JARS, _ARCHIVE} & conf.keys() else {_JARS: f"local:{spark_home()}/jars/*"}
    return {"spark.executor.memoryOverhead": memory(jvms_own + beside), **spark}


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
    """Waits until a session has an executor, or until `is_asked_to_stop` returns True.

    The caller must have started a task that needs an executor. Raises KappaError if the cluster
    provides no executor within `patience_seconds`, or if the cluster ends the application.
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
    """Translates Spark's refusal to start a session into a KappaError with a hint.

    Spark refuses a session, for example, if a setting is wrong. The session's JVM still runs.
    """
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
