"""Requests with a key: the same request is done once, and answered alike each time.

A claim is put before the act and the answer after it. A crash in between leaves a claim without an
answer. Then it is unknown whether the request was done, so it is not done again. The journal shows
it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

from kappa.base.errors import Conflict, Damaged, KappaError, UsageError
from kappa.state.files.address import changed_at
from kappa.state.store import Store

_FOLDER = "run/asked"
# So long a client may come back.
_KEPT_SECONDS = 86_400.0
_LONGEST_KEY = 200


def do_once(
    store: Store,
    key: str,
    request: object,
    act: Callable[[], Mapping[str, Any]],
    *,
    clock: Callable[[], float] = time.time,
) -> Mapping[str, Any]:
    """Returns what `act` returns, or returned when the same request had this key.

    An error of `act` is raised, and frees the key. Raises UsageError if the key was used for
    another request, and Conflict if the first one is not done yet or was broken off.
    """
    if not key or len(key) > _LONGEST_KEY:
        raise UsageError(
            f"a key has 1 to {_LONGEST_KEY} characters",
            hint="make one up for each thing you want done, such as a UUID",
        )
    _forget(store, clock() - _KEPT_SECONDS)
    name = f"{_FOLDER}/{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()}.json"
    asked = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    # Its id makes it another one than that of the same request at the same moment.
    claim = {"format": 1, "asked": asked, "at": clock(), "id": secrets.token_hex(8)}
    if not store.put_new_json(name, claim):
        return _first_answer(_claim(store, name), asked)
    try:
        answer = act()
    except KappaError:
        store.delete(name)
        raise
    store.put_json(name, {"format": 1, "asked": asked, "at": clock(), "answer": answer})
    return answer


def _first_answer(found: Mapping[str, Any] | None, asked: str) -> Mapping[str, Any]:
    if found is not None and "asked" in found and found["asked"] != asked:
        raise UsageError(
            "this key was used for another request",
            hint="make up a new one for each thing you want done",
        )
    if found is None or "answer" not in found:
        raise Conflict(
            "the same is being done already, or was broken off",
            hint="GET /api/v1/rollouts tells whether it was done; if not, ask with a new key",
        )
    answer: Mapping[str, Any] = found["answer"]
    return answer


def _forget(store: Store, before: float) -> None:
    for name in store.names(_FOLDER):
        found = _claim(store, name)
        if found is not None and found["at"] < before:
            store.delete(name)


def _claim(store: Store, name: str) -> Mapping[str, Any] | None:
    """Returns the claim of a key. One that cannot be read is one that was broken off, then."""
    found: Any
    try:
        found = store.get_json(name)
    except Damaged:
        found = ()
    if found is None or (isinstance(found, dict) and found.keys() >= {"asked", "at"}):
        return found
    at = changed_at(store.address(name))
    return None if at is None else {"at": at}
