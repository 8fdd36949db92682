"""Where Spark's Python workers begin: as PySpark's own daemon, but importing the project's modules as the driver does.

`spark.python.daemon.module` names this module, and `KAPPA_SOURCES` the folder (importer.py sets it). So a function that a
UDF calls is found in a worker under the name it has in the driver, whatever helper module it stands in, without a
`sys.path` on which the project's files could hide the standard library.
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
    """Lets workers of a session import what this process has opened since its JVM was started, which is whose environment they have."""
    spark.sparkContext.environment[FOLDER_VARIABLE] = os.environ[FOLDER_VARIABLE]


if __name__ == "__main__":
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder is not None:
        open_sources(Sources(Path(folder)))
    manager()
