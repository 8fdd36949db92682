"""The format of records that are changes of a database's rows, as Debezium writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kappa.base.errors import DeclarationError, UsageError
from kappa.base.source import Source
from kappa.declare.formats.avro_schema import AvroSchema, parse_avro, read_record, why_unreadable
from kappa.declare.formats.debezium_envelope import (
    BEFORE,
    FACTS,
    IDENTITY,
    KEY,
    OPERATION,
    TIME,
    EnvelopePart,
    EnvelopeReader,
    check_facts,
    facts_of,
)
from kappa.declare.formats.debezium_values import (
    UNITS,
    RowValues,
    WritingSchema,
    of_avro,
    of_connect,
)
from kappa.declare.formats.format import SourceChange
from kappa.declare.formats.registry_schemas import remember_writer, split_frame, writer_schema
from kappa.declare.options import error_prefix, option_text
from kappa.declare.topic_options import TopicKind
from kappa.declare.values.columns import Column, Scalar
from kappa.declare.values.json_text import JsonFormat
from kappa.declare.values.reason import Reason, Rejected, kind_of
from kappa.declare.values.value import Check, check_of, holds_decimal

_WRAPPED = {"schema", "payload"}
_KIND = "AVRO"
_ENCODINGS = ("json", "avro")


@dataclass(frozen=True, slots=True, init=False)
class Debezium:
    """The format of records that each contain a change of a database's row, from Debezium.

    An event contains the columns of the row: the values after the change, or the values before it
    if the row was deleted. Columns named `change_...` describe the change itself: `change_op` (c,
    u, d, r for a snapshot, or t for a truncated table), `change_id` (its identity), `change_at`,
    `change_lsn`, `change_tx`, `change_snapshot`, `change_key` (a key of several columns, as one
    text) and `change_before`. `facts` declares further columns of this kind, or other names for
    these columns: `{"change_file": "source.file"}`.

    `encoding` is "json", or "avro" for records with schemas of a registry; the schemas need not be
    pinned.

    If records have no schema, the meaning of whole numbers and texts is not known. Then `times` is
    the unit of timestamps that are whole numbers ("millis", "micros" or "nanos"), and
    `decimals="text"` means that decimals are written as digits (`decimal.handling.mode=string`). A
    value whose meaning is not certain is rejected.

    Debezium repeats changes after a crash. So a retained topic needs an `identity`. With
    `exactly_once=True`, which declares that Kafka Connect writes each change exactly once, no
    `identity` is needed.

    Example:
        Topic(
            "shop.app.orders",
            event="id bigint not null, amount decimal(10,2), happened_at timestamp,"
            " change_op string not null, change_id string not null",
            format=Debezium(times="micros", decimals="text"),
            key="id",
            identity="change_id",
            identity_horizon="1 day",
        )
    """

    encoding: str
    times: str | None
    decimals: str | None
    facts: tuple[tuple[str, str], ...]
    exactly_once: bool
    source: Source = field(compare=False)

    def __init__(
        self,
        encoding: str = "json",
        *,
        times: str | None = None,
        decimals: str | None = None,
        facts: Mapping[str, str] | None = None,
        exactly_once: bool = False,
    ) -> None:
        source = Source.of_caller()
        for option, given, known in (
            ("encoding", encoding, _ENCODINGS),
            ("times", times, (None, *UNITS)),
            ("decimals", decimals, (None, "text")),
            ("exactly_once", exactly_once, (False, True)),
        ):
            if not any(given is each or given == each for each in known):
                raise DeclarationError(
                    f"{source}: format debezium has {option}={option_text(given)}",
                    hint=f"it is {' or '.join(map(option_text, known))}",
                )
        set_field = object.__setattr__
        with error_prefix(f"{source}: format debezium"):
            set_field(self, "facts", tuple(sorted(facts_of(facts).items())))
        set_field(self, "encoding", encoding)
        set_field(self, "times", times)
        set_field(self, "decimals", decimals)
        set_field(self, "exactly_once", exactly_once)
        set_field(self, "source", source)

    @property
    def tells_operation(self) -> frozenset[str]:
        """Returns the names of the columns that contain the operation of a change.

        The event of a topic that a function reads must have at least one of these columns.
        """
        return frozenset(name for name, path in self.facts if path == OPERATION)

    def declared_lines(self) -> Iterator[str]:
        """Yields the lines of text with which a version describes the format.

        They are the name of the format, and each option that differs from its default.
        """
        yield f"format debezium-{self.encoding}"
        if self.times is not None:
            yield f"times are {self.times}"
        if self.decimals is not None:
            yield "decimals are digits"
        for name, path in self.facts:
            if FACTS.get(name) != path:
                yield f"fact {name} is {path}"

    def declared_event(self) -> None:
        """Returns None, because the topic itself declares the columns of the rows."""

    def check_event(self, columns: Sequence[Column], *, by_schema: bool) -> None:
        """Raises DeclarationError if the event's columns cannot represent a change of a row.

        The event must be declared by columns, because a JSON Schema cannot declare it. A column
        that describes the change itself must have the type that belongs to its part of the change.
        """
        if by_schema:
            raise DeclarationError(
                "a JSON Schema is about JSON's values, and a row has a database's",
                hint='declare its columns: event="id bigint not null, amount decimal(10,2)"',
            )
        check_facts(columns, dict(self.facts))

    def event_reader(self, columns: Sequence[Column]) -> DebeziumReader:
        """Returns a reader of changes for these columns."""
        return DebeziumReader(self, columns)

    def encode_event(self, fields: Mapping[str, Any], columns: Sequence[Column]) -> bytes:
        """Encodes a change of a row with these fields.

        The operation is the field `change_op`, or "c" if that field is missing. Raises UsageError
        if the change cannot be encoded; changes in Avro can never be encoded.
        """
        del columns
        if self.encoding != "json":
            raise UsageError(
                "a change in Avro is not written by hand",
                hint="give its bytes; or test the same columns with format='debezium-json'",
            )
        return written_change(fields, dict(self.facts))

    def encoded_key(self, name: str, value: Any) -> bytes:
        """Encodes the Kafka key of a row.

        `name` is the name of the topic's key column, and `value` is the row's value in this column.
        """
        return written_key(name, value, dict(self.facts))


class PartsReader(Protocol):
    """A reader that decodes the values and the Kafka keys of Debezium's records.

    There is one class of readers for each encoding.
    """

    def split_value(self, value: bytes) -> EnvelopePart: ...  # noqa: D102  # as in JsonParts

    def split_key(self, key: bytes) -> EnvelopePart: ...  # noqa: D102  # as in JsonParts


class DebeziumReader:
    """A reader of changes, for one `Debezium` format and the columns of one event."""

    def __init__(self, form: Debezium, columns: Sequence[Column]) -> None:
        self._parts: PartsReader = (
            JsonParts(exact=any(holds_decimal(column.type) for column in columns))
            if form.encoding == "json"
            else AvroParts()
        )
        self._envelope = EnvelopeReader(
            columns, dict(form.facts), RowValues(times=form.times, decimals=form.decimals)
        )

    def read_change(self, key: bytes | None, value: bytes) -> SourceChange:
        """Decodes a change. Raises Rejected if the bytes are not a change."""
        return self._envelope.read_change(
            lambda: self._split_key(key), self._parts.split_value(value)
        )

    def fields(self, value: bytes) -> dict[str, Any]:
        """Decodes the fields of a change, without the Kafka key.

        Raises Rejected if the bytes are not a change, or if a column needs the key.
        """
        return self.read_change(None, value).fields

    def key_value(self, key: bytes, column: Column) -> Any:
        """Returns the value of the topic's key column, read from the Kafka key."""
        return self._envelope.key_value(self._parts.split_key(key), column)

    def column_check(self, column: Column) -> Check:
        """Returns a function that returns its argument unchanged.

        No conversion is needed, because `read_change` and `fields` already convert the values of a
        row.
        """
        del column
        return _as_it_is

    def _split_key(self, key: bytes | None) -> EnvelopePart:
        if key is None:
            raise Rejected(Reason.NULL_KEY, "the key is null")
        return self._parts.split_key(key)


