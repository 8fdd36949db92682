"""A pipeline for tests with a table of each kind, its records, and its tables' right content."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from builds import Project
from msgspec.structs import replace

from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.relations import put_tables
from kappa.state.build import read_birth
from kappa.state.frontier import Frontier

OUTPUTS = {"totals": "kind string, n bigint, at timestamp, who int", "all": "kind string, n bigint"}


def source(name: str) -> str:
    return f"""
        from pyspark.sql import SparkSession

        from kappa import Table, Topic, count, max_, pipeline, sum_

        EVENTS = Topic(
            "{name}.events", partitions=3, \
event="id string, kind string, n bigint, at timestamp, who int, sent timestamp",
            event_time="sent", lateness="1 hour", identity="id", identity_horizon="1 day",
        )
        PEOPLE = Topic("{name}.people", kind="compacted", partitions=2, key="id", \
event="id int not null, name string")

        @pipeline(
            reads={{"events": EVENTS, "people": PEOPLE}},
            writes=[Table("totals", keys=("kind",), \
fold={{"rows": count(), "n": sum_("n"), "last": max_("at")}}), Table("all"), \
Table("people", latest=PEOPLE)],
        )
        def counted(events):
            assert SparkSession.getActiveSession() is not None, "whoever folds has the session"
            return {{"totals": events.select("kind", "n", "at", "who"), \
"all": events.select("kind", "n")}}
    """


class Story:
    """The records of one test's topics, and the content that the tables should have."""

    def __init__(self, log: Log, name: str, seed: int = 1) -> None:
        self._log = log
        self._name = name
        self._draw = random.Random(seed)
        self.events: list[tuple[str | None, int | None]] = []
        self.people: dict[int, str | None] = {}
        self.rejects = self.late = self.duplicates = 0
        self._sent: list[ProducedRecord] = []

    def produce(self, count: int, *, into: Sequence[int] = ()) -> None:
        """Produces events (some late, some sent twice), people, and invalid records.

        With `into`, events are sent only to these partitions, and each of these partitions gets
        some.
        """
        events: list[ProducedRecord] = []
        people: list[ProducedRecord] = []
        for _ in range(count):
            if self._sent and not into and self._draw.random() < 0.15:
                # Some were folded by an earlier job: the job of now reads their identities back.
                self.duplicates += 1
                events.append(self._draw.choice(self._sent))
            elif self._draw.random() < 0.1:
                self.rejects += 1
                events.append(
                    ProducedRecord(self._draw.choice([b"{", b'{"n": "x"}', None]), key=b"r")
                )
            elif self._draw.random() < 0.2:
                # A key's records are in one partition, in the order they were sent.
                who, name = self._draw.randrange(20), self._draw.choice([None, "Ä", "b"])
                self.people[who] = name
                people.append(
                    ProducedRecord(
                        None if name is None else json.dumps({"id": who, "name": name}).encode(),
                        key=str(who).encode(),
                    )
                )
            else:
                kind, n = (
                    self._draw.choice([None, "a", "b", "Ü"]),
                    self._draw.choice([None, 1, 2**40, -5]),
                )
                events.append(self._event(kind, n, late=self._draw.random() < 0.05))
        if into:
            events = [
                replace(each, partition=partition)
                for each, partition in zip(events, cycle(into), strict=False)
            ]
        self._log.produce(events, f"{self._name}.events")
        self._log.produce(people, f"{self._name}.people")

    def _event(self, kind: str | None, n: int | None, *, late: bool) -> ProducedRecord:
        number, now_ms = self._draw.randrange(2**60), int(time.time() * 1000)
        value = {
            "id": f"{number}",
            "kind": kind,
            "n": n,
            "at": 1_700_000_000_000 + number % 1000,
            "sent": now_ms - (2 * 3_600_000 if late else 0),
        }
        # The key puts a record that is sent again into the same partition.
        record = ProducedRecord(json.dumps(value).encode(), key=f"{number}".encode())
        if late:
            self.late += 1
            self.rejects += 1
        else:
            self.events.append((kind, n))
            self._sent.append(record)
        return record

    def expected(self) -> dict[str, Any]:
        totals: dict[str | None, list[int]] = defaultdict(lambda: [0, 0])
        for kind, n in self.events:
            totals[kind][0] += 1
            totals[kind][1] += n or 0
        return {
            "totals": {kind: tuple(values) for kind, values in totals.items()},
            "all": Counter(self.events),
            "people": {who: name for who, name in self.people.items() if name is not None},
            "rejects": self.rejects,
        }


def served(project: Project, build: str, frontier: Frontier) -> dict[str, Any]:
    """Reads the build's tables at a frontier, as readers see them."""
    with open_reader(None, served=True) as reader:
        put_tables(reader, "it", read_birth(project.store, build), frontier, project.store)
        return {
            "totals": {
                kind: (count, n or 0)
                for kind, count, n in reader.rows("select kind, rows, n from it.totals").rows
            },
            "all": Counter(
                (kind, n) for kind, n in reader.rows('select kind, n from it."all"').rows
            ),
            "people": dict(reader.rows("select id, name from it.people").rows),
            "rejects": len(reader.rows("select 1 from it.rejects").rows),
        }
