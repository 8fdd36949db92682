"""A sink's topic has the served rows, change set by change set, whatever dies in between.

This also holds for a topic with another format than JSON.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker_options import set_topic_options
from changing import ChangingWorld
from examples import examples
from losing import Restarted
from sinking import (
    courier,
    cursor_of,
    ensure_has_all,
    ensure_sent_once,
    records_of,
    rows_of_topic,
    served_records,
    wait_for,
)

from kappa import Avro, Csv, Topic
from kappa.declare.sink import SinkBirth, SinkFormat
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.records.record import RecordReader
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.sinks.sink_position import SinkPosition
from kappa.serving.outlets.sinks.sink_status import read_sink_state
from kappa.serving.outlets.sinks.sink_topic import CURSOR
from kappa.state.store import Store

pytestmark = pytest.mark.jvm

FAILPOINTS = (
    *("sink.before_topic", "sink.after_topic", "sink.before_begin", "sink.after_begin"),
    *("sink.before_position", "sink.after_position", "sink.before_commit", "sink.after_commit"),
    *("sink.before_release", "sink.after_release", "lease.before_put", "lease.after_put"),
)

RunCourier = Callable[..., AbstractContextManager["subprocess.Popen[bytes]"]]
OpenWorld = Callable[..., ChangingWorld]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def sink(topic_name: str) -> SinkBirth:
    return SinkBirth(topic_name, "totals")


@pytest.fixture
def open_world(root: Path) -> Iterator[OpenWorld]:
    """Yields a function that makes worlds with these sinks; they are closed at the end."""
    with ExitStack() as opened:

        def open_one(seed: int, *sinks: tuple[SinkBirth, ...]) -> ChangingWorld:
            world = ChangingWorld(Store(root), seed, *sinks, now=time.time())
            return opened.enter_context(closing(world))

        yield open_one


@pytest.fixture
def world(open_world: OpenWorld, sink: SinkBirth) -> ChangingWorld:
    made = open_world(7, (sink,))
    made.fold()
    return made


@pytest.fixture
def run_courier(tmp_path: Path, root: Path, broker: Broker) -> RunCourier:
    return partial(courier, tmp_path, root, broker.bootstrap_servers)


def error_of(world: ChangingWorld, sink: SinkBirth) -> str:
    return getattr(read_sink_state(world.store, sink.topic), "error", "")


@pytest.mark.law
def test_a_topic_follows_slices_promotes_and_undos_and_nothing_is_sent_twice(
    log: Log, run_courier: RunCourier, world: ChangingWorld, sink: SinkBirth
) -> None:
    with run_courier():
        ensure_has_all(log, world.store, sink)
        for step in range(examples(12).max_examples):
            world.fold()
            if step % 3 == 2:
                world.serve(1 - world.builds.index(world.live), asked=step % 2 == 0)
            if step % 4 == 3:
                for build in world.builds:
                    build.keep_up()
            ensure_has_all(log, world.store, sink)
        # Two switches at once: what is between them may be skipped, and no row is.
        world.serve(1 - world.builds.index(world.live), asked=False)
        world.serve(1 - world.builds.index(world.live), asked=True)
        world.fold()
        ensure_has_all(log, world.store, sink)

        def has_counted() -> bool:
            state = read_sink_state(world.store, sink.topic)
            sent = 0 if state is None else state.written + state.deleted
            return sent == len(records_of(log, sink.topic))

        wait_for(has_counted, "the counts")

    cursors = ensure_sent_once(log, sink.topic)
    assert len({cursor.split(".")[0] for cursor in cursors}) > 3


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_courier_that_is_killed_anywhere_leaves_no_gap_and_sends_nothing_twice(
    log: Log, run_courier: RunCourier, world: ChangingWorld, sink: SinkBirth
) -> None:
    for name in FAILPOINTS:
        with run_courier(fail=f"{name}:kill") as dying:
            while dying.poll() is None:
                world.fold()
                if world.draw.random() < 0.2:
                    world.serve(1 - world.builds.index(world.live), asked=True)
                # What a reader sees meanwhile is whole: each change set is in it or not.
                ensure_sent_once(log, sink.topic)
            assert dying.wait() == -9, name
    with run_courier():
        world.fold()
        ensure_has_all(log, world.store, sink)

    ensure_sent_once(log, sink.topic)


@pytest.mark.long
def test_a_part_of_a_table_is_sent_and_another_part_is_compared(
    log: Log, run_courier: RunCourier, topic_name: str, open_world: OpenWorld
) -> None:
    part = SinkBirth(topic_name, "totals", columns=("rows",), where="rows > 2")
    other = SinkBirth(topic_name, "totals", columns=("rows",))
    world = open_world(3, (part,), (other,))
    with run_courier():
        for _ in range(8):
            world.fold()
            ensure_has_all(log, world.store, part)
        before = len(records_of(log, topic_name))
        # The other build has other rows, and so does its sink.
        world.serve(1, asked=False)
        ensure_has_all(log, world.store, other)
        after = records_of(log, topic_name)[before:]
        assert {cursor_of(record).split(".")[0] for record in after} == {"2"}
    ensure_sent_once(log, topic_name)


@pytest.mark.long
def test_a_sink_ends_with_a_version_that_has_none_and_goes_on_with_an_undo(
    log: Log, run_courier: RunCourier, sink: SinkBirth, open_world: OpenWorld
) -> None:
    world = open_world(5, (sink,), ())
    with run_courier():
        world.fold()
        ensure_has_all(log, world.store, sink)
        there = records_of(log, sink.topic)
        world.serve(1, asked=False)
        world.fold()
        wait_for(lambda: getattr(read_sink_state(world.store, sink.topic), "state", "") == "ended")
        assert records_of(log, sink.topic) == there
        world.serve(0, asked=True)
        ensure_has_all(log, world.store, sink)
    ensure_sent_once(log, sink.topic)


@pytest.mark.long
def test_a_broker_that_is_away_is_told_of_and_the_sink_goes_on_when_it_is_back(
    kafka: Restarted, world: ChangingWorld, sink: SinkBirth, tmp_path: Path, root: Path
) -> None:
    with courier(tmp_path, root, kafka.broker.bootstrap_servers):
        ensure_has_all(kafka.log, world.store, sink)
        kafka.broker.stop()
        world.fold()
        wait_for(lambda: "no Kafka broker answers" in error_of(world, sink), "the broker's error")
        world.serve(1, asked=False)
        world.fold()
        kafka.start()
        ensure_has_all(kafka.log, world.store, sink)
        wait_for(lambda: not error_of(world, sink), "the end of the error")

    ensure_sent_once(kafka.log, sink.topic)


@pytest.mark.long
def test_a_topic_that_was_deleted_is_made_again_with_all_rows(
    log: Log, run_courier: RunCourier, world: ChangingWorld, sink: SinkBirth
) -> None:
    with run_courier():
        ensure_has_all(log, world.store, sink)
        before = log.must_have(sink.topic).id
        # The courier may make it again before anybody has seen that it is gone.
        log.admin.delete_topics([sink.topic])[sink.topic].result(60)
        world.fold()
        wait_for(lambda: getattr(log.facts(sink.topic), "id", before) != before, "another topic")
        ensure_has_all(log, world.store, sink)
    ensure_sent_once(log, sink.topic)
    assert log.config(sink.topic)["cleanup.policy"] == "compact"


def let_go_of_leases(world: ChangingWorld) -> None:
    """Releases all leases that cursors need, and folds further."""
    for name in world.store.names("leases"):
        world.store.delete(name)
    for _ in range(6):
        world.fold()
        for build in world.builds:
            build.keep_up()


@pytest.mark.long
def test_a_position_that_is_lost_or_too_old_is_made_good_by_what_differs_alone(
    log: Log, run_courier: RunCourier, world: ChangingWorld, sink: SinkBirth
) -> None:
    with run_courier():
        for _ in range(4):
            world.fold()
        ensure_has_all(log, world.store, sink)
    before = records_of(log, sink.topic)
    let_go_of_leases(world)
    there, wanted = rows_of_topic(log, sink.topic), served_records(world.store, sink.of)
    differing = {key for key in {*there, *wanted} if there.get(key) != wanted.get(key)}
    with run_courier():
        ensure_has_all(log, world.store, sink)

    after = records_of(log, sink.topic)[len(before) :]
    assert {(record.key or b"").decode() for record in after} == differing
    assert len({cursor_of(record) for record in after}) == 1


def test_forged_records_are_made_good_with_the_next_comparison_and_told(
    log: Log, run_courier: RunCourier, world: ChangingWorld, sink: SinkBirth, root: Path
) -> None:
    with run_courier():
        world.fold()
        ensure_has_all(log, world.store, sink)
    first, second, *_ = (key.encode() for key in sorted(rows_of_topic(log, sink.topic)))
    forged = [
        ProducedRecord(b"forged", key=first),
        ProducedRecord(None, key=second),
        ProducedRecord(b"more", key=b"nobody's"),
        ProducedRecord(b"as ours", key=b"other's", headers=((CURSOR, b"9.other-1.7"),)),
    ]
    log.produce(forged, sink.topic)
    before = len(records_of(log, sink.topic))
    # The position is gone, so that the topic is compared.
    let_go_of_leases(world)
    with run_courier():
        ensure_has_all(log, world.store, sink)

    after = records_of(log, sink.topic)[before:]
    assert {first, second, b"nobody's", b"other's"} <= {record.key for record in after}
    assert len({record.key for record in after}) == len(after)
    said = (root / "courier.log").read_text()
    assert f"sink {sink.topic}: 2 rows that no sink has written are made good" in said


@pytest.mark.parametrize("text", ["[" * 4_000, '{"cursor": {}}', "[]", "5", '{"cursor": "1"}', ""])
def test_a_forged_position_is_none(text: str) -> None:
    assert SinkPosition.parse(text) is None


@pytest.mark.parametrize(
    ("policy", "filled", "said"),
    [
        ("delete", False, "has cleanup.policy=delete: rows would be deleted by their age"),
        ("compact", True, "has records that no sink has written"),
    ],
)
def test_a_topic_that_is_not_the_sinks_is_refused_and_others_go_on(
    log: Log,
    run_courier: RunCourier,
    sink: SinkBirth,
    open_world: OpenWorld,
    policy: str,
    filled: bool,
    said: str,
) -> None:
    kind = "retained" if policy == "delete" else "compacted"
    log.create(Topic(sink.topic, event="k string", key="k", kind=kind))
    if filled:
        log.produce([ProducedRecord(b"1", key=b"a")], sink.topic)
    other = SinkBirth(f"{sink.topic}.other", "newest")
    world = open_world(5, (sink, other))
    world.fold()
    with run_courier():
        wait_for(lambda: said in error_of(world, sink), said)
        ensure_has_all(log, world.store, other)
    assert len(records_of(log, sink.topic)) == int(filled)


def test_a_row_that_is_too_large_is_named_and_sent_once_it_fits(
    log: Log, broker: Broker, run_courier: RunCourier, sink: SinkBirth, open_world: OpenWorld
) -> None:
    few = {"max.message.bytes": "512"}
    log.create(Topic(sink.topic, event="k string", key="k", kind="compacted", config=few))
    world = open_world(5, (sink,))
    world.fold()
    with run_courier():
        wait_for(lambda: "table totals: the row of key" in error_of(world, sink))
        assert records_of(log, sink.topic) == []
        set_topic_options(broker.bootstrap_servers, sink.topic, {"max.message.bytes": "100000"})
        ensure_has_all(log, world.store, sink)


COLUMNS = ("rows", "least")
FORMATS: Mapping[str, Any] = {
    "csv": Csv(separator=";"),
    "avro": Avro("tests/data/totals.avsc"),
}


def rows_read(log: Log, topic: Topic) -> dict[bytes | None, Any]:
    """Returns the newest row of each key of a topic, as a pipeline reads it."""
    read = RecordReader(topic).read
    rows: dict[bytes | None, Any] = {}
    for record in records_of(log, topic.name):
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = read(record.key, record.value)
    return rows


@pytest.mark.long
@pytest.mark.parametrize("name", FORMATS)
def test_a_topic_of_the_format_has_what_is_served(
    name: str, log: Log, run_courier: RunCourier, topic_name: str, open_world: OpenWorld
) -> None:
    form = FORMATS[name]
    text = SinkFormat.from_declared(form).text
    sink = SinkBirth(topic_name, "totals", columns=COLUMNS, format=text)
    topic = Topic(topic_name, event="k string, rows bigint, least double", format=form)
    world = open_world(7, (sink,))

    def has_served() -> bool:
        if log.facts(topic_name) is None:
            return False
        served = served_records(world.store, "totals", Filter(COLUMNS))
        wanted = {key.encode(): tuple(json.loads(row).values()) for key, row in served.items()}
        return rows_read(log, topic) == wanted

    with run_courier():
        for step in range(6):
            world.fold()
            if step % 3 == 2:
                world.serve(1 - world.builds.index(world.live), asked=step % 2 == 0)
            wait_for(has_served, f"topic {topic_name}")
    assert len(records_of(log, topic_name)) > 5
