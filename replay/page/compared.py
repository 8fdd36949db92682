"""Samples of the rows in which two builds differ, for the page: found once for all who look, one comparison at a time.

A comparison takes as long as it takes: who comes while one is made is told so, and holds up nobody.
"""

from __future__ import annotations

import threading
import time

from kappa.errors import KappaError
from replay.desk import Desk
from replay.diff import Comparison
from replay.pairs import compare_pair, pin_equal
from serving.query import Limits

_SAMPLES = 5
_KEPT = 8
# Builds that go on are compared where they stand; one that was looked at stays true of where it was.
_FRESH_SECONDS = 60.0
_TROUBLE_SECONDS = 10.0
_lock = threading.Lock()
_found: dict[tuple[str, str, str], tuple[float, Comparison | KappaError]] = {}


def samples_of(desk: Desk, before: str, after: str) -> Comparison | None:
    """How the two differ, with samples, as `kappa diff` finds it; None where a comparison is being made.

    Raises Conflict where they stand at no equal offsets that are kept.
    """
    here = desk.here
    key = str(here.store.folder), before, after
    if (known := _known(key)) is None:
        if not _lock.acquire(blocking=False):
            return None
        try:
            # Another one may have been quicker.
            known = _known(key) or _kept(key, _compared(desk, before, after))
        finally:
            _lock.release()
    if isinstance(known, KappaError):
        raise known.with_traceback(None)
    return known


def _known(key: tuple[str, str, str]) -> Comparison | KappaError | None:
    at, known = _found.get(key, (0.0, None))
    return known if time.monotonic() - at < (_TROUBLE_SECONDS if isinstance(known, KappaError) else _FRESH_SECONDS) else None


def _kept(key: tuple[str, str, str], found: Comparison | KappaError) -> Comparison | KappaError:
    while len(_found) >= _KEPT:
        _found.pop(next(iter(_found)))
    _found[key] = time.monotonic(), found
    return found


def _compared(desk: Desk, before: str, after: str) -> Comparison | KappaError:
    here = desk.here
    try:
        with pin_equal(here.store, before, after, lease_seconds=here.lease_seconds) as (pair, pinned):
            return compare_pair(here.store, pair, pinned, log=desk.log(), limits=Limits.of(here.settings.verify, here.store), samples=_SAMPLES)
    except KappaError as error:
        return error
