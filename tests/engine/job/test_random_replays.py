"""Replays of one log, cut and killed at random, give one hash (I1, I6, I7).

So does one slice that Spark computes as a batch. The log has the difficult cases: duplicates, late
and malformed records, aborted transactions, and a compacted topic that the broker's cleaner has
really cleaned.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import pytest
from broker_options import clean_eagerly
from builds import Project, interpreted
from confluent_kafka import Producer
from house import SUPPORT

from kappa.base.process import ensure_session_gone, start_tied
from kappa.declare.values.tally import Tally
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.replay.rollout.prove.prove import Compared, compare_tables, hash_before
from kappa.serving.query.query import connect_pair
from kappa.state.build import Birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.slices import Cuts, put_cuts, random_ends
from kappa.state.store import Store

pytestmark = [pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(3600)]

_PATIENCE_SECONDS = 180.0
_FEW = 2
# Every slice passes these; the others are passed where there is something to do.
_IN_EACH_SLICE = (
    *("job.before_first_commit", "job.between_tables", "job.before_frontier"),
    *("slice.after_begin", "frontier.before_put", "frontier.after_put"),
)
_DEADLY = (
    *_IN_EACH_SLICE,
    *("table.before_commit", "table.after_commit", "table.before_spark_commit"),
    *("table.after_spark_commit", "table.before_rewriting", "table.after_rewriting"),
)
# The kills of each run, each at another place and within so many slices of the one before.
_SURELY = 2
_WITHIN = 3
TOPICS = """
    from datetime import timedelta

    from kappa import ordered
    from kappa import (
        Table, Topic, and_, avg_, count, first, latest, max_, min_, or_, pipeline, sum_
    )

    EVENTS = Topic(
        "{name}.events", partitions=3, key="who",
        event="id string not null, who string not null, n bigint, price decimal(12,3), "
        "ok boolean, at timestamp not null",
        event_time="at", lateness="5 minutes", identity="id",
    )
    THINGS = Topic(
        "{name}.things", kind="compacted", partitions=2, key="id",
        event="id int not null, title string",
    )
"""
PIPELINES = {
    "folds": """
    FOLDS = {
        "rows": count(), "n": sum_("n"), "mean": avg_("n"), "mean_price": avg_("price"),
        "price": sum_("price"), "least": min_("n"), "most": max_("at"), "all_ok": and_("ok"),
        "first": first("id"), "latest": latest("id"),
    }

    TABLES = [
        Table("totals", keys=("who", "ok"), fold=FOLDS), Table("accepted"),
        Table("per_day", keys=("day",), fold={"rows": count()}), Table("things", latest=THINGS),
    ]

    @pipeline(reads={"events": EVENTS, "things": THINGS}, writes=TABLES)
    def folds(events):
        accepted = events.select("id", "n", "price").where("n is not null")
        per_day = events.selectExpr("cast(at as date) as day")
        return {"totals": events, "accepted": accepted, "per_day": per_day}
    """,
    "steps": """
    def watch(state, row):
        if row is None:
            # Silent for five milliseconds.
            yield {"who": state["who"], "id": "silent", "failed": state["failed"]}
            state["wake_at"] = None
            return
        state["wake_at"] = row["_timestamp"] + timedelta(milliseconds=5)
        failed = state["failed"] or 0
        if row["ok"] and failed >= 2:
            yield {"who": row["who"], "id": row["id"], "failed": failed}
        state["failed"] = 0 if row["ok"] else failed + 1
        state["balance"] = max((state["balance"] or 0) + (row["n"] or 0), 0)

    @pipeline(
        reads={"events": EVENTS},
        writes=[
            Table(
                "watched", keys=("who",),
                fold=ordered(
                    watch, state="failed int, balance bigint, wake_at timestamp",
                    emits="breakins", on_time="wake_at",
                ),
            ),
            Table("breakins", emitted="who string, id string, failed int"),
        ],
    )
    def steps(events):
        return {"watched": events}
    """,
}

# What their functions return.
OUTPUTS = {
    "folds": {
        "totals": "*events",
        "accepted": "id string, n bigint, price decimal(12,3)",
        "per_day": "day date",
    },
    "steps": {"watched": "*events"},
}


@dataclass(frozen=True)
class World:
    """Builds that were never folded, and the end of their log."""

    project: Project
    events: str
    births: Mapping[str, Birth]
    end: Offsets

    def ends(self, birth: Birth) -> Offsets:
        return self.end.only(set(birth.topic_ids))


@pytest.fixture(scope="module")
def world(broker: Broker, log: Log, tmp_path_factory: pytest.TempPathFactory) -> World:
    name = f"random.{os.getpid()}"
    project = Project(tmp_path_factory.mktemp("random"), log)
    births = {
        each: project.bear(f"{each}-b", TOPICS.format(name=name) + text, OUTPUTS[each])
        for each, text in PIPELINES.items()
    }
    produce_events(broker, f"{name}.events", random.Random(1))
    produce_things(log, f"{name}.things", random.Random(2))
    return World(project, f"{name}.events", births, log.end([f"{name}.events", f"{name}.things"]))


def produce_events(broker: Broker, topic: str, draw: random.Random) -> None:
    """Produces batches of events, each in a transaction; every fourth one is aborted."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    sent: list[tuple[bytes, bytes]] = []
    for batch in range(24):
        producer.begin_transaction()
        for number in range(12):
            key, value = some_event(draw, f"{batch}.{number}")
            if draw.random() < 0.08 and sent:
                key, value = draw.choice(sent)
            sent.append((key, value))
            producer.produce(topic, value, key=key, partition=sum(key) % 3)
        producer.flush()
        producer.abort_transaction(30) if batch % 4 == 3 else producer.commit_transaction(30)