def _as_it_is(found: Any, name: str) -> Any:
    del name
    return found


def check_changes(
    source: Source,
    topic: str,
    form: Debezium,
    kind: str,
    identity: Sequence[str],
    lateness_ms: int | None,
    *,
    archive: str,
    key: str | None,
    keyed: bool,
) -> None:
    """Raises DeclarationError if an option of a topic cannot be used with changes of rows.

    `form` is the format of the topic's values, and `keyed` is True if a `key_format` is declared.
    The other arguments are the topic's options.
    """
    if keyed:
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and a key_format: their format reads "
            "their keys, too",
            hint="leave key_format out",
        )
    if lateness_ms is not None:
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and a lateness: without a late change "
            "the rows would not be those of their source",
            hint="leave lateness and event_time out",
        )
    if archive != "none":
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows, which have no archive yet",
            hint="leave archive out",
        )
    facts = dict(form.facts)
    if facts.get(key or "", KEY) != KEY:
        raise DeclarationError(
            f"{source}: topic {topic} has the key {key}, which is a fact of the change, and no "
            "column of the row",
            hint="name the row's key column; one of several columns is change_key",
        )
    if identity and (len(identity) > 1 or facts.get(identity[0]) != IDENTITY):
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and the identity {', '.join(identity)}: "
            "a change is known by its own identity alone, for a truncation has no row",
            hint='add a column change_id string not null to event, and say identity="change_id"',
        )
    if kind == TopicKind.RETAINED and not identity and not form.exactly_once:
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and no identity, and Debezium repeats "
            "changes after a crash",
            hint="add a column change_id string not null to event, and say "
            'identity="change_id", identity_horizon="1 day" (longer than Debezium may be away); '
            "or format=Debezium(exactly_once=True), if Kafka Connect writes each change once",
        )


