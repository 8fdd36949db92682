"""A task for a spare: a program that the spare runs in its own process, with its own Spark.

A task is sent as a line of JSON to the input of the spare. If the task comes from a command, the
spare writes a line of output when the program has ended, and then waits for the next task of this
command.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

# The folder of a root that has the spares' folders and doors.
SPARES = "spares"
# unix(7): 108 bytes on Linux, with the end; 104 on macOS.
_MOST_SOCKET_BYTES = 104
# The line that follows a program's own output, and ends with the program's exit code.
ENDED = "kappa task ended: "


@dataclass(frozen=True, slots=True)
class Task:
    """A program with its arguments, which a spare runs.

    A task with a `log` is a job: its output is appended to this file, and the spare exits after the
    job. `environment` contains additional environment variables for the program, and `folder` is
    the program's working directory.
    """

    program: str
    arguments: tuple[str, ...]
    log: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    folder: str = ""

    @property
    def line(self) -> bytes:
        """Returns the task as a line of JSON, for the input of a spare."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Task:
        """Parses a task from a line of JSON."""
        given = json.loads(line)
        return cls(
            given["program"],
            tuple(given["arguments"]),
            given["log"],
            tuple((name, value) for name, value in given["environment"]),
            given["folder"],
        )


@contextmanager
def socket_name(path: Path) -> Iterator[str]:
    """Yields a name for the socket at `path` that is short enough for the operating system.

    If `path` itself is too long, the name is a shorter path to the same file, which is valid only
    within the block.
    """
    if len(os.fsencode(path)) < _MOST_SOCKET_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def spare_socket(spares: Path, pid: int) -> Path:
    """Returns the path of the socket of the spare with the given pid.

    The file name also contains a digest of the libraries of this process (`libraries_digest`).
    """
    return spares / f"{pid}-{libraries_digest()}.door"


def taken_socket(spares: Path, pid: int) -> Path:
    """Returns the path to which a spare moves its socket when a client has connected."""
    return spares / f"{pid}.taken"


def spare_sockets(spares: Path) -> Iterator[Path]:
    """Yields the sockets of spares that have imported the same libraries as this process."""
    yield from spares.glob(f"*-{libraries_digest()}.door")


def libraries_digest() -> str:
    """Returns a digest of the installed packages and of the place where Kappa is installed.

    The digest changes when a package is installed, changed or removed. If a process has another
    digest, it may have imported other versions of libraries than this process has imported.
    """
    places = {__file__, *(place for place in sys.path if place.endswith("-packages"))}
    found = [sys.executable, *(f"{place} {_changed_at(place)}" for place in sorted(places))]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def _changed_at(place: str) -> int:
    try:
        return Path(place).stat().st_mtime_ns
    except OSError:
        return 0
