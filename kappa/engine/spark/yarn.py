"""The settings that Spark needs besides on YARN.

YARN's own settings are among Spark's, as `spark.hadoop.yarn.*`: so no folder of Hadoop's is needed,
and the file system of paths without a scheme stays this machine's.
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.java.jars import spark_home
from kappa.base.section.cluster import HEAP, HEAP_UNLESS_SET
from kappa.base.units import memory, parse_memory

# What Spark reckons for a JVM beside its heap: a tenth of that, and so much at least.
_SHARE, _LEAST = 10, "384m"
_JARS, _ARCHIVE = "spark.yarn.jars", "spark.yarn.archive"


def on_yarn(conf: Mapping[str, str], *, beside: int) -> Mapping[str, str]:
    """Returns the settings that a project with these of its own needs on YARN.

    `beside` are the bytes of Python's workers beside an executor's JVM. YARN ends containers that
    take more than they have asked for, and of an application that `spark-submit` has not begun
    Spark does not know that it has such workers.
    """
    heap = parse_memory(conf.get(HEAP, HEAP_UNLESS_SET))
    jvms_own = max(heap // _SHARE, parse_memory(_LEAST))
    # Nodes have Spark where this machine has it, or the project says where they find it. Otherwise
    # all of it would be sent to each of them for each leg.
    spark = {} if {_JARS, _ARCHIVE} & conf.keys() else {_JARS: f"local:{spark_home()}/jars/*"}
    return {"spark.executor.memoryOverhead": memory(jvms_own + beside), **spark}