def some_event(draw: random.Random, name: str) -> tuple[bytes, bytes]:
    who = draw.choice(["ann", "bo", "Ä", "\U0001f600", "dan", ""])
    at = int(time.time() * 1000) - (600_000 if draw.random() < 0.05 else 0)
    event = {
        "id": name,
        "who": who,
        "n": draw.choice([None, -3, 5, 2**40]),
        "price": draw.choice([None, 0.125, -7]),
        "ok": draw.choice([None, True, False, False]),
        "at": at,
    }
    return who.encode(), draw.choice(
        [b"{", b"null", b'{"id": 1}']
    ) if draw.random() < 0.05 else json.dumps(event, ensure_ascii=draw.random() < 0.5).encode()


def produce_things(log: Log, topic: str, draw: random.Random) -> None:
    """Renames and deletes things, until the cleaner has removed the first record."""
    clean_eagerly(log.bootstrap_servers, topic)

    def produce(numbers: Iterable[int]) -> None:
        log.produce(
            (
                ProducedRecord(
                    None
                    if draw.random() < 0.2
                    else json.dumps({"id": n, "title": f"t{draw.random()}"}).encode(),
                    key=str(n).encode(),
                    partition=n % 2,
                )
                for n in numbers
            ),
            topic,
        )

    produce([0, 1, *(draw.randrange(2, 30) for _ in range(80))])
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while {record.offset for record in log.records([topic], Offsets(), log.end([topic]))} >= {0}:
        assert time.monotonic() < deadline, "the cleaner has taken nothing"
        produce([0, 1])
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("replays", "pipelines"),
    [
        # Ordered folds have laws of their own: tests/engine/fold/test_ordered.py.
        pytest.param(_FEW, ["folds"], marks=pytest.mark.sweep),
        pytest.param(50, [*PIPELINES], marks=[pytest.mark.sweep, pytest.mark.timeout(7200)]),
    ],
)
def test_random_replays_of_each_pipeline_give_one_hash(
    world: World,
    replays: int,
    pipelines: Sequence[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    draw = random.Random(replays)
    cuts: dict[Path, Cuts] = {}
    folders: dict[str, list[Path]] = {}
    for name in pipelines:
        birth = world.births[name]
        folders[name] = [tmp_path / f"{name}.{number}" for number in range(replays + 1)]
        for number, folder in enumerate(folders[name]):
            # The first is Lambda's batch layer without a second code: one slice, computed by Spark.
            start, end = birth.origin_offsets, world.ends(birth)
            cuts[folder] = Cuts((end,), 0)
            if number:
                cuts[folder] = some_cuts(start, end, draw, number, many=replays > _FEW)
            put_cuts(Store(folder), cuts[folder])
    order = [folder for all_ in folders.values() for folder in all_]
    if replays == _FEW:
        # Spark's first commit takes longest in a process: a process to be killed must not reach it.
        order.sort(key=lambda folder: -cuts[folder].driver_rows)
    # A replay of so little waits more than it computes: of many, two are folded at a time.
    lots = [order] if replays == _FEW else [order[::2], order[1::2]]

    def replay_lot(lot: list[Path], seed: str) -> list[str]:
        births = {folder: world.births[folder.name.partition(".")[0]] for folder in lot}
        at_least = replays // len(lots)
        return replay(world, births, tmp_path / seed, random.Random(seed), at_least=at_least)

    with ThreadPoolExecutor(len(lots)) as threads:
        killed = [*chain(*threads.map(replay_lot, lots, ["one", "other"]))]

    told = []
    for name, (whole, *others) in folders.items():
        birth = world.births[name]
        found = {folder: ended(folder, birth, world.ends(birth)) for folder in (whole, *others)}
        hashes = set()
        for folder in others:
            tables = compared(birth, (whole, found[whole]), (folder, found[folder]))
            assert [table for table in tables if not table.equal] == [], folder
            assert_adds_up(found[folder])
            # The cleaner goes on taking old records of the compacted topic away.
            assert found[folder].tally[world.events] == found[whole].tally[world.events]
            hashes.add(hash_before(tables))
        assert len(hashes) == 1
        rows = sum(table.difference.rows_before or 0 for table in tables)
        assert rows > 0
        told.append(f"{name}: {rows} rows in {len(tables)} tables, one hash {hashes.pop()[:16]}")
    with capsys.disabled():
        print(
            f"\n{replays} random replays of each of {len(folders)} pipelines, "
            f"{sum(len(each.ends) for each in cuts.values())} slices, {len(killed)} times kill -9 "
            f"at {len(set(killed))} places; {'; '.join(told)}"
        )


def some_cuts(
    start: Offsets, end: Offsets, draw: random.Random, number: int, *, many: bool
) -> Cuts:
    """Cuts at random, and chooses which slices Spark computes: all, the largest ones or none.

    With `many`, there are more slices, and also tiny ones, for runs of hours.
    """
    if many:
        return Cuts(random_ends(start, end, draw, small=20), draw.choice([0, 20, 1_000]))
    ends = random_ends(start, end, draw, most=4)
    largest = max(after.distance(before) for before, after in pairwise([start, *ends]))
    return Cuts(ends, largest - 1 if number == _FEW else 1_000)


def replay(
    world: World, births: Mapping[Path, Birth], scratch: Path, draw: random.Random, *, at_least: int
) -> list[str]:
    """Folds all slices in processes that are killed at random places, until one finishes.

    Returns the places of the kills: at least two, of `at_least` tried.
    """
    killed: list[str] = []
    scratch.mkdir()
    surely = draw.sample(_IN_EACH_SLICE, _SURELY)
    plans = interpreted() if at_least <= _FEW else {}
    command = [
        *(sys.executable, "-P", str(SUPPORT / "refolding.py")),
        *(str(world.project.folder), str(world.project.store.folder)),
    ]
    command += [
        world.project.log.bootstrap_servers,
        str(scratch / "spark"),
        *(f"{birth.build}={folder}" for folder, birth in births.items()),
    ]
    while True:
        # A rare place may not be passed so often any more: then the replay ends unharmed.
        place, passing = (
            (surely[len(killed)], draw.randint(1, _WITHIN))
            if len(killed) < _SURELY
            else (draw.choice(_DEADLY), draw.randint(1, 25))
        )
        deadly = {"KAPPA_FAIL": f"{place}:kill:{passing}"} if len(killed) < at_least else {}
        with (scratch / "said.log").open("wb") as output:
            child = start_tied(
                command, output=output, environment={**os.environ, **plans, **deadly}
            )
        try:
            code = child.wait(_PATIENCE_SECONDS * at_least)
        finally:
            ensure_session_gone(child.pid)
        if code == 0:
            assert len(set(killed)) >= _SURELY
            return killed
        assert code == -signal.SIGKILL, (scratch / "said.log").read_text(
            encoding="utf-8", errors="replace"
        )[-4000:]
        killed.append(place)


def ended(folder: Path, birth: Birth, end: Offsets) -> Frontier:
    reached = Frontiers(Store(folder), birth.build).newest()
    assert reached is not None
    assert reached.offsets.equals(end)
    return reached


def compared(
    birth: Birth, one: tuple[Path, Frontier], other: tuple[Path, Frontier]
) -> tuple[Compared, ...]:
    with connect_pair(
        Store(one[0]), (birth, one[1]), (birth, other[1]), limits=None, after_store=Store(other[0])
    ) as reader:
        return compare_tables(
            reader, birth, unsettled=lambda table: frozenset() if table.latest else None, samples=3
        )


def assert_adds_up(frontier: Frontier) -> None:
    """Asserts I6, and that the log contains all the difficult cases."""
    seen = Tally()
    for topic, partition, end in frontier.offsets.items():
        tally = frontier.tally[topic][partition]
        assert (
            tally.decoded + tally.duplicate + tally.rejected + tally.tombstone + tally.absent == end
        )
        seen += tally
    assert seen.decoded > 100
    assert seen.duplicate > 0
    assert seen.rejected > 0
    assert seen.absent > 100
