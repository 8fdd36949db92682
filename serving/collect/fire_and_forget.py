"""Events whose senders get no answer. The outcomes of these events are only counted.

The module spool.py writes each event to the disk, in order, before it is sent. So no event is lost
if the process is killed, or while the broker cannot be reached, unless the spool is full. If the
process is killed after an event was acknowledged and before the spool's position is written, the
event is sent twice. A topic with an `identity` then ignores the repeated event.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kappa.serving.collect.acknowledged_send import ArrivedEvent, UntilAcknowledged
from kappa.serving.collect.counts import CollectorCounts
from kappa.serving.collect.declared_topics import CollectedTopic
from kappa.serving.collect.lines import Invalid, read_event
from kappa.serving.collect.spool import Spool

# Events that wait to be written: a disk that hangs holds nobody up.
_MOST_UNWRITTEN, _MOST_UNWRITTEN_BYTES = 20_000, 16 << 20
_WRITTEN_AT_ONCE = 1_000

_Found = TypeVar("_Found")


class OneWay:
    """The spool for events without an answer, with tasks that write and send these events."""

    def __init__(
        self,
        spool: Spool,
        delivery: UntilAcknowledged,
        counts: CollectorCounts,
        *,
        most: int,
        say: Callable[[str], None],
    ) -> None:
        """Starts the tasks that write events to the spool and send them.

        A record may have at most `most` bytes. `say` gets messages for the operator.
        """
        self.spool = spool
        self._delivery = delivery
        self._counts = counts
        self._most = most
        self._say = say
        self._said = self._refused = ""
        self._unwritten: deque[tuple[str, ArrivedEvent]] = deque()
        self._unwritten_bytes = 0
        self._arrived = asyncio.Event()
        self._written = asyncio.Event()
        # The spool is for one thread at a time.
        self._turn = asyncio.Lock()
        self._is_ending = False
        self._writing = asyncio.create_task(self._write())
        self._sending = asyncio.create_task(self._send())

    def take(self, topic: CollectedTopic, event: bytes, way: str) -> None:
        """Puts an event into the queue of events for the spool, or counts the event as refused.

        This method does not wait. `way` is the way of arrival, for the metrics.
        """
        if isinstance(read_event(topic, event, (), self._most), Invalid):
            self._counts.events(topic.name, way, {"invalid": 1})
        elif (
            len(self._unwritten) >= _MOST_UNWRITTEN
            or self._unwritten_bytes + len(event) > _MOST_UNWRITTEN_BYTES
        ):
            self._counts.events(topic.name, way, {"dropped": 1})
        else:
            arrived = ArrivedEvent(topic.name, event, int(time.time() * 1000))
            self._unwritten.append((way, arrived))
            self._unwritten_bytes += len(event)
            self._arrived.set()

    async def close(self) -> None:
        """Stops sending, and writes all arrived events to the spool.

        The next collector sends these events.
        """
        self._sending.cancel()
        with suppress(asyncio.CancelledError):
            await self._sending
        self._is_ending = True
        self._arrived.set()
        await self._writing
        await self._in_turn(self.spool.close)

    async def _write(self) -> None:
        while not self._is_ending:
            await self._arrived.wait()
            self._arrived.clear()
            await self._write_arrived()

    async def _write_arrived(self) -> None:
        while self._unwritten:
            count = min(len(self._unwritten), _WRITTEN_AT_ONCE)
            batch = [self._unwritten[place] for place in range(count)]
            events = [event for _, event in batch]
            try:
                written = await self._in_turn(partial(self.spool.append, events))
                self._said = "" if written == count else self._said
            except OSError as error:
                written = 0
                self._report(f"events without an answer are dropped: {error.strerror or error}")
            for place in range(count):
                self._unwritten.popleft()
                self._unwritten_bytes -= len(events[place].event)
                way, event = batch[place]
                outcome = "taken" if place < written else "dropped"
                self._counts.events(event.topic, way, {outcome: 1})
            if written < count:
                self._report("events without an answer are dropped: the spool is full")
            self._written.set()

    async def _send(self) -> None:
        while True:
            self._written.clear()
            batch = await self._in_turn(self._read)
            if not batch:
                await self._written.wait()
                continue
            await self._delivery.deliver(batch, "spool", self._report_refusal)
            self._refused = ""
            await self._in_turn(self._keep_position)

    async def _in_turn(self, do: Callable[[], _Found]) -> _Found:
        """Runs a function that uses the spool, in a thread, and returns its result.

        Only one such function runs at a time. The next function must wait until this one has ended,
        even if the caller no longer waits for the result.
        """
        await self._turn.acquire()
        done = asyncio.ensure_future(asyncio.to_thread(do))
        done.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(done)

    def _read(self) -> list[ArrivedEvent]:
        try:
            return self.spool.read(self._delivery.batch_events, self._delivery.batch_bytes)
        except OSError as error:
            self._report(f"the spool cannot be read: {error.strerror or error}")
            return []

    def _keep_position(self) -> None:
        try:
            self.spool.keep_position()
        except OSError as error:
            # Events behind the last written position are sent again after a kill.
            self._report(f"the spool's position cannot be written: {error.strerror or error}")

    def _report_refusal(self, why: str) -> None:
        if why != self._refused:
            self._refused = why
            self._say(f"the broker refuses events of the spool, which wait: {why}")

    def _report(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._say(line)
