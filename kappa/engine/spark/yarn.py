"""The additional settings that Spark needs on YARN.

YARN's own settings are among Spark's, as `spark.hadoop.yarn.*`. So no folder of Hadoop is needed,
and paths without a scheme stay in this machine's file system.
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.java.jars import spark_home
from kappa.base.section.cluster import HEAP, HEAP_UNLESS_SET
from kappa.base.units import memory, parse_memory

# Spark's allowance for a JVM beside the heap: a tenth of the heap, and at least this much.
_SHARE, _LEAST = 10, "384m"
_JARS, _ARCHIVE = "spark.yarn.jars", "spark.yarn.archive"


def on_yarn(conf: Mapping[str, str], *, beside: int) -> Mapping[str, str]:
    """Returns the settings that a project with its own settings `conf` needs on YARN.

    `beside` are the bytes of Python's workers beside an executor's JVM. YARN ends containers that
    take more memory than requested. If `spark-submit` has not begun an application, Spark does not
    know that the application has Python workers.
    """
    heap = parse_memory(conf.get(HEAP, HEAP_UNLESS_SET))
    jvms_own = max(heap // _SHARE, parse_memory(_LEAST))
    # Nodes have Spark at the same path as this machine, or the project gives the place. Otherwise
    # all of Spark would be sent to each node for each leg.
    spark = {} if {_JARS, _ARCHIVE} & conf.keys() else {_JARS: f"local:{spark_home()}/jars/*"}
    return {"spark.executor.memoryOverhead": memory(jvms_own + beside), **spark}
