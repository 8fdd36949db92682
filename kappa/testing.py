"""What tests of pipelines are made of: events by hand or at random, and the law of slices, on a Spark of this process and no broker.

    from kappa.testing import law_of_slices, some_events

    def test_the_law_of_slices():
        law_of_slices(flights, some_events(flights, 200))

The law: for any cut of the log into contiguous slices, folding them one after the other gives the same tables as one slice
of everything. It is what makes a replay in large slices equal to a tail in small ones. Read next: engine/children/rehearsal.py.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.engine.children.rehearsal import MemoryLog, local_pipeline
from kappa.engine.children.slicings import LawBroken, hold_to_law
from kappa.values.columns import INTEGERS, Array, Decimal, Scalar, Struct, Type
from kappa.values.json_schema import Place
from kappa.values.reason import Rejected
from kappa.values.schema_rules import rule_of

__all__ = ["Event", "LawBroken", "law_of_slices", "some_events"]

# A slice per event of more than so many would take minutes.
_MOST_SLICES = 64


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a topic: a mapping is sent as JSON, bytes as they are, None is a tombstone; headers are names and values."""

    value: Mapping[str, Any] | bytes | None
    key: bytes | str | None = None
    partition: int = 0
    timestamp_ms: int = 1_700_000_000_000
    headers: Sequence[tuple[str, bytes | None]] = ()


def some_events(pipeline: Pipeline, count: int, *, seed: int = 0) -> dict[str, list[Event]]:
    """Random events of all topics that a pipeline reads, per topic: nulls, extremes, what is not valid, tombstones; few values, so that keys come again.

    Fields may be missing where they have a default, and stand under names they had. A `pattern` is met only by chance: give such
    a property an `enum` or a `default` beside it, or write its events by hand.
    Where a topic declares lateness some are late, and where it declares an identity some are sent again, within the horizon and after it.
    """
    draw = random.Random(seed)  # noqa: S311  # the same events again, and no secret
    return {topic.name: _some_events(topic, draw, count) for topic in pipeline.topics}


def law_of_slices(
    pipeline: Pipeline, events: Mapping[str, Iterable[Event]], *, cuts: int = 6, seed: int = 0
) -> None:
    """Holds a pipeline to the law of slices on these events, per topic in the order of each partition.

    Tried are a slice per event (at most 64), `cuts` random cuts with empty slices and slices that are folded again, and each way that
    a slice is computed in. Raises LawBroken with the smallest cut found and the rows that differ, DeclarationError where the function is none of a pipeline,
    and UsageError where there is nothing to try it on: no events, or none that is valid.
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
        rejected = hold_to_law(local, log, cuts=cuts, most_slices=_MOST_SLICES, seed=seed)
    if rejected.total() == len(log.records):
        why = ", ".join(f"{reason} {count}" for reason, count in rejected.most_common())
        raise UsageError(
            f"none of the {len(log.records)} events is valid, so nothing was held to the law: {why}",
            hint="send them as their topics declare them, keys too",
        )


def _bytes(value: Any) -> bytes | None:
    """As it is sent: bytes and text as they are, all else as JSON."""
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case _:
            return json.dumps(value, ensure_ascii=False).encode()


def _some_events(topic: Topic, draw: random.Random, count: int) -> list[Event]:
    events: list[Event] = []
    for number in range(count):
        event = _some_event(topic, draw, number)
        if topic.needs_brokers_time:
            event = _appended(topic, draw, number, event)
        sent = (
            [each for each in events[-8:] if isinstance(each.value, Mapping)]
            if topic.identity
            else []
        )
        if sent and draw.random() < 0.4:
            # As a producer sends again what it did not see acknowledged; or another event has the same identity.
            again = draw.choice(sent)
            event = replace(
                again,
                timestamp_ms=event.timestamp_ms,
                value=draw.choice([again.value, _timed(topic, again.value, event.timestamp_ms)]),
            )
        events.append(event)
    return events


def _appended(topic: Topic, draw: random.Random, number: int, event: Event) -> Event:
    """The same event, with a timestamp that passes a horizon every few events, an event time that goes with it, and an identity of its own."""
    clock = 1_700_000_000_000 + number * topic.identity_horizon_ms // 6 + draw.choice([0, 1, -1000])
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
    """The same event at another event time, where it has one."""
    return (
        {**value, topic.event_time: event_time_ms}
        if isinstance(value, Mapping) and topic.event_time in value
        else value
    )


def _partition(key: bytes | None, topic: Topic) -> int:
    """A key's records lie in one partition, as a producer sends them."""
    return sum(key or b"") % topic.partitions


