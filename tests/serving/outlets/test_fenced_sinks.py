"""A fenced sink sends nothing in parallel with the other sink, and does not wait for ever."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import pytest
from changing import ChangingWorld
from confluent_kafka import Producer
from sinking import ensure_has_all, ensure_sent_once, records_of, running_outlet, wait_for

from kappa.declare.sink import SinkBirth
from kappa.kafka import transactions
from kappa.kafka.client import Log
from kappa.kafka.transactions import Transactions
from kappa.serving.outlets.sinks import sink_outlet
from kappa.serving.outlets.sinks.sink_outlet import SinkContext, SinkOutlet
from kappa.serving.outlets.sinks.sink_status import read_sink_state
from kappa.state.store import Store

pytestmark = [pytest.mark.long, pytest.mark.jvm]


class World(Protocol):
    """A platform, of which a sink needs only the store."""

    store: Store


@pytest.fixture
def sink(topic_name: str) -> SinkBirth:
    return SinkBirth(topic_name, "totals")


@pytest.fixture
def worlds(tmp_path: Path, sink: SinkBirth) -> Iterator[list[ChangingWorld]]:
    """Yields two platforms with the same sink."""
    with ExitStack() as stack:
        found = []
        for seed, prefix in ((7, "one"), (8, "other")):
            store = Store(tmp_path / prefix)
            world = ChangingWorld(store, seed, (sink,), now=time.time(), prefix=prefix)
            found.append(stack.enter_context(closing(world)))
            world.fold()
        yield found


def running(
    world: World, log: Log, sink: SinkBirth, *, writer: str = "", before: tuple[str, ...] = ()
) -> AbstractContextManager[SinkOutlet]:
    means = SinkContext(world.store, log, 3600.0, writer=writer, before=frozenset(before))
    return running_outlet(SinkOutlet(means, sink.topic))


def state_of(world: World, sink: SinkBirth) -> str:
    return getattr(read_sink_state(world.store, sink.topic), "state", "")


def test_a_sink_sends_nothing_more_once_another_platform_has_sent(
    log: Log, worlds: list[ChangingWorld], sink: SinkBirth, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = worlds
    monkeypatch.setattr(sink_outlet, "_FENCED_SECONDS", 0.2)
    looks: list[bool] = []
    with running(one, log, sink) as fenced:
        ensure_has_all(log, one.store, sink)
        look = fenced._is_topic_free
        monkeypatch.setattr(fenced, "_is_topic_free", lambda: looks.append(look()) or looks[-1])
        with running(other, log, sink):
            ensure_has_all(log, other.store, sink)
            there = len(records_of(log, sink.topic))

            def has_looked() -> bool:
                one.fold()
                return len(looks) > 3

            wait_for(has_looked, "the fenced sink to look")
            assert len(records_of(log, sink.topic)) == there
            other.fold()
            ensure_has_all(log, other.store, sink)
            assert (state_of(one, sink), state_of(other, sink)) == ("fenced", "follows")
    assert not any(looks)
    ensure_sent_once(log, sink.topic)


def test_an_adopted_copy_that_may_send_takes_the_topic_from_the_first_root_for_good(
    log: Log, worlds: list[ChangingWorld], sink: SinkBirth, tmp_path: Path
) -> None:
    """Both roots have the same builds; the writer's name distinguishes their positions."""
    first, _ = worlds
    copy = SimpleNamespace(store=Store(shutil.copytree(first.store.folder, tmp_path / "copy")))
    first.fold()
    with running(first, log, sink) as outlet:
        ensure_has_all(log, first.store, sink)
        # Up, and not let: it neither fences the first one nor sends.
        with running(copy, log, sink, writer="copy"):
            wait_for(lambda: state_of(copy, sink) == "retries", "the refusal")
            first.fold()
            ensure_has_all(log, first.store, sink)

        with running(copy, log, sink, writer="copy", before=("",)):
            ensure_has_all(log, copy.store, sink)
            first.fold()
            wait_for(lambda: state_of(first, sink) == "fenced", "the first one's end")
            assert not outlet._is_topic_free()
    with running(first, log, sink):
        wait_for(lambda: state_of(first, sink) == "retries", "its next courier's refusal")
        state = read_sink_state(first.store, sink.topic)
        assert state is not None
        assert state.error == f"topic {sink.topic} is written by another root, copy"
    ensure_has_all(log, copy.store, sink)


def test_a_sink_that_was_fenced_by_a_courier_that_died_goes_on(
    log: Log, worlds: list[ChangingWorld], sink: SinkBirth, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = worlds
    monkeypatch.setattr(sink_outlet, "_FENCED_SECONDS", 3.0)
    with running(world, log, sink) as outlet:
        ensure_has_all(log, world.store, sink)
        with running(world, log, sink):

            def is_fenced() -> bool:
                world.fold()
                # Both write one state.
                return outlet._state.state == "fenced"

            wait_for(is_fenced, "one to be fenced")
        world.fold()
        ensure_has_all(log, world.store, sink)
    ensure_sent_once(log, sink.topic)


def test_a_transaction_that_took_too_long_fences_no_sink_for_ever(
    log: Log, worlds: list[ChangingWorld], sink: SinkBirth, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, _ = worlds
    monkeypatch.setattr(sink_outlet, "_FENCED_SECONDS", 0.2)
    sent = Transactions._wait_for_records
    stalled = threading.Event()

    def impatient(options: dict[str, object]) -> Producer:
        short = {"transaction.timeout.ms": "1000", "message.timeout.ms": "1000"}
        return Producer(options if stalled.is_set() else {**options, **short})

    monkeypatch.setattr(transactions, "Producer", impatient)

    def late(self: Transactions) -> None:
        sent(self)
        if not stalled.is_set():
            stalled.set()
            # The broker looks for such transactions every ten seconds.
            threading.Event().wait(25)

    monkeypatch.setattr(Transactions, "_wait_for_records", late)
    may_look = threading.Event()
    with running(world, log, sink) as outlet:
        look = outlet._is_topic_free
        monkeypatch.setattr(outlet, "_is_topic_free", lambda: may_look.is_set() and look())
        wait_for(lambda: state_of(world, sink) == "fenced", "the sink to be fenced")
        assert records_of(log, sink.topic) == []
        may_look.set()
        ensure_has_all(log, world.store, sink)
    ensure_sent_once(log, sink.topic)
