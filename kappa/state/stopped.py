"""The reason for which a build's job has stopped for good, so that a restart would not help.

A law did not hold, or the user made a mistake. The job puts the record as it ends, and deletes it
once it has started well. A process that finds one does not start the job again by itself. The next
`kappa up` does so, once. A candidate that stopped has failed.
"""

from __future__ import annotations

from msgspec import Struct

from kappa.base.clock import now
from kappa.base.errors import KappaError
from kappa.base.failpoint import failpoint
from kappa.state.build import Birth, comparable_topics, folder
from kappa.state.documents import Documents
from kappa.state.store import Store
from kappa.state.witness import LogCut


class Stopped(Struct, frozen=True):
    """The error that a job ended with, and when.

    `cut` are the topics that have lost their ends, which the build has folded: its offsets of them
    are not those of the log any more.
    """

    message: str
    hint: str
    at: str
    cut: tuple[str, ...] = ()
    format: int = 1

    @property
    def text(self) -> str:
        """The error, with what to do now."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


_STOPPED = Documents(Stopped, derived=True)


def put_stopped(store: Store, build: str, error: KappaError) -> None:
    """Puts the reason for which the job of a build has ended, in place of an earlier one."""
    failpoint("stopped.before_put")
    _STOPPED.put(store, _name(build), _stopped(error))
    failpoint("stopped.after_put")


def read_stopped(store: Store, build: str) -> Stopped | None:
    """Returns why the job of a build stopped for good, or None if it did not."""
    return _STOPPED.get(store, _name(build), f"what the job of build {build} stopped of")


def ensure_not_stopped(store: Store, build: str) -> None:
    """Deletes the reason that an earlier job of the build has put."""
    failpoint("stopped.before_delete")
    store.delete(_name(build))
    failpoint("stopped.after_delete")


def comparable_now(store: Store, build: Birth, other: Birth) -> frozenset[str]:
    """Returns the topics that both builds read, and that neither of them has read otherwise.

    A topic that has lost its end is not the one any more that a build has folded before.
    """
    stopped = (read_stopped(store, each.folded_by) for each in (build, other))
    return comparable_topics(build, other) - {
        topic for each in stopped if each is not None for topic in each.cut
    }


def _stopped(error: KappaError) -> Stopped:
    cut = error.topics if isinstance(error, LogCut) else ()
    return Stopped(error.message, error.hint, now(), cut)


def _name(build: str) -> str:
    return f"{folder(build)}/stopped.json"
