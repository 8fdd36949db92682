"""Events by a websocket: one event per message, acknowledged cumulatively.

`{"acknowledged": 12, "token": "visits:0=41"}` says that the first twelve messages need not be sent
again: each is in the log, or was answered with `{"line": 7, "reason": ..., "detail": ...}`. With
too many unacknowledged messages, or without room, nothing is read, and TCP slows the client. If the
broker does not acknowledge, the connection ends with code 1013, and a client sends again all
messages after the last acknowledgement.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from functools import partial

import msgspec

from kappa.kafka.live_producer import Placed, SentRecords, Undelivered
from kappa.serving.collect.callers import Caller
from kappa.serving.collect.declared import CollectedTopic
from kappa.serving.collect.lines import Invalid, read_event
from kappa.serving.collect.stand import CollectorStand
from kappa.serving.http.gate import Receive
from kappa.serving.http.problem import Send
from kappa.serving.query.pin.moments import written_offsets
from kappa.state.offsets import Offsets

_SEND_SECONDS = 30.0
_TRY_AGAIN = 1013


class EventsIn:
    """A websocket that brings events."""

    def __init__(
        self,
        stand: CollectorStand,
        topic: CollectedTopic,
        caller: Caller,
        receive: Receive,
        send: Send,
    ) -> None:
        self._stand = stand
        self._topic = topic
        self._caller = caller
        self._receive = receive
        self._send = send
        # Messages whose acknowledgement was not sent yet, in order.
        self._open: deque[asyncio.Future[SentRecords] | Invalid] = deque()
        self._settled = 0
        self._changed = asyncio.Event()
        self._window = asyncio.Semaphore(stand.settings.unacknowledged)
        self._ends: dict[int, int] = {}

    async def run(self) -> None:
        """Reads events until the client leaves or the broker does not acknowledge."""
        await self._receive()
        await self._send({"type": "websocket.accept"})
        self._stand.counts.request("stream", 101)
        reading = asyncio.create_task(self._read())
        acknowledging = asyncio.create_task(self._acknowledge())
        try:
            await asyncio.wait({reading, acknowledging}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, acknowledging):
                task.cancel()
                # A client that has left can be sent nothing; neither can a client that reads too
                # slowly.
                with suppress(asyncio.CancelledError, RuntimeError, TimeoutError, OSError):
                    await task

    async def _read(self) -> None:
        while True:
            await self._window.acquire()
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return
            event = message.get("bytes")
            if event is None:
                event = (message.get("text") or "").encode()
            await self._until_it_may(len(event))
            found = read_event(self._topic, event, (), self._stand.largest_record)
            if isinstance(found, Invalid):
                self._open.append(found)
                self._changed.set()
                continue
            intake = self._stand.intake
            intake.hold(len(event))
            sent = intake.post(self._topic.name, [found])
            sent.add_done_callback(partial(self._placed, len(event)))
            self._open.append(sent)

    def _placed(self, size: int, _: asyncio.Future[SentRecords]) -> None:
        self._stand.intake.release(size)
        self._changed.set()

    async def _until_it_may(self, size: int) -> None:
        while True:
            seconds = self._caller.rate.take(1, time.monotonic())
            if not seconds:
                break
            await asyncio.sleep(seconds)
        await self._stand.intake.until_room(size)

    async def _acknowledge(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            before = self._settled
            while self._open:
                first = self._open[0]
                if isinstance(first, Invalid):
                    self._stand.counts.events(self._topic.name, "stream", {"invalid": 1})
                    await self._tell(
                        {
                            "line": self._settled + 1,
                            "reason": first.reason,
                            "detail": first.detail,
                        }
                    )
                elif not first.done():
                    break
                elif isinstance(outcome := first.result().outcomes[0], Undelivered):
                    self._stand.counts.events(self._topic.name, "stream", {"failed": 1})
                    await self._told(before)
                    await self._close(outcome)
                    return
                elif isinstance(outcome, Placed):
                    end = self._ends.get(outcome.partition, 0)
                    self._ends[outcome.partition] = max(end, outcome.offset + 1)
                    self._stand.counts.events(self._topic.name, "stream", {"acknowledged": 1})
                self._open.popleft()
                self._window.release()
                self._settled += 1
            await self._told(before)

    async def _told(self, before: int) -> None:
        """Sends the number of settled messages, if there are more than before."""
        if self._settled > before:
            token = written_offsets(Offsets({self._topic.name: self._ends}))
            await self._tell({"acknowledged": self._settled, "token": token or None})

    async def _tell(self, document: object) -> None:
        async with asyncio.timeout(_SEND_SECONDS):
            await self._send(
                {"type": "websocket.send", "text": msgspec.json.encode(document).decode()}
            )

    async def _close(self, outcome: Undelivered) -> None:
        async with asyncio.timeout(_SEND_SECONDS):
            await self._send(
                {
                    "type": "websocket.close",
                    "code": _TRY_AGAIN,
                    "reason": f"not acknowledged: {outcome.why}"[:120],
                }
            )
