"""Drift: events that no longer match a topic's declaration. Kappa reports drift, but stops nothing.

The job of a build detects drift, and stores the build's document about drift on this host. The
commands, the page, the metrics and the notices read this document.

When a pipeline gets a new build, the new build's document starts with the undeclared fields from
the serving build's document, except fields that the topics of the new build declare. A drift of
another kind is copied from the serving build's document only if the new build detects the same
drift itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from kappa.state.build import folder_of_build
from kappa.state.documents import Documents
from kappa.state.store import Store

# More kinds of drift in one build tell nothing new.
MOST_DRIFTS = 50


class DriftKind(StrEnum):
    """The kind of a drift.

    FIELD is a field that is not declared, REASON is a new reason for rejects, and SHARE is a sudden
    increase of the share of rejected records.
    """

    FIELD = "undeclared_field"
    REASON = "new_reject"
    SHARE = "share_of_rejects"


class Drift(Struct, frozen=True):
    """A drift that a job has detected in a topic.

    `name` is the undeclared field or the reason for rejects. `text` is a sentence for display.
    `proof` is the position of the first record with the drift, as TOPIC:PARTITION:OFFSET, and
    `value` is the beginning of that record's value. `proof` and `value` are "" if no such record is
    known. `at` is the time when the job read the record.
    """

    kind: DriftKind
    topic: str
    name: str
    text: str
    proof: str
    value: str
    at: str

    @property
    def key(self) -> tuple[str, str, str]:
        """Returns the kind, topic and name, which together identify the drift."""
        return self.kind, self.topic, self.name


class _Drifts(Struct, frozen=True):
    """The drifts of a build, the oldest first."""

    drifts: tuple[Drift, ...] = ()
    format: int = 1


_DRIFTS = Documents(_Drifts, derived=True, synced=False)


def put_drifts(store: Store, build: str, drifts: Iterable[Drift]) -> None:
    """Stores the drifts of a build on this host, in place of the drifts stored before.

    Only the first 50 drifts are stored.
    """
    _DRIFTS.put(store.local, _drifts_name(build), _Drifts(tuple(drifts)[:MOST_DRIFTS]))


def read_drifts(store: Store, build: str) -> tuple[Drift, ...]:
    """Returns the drifts of a build that were detected on this host, the oldest first."""
    found = _DRIFTS.get(store.local, _drifts_name(build), f"the drift of build {build}")
    return () if found is None else found.drifts


def _drifts_name(build: str) -> str:
    return f"{folder_of_build(build)}/drift.json"
