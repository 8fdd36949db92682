"""Tests of pipelines: events by hand or at random, and the law of slices, without a broker.

    from kappa.testing import law_of_slices, some_events

    def test_the_law_of_slices():
        law_of_slices(flights, some_events(flights, 200))

The law is about any cut of the log into contiguous slices. Folding them one after the other gives
the same tables as one slice of the whole log. So a replay in large slices equals a tail in small
ones. It runs on a Spark in this process (engine/children/rehearsal.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.engine.children.rehearsal import MemoryLog, local_pipeline
from kappa.engine.children.slicings import LawBroken, hold_to_law
from kappa.values.columns import INTEGERS, Scalar
from kappa.values.some_value import some_of_schema, some_value

__all__ = ["Event", "LawBroken", "law_of_slices", "some_events"]

# A slice per event of more than so many would take minutes.
_MOST_SLICES = 64
_BEGAN = 1_700_000_000_000
# Milliseconds that pass before an event where a step is woken on time.
_LEAPS = (0, 0, 0, 60_000, 3_600_000, 86_400_000)


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a topic: a mapping is sent as JSON, bytes as they are, None is a tombstone.

    It has a `value`, a `key`, a `partition`, a `timestamp_ms` since 1970, and `headers`.

    Example:
        Event({"visitor": "ann", "ms": 3}, key="ann", headers=[("trace", b"7")])
    """

    value: Mapping[str, Any] | bytes | None
    key: bytes | str | None = None
    partition: int = 0
    timestamp_ms: int = 1_700_000_000_000
    headers: Sequence[tuple[str, bytes | None]] = ()


def some_events(pipeline: Pipeline, count: int, *, seed: int = 0) -> dict[str, list[Event]]:
    """Draws `count` random events of each topic that a pipeline reads, in the topic's order.

    Nulls, extremes, invalid records and tombstones are among them; values are few, so that keys
    repeat. Fields with a default may be missing, and fields may have names they had. A `pattern` is
    met only by chance: give such a property an `enum` or a `default` too, or write its events by
    hand. Some events are late if a topic declares lateness. Some are repeated, within the horizon
    and after it, if it declares an identity. Hours and days pass between some if a step is woken on
    time. The same `seed` draws the same events.

    Example:
        events = some_events(web, 20, seed=7)
        events["visits"].append(Event({"visitor": "ann", "ms": 3}, key="ann"))
    """
    draw = random.Random(seed)  # noqa: S311  # the same events again, and no secret
    leaps = _LEAPS if any(each.ordered and each.ordered.on_time for each in pipeline.tables) else ()
    return {topic.name: _some_events(topic, draw, count, leaps) for topic in pipeline.topics}


def law_of_slices(
    pipeline: Pipeline, events: Mapping[str, Iterable[Event]], *, cuts: int = 6, seed: int = 0
) -> None:
    """Checks the law of slices for a pipeline on these events, given per topic in their order.

    It tries a slice per event (at most 64), `cuts` random cuts with empty and with repeated slices,
    and each way of computing a slice. Raises LawBroken with the smallest cut found and the rows
    that differ. Raises DeclarationError if the function is none of a pipeline, and UsageError if
    there are no events, or none is valid. The same `seed` draws the same cuts.

    Example:
        law_of_slices(web, some_events(web, 6), cuts=2)
    """
    log = MemoryLog()
    for topic, found in events.items():
        if topic not in {each.name for each in pipeline.topics}:
            raise UsageError(
                f"pipeline {pipeline.name} reads no topic {topic}",
                hint=f"it reads {', '.join(each.name for each in pipeline.topics)}",
            )
        for event in found:
            log.add(
                topic,
                event.partition,
                _bytes(event.value),
                key=_bytes(event.key),
                ms=event.timestamp_ms,
                headers=event.headers,
            )
    if not log.records:
        raise UsageError(
            f"pipeline {pipeline.name} is held to the law of slices on no events",
            hint=f"some at random: some_events({pipeline.name}, 200)",
        )
    with local_pipeline(pipeline) as local:
        held = hold_to_law(local, log, cuts=cuts, most_slices=_MOST_SLICES, seed=seed)
    rejected = held.rejected
    if rejected.total() == len(log.records):
        why = ", ".join(f"{reason} {count}" for reason, count in rejected.most_common())
        raise UsageError(
            f"none of the {len(log.records)} events is valid, "
            f"so nothing was held to the law: {why}",
            hint="send them as their topics declare them, keys too",
        )


