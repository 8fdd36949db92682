"""The running processes of a root, as each records itself: supervisor and HTTP server.

A record outlives a process that was killed, so each names its process.
"""

from __future__ import annotations

from dataclasses import dataclass

from kappa.base.process import ProcessId
from kappa.base.settings import Settings
from kappa.state.documents import Documents
from kappa.state.store import Store, open_store

LOCK = "run/supervisor.lock"
RUNNING = "run/supervisor.json"
SERVED = "run/http.json"


@dataclass(frozen=True, slots=True)
class Running:
    """The supervisor that runs now and is ready, and where its jobs find Kafka."""

    pid: int
    born: str
    bootstrap_servers: str
    started: str
    format: int = 1


@dataclass(frozen=True, slots=True)
class RunningServer:
    """The HTTP server that runs now, and its address."""

    pid: int
    born: str
    url: str
    format: int = 1


_RUNNING = Documents(Running, derived=True, synced=False)
_SERVED = Documents(RunningServer, derived=True, synced=False)


def put_running(store: Store, running: Running) -> None:
    """Puts what this supervisor is, in place of an earlier one."""
    _RUNNING.put(store, RUNNING, running)


def running(settings: Settings) -> Running | None:
    """Returns the supervisor of the root of these settings. None if none is up and ready."""
    return running_at(open_store(settings))


def running_at(store: Store) -> Running | None:
    """Returns the supervisor of a root. None if none is up and ready."""
    found = _RUNNING.get(store, RUNNING, "what the supervisor wrote of itself")
    return found if found is not None and _lives(found) else None


def put_served(store: Store, served: RunningServer) -> None:
    """Puts where this HTTP server is, in place of an earlier one."""
    _SERVED.put(store, SERVED, served)


def served_at(store: Store) -> str | None:
    """Returns the URL of the root's HTTP server. None if none runs."""
    found = _SERVED.get(store, SERVED, "what the HTTP server wrote of itself")
    return found.url if found is not None and _lives(found) else None


def _lives(found: Running | RunningServer) -> bool:
    return ProcessId(found.pid, found.born).alive()
