"""The producer's process: sends the first events at full speed, then others at a steady rate.

The process is started with `python -m demo.producer.feed BOOTSTRAP LEDGER --rate N`. It runs until
its standard input ends, which also happens when its parent exits. It prints its progress as lines
of JSON, each a `Progress`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from demo.processes.end_of_input import stop_at_end_of_input
from demo.producer.events import PARTITIONS, Event, first_count, first_events, further_events
from demo.producer.ledger import Ledger
from kappa.base.errors import KappaError
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord, Producer
from kappa.state.offsets import Offsets

# Short enough not to delay a record, long enough that the loop costs nothing.
_BEAT_SECONDS = 0.02
_SPEAK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Progress:
    """The producer's progress. `first` is the number of events that are sent at full speed.

    `loaded` is True once these events are acknowledged.
    """

    first: int
    acknowledged: int
    loaded: bool
    offsets: dict[str, dict[str, int]]


def feed(
    log: Log, ledger: Ledger, *, rate: float, flights: int | None, stop: threading.Event
) -> None:
    """Produces events until `stop` is set, and waits until all are acknowledged.

    The progress is printed meanwhile. Raises KappaError if the topics contain records already.
    """
    if any(offset for _, _, offset in log.high_watermark(PARTITIONS).items()):
        raise KappaError(
            "the demo's topics hold records already, of which its ledger knows nothing",
            hint="run the demo on a broker of its own, as it does by itself",
        )
    with log.producer() as producer:
        sender = _Sender(producer, ledger, first_count(flights))
        sender.send_all(first_events(flights), stop)
        producer.flush()
        sender.speak(loaded=not stop.is_set())
        sender.send_steadily(further_events(), stop, rate=rate)
        ledger.close(producer.flush().offsets)
        sender.speak(loaded=True)


class _Sender:
    """Writes each event to the ledger, sends it, and prints the producer's progress."""

    def __init__(self, producer: Producer, ledger: Ledger, first: int) -> None:
        self._producer = producer
        self._ledger = ledger
        self._first = first
        self._spoken = 0.0

    def send_all(self, events: Iterator[Event], stop: threading.Event) -> None:
        for event in events:
            self._send(event)
            self._speak_if_due(loaded=False)
            if stop.is_set():
                return

    def send_steadily(self, events: Iterator[Event], stop: threading.Event, *, rate: float) -> None:
        begun, sent = time.monotonic(), 0
        while not stop.wait(_BEAT_SECONDS):
            due = int((time.monotonic() - begun) * rate)
            # After a delay it catches up, by at most a second's events at once.
            for _ in range(min(due - sent, max(1, int(rate)))):
                self._send(next(events))
                sent += 1
            self._speak_if_due(loaded=True)

    def speak(self, *, loaded: bool) -> None:
        acknowledged = self._producer.acknowledged
        print(
            json.dumps(
                asdict(
                    Progress(self._first, acknowledged.count, loaded, acknowledged.offsets.plain())
                )
            ),
            flush=True,
        )
        self._spoken = time.monotonic()

    def _speak_if_due(self, *, loaded: bool) -> None:
        if time.monotonic() - self._spoken > _SPEAK_SECONDS:
            self.speak(loaded=loaded)

    def _send(self, event: Event) -> None:
        self._ledger.add(event)
        self._producer.send(
            event.topic,
            ProducedRecord(
                event.value,
                key=event.key.encode(),
                timestamp_ms=event.timestamp_ms,
                partition=event.partition,
            ),
        )


def offsets_of(progress: Progress) -> Offsets:
    """Returns the offsets after the last acknowledged records, from the producer's progress."""
    return Offsets.parse(progress.offsets)


def main() -> int:
    """Parses the arguments and sends events. An error is printed to stderr as one line."""
    parser = argparse.ArgumentParser(prog="python -m demo.producer.feed")
    parser.add_argument("bootstrap_servers")
    parser.add_argument("ledger", type=Path)
    parser.add_argument("--rate", type=float, required=True, help="further events per second")
    parser.add_argument("--flights", type=int, help="begin with so many flights only")
    given = parser.parse_args()
    try:
        with Ledger(given.ledger) as ledger:
            feed(
                Log(given.bootstrap_servers),
                ledger,
                rate=given.rate,
                flights=given.flights,
                stop=stop_at_end_of_input(),
            )
    except KappaError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
