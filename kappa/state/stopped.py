"""Why a build's job has stopped for good: a law that did not hold, or a user's mistake, so that a restart would not help.

The job puts it as it ends and deletes it once it has started well. Whoever sees it starts no job again by itself: the next
`kappa up` does, once. A candidate that stopped has failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from kappa.base.clock import now
from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.state.build import folder
from kappa.state.documents import Documents
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class Stopped:
    """The error that a job ended with, and when."""

    message: str
    hint: str
    at: str
    format: int = 1


_STOPPED = Documents(Stopped)


def put_stopped(store: Store, build: str, error: KappaError) -> None:
    """Says why the job of a build has ended, in place of what an earlier one said."""
    failpoint("stopped.before_put")
    _STOPPED.put(store, _name(build), Stopped(error.message, error.hint, now()))
    failpoint("stopped.after_put")


def read_stopped(store: Store, build: str) -> Stopped | None:
    """Why the job of a build stopped for good; None where it did not."""
    return _STOPPED.get(store, _name(build), f"what the job of build {build} stopped of")


def ensure_not_stopped(store: Store, build: str) -> None:
    """Takes back what an earlier job of the build said."""
    failpoint("stopped.before_delete")
    store.delete(_name(build))
    failpoint("stopped.after_delete")


def _name(build: str) -> str:
    return f"{folder(build)}/stopped.json"
