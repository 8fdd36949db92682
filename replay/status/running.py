"""The supervisor of a root, as it writes itself down once it is ready."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.base.process import ProcessId
from kappa.base.settings import Settings
from kappa.state.documents import Documents
from kappa.state.store import Store

RUNNING = "run/supervisor.json"


@dataclass(frozen=True, slots=True)
class Running:
    """The supervisor that runs now and is ready, and where its jobs find Kafka."""

    pid: int
    born: str
    bootstrap_servers: str
    started: str
    format: int = 1


_RUNNING = Documents(Running)


def put_running(store: Store, running: Running) -> None:
    """Puts what this supervisor is, in place of an earlier one."""
    _RUNNING.put(store, RUNNING, running)


def running(settings: Settings) -> Running | None:
    """Returns the supervisor of the root of these settings. None if none is up and ready."""
    return running_at(Store(settings.root_url))


def running_at(store: Store) -> Running | None:
    """Returns the supervisor of a root. None if none is up and ready."""
    found = _RUNNING.get(store, RUNNING, "what the supervisor wrote of itself")
    # What is written outlives a supervisor that was killed.
    return found if found is not None and ProcessId(found.pid, found.born).alive() else None