def check_operation(
    source: Source, pipeline: str, topic: str, form: Debezium, names: set[str]
) -> None:
    """Raises DeclarationError if the columns `names` of an event do not show deletions.

    A pipeline's function that reads changes needs a column with the operation of each change.
    """
    if not form.tells_operation & names:
        tells = min(form.tells_operation)
        raise DeclarationError(
            f"{source}: pipeline {pipeline} takes the changes of topic {topic}, and nothing tells "
            "it which of them delete a row",
            hint=f"add a column {tells} string not null to the topic's event; or take the rows "
            "alone, by Table(..., latest=...)",
        )


class JsonParts:
    """A reader of values and keys that were written by Kafka Connect's JSON converter."""

    def __init__(self, *, exact: bool) -> None:
        """Creates a reader. If `exact` is True, numbers are decoded with all digits.

        Otherwise, numbers with a fraction or an exponent are decoded as floats.
        """
        self._fields = JsonFormat(exact=exact).fields

    def split_value(self, value: bytes) -> EnvelopePart:
        """Decodes a value. Raises Rejected if the value is not an object."""
        return _split_parts(self._fields(value))

    def split_key(self, key: bytes) -> EnvelopePart:
        """Decodes a key. Raises Rejected if the key is not an object."""
        try:
            return _split_parts(self._fields(key))
        except Rejected as error:
            raise Rejected(
                Reason.BAD_KEY, f"the key is not an object of a row's key: {error.detail}"
            ) from None


def _split_parts(found: dict[str, Any]) -> EnvelopePart:
    if found.keys() != _WRAPPED:
        return EnvelopePart(found)
    schema, payload = found["schema"], found["payload"]
    if not isinstance(payload, dict):
        raise Rejected(Reason.MALFORMED_CHANGE, f"the payload is {kind_of(payload)}, not an object")
    if schema is None:
        return EnvelopePart(payload)
    return EnvelopePart(payload, json.dumps(schema, default=str), lambda: of_connect(schema))


