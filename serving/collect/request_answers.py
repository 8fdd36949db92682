"""Stored answers for repeated requests, and for requests that do not wait for the outcome.

If a request is repeated with the same `Idempotency-Key`, the repeat gets the same answer. A repeat
that arrives while the first request is in progress waits for the end of the first request. If only
some events of a request were acknowledged, a repeat sends only its other events.

The number of stored answers is limited, and all stored answers are lost when the process exits. A
later repeat sends its events again. To make such repeats recognizable, each record contains its
request's key in a header. If the topic has an `identity`, repeated events do not change the topic's
tables.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass

import msgspec

from kappa.base.errors import KappaError
from kappa.kafka.live_producer import Placed
from kappa.serving.collect.lines import HttpReply, Lines, problem_reply
from kappa.serving.http.problem import HttpError

_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_PLACED = frozenset({200, 207})


@dataclass(slots=True)
class _Entry:
    """A stored request: the digest of its body, its task, and its events with their outcomes.

    `work` is the task that processes the request. `lines` contains the events, and is None until
    the request has been processed for the first time.
    """

    digest: bytes
    lines: Lines | None
    work: asyncio.Task[Lines] | None = None


class Remembered:
    """The latest requests, by source, topic and Idempotency-Key.

    The total number of the requests' events is limited.
    """

    def __init__(self, most_events: int) -> None:
        self._most = most_events
        self._events = 0
        self._entries: OrderedDict[tuple[str, str, str], _Entry] = OrderedDict()

    async def once(
        self,
        name: tuple[str, str, str],
        body: bytes,
        work: Callable[[Lines | None], Awaitable[Lines]],
    ) -> Lines:
        """Processes a request, unless an earlier request with the same key needs no repeat.

        If each event of the earlier request is in the topic's log or invalid, nothing is sent.
        Returns the events of the request, with their outcomes. `name` consists of the source, the
        topic and the Idempotency-Key. `work` processes the request. Its argument is the events of
        an earlier attempt that was acknowledged only in part, or None. Raises HttpError if the key
        was used with another body.
        """
        digest = hashlib.blake2b(body, digest_size=16).digest()
        entry = self._entries.get(name)
        if entry is not None and entry.digest != digest:
            raise HttpError(
                422,
                f"the Idempotency-Key {name[2]} was given with another body",
                hint="give each request a key of its own, and repeat it with its own body",
            )
        if entry is not None and entry.work is not None and not entry.work.done():
            return await asyncio.shield(entry.work)
        if entry is not None and entry.lines is not None and entry.lines.is_settled:
            self._entries.move_to_end(name)
            return entry.lines
        entry = self._entries[name] = _Entry(digest, None if entry is None else entry.lines)
        entry.work = asyncio.ensure_future(self._settled(name, entry, work))
        return await asyncio.shield(entry.work)

    async def _settled(
        self,
        name: tuple[str, str, str],
        entry: _Entry,
        work: Callable[[Lines | None], Awaitable[Lines]],
    ) -> Lines:
        """Processes a request with `work`, and stores its events in the task of the request.

        So no repeat can find the task ended and the events not stored yet. If the sender
        disconnects, the events are stored all the same.
        """
        try:
            lines = await work(entry.lines)
        except HttpError:
            if entry.lines is None and self._entries.get(name) is entry:
                # Nothing was sent: a repeat begins anew.
                del self._entries[name]
            raise
        if self._entries.get(name) is entry:
            self._events += _lines_weight(lines) - _lines_weight(entry.lines)
            entry.lines = lines
            self._entries.move_to_end(name)
            self._forget()
        return lines

    def _forget(self) -> None:
        for name in list(self._entries):
            if self._events <= self._most:
                return
            entry = self._entries[name]
            if entry.work is not None and entry.work.done():
                self._events -= _lines_weight(entry.lines)
                del self._entries[name]


def _lines_weight(lines: Lines | None) -> int:
    # A request without an event takes room, too.
    return 0 if lines is None else 1 + len(lines.outcomes)


def key_of(header: str | None) -> str:
    """Returns the key in an `Idempotency-Key` header, or an empty text without the header.

    Raises HttpError if the key is not valid.
    """
    if header is None:
        return ""
    # The draft of the header defines a quoted string; most clients send the key without quotes.
    key = header.strip().removeprefix('"').removesuffix('"')
    if _KEY.fullmatch(key) is None:
        raise HttpError(
            400,
            "the Idempotency-Key is not valid",
            hint="it has 1 to 255 visible characters of ASCII, such as a UUID",
        )
    return key


def go_on(lines: Lines, before: Lines | None) -> None:
    """Copies the outcomes of events that an earlier attempt has written to the topic's log.

    `lines` are the events of the repeated request; the copied outcomes prevent that these events
    are sent again. `before` contains the events of the earlier attempt, or is None.
    """
    if before is None:
        return
    for place, outcome in enumerate(before.outcomes):
        if isinstance(outcome, Placed):
            lines.outcomes[place] = outcome


class LaterRequests:
    """The latest requests that got the answer 202 at once, each with its final answer, if any.

    When the process exits, the ids of the requests become unknown. A request with an unknown id may
    have been acknowledged or not. So the client must send the request again, with its
    Idempotency-Key.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: OrderedDict[str, asyncio.Task[HttpReply]] = OrderedDict()

    def begin(
        self, work: Coroutine[None, None, HttpReply], at_end: Callable[[], None]
    ) -> HttpReply:
        """Starts to process a request, and returns the immediate answer with the request's id.

        `work` processes the request. `at_end` is called when the request has been processed or
        refused. Raises HttpError if too many requests wait.
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
        """Returns the state of a request, with its final answer if the request has ended.

        `name` is the id of the request. Raises HttpError if the id is not known, or no longer
        known.
        """
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
        """Removes the oldest requests that have ended, if there are too many requests."""
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
