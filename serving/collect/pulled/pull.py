"""Connects to each source again and again, in one task per source.

One connection to a source is a visit.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h11
from websockets.exceptions import InvalidStatus, WebSocketException

from kappa.base.errors import KappaError
from kappa.base.sections import PullKind
from kappa.serving.collect.acknowledged_send import ArrivedEvent, UntilAcknowledged
from kappa.serving.collect.declared_topics import CollectedTopic
from kappa.serving.collect.lines import Invalid, read_event
from kappa.serving.collect.pulled.kinds import visit
from kappa.serving.collect.pulled.source import PulledSource, SourceAway
from kappa.serving.collect.pulled.source_protocol import PullPosition, put_position, read_position
from kappa.serving.collect.pulled.tls import why_no_tls
from kappa.serving.http.exposition import family
from kappa.state.store import Store

_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
_LEAST_SECONDS = 0.2
# The number of events that are read before others have their turn.
_AT_ONCE = 200
_WAY = "pull"
# The errors of a connection. A host's name that cannot be encoded is a UnicodeError.
_FAILED = OSError, EOFError, UnicodeError, h11.ProtocolError, WebSocketException


@dataclass(frozen=True, slots=True)
class PullMeans:
    """The objects that all pulled sources of a collector share.

    `store` stores the positions. `topic` is a function that returns a collected topic by name, and
    `invalid` is a function that counts an invalid event of a topic. `say` gets messages for the
    operator.
    """

    store: Store
    topic: Callable[[str], CollectedTopic | None]
    invalid: Callable[[str], None]
    delivery: UntilAcknowledged
    say: Callable[[str], None]


class Pull:
    """A pulled source, and the position before which all of its events are in the topic."""

    def __init__(self, source: PulledSource, means: PullMeans) -> None:
        """Reads the source's stored position. Raises KappaError if the position cannot be read."""
        self.source = source
        self._means = means
        self.position: PullPosition = read_position(means.store, source.name, source.digest)
        self.again_seconds = _FIRST_SECONDS
        self.counted: Counter[str] = Counter()
        self.failures = 0
        self._read_events = 0
        self.is_there = False
        self.away = "it was not asked yet"
        self.last_invalid: Invalid | None = None
        self._failed_in_turn = 0
        self._said = False
        self._unkept_said = ""
        # The reason why the source's events wait, though the broker answers.
        self._refused = ""

    async def run(self) -> None:
        """Connects to the source again and again, until the task is cancelled."""
        while True:
            asked: float | None = None
            try:
                await visit(self.source, self)
                away = ""
                self._failed_in_turn = 0
            except SourceAway as error:
                away, asked = error.why, error.wait_seconds
            except _FAILED as error:
                away = _failure_reason(error)
            if away:
                self._gone(away)
            await asyncio.sleep(self._wait() if asked is None else max(asked, self._wait()))

    def opened(self) -> None:
        """Records that the source is available. After an outage, also logs this."""
        self.is_there, self.away = True, ""
        if self._said:
            self._said = False
            self.report(f"{self.source.shown} is there again")

    async def take(
        self, events: Sequence[bytes | Invalid], position: PullPosition | None = None
    ) -> None:
        """Sends events until the broker has acknowledged or refused each event.

        Then stores `position`, unless it is None.
        """
        if events:
            self._failed_in_turn = 0
        batch: list[ArrivedEvent] = []
        size = 0
        for event in events:
            found = await self._read(event)
            if found is None:
                continue
            delivery = self._means.delivery
            if batch and (
                len(batch) >= delivery.batch_events
                or size + len(found.event) > delivery.batch_bytes
            ):
                await self._deliver(batch)
                batch, size = [], 0
            batch.append(found)
            size += len(found.event)
        await self._deliver(batch)
        if position is not None:
            await asyncio.to_thread(self._keep, position)

    async def keep(self, position: PullPosition) -> None:
        """Stores a position. Raises SourceAway if the position cannot be written."""
        store, name = self._means.store, self.source.name
        try:
            await asyncio.to_thread(put_position, store, name, position)
        except KappaError as error:
            raise SourceAway(f"its position cannot be written: {error.message}") from error
        self.position = position

    def report(self, what: str) -> None:
        """Logs a message about the source, such as an error or a recovery."""
        self._means.say(f"collect.pull.{self.source.name}: {what}")

    def state(self) -> Mapping[str, Any]:
        """Returns the state of the source as a JSON object, for display."""
        invalid = self.last_invalid
        return {
            "name": self.source.name,
            "topic": self.source.topic,
            "kind": self.source.kind,
            "url": self.source.shown,
            "state": "there" if self.is_there else "away",
            "why": self.away or self._refused,
            "events": dict(self.counted),
            "last_invalid": None
            if invalid is None
            else {"reason": invalid.reason, "detail": invalid.detail},
        }

    async def _read(self, event: bytes | Invalid) -> ArrivedEvent | None:
        """Returns an event to send. If the event is invalid, counts it and returns None."""
        self._read_events += 1
        if self._read_events % _AT_ONCE == 0:
            await asyncio.sleep(0)
        found = event if isinstance(event, Invalid) else self._invalid(event)
        if found is None:
            assert isinstance(event, bytes)
            return ArrivedEvent(self.source.topic, event, int(time.time() * 1000))
        self.last_invalid = found
        self.counted["invalid"] += 1
        self._means.invalid(self.source.topic)
        return None

    def _invalid(self, event: bytes) -> Invalid | None:
        topic = self._means.topic(self.source.topic)
        found = topic and read_event(topic, event, (), self.source.largest_event)
        return found if isinstance(found, Invalid) else None

    async def _deliver(self, batch: Sequence[ArrivedEvent]) -> None:
        if batch:
            tally = await self._means.delivery.deliver(batch, _WAY, self._report_refusal)
            self.counted.update(tally)
            self._refused = ""

    def _report_refusal(self, why: str) -> None:
        shown = f"the broker refuses its events, which wait: {why}"
        if shown != self._refused:
            self._refused = shown
            self.report(shown)

    def _keep(self, position: PullPosition) -> None:
        self.position = position
        try:
            put_position(self._means.store, self.source.name, position)
            self._unkept_said = ""
        except KappaError as error:
            # Events behind the last written position are sent again after a kill.
            if error.message != self._unkept_said:
                self._unkept_said = error.message
                self.report(f"its position cannot be written: {error.message}")

    def _gone(self, why: str) -> None:
        self.failures += 1
        self._failed_in_turn += 1
        self.is_there, self.away = False, why
        if not self._said:
            self._said = True
            self.report(f"{self.source.shown} gives no events: {why}; it is tried again")

    def _wait(self) -> float:
        """Returns the seconds until the next connection to the source.

        With each failure in a row, the wait becomes longer.
        """
        if not self._failed_in_turn:
            return max(_LEAST_SECONDS, self.again_seconds)
        longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2 ** min(self._failed_in_turn, 10))
        # A wait that a stream asks for is kept; a document is asked for sooner than at its next
        # turn.
        least = 0.0 if self.source.kind is PullKind.POLL else self.again_seconds
        return max(least, random.uniform(longest / 2, longest))  # noqa: S311  # no secret


