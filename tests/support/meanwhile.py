"""A producer and an HTTP client that go on while processes of a platform are killed.

A kill costs them only time: they connect again, and count how often.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from reading import QUESTION
from testbed import Testbed

from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord, Producer
from kappa.replay.status.run_records import running, served_at

# Topic and record, for each turn of a producer.
Records = Callable[[int], Iterator[tuple[str, ProducedRecord]]]
# Each turn is a slice for each job: more often would leave them no core.
_TURN_SECONDS = 2.0
_REST_SECONDS = 1.0
# A server that was stopped for longer is away.
_ANSWER_SECONDS = 60.0


class Beside:
    """A task that its own thread repeats until the task is asked to end.

    `failed` is the error that ended it. While somebody holds its `turn`, the task waits between two
    rounds.
    """

    def __init__(self) -> None:
        self.ends = threading.Event()
        self.turn = threading.Lock()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                with self.turn:
                    if not self.ends.is_set():
                        self.go_on()
                self.rest()
        except BaseException as error:  # noqa: BLE001  # whatever it is, the test is told
            self.failed = error

    def go_on(self) -> None:
        raise NotImplementedError

    def rest(self) -> None:
        """Waits between two rounds."""
        self.ends.wait(_REST_SECONDS)


def note(bed: Testbed, what: str) -> None:
    """Writes down what was done to a platform and when, for the analysis of a failed test."""
    with (bed.folder / "story.txt").open("a", encoding="utf-8") as story:
        print(datetime.now(UTC).isoformat(timespec="milliseconds"), what, file=story)


_Doing = TypeVar("_Doing", bound=Beside)


@contextmanager
def beside(doing: _Doing) -> Iterator[_Doing]:
    """Runs the task within the block. Asserts that it did not fail."""
    thread = threading.Thread(target=doing.run, daemon=True)
    thread.start()
    try:
        yield doing
    finally:
        doing.ends.set()
        thread.join()
    assert doing.failed is None, doing.failed


class Producing(Beside):
    """Produces turn after turn. Records under way when a broker was killed may be missing."""

    def __init__(
        self, bed: Testbed, records: Records, *, turn_seconds: float = _TURN_SECONDS
    ) -> None:
        super().__init__()
        self._turn_seconds = turn_seconds
        self._settings = load_settings(bed.folder)
        self._records = records
        self._turns = itertools.count()
        # The records that producers before this one had acknowledged, and this one.
        self._counted: tuple[int, Producer | None] = (0, None)
        self._waits_since: float | None = None
        self.outages = 0

    @property
    def acknowledged(self) -> int:
        """Returns the number of acknowledged records, including those of the turn under way."""
        before, producer = self._counted
        return before + (0 if producer is None else producer._count)

    @property
    def waits_seconds(self) -> float:
        """Returns the seconds that the turn under way has waited for acknowledgements, or 0."""
        since = self._waits_since
        return 0.0 if since is None else monotonic() - since

    def go_on(self) -> None:
        found = running(self._settings)
        if found is None:
            return
        try:
            with Log(found.bootstrap_servers).producer() as producer:
                self._counted = (self.acknowledged, producer)
                while not self.ends.wait(self._turn_seconds):
                    for topic, record in self._records(next(self._turns)):
                        producer.send(topic, record)
                    self._waits_since = monotonic()
                    producer.flush()
                    self._waits_since = None
        except KappaError:
            self.outages += 1
        finally:
            self._waits_since = None
            self._counted = (self.acknowledged, None)


class Asking(Beside):
    """Asks over HTTP again and again, each time over a new connection.

    `away` counts the connections that were refused, reset or never answered. `faults` are answers
    that are errors, mix several states, or go back. `answers` counts the other answers.
    """

    def __init__(self, bed: Testbed) -> None:
        super().__init__()
        self._store = bed.store
        self._seen: dict[tuple[str, int], int] = {}
        self._generation = 0
        self.answers = 0
        self.away = 0
        self.faults: list[str] = []

    def go_on(self) -> None:
        url = served_at(self._store)
        if url is None:
            self.away += 1
            return
        request = Request(
            f"{url}/api/v1/query", QUESTION.encode(), {"Content-Type": "application/sql"}
        )
        try:
            with urlopen(request, timeout=_ANSWER_SECONDS) as answered:
                answer = json.loads(answered.read())
        except HTTPError as error:
            told = error.read().decode(errors="replace")
            self.faults.append(f"error: {datetime.now(UTC).isoformat()} {error.code} {told[:500]}")
        except (URLError, OSError, http.client.HTTPException):
            self.away += 1
        else:
            self._look(answer)
            self.answers += 1

    def _look(self, answer: dict[str, Any]) -> None:
        by_customer, by_item, log, bought, titled, known = answer["rows"][0].values()
        if not (by_item == log and titled == known and by_customer in {log, bought}):
            self.faults.append(f"mixed: {answer}")
        generation = answer["generation"]
        if generation < self._generation:
            self.faults.append(f"backward: generation {generation} after {self._generation}")
        self._generation = generation
        for topic, parts in answer["builds"]["shop"]["offsets"].items():
            for partition, offset in parts.items():
                place = topic, int(partition)
                if offset < self._seen.get(place, 0):
                    self.faults.append(f"backward: {place} {offset} after {self._seen[place]}")
                self._seen[place] = offset
