"""Drift: events that no longer are as a topic declares them. Reported, and nothing stops.

The job of a build finds drift, and puts a document of it on this host. Status, page, metrics and
notices read the document. Another build of the pipeline begins with the fields that its topics
still do not declare, and takes over other drift of the build that serves once it meets it.
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

    A field that is not declared, a reason for which records begin to be rejected, or a share of
    rejects that jumps.
    """

    FIELD = "undeclared_field"
    REASON = "new_reject"
    SHARE = "share_of_rejects"


class Drift(Struct, frozen=True):
    """A drift of a topic.

    `name` is the field or the reason. `text` is a sentence for people. `proof` is the first record
    that was seen, as TOPIC:PARTITION:OFFSET, and `value` the beginning of its value; both are "" if
    no record was at hand. `at` is the time at which the job saw the record.
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
        """Returns what is the same for all records of a drift."""
        return self.kind, self.topic, self.name


class _Drifts(Struct, frozen=True):
    """The drifts of a build, the oldest first."""

    drifts: tuple[Drift, ...] = ()
    format: int = 1


_DRIFTS = Documents(_Drifts, derived=True, synced=False)


def put_drifts(store: Store, build: str, drifts: Iterable[Drift]) -> None:
    """Puts the drifts of a build, in place of the drifts before."""
    _DRIFTS.put(store.local, _drifts_name(build), _Drifts(tuple(drifts)[:MOST_DRIFTS]))


def read_drifts(store: Store, build: str) -> tuple[Drift, ...]:
    """Returns the drifts of a build that were found on this host, the oldest first."""
    found = _DRIFTS.get(store.local, _drifts_name(build), f"the drift of build {build}")
    return () if found is None else found.drifts


def _drifts_name(build: str) -> str:
    return f"{folder_of_build(build)}/drift.json"
