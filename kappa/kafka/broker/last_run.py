"""The broker's process and ports of the last run, in `broker.json`.

With the same ports, clients find the broker again. A process that a crash has left over is ended,
but not a process that works in another folder: the file may be a copy.
"""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from kappa.base.disk import put_file
from kappa.base.errors import Conflict
from kappa.base.process import ProcessId, has_open, kill_and_see_gone
from kappa.base.sealed import sealed, unsealed
from kappa.kafka.broker.properties import HOST

FORMAT = 1


@dataclass(frozen=True, slots=True)
class LastRun:
    """The content of `broker.json`: the process that was started last, and its ports.

    `device` and `inode` are of the broker's folder; an earlier Kappa has not named the two.
    """

    format: int
    port: int
    controller_port: int
    process: ProcessId | None
    device: int = 0
    inode: int = 0

    @classmethod
    def of(cls, folder: Path, port: int, controller_port: int, process: ProcessId | None) -> Self:
        """Describes a process that was started just now to work in a folder."""
        place = folder.stat()
        return cls(FORMAT, port, controller_port, process, place.st_dev, place.st_ino)


def end_leftover(folder: Path, last: LastRun | None) -> None:
    """Kills the last run's broker if that broker still works in this folder.

    Raises Conflict if the broker cannot be killed.
    """
    if last is None or last.process is None or not last.process.alive():
        return
    place = folder.stat()
    is_here = (last.device, last.inode) == (place.st_dev, place.st_ino)
    # Kafka's own lock on the data.
    if not is_here and not has_open(last.process.pid, folder / "data" / ".lock"):
        return
    if not kill_and_see_gone(last.process):
        raise Conflict(
            f"a broker left over from an earlier run (process {last.process.pid}) cannot be killed",
            hint=f"end it with: kill -9 {last.process.pid}",
        )


def read_last_run(folder: Path) -> LastRun | None:
    """Returns the last run, or None without a file or with a damaged file."""
    try:
        found, _ = unsealed((folder / "broker.json").read_bytes())
        process = (
            ProcessId(int(found["process"]["pid"]), str(found["process"]["born"]))
            if found["process"]
            else None
        )
        return LastRun(
            *(FORMAT, int(found["port"]), int(found["controller_port"]), process),
            *(int(found.get("device", 0)), int(found.get("inode", 0))),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        # The file only saves a search for ports and leftovers. A leftover that the file does not
        # name has Kafka's own lock on the data.
        return None


def write_last_run(folder: Path, run: LastRun) -> None:
    """Writes the last run in place of the previous run."""
    put_file(folder / "broker.json", sealed(asdict(run))[0], synced=False)


def free_ports(last: LastRun | None) -> tuple[int, int]:
    """Returns the ports of the last run if both are free, or else other free ports.

    With the same ports, clients find the broker again.
    """
    with socket.socket() as one, socket.socket() as other:
        ports = []
        for held, wanted in (
            (one, last.port if last else 0),
            (other, last.controller_port if last else 0),
        ):
            # Bound as Kafka binds: a lingering connection of the last run must not change the port.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind((HOST, wanted))
            except OSError:
                held.bind((HOST, 0))
            ports.append(int(held.getsockname()[1]))
        return ports[0], ports[1]
