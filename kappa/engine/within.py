"""Stops a candidate that has rejected more than its pipeline allows (kappa/breaker.py), before it takes hours to come to the same end."""

from __future__ import annotations

from kappa.breaker import beyond_text, is_beyond, rejected_of, remedy
from kappa.build import Birth
from kappa.engine.rejected import Rejected
from kappa.errors import Broken
from kappa.frontier import Frontier
from kappa.offsets import Offsets
from kappa.store import Store
from kappa.table import REJECTS


def ensure_within(store: Store, birth: Birth, frontier: Frontier, end: Offsets) -> None:
    """Raises Broken where the build is beyond its limit whatever is still to come up to `end`, so that it does not depend on slices."""
    rejected, records = rejected_of(frontier.tally)
    if is_beyond(birth.max_rejects, rejected, records + end.distance(frontier.offsets)):
        found = Rejected.of(store, birth, frontier.versions[REJECTS])
        raise Broken(f"pipeline {birth.pipeline} has {beyond_text(birth.max_rejects, rejected, records)}: {found.text}", hint=remedy(birth.pipeline))
