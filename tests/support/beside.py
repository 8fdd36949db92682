"""A producer and a client of HTTP that go on beside a platform whose processes are killed.

What is killed costs them time, and nothing else: they connect again, and count how often.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from reading import QUESTION
from testbed import Testbed

from kappa.base.errors import KappaError
from kappa.base.settings import load_settings
from kappa.log.client import Log
from kappa.log.producer import ProducedRecord
from replay.status.running import running, served_at

# Topic and record, for each turn of a producer.
Records = Callable[[int], Iterator[tuple[str, ProducedRecord]]]
# Each turn is a slice for each job: more often would leave them no core.
_TURN_SECONDS = 2.0
_REST_SECONDS = 1.0
# A server that was stopped for longer is away.
_ANSWER_SECONDS = 60.0


class _Beside(threading.Thread):
    """A thread that goes on until it is asked to end; `failed` is what it died of."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ends = threading.Event()
        self.failed: Exception | None = None

    def run(self) -> None:
        try:
            while not self.ends.is_set():
                self.go_on()
        except Exception as error:  # noqa: BLE001  # whatever it is, the test is told
            self.failed = error

    def go_on(self) -> None:
        raise NotImplementedError


_Thread = TypeVar("_Thread", bound=_Beside)


@contextmanager
def beside(thread: _Thread) -> Iterator[_Thread]:
    """Runs it within the block. Asserts that it lived to the end."""
    thread.start()
    try:
        yield thread
    finally:
        thread.ends.set()
        thread.join()
    assert thread.failed is None, thread.failed


class Producing(_Beside):
    """Produces turn after turn; what was under way when a broker was killed may be missing."""

    def __init__(self, bed: Testbed, records: Records) -> None:
        super().__init__()
        self._settings = load_settings(bed.folder)
        self._records = records
        self._turns = itertools.count()
        self.acknowledged = 0
        self.outages = 0

    def go_on(self) -> None:
        found = running(self._settings)
        if found is None:
            self.ends.wait(_REST_SECONDS)
            return
        began = self.acknowledged
        try:
            with Log(found.bootstrap_servers).producer() as producer:
                while not self.ends.wait(_TURN_SECONDS):
                    for topic, record in self._records(next(self._turns)):
                        producer.send(topic, record)
                    self.acknowledged = began + producer.flush().count
        except KappaError:
            self.outages += 1


class Asking(_Beside):
    """Asks over HTTP again and again, and connects anew each time.

    `away` counts the connections that were refused, reset or never answered; `faults` are answers
    that are errors, mixed, or of what was before. `answers` counts the others.
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
        self.ends.wait(_REST_SECONDS)
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
            self.faults.append(f"error: {time.strftime('%X')} {error.code} {told[:500]}")
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
