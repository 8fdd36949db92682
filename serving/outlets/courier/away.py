"""A broker that is away while a transaction waits for it, as librdkafka does without an end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kappa.base.errors import AccessRefused, Unreachable
from kappa.kafka.answers import UP
from kappa.kafka.client import Log

_LATE_SECONDS, _PATIENCE_SECONDS = 10.0, 5.0


@contextmanager
def told_while_away(log: Log, tell: Callable[[Unreachable], None]) -> Iterator[None]:
    """Reports a broker that does not answer, for as long as the block takes."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LATE_SECONDS):
            try:
                is_there = log.wait_until_ready(_PATIENCE_SECONDS)
            except AccessRefused as error:
                tell(error)
                continue
            if not is_there and not over.is_set():
                tell(Unreachable(f"no Kafka broker answers at {log.bootstrap_servers}", hint=UP))

    threading.Thread(target=look, name="away", daemon=True).start()
    try:
        yield
    finally:
        over.set()
