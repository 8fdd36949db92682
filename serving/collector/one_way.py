"""Events whose sender gets no answer: they are counted, and hold nobody up.

Each goes through the spool (spool.py), in its order, so a broker that is away costs none of them
until the spool is full, and neither does a kill. An event that the process is killed over between
its acknowledgement and the position is sent twice: an `identity` leaves the repeat out.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from kappa.log.live.live_producer import Placed, Undelivered
from kappa.log.producer import ProducedRecord
from serving.collector.events.counts import CollectorCounts
from serving.collector.events.declared import CollectedTopic
from serving.collector.events.intake import Intake
from serving.collector.events.lines import Invalid, read_event
from serving.collector.spool import Spool, SpooledEvent

# Events that wait to be written: a disk that hangs holds nobody up.
_MOST_UNWRITTEN, _MOST_UNWRITTEN_BYTES = 20_000, 16 << 20
_BATCH_EVENTS, _BATCH_BYTES = 1_000, 1 << 20
_AGAIN_SECONDS = 0.5

_Found = TypeVar("_Found")


class OneWay:
    """The spool of a collector, and the two tasks that write and send its events."""

    def __init__(
        self,
        spool: Spool,
        intake: Intake,
        counts: CollectorCounts,
        topic: Callable[[str], CollectedTopic | None],
        *,
        most: int,
        say: Callable[[str], None],
    ) -> None:
        """Makes it. `topic` returns a topic by name, if it is collected; `most` bytes are a record.

        `say` gets what the operator should read.
        """
        self.spool = spool
        self._intake = intake
        self._counts = counts
        self._topic = topic
        self._most = most
        self._say = say
        self._said = ""
        self._unwritten: deque[tuple[str, SpooledEvent]] = deque()
        self._unwritten_bytes = 0
        self._arrived = asyncio.Event()
        self._written = asyncio.Event()
        # The spool is for one thread at a time.
        self._turn = asyncio.Lock()
        self._is_ending = False
        # A batch leaves room in the queue for requests, and never waits for more than there is.
        self._batch_events = max(1, min(_BATCH_EVENTS, intake.most_events // 2))
        self._batch_bytes = min(_BATCH_BYTES, intake.most_bytes // 2)
        self._writing = asyncio.create_task(self._write())
        self._sending = asyncio.create_task(self._send())

    def take(self, topic: CollectedTopic, event: bytes, way: str) -> None:
        """Takes an event, or counts why not. It never waits."""
        if isinstance(read_event(topic, event, (), self._most), Invalid):
            self._counts.events(topic.name, way, {"invalid": 1})
        elif (
            len(self._unwritten) >= _MOST_UNWRITTEN
            or self._unwritten_bytes + len(event) > _MOST_UNWRITTEN_BYTES
        ):
            self._counts.events(topic.name, way, {"dropped": 1})
        else:
            arrived = SpooledEvent(topic.name, event, int(time.time() * 1000))
            self._unwritten.append((way, arrived))
            self._unwritten_bytes += len(event)
            self._arrived.set()

    async def close(self) -> None:
        """Writes what has arrived, and ends; the next collector sends it."""
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
            count = min(len(self._unwritten), _BATCH_EVENTS)
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
            await self._deliver(batch)
            await self._in_turn(self._keep_position)

    async def _in_turn(self, do: Callable[[], _Found]) -> _Found:
        """Does something with the spool in a thread; its turn ends with it, whoever waits."""
        await self._turn.acquire()
        done = asyncio.ensure_future(asyncio.to_thread(do))
        done.add_done_callback(lambda _: self._turn.release())
        return await asyncio.shield(done)

    def _read(self) -> list[SpooledEvent]:
        try:
            return self.spool.read(self._batch_events, self._batch_bytes)
        except OSError as error:
            self._report(f"the spool cannot be read: {error.strerror or error}")
            return []

    def _keep_position(self) -> None:
        try:
            self.spool.keep_position()
        except OSError as error:
            # What follows it is sent again after a kill.
            self._report(f"the spool's position cannot be written: {error.strerror or error}")

    async def _deliver(self, batch: Sequence[SpooledEvent]) -> None:
        """Sends events until each is acknowledged, or refused for good."""
        left = list(batch)
        while left:
            topics = [self._topic(each.topic) for each in left]
            if any(each is not None and each.needs_partitions for each in topics):
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            by_topic: dict[str, list[tuple[SpooledEvent, ProducedRecord]]] = {}
            for each, topic in zip(left, topics, strict=True):
                found = None if topic is None else read_event(topic, each.event, (), self._most)
                if isinstance(found, ProducedRecord):
                    by_topic.setdefault(each.topic, []).append((each, found))
                else:
                    # The declaration has changed meanwhile, or the topic is no longer collected.
                    self._counts.events(each.topic, "spool", {"invalid": 1})
            left = []
            for name, found_events in by_topic.items():
                left += await self._sent(name, found_events)
            if left:
                await asyncio.sleep(_AGAIN_SECONDS)

    async def _sent(
        self, topic: str, found: Sequence[tuple[SpooledEvent, ProducedRecord]]
    ) -> list[SpooledEvent]:
        """Sends events of one topic, and returns those that are to be sent again."""
        size = sum(len(each.event) for each, _ in found)
        await self._intake.until_room(size, len(found))
        self._intake.hold(size)
        try:
            sent = await self._intake.post(topic, [_at(record, each) for each, record in found])
        finally:
            self._intake.release(size)
        again = []
        for (each, _), outcome in zip(found, sent.outcomes, strict=True):
            if isinstance(outcome, Placed):
                self._counts.events(topic, "spool", {"acknowledged": 1})
            elif isinstance(outcome, Undelivered) and outcome.is_passing:
                again.append(each)
            else:
                self._counts.events(topic, "spool", {"failed": 1})
        return again

    def _report(self, line: str) -> None:
        if line != self._said:
            self._said = line
            self._say(line)


def _at(record: ProducedRecord, event: SpooledEvent) -> ProducedRecord:
    """Returns a record with the time at which its event arrived."""
    return ProducedRecord(
        record.value, record.key, event.arrived_ms, record.headers, record.partition
    )