@dataclass(frozen=True, slots=True)
class _Writer:
    """A schema of the registry with which a writer has encoded records."""

    schema: AvroSchema

    def describe_writing(self) -> WritingSchema:
        return of_avro(self.schema.whole, self.schema.named)


class AvroParts:
    """A reader of values and keys in Avro, which decodes each with its writer's schema.

    Each value and each key contains the id of its writer's schema in the schema registry.
    """

    def __init__(self) -> None:
        # By id; or why records of the schema are rejects.
        self._writers: dict[int, _Writer | Rejected] = {}

    def split_value(self, value: bytes) -> EnvelopePart:
        """Decodes a value.

        Raises Rejected if the value is not a record of the schema whose id the value contains.
        """
        schema_id, message = split_frame(value)
        writer = self._writers.get(schema_id)
        if writer is None:
            writer = _open_writer(schema_id)
            remember_writer(self._writers, schema_id, writer)
        if isinstance(writer, Rejected):
            raise Rejected(writer.reason, writer.detail)
        return EnvelopePart(
            read_record(message, writer.schema.bare), schema_id, writer.describe_writing
        )

    def split_key(self, key: bytes) -> EnvelopePart:
        """Decodes a key.

        Raises Rejected if the key is not a record of the schema whose id the key contains.
        """
        try:
            return self.split_value(key)
        except Rejected as error:
            raise Rejected(Reason.BAD_KEY, f"the key is not a row's: {error.detail}") from None


def _open_writer(schema_id: int) -> _Writer | Rejected:
    try:
        found = writer_schema(schema_id)
    except Rejected as rejected:
        return rejected
    wrong = f"it is of type {found.kind}, not Avro" if found.kind != _KIND else None
    if wrong is None:
        try:
            schema = parse_avro(found.text or "", found.references)
            wrong = why_unreadable(schema)
        except DeclarationError as error:
            wrong = error.message
    if wrong is None and not (isinstance(schema.whole, dict) and "fields" in schema.whole):
        wrong = "it is not a record"
    if wrong is not None:
        return Rejected(Reason.SCHEMA_MISMATCH, f"schema {schema_id} cannot be read: {wrong}")
    return _Writer(schema)


def written_change(fields: Mapping[str, Any], facts: Mapping[str, str]) -> bytes:
    """Encodes a change in Debezium's envelope, for tests.

    `fields` contains the columns of the row, and the columns that describe the change itself.
    `facts` maps the latter columns to parts of the envelope. Raises UsageError if the time of the
    change is not valid.
    """
    row: dict[str, Any] = {}
    blocks: dict[str, dict[str, Any]] = {"source": {"connector": "by hand"}, "transaction": {}}
    operation, before = "c", None
    for name, value in fields.items():
        path = facts.get(name)
        block, _, part = (path or "").partition(".")
        if path is None:
            row[name] = value
        elif path == OPERATION:
            operation = value
        elif path == BEFORE:
            before = value
        elif path == TIME:
            blocks["source"]["ts_us"] = _timestamp_micros(value, name)
        elif path not in {IDENTITY, KEY}:
            blocks[block][part] = value
    after = None if operation in {"d", "t"} else row
    envelope = {
        "before": row if operation == "d" else before,
        "after": after,
        "source": blocks["source"],
        "transaction": blocks["transaction"] or None,
        "op": operation,
    }
    return json.dumps(envelope, ensure_ascii=False).encode()


def written_key(name: str, value: Any, facts: Mapping[str, str]) -> bytes:
    """Encodes the Kafka key of a row, for tests.

    `name` is the name of the key column. If `facts` maps this column to the part `key`, the
    column's value is already the text of the whole key.
    """
    if facts.get(name) == KEY:
        return str(value).encode()
    return json.dumps({name: value}, ensure_ascii=False).encode()


def _timestamp_micros(value: Any, name: str) -> Any:
    if value is None:
        return None
    try:
        return check_of(Scalar("timestamp"))(value, name)
    except Rejected as rejected:
        raise UsageError(rejected.detail) from None
