"""Class archives (AppCDS): files with the classes that a JVM of Kafka or Spark loads.

With a class archive, a JVM starts in half the time. Archives are optional: without a valid archive,
a JVM only starts more slowly. Archives are stored in the folder of the Python environment
(`sys.prefix`). `kappa.setup` and `kappa up` create the archives from lists of classes. The lists
are next to this file, and `make classes` writes them. See
https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from kappa.base.errors import KappaError
from kappa.base.java.jars import Use

# An archive takes one minute on a quiet core.
_LONGEST_MAKING_SECONDS = 600
_HINT = "JVMs start without it, only slower; try again with: python -m kappa.setup"


@dataclass(frozen=True)
class ClassArchive:
    """The class archive for one `java` program and one class path.

    `use` is the program that the JVM runs: the broker or Spark.
    """

    use: Use
    class_path: str
    files: Sequence[Path]
    java: str

    @cached_property
    def path(self) -> Path:
        """Returns the path of the archive.

        The file name contains a hash of the Java home, the list of classes, and the names, sizes
        and times of the files on the class path.
        """
        home = Path(self.java).resolve().parent.parent
        made_from = hashlib.sha256(f"{home} {self.class_path}".encode() + _packed_list(self.use))
        # The JVM compares names, sizes and times of the files on its class path, too.
        for file in (home / "lib" / "modules", *self.files):
            found = file.stat() if file.exists() else None
            made_from.update(f"{file} {found and (found.st_size, found.st_mtime_ns)}\n".encode())
        return Path(sys.prefix) / "kappa" / f"{self.use}-{made_from.hexdigest()[:16]}.jsa"

    def options(self, list_classes: Path | None = None) -> list[str]:
        """Returns the options with which a JVM uses the archive, or [] if the archive is missing.

        With `list_classes`, returns options with which a JVM writes the list of its loaded classes
        to the path `list_classes` when the JVM exits.
        """
        if list_classes is not None:
            # With sharing on, the list would lack some classes that come from an archive.
            return [f"-XX:DumpLoadedClassList={list_classes}", "-Xshare:off"]
        if not self.path.exists():
            return []
        return [
            f"-XX:SharedArchiveFile={self.path}",
            # With `auto` the JVM ignores a stale archive; otherwise the JVM would end.
            "-Xshare:auto",
            # At the archive's own address, all JVMs share two thirds of the archive; at another
            # address, each JVM has a copy of 210 MiB.
            "-XX:+UnlockDiagnosticVMOptions",
            "-XX:ArchiveRelocationMode=0",
        ]

    @property
    def can_be_made(self) -> bool:
        """Returns True if this user may write into the archive's folder, or may create it."""
        folder = self.path.parent
        return os.access(folder if folder.exists() else folder.parent, os.W_OK)

    def make(self) -> None:
        """Creates the archive, and deletes older archives for the same program (`use`).

        If another process is creating the archive, waits until it is done. Raises KappaError, with
        the last line that the JVM printed, if the archive cannot be created. The caller may
        continue without the archive.
        """
        try:
            with self._alone():
                if not self.path.exists():
                    self._make()
        except OSError as error:
            raise KappaError(
                f"the class archive of {self.use} cannot be written: {error}", hint=_HINT
            ) from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the archives for a program within the block, so that only one process creates them.

        The program is `use`: the broker or Spark. The operating system also releases the lock if
        this process exits.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with (self.path.parent / f"{self.use}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _make(self) -> None:
        folder, prefix = self.path.parent, f"making-{self.use}-"
        # A maker that was killed has left its folder.
        for left in folder.glob(f"{prefix}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as scratch:
            listed, made = Path(scratch, "classes"), Path(scratch, "made.jsa")
            listed.write_bytes(class_list(self.use))
            self._dump(listed, made)
            for old in folder.glob(f"{self.use}-*.jsa"):
                old.unlink(missing_ok=True)
            made.replace(self.path)

    def _dump(self, listed: Path, made: Path) -> None:
        try:
            done = subprocess.run(
                [
                    self.java,
                    "-Xshare:dump",
                    f"-XX:SharedClassListFile={listed}",
                    f"-XX:SharedArchiveFile={made}",
                    # The JVM would report each class of a signed jar, which it leaves out.
                    "-Xlog:disable",
                    "-Xlog:all=error:stderr",
                    "-cp",
                    self.class_path,
                ],
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=_LONGEST_MAKING_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            raise KappaError(
                f"the class archive of {self.use} was not made in time", hint=_HINT
            ) from error
        if done.returncode != 0 or not made.exists():
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise KappaError(
                f"the class archive of {self.use} could not be made: {last}", hint=_HINT
            )


def class_list(use: Use) -> bytes:
    """Returns the list of the classes that a JVM of the broker or of Spark loads.

    `use` is the broker or Spark. The list has the format that JVMs read and write.
    """
    return gzip.decompress(_packed_list(use))


def put_class_list(use: Use, listed: bytes) -> None:
    """Writes a new list of classes for the broker or Spark into the source tree.

    This is the source tree from which this process runs. `use` is the broker or Spark.
    """
    Path(str(_list_file(use))).write_bytes(gzip.compress(listed, mtime=0))


def _packed_list(use: Use) -> bytes:
    return _list_file(use).read_bytes()


def _list_file(use: Use) -> Traversable:
    return resources.files("kappa.base.java").joinpath(f"{use}.classes.gz")