def _some_event(topic: Topic, draw: random.Random, number: int) -> Event:
    partition, clock = (
        draw.randrange(topic.partitions),
        1_700_000_000_000 + number * draw.choice([0, 1, 1000]),
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
        column.name: _some_value(column.type, draw)
        if column.name not in places
        else _some_of_schema(places[column.name], draw)
        for column in present
    }
    # As an event of before the field was renamed has it.
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


def _some_value(kind: Type, draw: random.Random) -> Any:
    match kind:
        case Scalar("string"):
            return draw.choice(["a", "b", "", "Ä", "\U0001f600"])
        case Scalar("boolean"):
            return draw.random() < 0.5
        case Scalar("float" | "double"):
            return draw.choice([0.0, -0.0, 0.5, -1.25, 1024.0])
        case Scalar("date"):
            return draw.choice(["2024-01-01", "2024-02-29", "1969-12-31"])
        case Scalar("timestamp"):
            return (
                datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=draw.randrange(100))
            ).isoformat()
        case Scalar(name):
            most = 2 ** (min(INTEGERS[name], 40) - 1) - 1
            return draw.choice([0, 1, 2, -1, most, -most - 1])
        case Decimal():
            return draw.choice([0, 1, -1])
        case Array():
            return [_some_value(kind.element, draw) for _ in range(draw.randrange(3))]
        case Struct():
            return {field.name: _some_value(field.type, draw) for field in kind.fields}


def _some_of_schema(place: Place, draw: random.Random) -> Any:
    """A value that a JSON Schema allows, as far as one is found."""
    limits = {keyword: json.loads(said) for keyword, said in place.limits}
    if place.nullable and draw.random() < 0.1:
        return None
    match place.json_type:
        case "object":
            return {
                field.name: _some_of_schema(field.place, draw)
                for field in place.fields
                if field.required or draw.random() < 0.8
            }
        case "array" if place.element is not None:
            least = limits.get("minItems", 0)
            length = draw.randint(least, min(limits.get("maxItems", least + 2), least + 2))
            return [_some_of_schema(place.element, draw) for _ in range(length)]
        case _:
            found = [
                value for value in _candidates(place, limits, draw) if _is_allowed(value, place)
            ]
            return draw.choice(found) if found else _some_value(place.column, draw)


def _candidates(place: Place, limits: Mapping[str, Any], draw: random.Random) -> list[Any]:
    if "const" in limits or "enum" in limits:
        return [each for each in limits.get("enum", [limits.get("const")]) if each is not None]
    if "format" in limits:
        return [str(uuid.UUID(int=draw.randrange(5)))]
    some = [
        _some_value(
            Scalar("bigint")
            if (place.json_type, place.column) == ("integer", Scalar("timestamp"))
            else place.column,
            draw,
        )
        for _ in range(32)
    ]
    if place.json_type == "string" and limits:
        return [
            each.ljust(limits.get("minLength", 0), "x")[: limits.get("maxLength")] for each in some
        ]
    bounds = [
        value for keyword, value in limits.items() if "inimum" in keyword or "aximum" in keyword
    ]
    near = [bound + step for bound in bounds for step in (-1, 0, 1)]
    middle = [sum(bounds) / 2] if len(bounds) == 2 else []
    return [
        *some,
        *(
            each
            for each in (*near, *middle)
            if place.json_type == "number" or isinstance(each, int)
        ),
    ]


def _is_allowed(value: Any, place: Place) -> bool:
    rule = rule_of(place)
    try:
        if rule is not None:
            rule(value, "it")
    except Rejected:
        return False
    return True
