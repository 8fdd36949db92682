"""The class archives of an installation: which are missing, and the making of them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from kappa.broker.broker import broker_archive
from kappa.java.class_archive import ClassArchive
from kappa.java.jars import Jars, spark_home
from kappa.java.java import locate_java


def spark_archive(jars: Jars, java: str) -> ClassArchive:
    """Returns the archive of a session's JVM.

    Its class path is the session's: a class loader that no class archive covers would load what
    `spark.jars` names.
    """
    installed = spark_home() / "jars"
    return ClassArchive(
        "spark",
        os.pathsep.join([*map(str, jars.spark), str(installed / "*")]),
        [*jars.spark, *sorted(installed.iterdir())],
        java,
    )


def missing_archives(jars: Jars) -> list[ClassArchive]:
    """Returns the archives that do not exist."""
    java = locate_java()
    wanted = [spark_archive(jars, java), broker_archive(jars, java)]
    return [archive for archive in wanted if not archive.path.exists()]


def ensure_archives(jars: Jars) -> None:
    """Makes the archives that do not exist, side by side. Raises KappaError if one fails."""
    missing = missing_archives(jars)
    with ThreadPoolExecutor(max_workers=len(missing) or 1) as beside:
        for made in [beside.submit(archive.make) for archive in missing]:
            made.result()
