"""The state that all ways to receive events share: topics, callers, the queue, and tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kappa.base.errors import KappaError, Unreachable
from kappa.base.sections import CollectSettings
from kappa.base.units import parse_memory
from kappa.kafka.client import Log
from kappa.serving.collect.acknowledged_send import UntilAcknowledged
from kappa.serving.collect.callers import Callers
from kappa.serving.collect.counts import CollectorCounts
from kappa.serving.collect.declared_topics import CollectedTopic, DeclaredTopics
from kappa.serving.collect.fire_and_forget import OneWay
from kappa.serving.collect.ingest_queue import Intake
from kappa.serving.collect.pulled.pull import PullMeans, Pulls
from kappa.serving.collect.pulled.source import PulledSource
from kappa.serving.collect.request_answers import LaterRequests, Remembered
from kappa.serving.collect.spool import Spool
from kappa.serving.http.problem import HttpError
from kappa.state.store import Store

_LOOK_SECONDS = 2.0
# The least interval between two requests to the broker for the topics.
_ASK_SECONDS = 10.0
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class CollectorMeans:
    """The objects that a collector needs, created from the project and its settings."""

    settings: CollectSettings
    log: Log
    declared: DeclaredTopics
    callers: Callers
    spool: Spool
    sources: Sequence[PulledSource]
    # The store has the sources' positions.
    store: Store
    say: Callable[[str], None]


class CollectorStand:
    """The state of a collector, which all ways to receive events share.

    `open` creates the queue and the tasks, and must be called within an event loop.
    """

    intake: Intake
    one_way: OneWay
    pulls: Pulls

    def __init__(self, means: CollectorMeans) -> None:
        self._means = means
        self.settings = means.settings
        self.callers = means.callers
        self.counts = CollectorCounts()
        self.remembered = Remembered(means.settings.keys)
        self.requests = LaterRequests(means.settings.requests)
        # A larger record would wait for room without an end.
        self.largest_record = min(
            means.log.largest_record, parse_memory(means.settings.queue_bytes)
        )
        self.failure = ""
        self._beside: list[asyncio.Task[None]] = []
        self._asked_at = 0.0

    def open(self) -> None:
        """Opens the queue to the broker, and starts the collector's tasks.

        One task watches the declared topics. For each pulled source, a task fetches the source's
        events.
        """
        means, most = self._means, self.largest_record
        self.intake = Intake(self.settings, means.log.options)
        delivery = UntilAcknowledged(self.intake, self.counts, self._topic_now, most=most)
        self.one_way = OneWay(means.spool, delivery, self.counts, most=most, say=means.say)
        shared = PullMeans(means.store, self._topic_now, self._invalid, delivery, means.say)
        self.pulls = Pulls(means.sources, shared)
        self._beside += [
            asyncio.create_task(self._look_after()),
            *self.pulls.begin(self._pull_ended),
        ]

    async def close(self) -> None:
        """Stops the tasks, waits up to 5 s for unacknowledged events, and closes the queue."""
        for task in self._beside:
            task.cancel()
        await self.one_way.close()
        await self.intake.close(_CLOSE_SECONDS)

    def topic(self, name: str) -> CollectedTopic:
        """Returns the collected topic with the given name.

        Raises HttpError if events cannot be sent to the topic now.
        """
        topic = self._means.declared.topics.get(name)
        if topic is None:
            raise HttpError(
                404,
                f"events are not taken for a topic {name[:250]}",
                hint=f"they are for {', '.join(self._means.declared.topics)}: see collect.topics",
            )
        if not topic.exists:
            raise HttpError(
                503,
                f"topic {name} is not on the broker",
                hint=f"make it: kappa topics create {name}",
                headers={"Retry-After": "10"},
            )
        if topic.needs_partitions:
            raise HttpError(
                503,
                f"it is not known yet how many partitions topic {name} has",
                hint="send it again; the broker may be away",
                headers={"Retry-After": "1"},
            )
        return topic

    def _topic_now(self, name: str) -> CollectedTopic | None:
        return self._means.declared.topics.get(name)

    def _invalid(self, topic: str) -> None:
        self.counts.events(topic, "pull", {"invalid": 1})

    def _pull_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        """Stores the reason of a failure, and ends this process with SIGTERM.

        The process then exits with an error, so that `kappa up` starts the collector again.
        """
        self.failure = why
        os.kill(os.getpid(), signal.SIGTERM)

    def missing(self) -> list[str]:
        """Returns the reasons why events cannot be acknowledged now, or an empty list."""
        found = [
            f"topic {name} is not on the broker"
            for name, topic in self._means.declared.topics.items()
            if not topic.exists
        ]
        if self.intake.trouble:
            found.append(self.intake.trouble)
        if not self.intake.has_room(1):
            found.append("the queue is full")
        return found

    def metrics(self) -> str:
        """Returns the metrics of the collector and of its pulled sources, as text."""
        return "".join((self.counts.text(self._gauges()), *self.pulls.metrics()))

    def _gauges(self) -> Iterable[tuple[str, str, float]]:
        yield (
            "kappa_collect_queue_events",
            "Events that wait for the broker's acknowledgement.",
            float(self.intake.events),
        )
        yield (
            "kappa_collect_queue_bytes",
            "Bytes of requests that arrive or wait.",
            float(self.intake.bytes),
        )
        yield (
            "kappa_collect_spool_bytes",
            "Bytes on the disk of events that get no answer.",
            float(self._means.spool.bytes),
        )

    async def _look_after(self) -> None:
        while True:
            await asyncio.to_thread(self._look)
            if self.intake.fatal:
                self._fail(f"the producer can send nothing any more: {self.intake.fatal}")
                return
            await asyncio.sleep(_LOOK_SECONDS)

    def _look(self) -> None:
        self._means.declared.reload()
        unknown = any(topic.needs_partitions for topic in self._means.declared.topics.values())
        is_due = unknown or self.intake.is_away
        if time.monotonic() < self._asked_at + _ASK_SECONDS and not is_due:
            return
        self._asked_at = time.monotonic()
        for name, topic in self._means.declared.topics.items():
            try:
                facts = self._means.log.facts(name)
            except Unreachable:
                # The known facts about the topics stay.
                return
            except KappaError as error:
                self._means.say(str(error))
                return
            self.intake.broker_answers()
            topic.exists = facts is not None
            topic.partitions = None if facts is None else facts.partitions
