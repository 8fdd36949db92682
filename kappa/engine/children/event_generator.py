"""Events for the topics of a pipeline, for tests without a broker.

A test's author writes the events by hand, or has them drawn at random.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from itertools import count as numbers
from pathlib import Path
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.formats.topic_formats import changes_of
from kappa.declare.options import describe_value, option_text
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.declare.values.columns import INTEGERS, Array, Decimal, Scalar, Struct, Type
from kappa.declare.values.json_schema import SchemaPlace
from kappa.declare.values.reason import Rejected
from kappa.declare.values.schema_rules import rule_of
from kappa.records.keys import written_key
from kappa.records.lines.envelope import envelope_record

_BEGAN = 1_700_000_000_000
# Ends the name of a file of envelopes, before its suffix.
_ENVELOPES = ".envelopes"
# Milliseconds that pass before an event where a step is woken on time.
_LEAPS = (0, 0, 0, 60_000, 3_600_000, 86_400_000)
# Types for which each event can have a distinct value.
_DISTINCT = {Scalar("string"), *map(Scalar, INTEGERS)}


@dataclass(frozen=True, slots=True)
class Event:
    """One record of a topic, with `value`, `key`, `partition`, `timestamp_ms` and `headers`.

    If `value` is a mapping of fields, the value is sent in the topic's format. A value of bytes is
    sent unchanged. The value None makes the record a tombstone. `timestamp_ms` is in milliseconds
    since 1970.

    Example:
        Event({"visitor": "ann", "ms": 3}, key="ann", headers=[("trace", b"7")])
    """

    value: Mapping[str, Any] | bytes | None
    key: bytes | str | None = None
    partition: int = 0
    timestamp_ms: int = 1_700_000_000_000
    headers: Sequence[tuple[str, bytes | None]] = ()


def some_events(
    pipeline: Pipeline, count: int, *, distinct: Sequence[str] = (), seed: int = 0
) -> dict[str, list[Event]]:
    """Draws `count` random events for each topic that a pipeline reads, in the topic's order.

    The events include nulls, extreme values, invalid records and tombstones. There are few
    different values, so that keys repeat. Fields with a default may be missing, and fields may have
    their earlier names. If a JSON Schema declares a `pattern` for a property, the drawn values
    match the pattern only by chance: give the property an `enum` or a `default` too, or write its
    events by hand. If a topic declares lateness, some drawn events have late event times. If a
    topic declares an identity, some events are repeated, both within the horizon and after the
    horizon. If a step asks to be woken, hours and days pass between some events. The same `seed`
    draws the same events.

    `distinct` names fields, as `TOPIC.FIELD`. The value of such a field is different in each event,
    as a view's keys require. Raises UsageError if a field is neither text nor a whole number.

    Example:
        events = some_events(web, 20, distinct=("visits.visitor",), seed=7)
        events["visits"].append(Event({"visitor": "ann", "ms": 3}, key="ann"))
    """
    draw = random.Random(seed)  # noqa: S311  # the same events again, and no secret
    leaps = _LEAPS if any(each.ordered and each.ordered.on_time for each in pipeline.tables) else ()
    given = {name: set[Any]() for name in distinct}
    for name in given:
        topic, _, field = name.rpartition(".")
        found = [each for one in pipeline.topics if one.name == topic for each in one.columns]
        if not any(each.name == field and each.type in _DISTINCT for each in found):
            raise UsageError(
                f"distinct names {name}, which is neither text nor a whole number of a topic",
                hint='name fields by topic: distinct=("orders.id",)',
            )
    return {topic.name: _some_events(topic, draw, count, leaps, given) for topic in pipeline.topics}


def read_events(folder: Path) -> dict[str, list[Event | dict[str, Any]]]:
    """Reads the sample events in a project's `folder`, per topic and in the order of the lines.

    In a file `TOPIC.ndjson`, each line is a JSON object with an event's fields. In a file
    `TOPIC.envelopes.ndjson`, each line is an envelope with key, value and timestamp, in the form
    that `kappa produce --envelope` reads. Raises UsageError, which names the line, if a line does
    not have this form.

    Example:
        events = read_events(Path("events"))
        assert {*events} <= {"visits"}
    """
    found: dict[str, list[Event | dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.ndjson")):
        topic = file.name.removesuffix(".ndjson").removesuffix(_ENVELOPES)
        read = _event_of_envelope if file.stem.endswith(_ENVELOPES) else _fields_of_line
        events = found.setdefault(topic, [])
        for number, line in enumerate(file.read_bytes().splitlines(), 1):
            try:
                events += [read(line)] if line.strip() else []
            except UsageError as error:
                raise UsageError(f"{file} line {number} {error.message}", hint=error.hint) from None
    return found


def _event_of_envelope(line: bytes) -> Event:
    record = envelope_record(line)
    return Event(
        record.value,
        record.key,
        record.partition or 0,
        _BEGAN if record.timestamp_ms is None else record.timestamp_ms,
        record.headers,
    )


def _fields_of_line(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise UsageError(
            f"is not JSON: {error}", hint="an event is one JSON object a line"
        ) from None
    if not isinstance(fields, dict):
        raise UsageError("is not an object", hint="an event is one JSON object a line")
    return fields


def event_of(topic: Topic, given: object) -> Event:
    """Returns `given` if it is an event; otherwise makes an event from the fields in `given`.

    The event has the key and the partition that a producer would choose. Raises UsageError if
    `given` is neither an event nor a mapping.
    """
    if isinstance(given, Event):
        return given
    if not isinstance(given, Mapping):
        raise UsageError(
            f"topic {topic.name} is given {describe_value(given)}, which is not an event",
            hint='an event is a mapping of its fields, or an Event, as in Event(b"{")',
        )
    key = None if topic.key is None else _sent_key(topic, given.get(topic.key))
    return Event(given, key=key, partition=0 if key is None else partition_of(key, topic))


def sent(topic: Topic, event: Event) -> bytes | None:
    """Encodes an event's value in the topic's format, as a producer of the topic does.

    A value that is not a mapping of fields is encoded by the function `encoded`. Raises UsageError
    if the format cannot encode the fields.
    """
    if not isinstance(event.value, Mapping):
        return encoded(event.value)
    try:
        return topic.format.encode_event(event.value, topic.columns)
    except UsageError as error:
        raise UsageError(f"topic {topic.name}: {error.message}", hint=error.hint) from None


def encoded(value: Any) -> bytes | None:
    """Encodes a value for sending.

    Bytes and None stay unchanged, text becomes UTF-8, and any other value becomes JSON.
    """
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case _:
            return json.dumps(value, ensure_ascii=False).encode()


def _sent_key(topic: Topic, value: Any) -> bytes | None:
    """Encodes the value of the key field as a producer of the topic encodes a key.

    Raises UsageError if the topic's key format cannot encode the value.
    """
    if (changes := changes_of(topic.format)) is not None:
        return changes.encoded_key(topic.key or "", value)
    if topic.key_format is None or value is None:
        return encoded(value)
    try:
        return written_key(topic, value)
    except UsageError as error:
        raise UsageError(
            f"topic {topic.name}: the key {option_text(value)}: {error.message}", hint=error.hint
        ) from None


def _some_events(
    topic: Topic,
    draw: random.Random,
    count: int,
    leaps: Sequence[int],
    given: Mapping[str, set[Any]],
) -> list[Event]:
    events: list[Event] = []
    began = _BEGAN
    for number in range(count):
        began += draw.choice(leaps) if leaps else 0
        event = _some_event(topic, draw, number, began, given)
        if topic.needs_brokers_time:
            event = _appended(topic, draw, number, began, event)
        sent = (
            [each for each in events[-8:] if isinstance(each.value, Mapping)]
            if topic.identity
            and not any(f"{topic.name}.{name}" in given for name in topic.identity)
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
    """Returns a copy of an event with the timestamp that a broker could have given to the event.

    `number` is the index of the event, and `began` is the first timestamp. From one event to the
    next, the timestamp rises by about a sixth of the topic's `identity_horizon`. If the value is a
    mapping of fields, the copy also has an event time near the timestamp, and a new identity.
    """
    clock = began + number * topic.identity_horizon_ms // 6 + draw.choice([0, 1, -1000])
    if not isinstance(event.value, Mapping):
        return replace(event, timestamp_ms=clock)
    lateness = topic.lateness_ms or 0
    value = dict(
        _timed(topic, event.value, clock - draw.choice([0, 0, 0, -1000, lateness, lateness + 1]))
    )
    for name in topic.identity:
        if name in value and topic.column_named(name).type in _DISTINCT:
            value[name] = (
                f"{number}" if topic.column_named(name).type == Scalar("string") else number % 128
            )
    if topic.key is None or topic.key not in value:
        return replace(event, value=value, timestamp_ms=clock)
    key = _sent_key(topic, value[topic.key])
    return replace(
        event, value=value, key=key, partition=partition_of(key, topic), timestamp_ms=clock
    )


def _another(kind: Type, draw: random.Random, taken: set[Any]) -> Any:
    """Draws a value that is not in `taken`, and adds the value to `taken`.

    Draws at most 20 values with `some_value`. If all of them are in `taken`, the result is the
    first free number instead, as text if the column is text.
    """
    drawn = (some_value(kind, draw) for _ in range(20))
    some = chain(drawn, map(str if kind == Scalar("string") else int, numbers(1)))
    value = next(each for each in some if each not in taken)
    taken.add(value)
    return value


def _timed(topic: Topic, value: Any, event_time_ms: int) -> Any:
    """Returns a copy of the event's fields `value`, with the event time `event_time_ms`.

    Returns `value` unchanged if it is no mapping, or if the mapping has no event time.
    """
    return (
        {**value, topic.event_time: event_time_ms}
        if isinstance(value, Mapping) and topic.event_time in value
        else value
    )


def partition_of(key: bytes | None, topic: Topic) -> int:
    """Returns the partition for a key: the sum of the key's bytes, modulo the partition count.

    A record without a key gets partition 0.
    """
    return sum(key or b"") % topic.partitions


def _some_event(
    topic: Topic,
    draw: random.Random,
    number: int,
    began: int,
    given: Mapping[str, set[Any]],
) -> Event:
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
    for name in values:
        if (taken := given.get(f"{topic.name}.{name}")) is not None:
            values[name] = _another(topic.column_named(name).type, draw, taken)
    # An event from before a renaming has the field's old name.
    value = {
        draw.choice([column.name, *column.was]) if column.was else column.name: values[column.name]
        for column in present
    }
    if (form := changes_of(topic.format)) is not None:
        value |= {name: draw.choice("crudd") for name in form.tells_operation & value.keys()}
    key = None if topic.key is None else _sent_key(topic, values[topic.key])
    partition = partition if key is None else partition_of(key, topic)
    return Event(
        None if key is not None and draw.random() < 0.1 else value,
        key=key,
        partition=partition,
        timestamp_ms=clock,
    )


def some_value(kind: Type, draw: random.Random) -> Any:
    """Draws a random value of a type, as a Python value that can be written as JSON."""
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
            return [some_value(kind.element, draw) for _ in range(draw.randrange(3))]
        case Struct():
            return {field.name: some_value(field.type, draw) for field in kind.fields}


def some_of_schema(place: SchemaPlace, draw: random.Random) -> Any:
    """Draws a random value that a JSON Schema allows.

    If no allowed value is found, draws any value of the column's type.
    """
    limits = {keyword: json.loads(value) for keyword, value in place.limits}
    if place.nullable and draw.random() < 0.1:
        return None
    match place.json_type:
        case "object":
            return {
                field.name: some_of_schema(field.place, draw)
                for field in place.fields
                if field.required or draw.random() < 0.8
            }
        case "array" if place.element is not None:
            least = limits.get("minItems", 0)
            length = draw.randint(least, min(limits.get("maxItems", least + 2), least + 2))
            return [some_of_schema(place.element, draw) for _ in range(length)]
        case _:
            found = [
                value
                for value in _candidate_values(place, limits, draw)
                if _is_allowed(value, place)
            ]
            return draw.choice(found) if found else some_value(place.column, draw)


def _candidate_values(
    place: SchemaPlace, limits: Mapping[str, Any], draw: random.Random
) -> list[Any]:
    if "const" in limits or "enum" in limits:
        return [each for each in limits.get("enum", [limits.get("const")]) if each is not None]
    if "format" in limits:
        return [str(uuid.UUID(int=draw.randrange(5)))]
    some = [
        some_value(
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


def _is_allowed(value: Any, place: SchemaPlace) -> bool:
    rule = rule_of(place)
    try:
        if rule is not None:
            rule(value, "it")
    except Rejected:
        return False
    return True