class Pulls:
    """All pulled sources of a collector."""

    def __init__(self, sources: Sequence[PulledSource], means: PullMeans) -> None:
        """Reads each source's stored position. Raises KappaError if one cannot be read."""
        self._pulls = [Pull(source, means) for source in sources]

    def begin(self, ended: Callable[[asyncio.Task[None]], None]) -> list[asyncio.Task[None]]:
        """Starts a task for each source, in the running event loop, and returns the tasks.

        `ended` is called with each task that ends.
        """
        tasks = [asyncio.create_task(pull.run()) for pull in self._pulls]
        for task in tasks:
            task.add_done_callback(ended)
        return tasks

    def states(self, topics: Collection[str]) -> list[Mapping[str, Any]]:
        """Returns the states of the sources whose events go to the given topics."""
        return [pull.state() for pull in self._pulls if pull.source.topic in topics]

    def metrics(self) -> Iterator[str]:
        """Yields the metrics of all sources, in Prometheus's text format."""
        if not self._pulls:
            return
        yield family(
            "kappa_collect_pull_up",
            "gauge",
            "1 if a pulled source has answered the last time.",
            [({"pull": each.source.name}, float(each.is_there)) for each in self._pulls],
        )
        yield family(
            "kappa_collect_pull_failures_total",
            "counter",
            "Visits at a pulled source that have failed, since the collector began.",
            [({"pull": each.source.name}, float(each.failures)) for each in self._pulls],
        )
        yield family(
            "kappa_collect_pull_events_total",
            "counter",
            "Events of a pulled source by what became of them, since the collector began.",
            [
                ({"pull": each.source.name, "outcome": outcome}, float(count))
                for each in self._pulls
                for outcome, count in sorted(each.counted.items())
            ],
        )


def _failure_reason(error: Exception) -> str:
    """Describes why a connection failed. Text from the source is shortened."""
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: the connection is refused"
    if isinstance(error, ssl.SSLError):
        return why_no_tls(error)
    if isinstance(error, InvalidStatus):
        return f"it answers {error.response.status_code}"
    strerror = error.strerror if isinstance(error, OSError) else None
    return (strerror or str(error) or type(error).__name__)[:300]
