"""Requests that wait for the client's own writes (`Kappa-After`).

Such requests take no thread, and no place of queries. All requests share a look at the offsets that
readers see, and each request compares these offsets with its own write token.
"""

from __future__ import annotations

import asyncio
from functools import partial

import anyio
from fastapi import Request

from kappa.base.errors import TimedOut, UsageError
from kappa.serving.http.problem import HttpError
from kappa.serving.http.rights import asker
from kappa.serving.http.stand import SharedLook, stand_of
from kappa.serving.query.pin.moments import parse_offsets
from kappa.serving.query.pin.write_token import (
    LOOK_SECONDS,
    ServedLook,
    Shown,
    pipelines_behind,
    timeout_error,
)

# Most requests that wait at the same time.
MOST_WAITING = 256


class _Line:
    """The requests that wait, and the look that these requests share."""

    def __init__(self, look: ServedLook) -> None:
        self.length = 0
        self.look: SharedLook[Shown] = SharedLook(look.shown_offsets, seconds=LOOK_SECONDS)
        # The reasons for late requests are read one after the other.
        self.late = anyio.CapacityLimiter(1)


async def ensure_covered(request: Request, token: str, seconds: float | None) -> None:
    """Waits until readers see the offsets of a write token.

    The wait lasts at most `seconds`, or as long as the server allows. Raises TimedOut and
    UsageError as kappa.serving.query.pin.write_token does, and HttpError if too many requests wait.
    """
    stand, line, offsets = stand_of(request), _line_of(request), parse_offsets(token)
    most = stand.sandbox.allowance.wait_seconds
    seconds = most if seconds is None else min(seconds, most)
    if line.length >= MOST_WAITING:
        raise HttpError(
            503,
            f"{MOST_WAITING} requests wait for writes already",
            hint="come back in a while",
            headers={"Retry-After": "1"},
        )
    line.length += 1
    # A client of some tables is told no names of pipelines and topics.
    names = asker(request).tables.is_all
    try:
        due = asyncio.get_running_loop().time() + seconds
        while behind := pipelines_behind(offsets, await line.look.seen()):
            if asyncio.get_running_loop().time() >= due and not names:
                raise TimedOut(
                    f"readers do not see all of the write after {seconds:g} s",
                    hint="ask again, or wait longer: Kappa-Wait",
                )
            if asyncio.get_running_loop().time() >= due:
                late = partial(timeout_error, stand.store, behind, seconds)
                raise await anyio.to_thread.run_sync(late, limiter=line.late)
            await asyncio.sleep(LOOK_SECONDS)
    except UsageError as error:
        if names:
            raise
        raise UsageError(
            "the write token names a topic that nothing reads", hint="leave Kappa-After out"
        ) from error
    finally:
        line.length -= 1


def _line_of(request: Request) -> _Line:
    state = request.app.state
    if not hasattr(state, "waiting"):
        state.waiting = _Line(ServedLook(stand_of(request).store))
    found = state.waiting
    assert isinstance(found, _Line), "it was made here"
    return found
