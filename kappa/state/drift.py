"""Drift: events that no longer match a topic's declaration. Drift is reported, and stops nothing.

The job of a build detects drift, and stores a document about it on this host. The commands, the
page, the metrics and the notices read this document. The next build of the pipeline starts with the
undeclared fields of this document that its own topics still do not declare. It copies another kind
of drift from the serving build's document only when it detects the same drift itself.
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
    increase of the share of rejects.
    """

    FIELD = "undeclared_field"
    REASON = "new_reject"
    SHARE = "share_of_rejects"


class Drift(Struct, frozen=True):
    """A drift of a topic.

    `name` is the field or the reason. `text` is a sentence for display. `proof` is the first record
    with the drift, as TOPIC:PARTITION:OFFSET, and `value` is the beginning of the record's value.
    Both are "" if no such record is known. `at` is the time when the job saw the record.
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
    """Stores the drifts of a build on this host. They replace the stored ones.

    Only the first 50 drifts are stored.
    """
    _DRIFTS.put(store.local, _drifts_name(build), _Drifts(tuple(drifts)[:MOST_DRIFTS]))


def read_drifts(store: Store, build: str) -> tuple[Drift, ...]:
    """Returns the drifts of a build that were detected on this host, the oldest first."""
    found = _DRIFTS.get(store.local, _drifts_name(build), f"the drift of build {build}")
    return () if found is None else found.drifts


def _drifts_name(build: str) -> str:
    return f"{folder_of_build(build)}/drift.json"