def _bytes(value: Any) -> bytes | None:
    """Encodes a value as it is sent: bytes and text as they are, all else as JSON."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case _:
            return json.dumps(value, ensure_ascii=False).encode()


def _some_events(
    topic: Topic, draw: random.Random, count: int, leaps: Sequence[int]
) -> list[Event]:
    events: list[Event] = []
    began = _BEGAN
    for number in range(count):
        began += draw.choice(leaps) if leaps else 0
        event = _some_event(topic, draw, number, began)
        if topic.needs_brokers_time:
            event = _appended(topic, draw, number, began, event)
        sent = (
            [each for each in events[-8:] if isinstance(each.value, Mapping)]
            if topic.identity
            else []
        )
        if sent and draw.random() < 0.4:
            # A producer's retry of an event; or another event of the same identity.
            again = draw.choice(sent)
            event = replace(
                again,
                timestamp_ms=event.timestamp_ms,
                value=draw.choice([again.value, _timed(topic, again.value, event.timestamp_ms)]),
            )
        events.append(event)
    return events


def _appended(topic: Topic, draw: random.Random, number: int, began: int, event: Event) -> Event:
    """Gives an event a rising timestamp, an event time near it, and an identity of its own.

    The timestamps pass a horizon every few events.
    """
    clock = began + number * topic.identity_horizon_ms // 6 + draw.choice([0, 1, -1000])
    if not isinstance(event.value, Mapping):
        return replace(event, timestamp_ms=clock)
    lateness = topic.lateness_ms or 0
    value = dict(
        _timed(topic, event.value, clock - draw.choice([0, 0, 0, -1000, lateness, lateness + 1]))
    )
    for name in topic.identity:
        if name in value and topic.column(name).type in {Scalar("string"), *map(Scalar, INTEGERS)}:
            value[name] = (
                f"{number}" if topic.column(name).type == Scalar("string") else number % 128
            )
    if topic.key is None or topic.key not in value:
        return replace(event, value=value, timestamp_ms=clock)
    key = _bytes(value[topic.key])
    return replace(
        event, value=value, key=key, partition=_partition(key, topic), timestamp_ms=clock
    )


def _timed(topic: Topic, value: Any, event_time_ms: int) -> Any:
    """Returns the same event at another event time, if it has one."""
    return (
        {**value, topic.event_time: event_time_ms}
        if isinstance(value, Mapping) and topic.event_time in value
        else value
    )


def _partition(key: bytes | None, topic: Topic) -> int:
    """Returns the one partition of a key, as a producer chooses it."""
    return sum(key or b"") % topic.partitions


def _some_event(topic: Topic, draw: random.Random, number: int, began: int) -> Event:
    partition, clock = (
        draw.randrange(topic.partitions),
        began + number * draw.choice([0, 1, 1000]),
    )
    if draw.random() < 0.05:
        return Event(
            draw.choice([b"", b"{", b"[]", b"\xff", b'{"a": 1, "a": 2}']),
            partition=partition,
            timestamp_ms=clock,
        )
    places = (
        {} if topic.schema is None else {field.name: field.place for field in topic.schema.fields}
    )
    needed = {
        column.name
        for column in topic.columns
        if not (column.nullable or column.default is not None) or column.name == topic.key
    }
    needed |= (
        set()
        if topic.schema is None
        else {field.name for field in topic.schema.fields if field.required}
    )
    present = [column for column in topic.columns if column.name in needed or draw.random() < 0.8]
    values = {
        column.name: some_value(column.type, draw)
        if column.name not in places
        else some_of_schema(places[column.name], draw)
        for column in present
    }
    # An event from before a renaming has the field's old name.
    value = {
        draw.choice([column.name, *column.was]) if column.was else column.name: values[column.name]
        for column in present
    }
    key = None if topic.key is None else _bytes(values[topic.key])
    partition = partition if key is None else _partition(key, topic)
    return Event(
        None if key is not None and draw.random() < 0.1 else value,
        key=key,
        partition=partition,
        timestamp_ms=clock,
    )
