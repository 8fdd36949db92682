"""The bounded queue of events between their arrival and the broker's acknowledgement.

Room in the queue is reserved before a body is read or events are sent. If there is no room for
events, the events are refused at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kappa.base.sections import CollectSettings
from kappa.base.units import parse_memory
from kappa.kafka.broker_requests import Options
from kappa.kafka.live_producer import LiveProducer, SentRecords
from kappa.kafka.producer import ProducedRecord
from kappa.serving.http.problem import HttpError

_RETRY_AFTER = {"Retry-After": "1"}
# The longest that an acknowledgement takes while all is well.
_WELL_SECONDS = 5.0


class Intake:
    """The bounded queue of events to the broker.

    Only the thread of the process's event loop may use the queue.
    """

    def __init__(self, settings: CollectSettings, options: Options) -> None:
        """Creates the queue. An event loop must be running."""
        self.most_events = settings.queue_events
        self.most_bytes = parse_memory(settings.queue_bytes)
        self.events = 0
        self.bytes = 0
        self._freed = asyncio.Event()
        self._waiting: dict[SentRecords, tuple[Callable[[SentRecords], None], float]] = {}
        self._loop = loop = asyncio.get_running_loop()

        def report(finished: Sequence[SentRecords]) -> None:
            loop.call_soon_threadsafe(self._settle, finished)

        self._producer = LiveProducer(
            options,
            wait_seconds=settings.wait_seconds,
            most_records=self.most_events,
            most_bytes=self.most_bytes,
            report=report,
        )
        self._producer.start()

    @property
    def is_away(self) -> bool:
        """Returns True if the broker could not be reached, and has not answered since then."""
        return self._producer.is_away

    def broker_answers(self) -> None:
        """Records that the broker has answered, even if it has not acknowledged an event yet."""
        self._producer.is_away = False

    @property
    def trouble(self) -> str:
        """Returns the reason why events are not acknowledged now, or an empty text."""
        if self.is_away:
            return "no Kafka broker answers"
        if self._waiting:
            _, since = next(iter(self._waiting.values()))
            seconds = time.monotonic() - since
            if seconds > _WELL_SECONDS:
                return f"an event has waited for its acknowledgement for {seconds:.0f} s"
        return ""

    @property
    def fatal(self) -> str:
        """Returns the fatal error after which the producer can send nothing, or an empty text."""
        return self._producer.fatal

    async def until_room(self, size: int, events: int = 1) -> None:
        """Waits until there is room for `events` further events with `size` bytes in total."""
        while not self.has_room(events) or self.bytes + size > self.most_bytes:
            self._freed.clear()
            await self._freed.wait()

    def hold(self, size: int) -> None:
        """Reserves room for `size` bytes of events. Raises HttpError if too little is free."""
        if self.bytes + size > self.most_bytes:
            raise self._full()
        self.bytes += size

    def release(self, size: int) -> None:
        """Releases the reserved room of `size` bytes."""
        self.bytes -= size
        self._freed.set()

    def has_room(self, events: int) -> bool:
        """Returns True if `events` further events can be sent now."""
        return self.events + events <= self.most_events and self.bytes < self.most_bytes

    def ensure_room(self, events: int) -> None:
        """Raises HttpError if `events` further events cannot be sent now.

        The status is 413 if the events would exceed even an empty queue, and 503 if the queue is
        too full now.
        """
        if events > self.most_events:
            raise HttpError(
                413,
                f"the request has {events:,} events, and one has at most {self.most_events:,}",
                hint="send them in several requests",
            )
        if not self.has_room(events):
            raise self._full()

    async def send(self, topic: str, records: Sequence[ProducedRecord]) -> SentRecords:
        """Sends records, waits for the broker's answers, and returns the outcome of each record.

        Raises HttpError if there is no room for all records.
        """
        self.ensure_room(len(records))
        if not records:
            return SentRecords(0)
        # The events are on their way, and count until acknowledged, whoever waits.
        return await asyncio.shield(self.post(topic, records))

    def post(self, topic: str, records: Sequence[ProducedRecord]) -> asyncio.Future[SentRecords]:
        """Sends records without waiting, and returns a future with the outcome of each record.

        Before the call, the caller must make sure that there is room for the records.
        """
        done: asyncio.Future[SentRecords] = self._loop.create_future()

        def settled(sent: SentRecords) -> None:
            if not done.done():
                done.set_result(sent)

        self.begin(topic, records, settled)
        return done

    def begin(
        self, topic: str, records: Sequence[ProducedRecord], settled: Callable[[SentRecords], None]
    ) -> None:
        """Sends records without waiting, and later calls `settled` with each record's outcome.

        Before the call, the caller must make sure that there is room for the records.
        """
        self.events += len(records)
        self._waiting[self._producer.send(topic, records)] = settled, time.monotonic()

    async def close(self, patience_seconds: float) -> None:
        """Waits until the broker has acknowledged or refused all sent events.

        The wait ends after at most `patience_seconds`.
        """
        await asyncio.to_thread(self._producer.close, patience_seconds)

    def _settle(self, finished: Sequence[SentRecords]) -> None:
        for sent in finished:
            settled, _ = self._waiting.pop(sent)
            self.events -= len(sent.outcomes)
            self._freed.set()
            # A callback that fails leaves the other callbacks unaffected.
            self._loop.call_soon(settled, sent)

    def _full(self) -> HttpError:
        return HttpError(
            503,
            f"{self.events:,} events ({self.bytes:,} bytes) wait for the broker, and no more may",
            hint=f"send it again later, with its Idempotency-Key; {self.trouble or 'it is busy'}",
            headers=_RETRY_AFTER,
        )
