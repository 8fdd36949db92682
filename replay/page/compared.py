"""Samples of the rows in which two builds differ, for the page: found once for all who look, one comparison at a time."""

from __future__ import annotations

import threading
import time

from replay.desk import Desk
from replay.diff import Comparison
from replay.pairs import compare_pair, pin_equal
from serving.query import Limits

_SAMPLES = 5
_KEPT = 8
# Builds that go on are compared where they stand; one that was looked at stays true of where it was.
_FRESH_SECONDS = 60.0
_lock = threading.Lock()
_found: dict[tuple[str, str, str], tuple[float, Comparison]] = {}


def samples_of(desk: Desk, before: str, after: str) -> Comparison:
    """How the two differ, with samples; as `kappa diff` finds it. Raises Conflict where they stand at no equal offsets that are kept."""
    here = desk.here
    key = str(here.store.folder), before, after
    with _lock:
        at, known = _found.get(key, (0.0, None))
        if known is not None and time.monotonic() - at < _FRESH_SECONDS:
            return known
        with pin_equal(here.store, before, after, lease_seconds=here.lease_seconds) as (pair, pinned):
            found = compare_pair(here.store, pair, pinned, log=desk.log(), limits=Limits.of(here.settings.verify, here.store), samples=_SAMPLES)
        while len(_found) >= _KEPT:
            _found.pop(next(iter(_found)))
        _found[key] = time.monotonic(), found
        return found
