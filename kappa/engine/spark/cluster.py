"""A Spark cluster that folds bounded legs, and the settings of its sessions.

YARN's own settings are among Spark's, as `spark.hadoop.yarn.*`. So no folder of Hadoop is needed,
and paths without a scheme stay in this machine's file system.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.base.java.jars import spark_home
from kappa.base.section.cluster import (
    CORES_MAX,
    EXECUTOR_CORES,
    HEAP,
    HEAP_UNLESS_SET,
    INSTANCES,
    IS_DYNAMIC,
    MAX_INSTANCES,
    YARN,
)
from kappa.base.units import memory, parse_memory

if TYPE_CHECKING:
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
    """A cluster by its master; workers connect to this machine at `driver_host`."""

    master: str
    driver_host: str
    # The settings may include secrets.
    conf: Mapping[str, str] = field(repr=False)
    # Options of the executors' JVMs, if the project sets none.
    jvm: Sequence[str] = ()

    @property
    def python(self) -> str:
        """Returns the Python of the workers.

        Unless the project sets another path, this is the path of this process's Python.
        """
        return self.conf.get("spark.pyspark.python", sys.executable)

    @property
    def parallelism(self) -> int:
        """Returns the number of tasks of a shuffle."""
        cores = int(self.conf.get(INSTANCES, 0)) * self._executor_cores
        return int(self.conf.get(CORES_MAX, cores)) or _PARALLELISM

    @property
    def cores(self) -> int:
        """Returns the number of cores that tasks may use at once, or 0 if it is not known."""
        is_dynamic = self.conf.get(IS_DYNAMIC, "").strip().lower() == "true"
        executors = int(self.conf.get(MAX_INSTANCES if is_dynamic else INSTANCES, 0))
        return int(self.conf.get(CORES_MAX, executors * self._executor_cores))

    def settings(self, worker_memory: str, jars: Sequence[Path]) -> Mapping[str, str]:
        """Returns Spark's settings that differ from a session on this machine.

        Executors get the `jars` from the driver: a worker needs no folder of jars.
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
    """Returns the cluster of a project, or None if this machine folds everything."""
    engine = settings.engine
    return SparkCluster(engine.master, engine.driver_host, engine.conf) if engine.master else None


def on_yarn(conf: Mapping[str, str], *, beside: int) -> Mapping[str, str]:
    """Returns the settings that a project with its own settings `conf` needs on YARN.

    `beside` is the memory, in bytes, that Python's workers take beside an executor's JVM. YARN ends
    containers that take more memory than requested. If `spark-submit` has not begun an application,
    Spark does not know that the application has Python workers.
    """
    heap = parse_memory(conf.get(HEAP, HEAP_UNLESS_SET))
    jvms_own = max(heap // _SHARE, parse_memory(_LEAST))
    # Nodes have Spark at the same path as this machine, or the project gives the place. Otherwise
    # all of Spark would be sent to each node for each leg.
    spark = {} if {_JARS, _ARCHIVE} & conf.keys() else {_JARS: f"local:{spark_home()}/jars/*"}
    return {"spark.executor.memoryOverhead": memory(jvms_own + beside), **spark}
