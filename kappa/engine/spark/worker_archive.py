"""An archive of the files that the workers of a cluster need from this machine.

The archive contains the build's code, so that workers need no project. It also contains the loops
that Numba has compiled on this machine, so that workers with the same Kappa and the same kind of
processor need not compile these loops. Kappa and the packages that pipelines import must be
installed on the workers. `same_kappa` ensures that workers run the same Kappa as the job.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError
from kappa.base.temporary_folders import user_cache
from kappa.code.importer import FOLDER_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOME = Path(__file__).parents[2]
# The folder into which Spark unpacks the archive, within an executor's own folder.
_FOLDER = "kappa-shipped"
_CODE, _COMPILED = "code", "compiled"
# A worker's variables: the place of the archive, and the digest of the Kappa that made the archive.
SHIPPED = "KAPPA_SHIPPED"
_KAPPA = "KAPPA_DIGEST"


def ship(spark: SparkSession, code: Path, into: Path) -> Mapping[str, str]:
    """Ships a folder of code, and the compiled loops, to a session's executors.

    The files are packed into a zip file in the folder `into`. Returns the environment variables by
    which workers find the files.
    """
    path = into / f"shipped-{secrets.token_hex(4)}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(_files(code, _CODE)):
            archive.write(file, name)
        with suppress(OSError, RuntimeError):
            for name, file in sorted(_files(user_cache(_COMPILED), _COMPILED)):
                archive.write(file, name)
    spark.sparkContext.addArchive(f"{path.as_uri()}#{_FOLDER}")
    return {FOLDER_VARIABLE: f"{_FOLDER}/{_CODE}", SHIPPED: _FOLDER, _KAPPA: kappa_digest()}


def same_kappa(environment: Mapping[str, str] = os.environ) -> None:
    """Raises KappaError if this worker's files of Kappa differ from the job's files of Kappa.

    `environment` contains the digest of the job's files. Without this digest, nothing is checked.
    """
    wanted = environment.get(_KAPPA)
    if wanted is not None and wanted != kappa_digest():
        raise KappaError(
            f"a worker of the cluster has another Kappa than its job, in {_HOME}",
            hint="install the same on each worker",
        )


def take_compiled(shipped: Path) -> None:
    """Copies compiled loops from the shipped files into this user's cache.

    `shipped` is the folder of the shipped files. Only loops that the cache lacks are copied. Errors
    of the disk are ignored.
    """
    with suppress(OSError, RuntimeError):
        cached = user_cache(_COMPILED)
        cached.mkdir(parents=True, exist_ok=True)
        for folder in (shipped / _COMPILED).iterdir():
            if not (cached / folder.name).exists():
                part = cached / f".{folder.name}-{secrets.token_hex(4)}"
                with suppress(OSError):
                    shutil.copytree(folder, part)
                    part.rename(cached / folder.name)
                # Another worker was quicker, or the disk is full.
                shutil.rmtree(part, ignore_errors=True)


@cache
def kappa_digest() -> str:
    """Returns a digest of Kappa's Python files. Workers must have the same files."""
    assert _HOME.name == "kappa"
    digest = hashlib.sha256()
    for file in sorted(_HOME.rglob("*.py")):
        digest.update(f"{file.relative_to(_HOME)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _files(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    for file in folder.rglob("*"):
        if file.is_file():
            yield f"{name}/{file.relative_to(folder).as_posix()}", file
