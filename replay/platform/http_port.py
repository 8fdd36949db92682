"""Chooses the port of a project's HTTP server, which stays the same from start to start.

The settings name the preferred port (`serve.listen`). If another process uses that port, this
project chooses a free port, records which process used the preferred port, and listens at the same
free port at each later start. So the address of a project never becomes the address of another
project. The HTTP supervisor should be small, so this module imports little.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kappa.base.disk import put_file
from kappa.base.document_seal import sealed, unsealed
from kappa.base.errors import Conflict
from kappa.base.process import listening_process
from kappa.serving.http.address import HttpAddress, listening_at

# Below the root's local folder.
PORT = "run/http_port.json"


@dataclass(frozen=True, slots=True)
class KeptPort:
    """The port at which a project is served.

    `wished` is the preferred port in the settings, as HOST:PORT. If another process used the
    preferred port when this port was chosen, `taken_by` names that process; otherwise it is "".
    """

    wished: str
    port: int
    taken_by: str = ""

    @property
    def text(self) -> str:
        """Returns the reason why the project does not use the preferred port.

        Returns "" if the project uses the preferred port.
        """
        if not self.taken_by:
            return ""
        wished = self.wished.rpartition(":")[2]
        return f"port {wished} was taken by {self.taken_by}, so this project keeps port {self.port}"


def read_kept_port(path: Path) -> KeptPort | None:
    """Returns the port of the last run, or None if the file is missing or unreadable."""
    try:
        found, _ = unsealed(path.read_bytes())
        return KeptPort(str(found["wished"]), int(found["port"]), str(found["taken_by"]))
    except (OSError, ValueError, KeyError, TypeError):
        # The file only keeps an address: without the file a port is chosen anew.
        return None


def write_kept_port(path: Path, kept: KeptPort) -> None:
    """Writes the port for the next run to the file at `path`, instead of the earlier port."""
    if read_kept_port(path) != kept:
        put_file(path, sealed(asdict(kept))[0], synced=False)


def listening_at_kept_port(address: HttpAddress, path: Path) -> socket.socket:
    """Opens a project's socket at its port of the last run, at the preferred port, or at any port.

    The function tries the ports in this order, and writes the chosen port to the file at `path`.
    Raises Conflict if no socket can be opened on the host.
    """
    wished, kept = f"{address.host}:{address.port}", read_kept_port(path)
    if kept is not None and kept.wished == wished and kept.port != address.port:
        with suppress(Conflict):
            return listening_at(HttpAddress(address.host, kept.port))
    taken_by = ""
    try:
        listening = listening_at(address)
    except Conflict:
        if address.port == 0:
            raise
        taken_by = holder_of_port(address.port)
        listening = listening_at(HttpAddress(address.host, 0))
    write_kept_port(path, KeptPort(wished, listening.getsockname()[1], taken_by))
    return listening


def holder_of_port(port: int) -> str:
    """Describes the process that listens at a port: a project and its folder, or a program."""
    found = listening_process(port)
    if found is None:
        return "a process of another user"
    pid, command = found
    if "--project" in command[:-1]:
        folder = command[command.index("--project") + 1]
        return f"project {os.path.basename(folder)} ({folder})"  # noqa: PTH119  # as it was typed
    program = os.path.basename(command[0]) if command else "unknown"  # noqa: PTH119
    return f"process {pid} ({program})"
