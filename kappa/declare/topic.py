"""A topic, as a pipeline's file declares it. Declaring runs nothing and knows no Kafka.

How the event is declared is in event.py, lateness and identity are in log_time.py.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.archived import Archive, archive_of
from kappa.declare.described import described, shown
from kappa.declare.event import check_defaults, renamed, schema_of_event
from kappa.declare.formats.changes import check_changes
from kappa.declare.formats.format import RecordFormat
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.key_formats import keys_of
from kappa.declare.formats.named import changes_of, format_of
from kappa.declare.joined import JoinedTopic, topics_of_pattern
from kappa.declare.log_time import (
    check_brokers_time,
    identity_columns,
    identity_horizon_of,
    lateness_of_topic,
)
from kappa.declare.topic_kind import TopicKind
from kappa.declare.values.columns import Column, parse_columns
from kappa.declare.values.schema_place import SchemaPlace

# Kafka's rule: 249 characters of this alphabet, and neither "." nor "..".
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Consumers' offsets, transactions, shares, metadata.
KAFKAS_OWN = "__"


def _checked_name(source: Source, name: object) -> str:
    if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise DeclarationError(
            f"{source}: {described(name)} is no name of a Kafka topic",
            hint="use up to 249 letters, digits, dots, dashes and underscores",
        )
    if name.startswith(KAFKAS_OWN):
        raise DeclarationError(
            f"{source}: topic {name} is one of Kafka's own", hint="name a topic with events"
        )
    return name


@dataclass(frozen=True, slots=True, init=False)
class Topic:
    """A Kafka topic, by its `name` in Kafka; `partitions` is how many it has.

    With a `pattern` in place of a name it is all topics whose names match that regular expression,
    and have joined it by `kappa topics join`. A function gets their rows as one DataFrame, where
    `_topic` is the name of each.

    Its `kind` is "retained", a history of events, or "compacted", the latest value per key. In a
    compacted topic a record whose value is null is a tombstone, which deletes its key.

    `event` declares one record, by DDL (`"id string not null, page string default '/'"`) or by a
    JSON Schema. A schema is a mapping, or the path of a file from the project's folder. `columns`
    are the columns of the event; `schema` is what a JSON Schema demands besides. `was` gives the
    names that a column's field had in older events. The first of them that a record has counts if
    the record has no field of the column's own name.

    `format` is how a record's value is written: "json", which is meant if left out, "csv",
    "access-log", "debezium-json", "debezium-avro", or a value such as `Csv(separator=";")` and
    `Avro(Subject("orders-value"))`. If the format has a schema, the `event` may be left out: the
    columns are the schema's fields.

    `key` names the column that the Kafka key repeats, as text. It is enforced: a record without a
    key, with a key that is no UTF-8, or with another key than the column is rejected. A compacted
    topic must have one, and so must the topic of an ordered fold and of a latest table. With a
    `key_format` the Kafka key is written in that format and has one field, the column:
    `key_format=Avro(Subject("orders-key"))`.

    `config` are Kafka's settings of the topic, which apply when `kappa topics create` makes it.

    With `archive=True` the platform keeps a copy of the log in columns. Replays read it faster,
    and it outlives Kafka's retention; it decides no rows. `archive="raw"` keeps keys, values and
    headers too, at about twice the size. From those, records that the topic has lost can be
    decoded again when the event changes.

    A record is late, and rejected, if its timestamp is more than `lateness` ("5 minutes") after its
    `event_time`, a column. It is a duplicate, and not folded, if its partition has an accepted
    record of the same `identity` less than `identity_horizon` before it (10 minutes). `identity` is
    one column or several. Lateness and identity need the broker's timestamps.

    Raises DeclarationError, with the user's file and line, if the declaration cannot be meant.

    Example:
        VISITS = Topic(
            "visits",
            event="visitor string not null, page string, ms int, is_new boolean, at timestamp",
            partitions=3,
            key="visitor",
            event_time="at",
            lateness="1 hour",
            config={"retention.ms": "-1"},
        )
    """

    name: str
    kind: TopicKind
    partitions: int
    key: str | None
    key_format: RecordFormat | None
    columns: tuple[Column, ...]
    format: RecordFormat
    schema: SchemaPlace | None
    config: Mapping[str, str]
    event_time: str | None
    lateness_ms: int | None
    identity: tuple[str, ...]
    identity_horizon_ms: int
    archive: Archive
    # The pattern in place of a name; and of a topic that has joined one, that pattern.
    pattern: str | None
    of_pattern: str | None = field(compare=False)
    joined: tuple[JoinedTopic, ...] = field(compare=False)
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str | None = None,
        *,
        pattern: str | None = None,
        event: str | Mapping[str, Any] | Path | None = None,
        format: str | RecordFormat = "json",  # noqa: A002  # the word for it
        kind: str = TopicKind.RETAINED,
        partitions: int = 1,
        key: str | None = None,
        key_format: str | RecordFormat | None = None,
        was: Mapping[str, str | Sequence[str]] | None = None,
        config: Mapping[str, str] | None = None,
        event_time: str | None = None,
        lateness: str | None = None,
        identity: str | Sequence[str] = (),
        identity_horizon: str | None = None,
        archive: bool | str = False,
    ) -> None:
        source = Source.of_caller()
        joined: tuple[JoinedTopic, ...] = ()
        if pattern is not None:
            joined = topics_of_pattern(source, name, pattern, kind, partitions)
            name = pattern
        else:
            name = _checked_name(source, name)
        if kind not in tuple(TopicKind):
            raise DeclarationError(
                f"{source}: topic {name} has the kind {shown(kind)}",
                hint='kind is "retained" or "compacted"',
            )
        if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
            raise DeclarationError(
                f"{source}: topic {name} has {shown(partitions)} partitions",
                hint="partitions is a whole number from 1",
            )
        try:
            written = format_of(format)
            found = _event(event, written, source)
            schema = found if isinstance(found, SchemaPlace) else None
            columns = renamed(found.columns if isinstance(found, SchemaPlace) else found, was or {})
            written.check_event(columns, by_schema=schema is not None)
        except DeclarationError as error:
            raise DeclarationError(
                f"{source}: topic {name}: {error.message}", hint=error.hint
            ) from None
        if key is None and kind == TopicKind.COMPACTED:
            raise DeclarationError(
                f"{source}: topic {name} is compacted and has no key",
                hint="name the column that the Kafka key repeats: key=...",
            )
        keyed = keys_of(source, name, key, key_format, columns)
        if not isinstance(config, Mapping | None):
            raise DeclarationError(
                f"{source}: topic {name} has {described(config)} for config, which sets nothing",
                hint='write config={"retention.ms": "-1"}',
            )
        given = {str(option): str(value) for option, value in (config or {}).items()}
        lateness_ms = lateness_of_topic(source, name, event_time, lateness, columns)
        identities = identity_columns(source, name, identity, columns)
        horizon_ms = identity_horizon_of(source, name, identity_horizon, declared=bool(identities))
        if lateness_ms is not None or identities:
            check_brokers_time(source, name, kind, given)
        kept = archive_of(source, name, archive, kind, identities)
        check_defaults(source, name, columns, schema)
        if (changes := changes_of(written)) is not None:
            check_changes(
                *(source, name, changes, kind, identities, lateness_ms),
                archive=kept,
                key=key,
                keyed=keyed is not None,
            )
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "kind", TopicKind(kind))
        set_field(self, "partitions", partitions)
        set_field(self, "key", key)
        set_field(self, "key_format", keyed)
        set_field(self, "columns", columns)
        set_field(self, "format", written)
        set_field(self, "schema", schema)
        set_field(self, "config", given)
        set_field(self, "event_time", event_time)
        set_field(self, "lateness_ms", lateness_ms)
        set_field(self, "identity", identities)
        set_field(self, "identity_horizon_ms", horizon_ms)
        joining = {"pattern": pattern, "of_pattern": None, "joined": joined}
        for field_name, value in {**joining, "archive": kept, "source": source}.items():
            set_field(self, field_name, value)

    def each(self) -> tuple[Topic, ...]:
        """Returns the topics that are read: itself, or those that have joined its pattern."""
        return (self,) if self.pattern is None else tuple(map(self._as, self.joined))

    def _as(self, joined: JoinedTopic) -> Topic:
        made = copy.copy(self)
        set_field = object.__setattr__
        set_field(made, "name", joined.name)
        set_field(made, "partitions", joined.partitions)
        set_field(made, "pattern", None)
        set_field(made, "of_pattern", self.pattern)
        set_field(made, "joined", ())
        return made

    def column(self, name: str) -> Column:
        """Returns the column of that name. Raises KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def key_column(self) -> Column | None:
        """Returns the column that the Kafka key repeats, or None if no key is declared."""
        return None if self.key is None else self.column(self.key)

    @property
    def formats(self) -> tuple[RecordFormat, ...]:
        """Returns the formats that its records are read by: that of values, then that of keys."""
        return (self.format,) if self.key_format is None else (self.format, self.key_format)

    def key_lines(self) -> tuple[str, ...]:
        """Returns what is declared of how keys are written, as comparable lines; none for text."""
        if self.key_format is None:
            return ()
        return (*self.key_format.lines(),) or ("format json",)

    @property
    def has_changes(self) -> bool:
        """Returns True if its records are changes of a database."""
        return changes_of(self.format) is not None

    @property
    def needs_brokers_time(self) -> bool:
        """Returns True if rows depend on when a record was appended, by the broker's time."""
        return self.lateness_ms is not None or bool(self.identity)


def _event(
    event: str | Mapping[str, Any] | Path | None, form: RecordFormat, source: Source
) -> tuple[Column, ...] | SchemaPlace:
    if event is None:
        found = form.event()
        if found is None:
            raise DeclarationError(
                "no event is declared, and the format knows no columns",
                hint='declare it: event="id string not null, at timestamp"',
            )
        return found
    if isinstance(form, Json) and form.pin is not None:
        raise DeclarationError(
            f"the event is declared twice, and subject {form.pin.subject} declares it too",
            hint="leave out event; or read it by yours: format=Json(framed=True)",
        )
    return schema_of_event(event, source) or parse_columns(str(event))
