"""Functions and a program that find and make the missing class archives of an installation.

A class archive is a file of preloaded classes (class data sharing), with which a JVM starts faster.
`kappa up` runs this module as a program in the background; the program makes the missing archives
one after the other.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kappa.base.errors import ExitCode
from kappa.base.java.class_archive import ClassArchive
from kappa.base.java.jars import Jars, ensure_jars, spark_home
from kappa.base.java.java import find_java, locate_java
from kappa.base.program import run_program
from kappa.base.settings import load_settings


def spark_archive(jars: Jars, java: str) -> ClassArchive:
    """Returns the class archive for the JVM of a Spark session.

    The archive contains classes of the jars on the JVM's class path. If the setting `spark.jars`
    named the jars instead, another class loader would load them, and a class archive cannot contain
    the classes of that loader.
    """
    files = [*_large_first(jars.spark), *_large_first((spark_home() / "jars").glob("*.jar"))]
    return ClassArchive("spark", os.pathsep.join(map(str, files)), files, java)


def _large_first(files: Iterable[Path]) -> list[Path]:
    """Sorts jars by size, the largest first.

    Large jars contain the most classes, so the JVM should search the large jars first. In this
    order, making an archive takes two thirds of the time.
    """
    return sorted(files, key=lambda file: (-file.stat().st_size, file.name))


def missing_archives(jars: Jars) -> list[ClassArchive]:
    """Returns the class archives for Spark and for the broker that do not exist yet."""
    # A session's JVM starts before this import.
    from kappa.kafka.broker.broker import broker_archive  # noqa: PLC0415

    java = locate_java()
    wanted = [spark_archive(jars, java), broker_archive(jars, java)]
    return [archive for archive in wanted if not archive.path.exists()]


def ensure_archives(jars: Jars) -> None:
    """Makes the class archives that do not exist yet, in parallel.

    Raises KappaError if an archive cannot be made.
    """
    missing = missing_archives(jars)
    with ThreadPoolExecutor(max_workers=len(missing) or 1) as beside:
        for made in [beside.submit(archive.make) for archive in missing]:
            made.result()


def archives_to_make(jars: Jars) -> list[ClassArchive]:
    """Returns the missing class archives that this user has the right to write."""
    return [archive for archive in missing_archives(jars) if archive.can_be_made]


def main(arguments: list[str] | None = None) -> int:
    """Makes the missing class archives that this user may write, and returns the exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        wanted = load_settings(given.project, root=given.root).jars
        jars = ensure_jars(find_java(), cache=wanted.cache, repository=wanted.repository)
        for archive in archives_to_make(jars):
            archive.make()
        return ExitCode.OK

    return run_program("kappa.engine.spark.cds", work, arguments)


if __name__ == "__main__":
    sys.exit(main())
