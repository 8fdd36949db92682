"""The running processes of a root, as each records itself: supervisor and HTTP server.

A record outlives a process that was killed, so each names its process.
"""

from __future__ import annotations

from msgspec import Struct

from kappa.base.process import ProcessId, process_id
from kappa.base.settings import Settings
from kappa.state.documents import Documents
from kappa.state.store import Store, open_store

LOCK = "run/supervisor.lock"
RUNNING = "run/supervisor.json"
SERVED = "run/http.json"
# The lock of the keeper of HTTP (replay/run/keeper.py).
KEEPER = "run/http.lock"
DOOR = "run/http.door"


class Running(Struct, frozen=True):
    """The supervisor that runs now and is ready, and where its jobs find Kafka."""

    pid: int
    born: str
    bootstrap_servers: str
    started: str
    format: int = 1


class RunningServer(Struct, frozen=True):
    """The HTTP server that runs now, or the keeper of its socket, and the address."""

    pid: int
    born: str
    url: str
    format: int = 1

    @classmethod
    def of(cls, pid: int, url: str) -> RunningServer:
        """Names a running process that is found at a URL."""
        found = process_id(pid)
        assert found is not None, "a process and its parent are there"
        return cls(found.pid, found.born, url)


_RUNNING = Documents(Running, derived=True, synced=False)
_SERVED = Documents(RunningServer, derived=True, synced=False)


def put_running(store: Store, running: Running) -> None:
    """Puts what this supervisor is, in place of an earlier one."""
    _RUNNING.put(store.local, RUNNING, running)


def running(settings: Settings) -> Running | None:
    """Returns the supervisor of the root of these settings. None if none is up and ready."""
    return running_at(open_store(settings))


def running_at(store: Store) -> Running | None:
    """Returns the supervisor of a root. None if none is up and ready."""
    found = _RUNNING.get(store.local, RUNNING, "what the supervisor wrote of itself")
    return found if found is not None and _lives(found) else None


def ensure_served(store: Store, served: RunningServer) -> None:
    """Puts where this HTTP server is, in place of an earlier one, unless that is known."""
    if _served(store) != served:
        _SERVED.put(store.local, SERVED, served)


def ensure_unserved(store: Store, served: RunningServer) -> None:
    """Deletes where this HTTP server is, unless another one is recorded by now."""
    if _served(store) == served:
        store.local.delete(SERVED)


def served_at(store: Store) -> str | None:
    """Returns the URL of the root's HTTP server. None if none runs."""
    found = _served(store)
    return found.url if found is not None and _lives(found) else None


def _served(store: Store) -> RunningServer | None:
    return _SERVED.get(store.local, SERVED, "what the HTTP server wrote of itself")


def _lives(found: Running | RunningServer) -> bool:
    return ProcessId(found.pid, found.born).alive()
