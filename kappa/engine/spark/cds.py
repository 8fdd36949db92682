"""The class archive (AppCDS): classes of Spark, Delta and Kafka as a JVM keeps them.

It is made once. With it a job's JVM starts in less than half the time. It is never required: if it
is missing or stale, a start is only slower. It is with the installed packages, and its name has
what it was made from: Java, the jars, Spark.
See https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kappa.base.errors import KappaError
from kappa.java.jars import Jars, spark_home
from kappa.java.java import locate_java

# A recording takes a minute and a half on two quiet cores.
_LONGEST_RECORDING_SECONDS = 600


def class_path(jars: Jars) -> str:
    """Returns the class path of a session's JVM.

    It does not use `spark.jars`: a class loader that no class archive covers loads those.
    """
    return os.pathsep.join([*map(str, jars.spark), str(spark_home() / "jars" / "*")])


def archive_path(jars: Jars, java_program: str) -> Path:
    """Returns the path of the archive for this Java, these jars and this Spark."""
    home = Path(java_program).resolve().parent.parent
    made_from = hashlib.sha256(f"{home} {class_path(jars)}".encode())
    # The JVM compares names, sizes and times of the files on its class path; so do we.
    for file in (home / "lib" / "modules", *jars.spark, *sorted((spark_home() / "jars").iterdir())):
        found = file.stat() if file.exists() else None
        made_from.update(f"{file} {found and (found.st_size, found.st_mtime_ns)}\n".encode())
    return Path(sys.prefix) / "kappa" / f"spark-{made_from.hexdigest()[:16]}.jsa"


def ensure_archive(jars: Jars) -> Path:
    """Makes the archive if it does not exist, by one recording in a process of its own.

    Older ones are deleted. Raises KappaError, with the recording's last line, if that fails: the
    caller may go on without.
    """
    archive = archive_path(jars, locate_java())
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recording-", dir=archive.parent) as scratch:
        recorded = Path(scratch) / "spark.jsa"
        command = [sys.executable, "-m", "kappa.engine.spark.recording", scratch, str(recorded)]
        environment = {
            **os.environ,
            "KAPPA_JARS": os.pathsep.join(map(str, jars.broker))
            + "\n"
            + os.pathsep.join(map(str, jars.spark)),
        }
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=_LONGEST_RECORDING_SECONDS,
                env=environment,
            )
        except subprocess.TimeoutExpired as error:
            raise KappaError(
                "the class archive was not recorded in time",
                hint="jobs start without it, only slower; try again with: python -m kappa.setup",
            ) from error
        if done.returncode != 0 or not recorded.exists():
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise KappaError(
                f"the class archive could not be recorded: {last}",
                hint="jobs start without it, only slower; try again with: python -m kappa.setup",
            )
        for old in archive.parent.glob("spark-*.jsa"):
            old.unlink(missing_ok=True)
        # Two set-ups at once both record; either file will do.
        recorded.replace(archive)
    return archive
