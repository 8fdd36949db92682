"""Sends events again until the broker acknowledges each event, or refuses the event for good.

If the broker refuses for a reason that can pass, such as a missing permission, the events wait
until the reason has passed. So no event is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from kappa.kafka.live_producer import Placed, Undelivered
from kappa.kafka.producer import ProducedRecord
from kappa.serving.collect.counts import CollectorCounts
from kappa.serving.collect.declared_topics import CollectedTopic
from kappa.serving.collect.ingest_queue import Intake
from kappa.serving.collect.lines import read_event

_BATCH_EVENTS, _BATCH_BYTES = 1_000, 1 << 20
_AGAIN_SECONDS, _REFUSED_SECONDS = 0.5, 2.0


class ArrivedEvent(Struct, frozen=True, array_like=True):
    """An event with the time of its arrival, in milliseconds since 1970."""

    topic: str
    event: bytes
    arrived_ms: int


class UntilAcknowledged:
    """A sender that sends events again until the broker has acknowledged them.

    The programs from which the events come do not wait for an answer.
    """

    def __init__(
        self,
        intake: Intake,
        counts: CollectorCounts,
        topic: Callable[[str], CollectedTopic | None],
        *,
        most: int,
    ) -> None:
        """Sets the limits of a batch of events: at most 1,000 events and 1 MiB.

        `topic` returns a collected topic by name, or None if no events are collected for the name.
        A record may have at most `most` bytes. A batch fills at most half of the queue `intake`. So
        a batch always fits into the queue, and some room remains for requests.
        """
        self._intake = intake
        self._counts = counts
        self._topic = topic
        self._most = most
        self.batch_events = max(1, min(_BATCH_EVENTS, intake.most_events // 2))
        self.batch_bytes = min(_BATCH_BYTES, intake.most_bytes // 2)

    async def deliver(
        self, batch: Sequence[ArrivedEvent], way: str, refused: Callable[[str], None]
    ) -> Mapping[str, int]:
        """Sends a batch until each event is acknowledged or is refused for good.

        There is no time limit. Returns the number of events by outcome: `acknowledged`, `failed` or
        `invalid`. `way` is the way of arrival, for the metrics. `refused` is called with the reason
        whenever the broker has refused some events.
        """
        tally: Counter[str] = Counter()
        left = list(batch)
        while left:
            topics = [self._topic(each.topic) for each in left]
            if any(each is not None and each.needs_partitions for each in topics):
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            by_topic: dict[str, list[tuple[ArrivedEvent, ProducedRecord]]] = {}
            for each, topic in zip(left, topics, strict=True):
                found = None if topic is None else read_event(topic, each.event, (), self._most)
                if isinstance(found, ProducedRecord):
                    by_topic.setdefault(each.topic, []).append((each, found))
                else:
                    # The declaration has changed meanwhile, or the topic is no longer collected.
                    self._counts.events(each.topic, way, {"invalid": 1})
                    tally["invalid"] += 1
            left, why = [], ""
            for name, found_events in by_topic.items():
                again, reason = await self._sent(name, found_events, way, tally)
                left += again
                why = why or reason
            if why:
                refused(why)
            if left:
                await asyncio.sleep(_REFUSED_SECONDS if why else _AGAIN_SECONDS)
        return tally

    async def _sent(
        self,
        topic: str,
        found: Sequence[tuple[ArrivedEvent, ProducedRecord]],
        way: str,
        tally: Counter[str],
    ) -> tuple[list[ArrivedEvent], str]:
        """Sends events of a topic, and counts acknowledged and failed events in `tally`.

        `found` contains each event with its record. Returns the events that must be sent again, and
        the broker's reason for refusing them. The reason is empty if the broker has refused
        nothing, for example if the broker could not be reached.
        """
        size = sum(len(each.event) for each, _ in found)
        await self._intake.until_room(size, len(found))
        self._intake.hold(size)
        try:
            sent = await self._intake.post(
                topic, [_record_at(record, each) for each, record in found]
            )
        finally:
            self._intake.release(size)
        again, why, alone = [], "", []
        became: Counter[str] = Counter()
        for pair, outcome in zip(found, sent.outcomes, strict=True):
            if isinstance(outcome, Placed):
                became["acknowledged"] += 1
            elif isinstance(outcome, Undelivered) and not outcome.is_of_record:
                again.append(pair[0])
                why = why or ("" if outcome.is_passing else outcome.why)
            elif len(found) > 1:
                alone.append(pair)
            else:
                became["failed"] += 1
        self._counts.events(topic, way, became)
        tally.update(became)
        # A broker refuses a whole batch of records for a single record, or for all.
        half = (len(alone) + 1) // 2
        for part in filter(None, (alone[:half], alone[half:])):
            more, reason = await self._sent(topic, part, way, tally)
            again += more
            why = why or reason
        return again, why


def _record_at(record: ProducedRecord, event: ArrivedEvent) -> ProducedRecord:
    """Returns a copy of a record with the event's time of arrival as the record's time."""
    return ProducedRecord(
        record.value, record.key, event.arrived_ms, record.headers, record.partition
    )
