"""The recording of the class archives of Spark and of the broker, once per installation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kappa.base.errors import KappaError
from kappa.broker.broker import broker_archive
from kappa.java.class_archive import class_archive
from kappa.java.jars import Jars, Use, spark_home
from kappa.java.java import locate_java

# A recording takes a minute and a half on two quiet cores.
_LONGEST_RECORDING_SECONDS = 600


def class_path(jars: Jars) -> str:
    """Returns the class path of a session's JVM.

    It does not use `spark.jars`: a class loader that no class archive covers loads those.
    """
    return os.pathsep.join([*map(str, jars.spark), str(spark_home() / "jars" / "*")])


def archive_path(jars: Jars, java_program: str) -> Path:
    """Returns the path of the archive of a session's JVM."""
    files = [*jars.spark, *sorted((spark_home() / "jars").iterdir())]
    return class_archive("spark", class_path(jars), files, java_program)


def missing_archives(jars: Jars) -> dict[Use, Path]:
    """Returns which archives do not exist, and the paths that they should have."""
    java = locate_java()
    wanted: dict[Use, Path] = {
        "broker": broker_archive(jars, java),
        "spark": archive_path(jars, java),
    }
    return {use: path for use, path in wanted.items() if not path.exists()}


def ensure_archives(jars: Jars) -> None:
    """Makes the archives that do not exist, by one recording in a process of its own.

    Older ones are deleted. Raises KappaError, with the recording's last line, if that fails: the
    caller may go on without.
    """
    missing = missing_archives(jars)
    if not missing:
        return
    folder = next(iter(missing.values())).parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="recording-", dir=folder) as scratch:
        _record(Path(scratch), jars)
        for use, archive in missing.items():
            for old in folder.glob(f"{use}-*.jsa"):
                old.unlink(missing_ok=True)
            # Two set-ups at once both record; either file will do.
            recorded_archive(Path(scratch), use).replace(archive)


def recorded_archive(folder: Path, use: Use) -> Path:
    """Returns the path that a recording in a folder writes the archive of a use to."""
    return folder / f"{use}.jsa"


def _record(scratch: Path, jars: Jars) -> None:
    command = [sys.executable, "-m", "kappa.engine.spark.recording", str(scratch)]
    environment = {
        **os.environ,
        "KAPPA_JARS": os.pathsep.join(map(str, jars.broker))
        + "\n"
        + os.pathsep.join(map(str, jars.spark)),
    }
    hint = "JVMs start without them, only slower; try again with: python -m kappa.setup"
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
        raise KappaError("the class archives were not recorded in time", hint=hint) from error
    recorded = all(recorded_archive(scratch, use).exists() for use in ("broker", "spark"))
    if done.returncode != 0 or not recorded:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise KappaError(f"the class archives could not be recorded: {last}", hint=hint)
