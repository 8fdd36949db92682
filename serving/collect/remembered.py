"""The answers to requests with an `Idempotency-Key`, so that a repeat is answered alike.

A repeat that arrives while the first request is on its way waits with that request. After a request
that was acknowledged in part, a repeat sends only the rest. The memory of answers is bounded, and
ends with the process; for later repeats each record has its key as a header, and a topic's
`identity` leaves repeats out of the topic's tables.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kappa.kafka.live_producer import Placed
from kappa.serving.collect.lines import Lines
from kappa.serving.http.problem import HttpError

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(slots=True)
class _Entry:
    """A request's body, the work on the request, and the events once that work has ended."""

    digest: bytes
    work: asyncio.Task[Lines]
    lines: Lines | None = None


class Remembered:
    """The latest requests by source, topic and key, up to a number of events."""

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
        """Works on a request unless it was settled before, and returns the events.

        `name` is source, topic and key. `work` gets the events of an earlier attempt that was
        partly acknowledged. Raises HttpError if the key was used with another body.
        """
        digest = hashlib.blake2b(body, digest_size=16).digest()
        entry = self._entries.get(name)
        if entry is not None and entry.digest != digest:
            raise HttpError(
                422,
                f"the Idempotency-Key {name[2]} was given with another body",
                hint="give each request a key of its own, and repeat it with its own body",
            )
        if entry is not None and not entry.work.done():
            return await asyncio.shield(entry.work)
        if entry is not None and entry.lines is not None and entry.lines.is_settled:
            self._entries.move_to_end(name)
            return entry.lines
        task = asyncio.ensure_future(_task(work, None if entry is None else entry.lines))
        entry = self._entries[name] = _Entry(digest, task, None if entry is None else entry.lines)
        try:
            lines = await asyncio.shield(task)
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
            if entry.work.done():
                self._events -= _lines_weight(entry.lines)
                del self._entries[name]


def _lines_weight(lines: Lines | None) -> int:
    # A request without an event takes room, too.
    return 0 if lines is None else 1 + len(lines.outcomes)


async def _task(work: Callable[[Lines | None], Awaitable[Lines]], before: Lines | None) -> Lines:
    return await work(before)


def key_of(header: str | None) -> str:
    """Returns the key of an `Idempotency-Key`, or an empty text. Raises HttpError."""
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
    """Leaves out events that an earlier attempt of the same request sent successfully."""
    if before is None:
        return
    for place, outcome in enumerate(before.outcomes):
        if isinstance(outcome, Placed):
            lines.outcomes[place] = outcome
