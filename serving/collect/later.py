"""Requests that are answered 202 at once, and can be asked for by an id. Bounded.

The ids end with the process: the request of an unknown id may have been acknowledged or not, so the
client sends the request again, with its Idempotency-Key.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine

import msgspec

from kappa.base.errors import KappaError
from kappa.serving.collect.lines import HttpReply, problem_reply
from kappa.serving.http.problem import HttpError

_PLACED = frozenset({200, 207})


class LaterRequests:
    """The latest requests by id, each with the reply once there is a reply."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: OrderedDict[str, asyncio.Task[HttpReply]] = OrderedDict()

    def begin(
        self, work: Coroutine[None, None, HttpReply], at_end: Callable[[], None]
    ) -> HttpReply:
        """Begins to work on a request, and returns the immediate answer.

        Raises HttpError if too many requests wait.
        """
        self._forget()
        if len(self._tasks) >= self._most:
            work.close()
            at_end()
            raise HttpError(
                503,
                f"{self._most:,} requests wait for the broker, and no more may",
                hint="send it again later",
                headers={"Retry-After": "1"},
            )
        name = secrets.token_hex(16)
        self._tasks[name] = asyncio.create_task(_replied(work, at_end))
        url = f"/collect/requests/{name}"
        body = {"id": name, "state": "waiting", "url": url}
        return HttpReply(202, msgspec.json.encode(body), headers={"Location": url})

    def reply(self, name: str) -> HttpReply:
        """Returns the reply to a request. Raises HttpError if the id is not known (any more)."""
        task = self._tasks.get(name)
        if task is None:
            raise HttpError(
                404,
                f"no request {name[:64]} is known",
                hint="it may be forgotten, or of an earlier collector: send it again with its "
                "Idempotency-Key",
            )
        if not task.done():
            return HttpReply(200, msgspec.json.encode({"id": name, "state": "waiting"}))
        found = task.result()
        state = "acknowledged" if found.status in _PLACED else "failed"
        body = {
            "id": name,
            "state": state,
            "status": found.status,
            "answer": msgspec.Raw(found.body),
        }
        return HttpReply(200, msgspec.json.encode(body))

    def _forget(self) -> None:
        """Forgets the oldest requests that have ended, if there are too many."""
        ended = (name for name, task in self._tasks.items() if task.done())
        while len(self._tasks) >= self._most and (name := next(ended, None)) is not None:
            del self._tasks[name]
            ended = (name for name, task in self._tasks.items() if task.done())


async def _replied(work: Coroutine[None, None, HttpReply], at_end: Callable[[], None]) -> HttpReply:
    try:
        return await work
    except KappaError as error:
        return problem_reply(error)
    finally:
        at_end()
