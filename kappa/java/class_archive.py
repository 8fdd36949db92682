"""Class archives (AppCDS): the classes of Kafka or of Spark as a JVM keeps them.

With one, a JVM starts in half the time. It is never required: if it is missing or stale, a start is
only slower. Archives are with the installed packages. `kappa.setup` has them recorded.
See https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

from kappa.java.jars import Use


def class_archive(use: Use, class_path: str, files: Iterable[Path], java_program: str) -> Path:
    """Returns the path of the archive for this Java and this class path, and the files on it."""
    home = Path(java_program).resolve().parent.parent
    made_from = hashlib.sha256(f"{home} {class_path}".encode())
    # The JVM compares names, sizes and times of the files on its class path; so do we.
    for file in (home / "lib" / "modules", *files):
        found = file.stat() if file.exists() else None
        made_from.update(f"{file} {found and (found.st_size, found.st_mtime_ns)}\n".encode())
    return Path(sys.prefix) / "kappa" / f"{use}-{made_from.hexdigest()[:16]}.jsa"


def archive_options(archive: Path, record_into: Path | None = None) -> list[str]:
    """Returns a JVM's options for starting with the archive, or for recording one at its end."""
    if record_into is not None:
        return [f"-XX:ArchiveClassesAtExit={record_into}"]
    # The JVM ignores a stale one; `auto` keeps it from ending because of that.
    return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"] if archive.exists() else []
