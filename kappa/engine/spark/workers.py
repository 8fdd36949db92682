"""The start of Spark's Python workers: PySpark's own daemon, with the project's modules.

`spark.python.daemon.module` names this module, and `KAPPA_SOURCES` the folder (importer.py sets
it). So a worker finds a function that a UDF calls under the name it has in the driver, whatever
module it is in, without a `sys.path` on which the project's files could hide the standard library.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.daemon import manager

from kappa.code.importer import FOLDER_VARIABLE, open_sources
from kappa.code.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tell_workers(spark: SparkSession) -> None:
    """Lets workers of a session import what this process has opened since its JVM was started.

    They have the environment of the JVM.
    """
    spark.sparkContext.environment[FOLDER_VARIABLE] = os.environ[FOLDER_VARIABLE]


if __name__ == "__main__":
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        open_sources(Sources(Path(folder)))
    manager()
