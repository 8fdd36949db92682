"""The records that the supervisor and the HTTP server of a root write about themselves.

If a process is killed, its record stays, so each record names the process. If a root is copied
while its processes run, the records are copied too, so each record also names the root's folder, by
device and inode.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from kappa.base.process import ProcessId, process_id
from kappa.base.settings import Settings, changed_settings, file_settings
from kappa.state.documents import Documents
from kappa.state.lock import is_held
from kappa.state.root import LOCK
from kappa.state.store import Store, open_store

RUNNING = "run/supervisor.json"
SERVED = "run/http.json"
# The lock of the HTTP supervisor (replay/platform/http_supervisor.py).
HTTP_LOCK = "run/http.lock"
DOOR = "run/http.door"


class Running(Struct, frozen=True):
    """The supervisor that runs and is ready, and the address of Kafka for jobs.

    `settings` are the settings in kappa.toml when the supervisor started, in the form that
    `file_settings` returns. A record of an older Kappa has no settings.
    """

    pid: int
    born: str
    bootstrap_servers: str
    started: str
    folder: str = ""
    settings: Mapping[str, str] | None = None
    format: int = 1


class RunningServer(Struct, frozen=True):
    """The process that serves HTTP, and the URL.

    The process is the HTTP supervisor, or the server itself under `kappa serve`.
    """

    pid: int
    born: str
    url: str
    folder: str = ""
    format: int = 1

    @classmethod
    def of_process(cls, pid: int, url: str) -> RunningServer:
        """Returns the record of a running process that serves at a URL."""
        found = process_id(pid)
        assert found is not None, "a process and its parent are there"
        return cls(found.pid, found.born, url)


_RUNNING = Documents(Running, derived=True, synced=False)
_SERVED = Documents(RunningServer, derived=True, synced=False)


def put_running(store: Store, running: Running) -> None:
    """Writes the record of this supervisor, instead of the record of an earlier supervisor."""
    _RUNNING.put(store.local, RUNNING, replace(running, folder=_folder_id(store)))


def running(settings: Settings) -> Running | None:
    """Returns the supervisor of the root that these settings name.

    Returns None if no supervisor is up and ready.
    """
    return running_at(open_store(settings))


def running_at(store: Store) -> Running | None:
    """Returns the supervisor of a root, or None if no supervisor is up and ready."""
    found = _RUNNING.get(store.local, RUNNING, "what the supervisor wrote of itself")
    # The record of an earlier Kappa names no folder, but its process has the lock of this root.
    if found is None or not (found.folder or is_held(store.local.path(LOCK))):
        return None
    return found if _is_alive(store, found) else None


def settings_since_start(settings: Settings) -> tuple[str, ...]:
    """Lists the settings in kappa.toml that have changed since the supervisor started."""
    found = running(settings)
    if found is None or found.settings is None:
        return ()
    return changed_settings(found.settings, file_settings(settings.project))


def restart_text(changed: Iterable[str]) -> str:
    """Returns a sentence about changed settings that a running platform does not use yet."""
    return (
        "kappa.toml changed since the start: restart with kappa down && kappa up -d: "
        f"{', '.join(changed)}"
    )


def ensure_served(store: Store, served: RunningServer) -> None:
    """Writes the record of this HTTP server, unless the same record is stored already."""
    served = replace(served, folder=_folder_id(store))
    if _read_served(store) != served:
        _SERVED.put(store.local, SERVED, served)


def ensure_unserved(store: Store, served: RunningServer) -> None:
    """Deletes the record of this HTTP server, unless it has been replaced by another server."""
    if _read_served(store) == replace(served, folder=_folder_id(store)):
        store.local.delete(SERVED)


def served_at(store: Store) -> str | None:
    """Returns the URL of the root's HTTP server, or None if no server runs."""
    found = _read_served(store)
    return found.url if found is not None and _is_alive(store, found) else None


def _read_served(store: Store) -> RunningServer | None:
    return _SERVED.get(store.local, SERVED, "what the HTTP server wrote of itself")


def _is_alive(store: Store, found: Running | RunningServer) -> bool:
    is_here = found.folder in {"", _folder_id(store)}
    return is_here and ProcessId(found.pid, found.born).alive()


def _folder_id(store: Store) -> str:
    place = store.local.folder.stat()
    return f"{place.st_dev}:{place.st_ino}"
