"""A topic with its event, declared by a pipeline's file.

A declaration runs nothing, and does not use Kafka. It reads only the files that it names. The
options kind, archive, lateness and identity are in topic_options.py, and patterns in
topic_patterns.py.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.formats.debezium_events import check_changes
from kappa.declare.formats.format import RecordFormat
from kappa.declare.formats.json_events import Json
from kappa.declare.formats.topic_formats import changes_of, format_of, keys_of
from kappa.declare.options import describe_value, error_prefix, option_text
from kappa.declare.project_files import read_schema_file
from kappa.declare.topic_options import (
    BROKERS_TIME,
    TIMESTAMP_TYPE,
    Archive,
    TopicKind,
    archive_of,
    check_brokers_time,
    identity_columns,
    identity_horizon_of,
    lateness_of_topic,
)
from kappa.declare.topic_patterns import JoinedTopic, topics_of_pattern
from kappa.declare.values.columns import Column, parse_columns
from kappa.declare.values.json_schema import SchemaPlace, read_schema
from kappa.declare.values.reason import Rejected
from kappa.declare.values.schema_rules import rule_of
from kappa.declare.values.value import check_of, default_of

_WAS = 'write was={"page": "url"}, or was={"page": ("url", "uri")}'


# Kafka's rule: 249 characters of this alphabet, and neither "." nor "..".
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Consumers' offsets, transactions, shares, metadata.
KAFKAS_OWN = "__"


@dataclass(frozen=True, slots=True, init=False)
class Topic:
    """A Kafka topic. `name` is its name in Kafka, and `partitions` is its number of partitions.

    If a `pattern` is given instead of a name, the Topic represents all topics whose names match
    that regular expression, and that have joined the pattern by `kappa topics join`. A function
    receives the rows of all these topics in one DataFrame; the column `_topic` contains the name of
    each row's topic.

    `kind` is "retained" for a history of events, or "compacted" for the latest value per key. In a
    compacted topic, a record whose value is null is a tombstone, which deletes the key.

    `event` declares the columns of a record, by DDL (`"id string not null, page string default
    '/'"`) or by a JSON Schema. A JSON Schema is a mapping, or the path of a file relative to the
    project's folder. The attribute `columns` contains the columns of the event, and `schema`
    contains the further conditions of a JSON Schema. `was` maps a column to the names that its
    field had in older events. If a record contains no field with the column's name, the first of
    the column's old names that the record contains is used instead.

    `format` is the encoding of a record's value: "json" (the default), "csv", "access-log",
    "debezium-json", "debezium-avro", or an object such as `Csv(separator=";")` or
    `Avro(Subject("orders-value"))`. If the format has a schema, `event` may be omitted: the columns
    are the fields of the schema.

    `key` names a column. The Kafka key of a record must be the value of this column, as text. A
    record is rejected if it has no key, if its key is not UTF-8, or if its key differs from the
    column. A key is required for a compacted topic, and for the topic of an ordered fold or of a
    latest table. If `key_format` is declared, the Kafka key has this format, and the key's single
    field is the column: `key_format=Avro(Subject("orders-key"))`.

    `config` contains Kafka's settings of the topic. `kappa topics create` creates the topic with
    these settings.

    With `archive=True`, the platform keeps a columnar copy of the topic's log. Replays read the
    archive faster than Kafka, and the archive is kept longer than Kafka's retention. The archive
    has no influence on rows. With `archive="raw"`, the archive also contains keys, values and
    headers, at about twice the size. Then events that are no longer in Kafka can be decoded again
    if the event's declaration changes.

    A record is late, and is rejected, if its timestamp is more than `lateness` (such as "5
    minutes") after the time in the column `event_time`. A record is a duplicate, and is not folded,
    if its partition contains an earlier accepted record with the same `identity` (one column or
    several), less than `identity_horizon` ago (the default is 10 minutes). Lateness and identity
    require timestamps that the broker sets. Raises DeclarationError, with the user's file and line,
    if the declaration is not valid.

    Example:
        VISITS = Topic(
            "visits",
            event="visitor string not null, page string, ms int, is_returning boolean, "
            "happened_at timestamp",
            partitions=3,
            key="visitor",
            event_time="happened_at",
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
    # `pattern` is the pattern in place of a name. `of_pattern` is the pattern that a topic has
    # joined.
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
                f"{source}: topic {name} has the kind {option_text(kind)}",
                hint='kind is "retained" or "compacted"',
            )
        if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
            raise DeclarationError(
                f"{source}: topic {name} has {option_text(partitions)} partitions",
                hint="partitions is a whole number from 1",
            )
        with error_prefix(f"{source}: topic {name}"):
            written = format_of(format)
            found = _declared_event(event, written, source)
            schema = found if isinstance(found, SchemaPlace) else None
            columns = with_old_names(
                found.columns if isinstance(found, SchemaPlace) else found, was or {}
            )
            written.check_event(columns, by_schema=schema is not None)
        if key is None and kind == TopicKind.COMPACTED:
            raise DeclarationError(
                f"{source}: topic {name} is compacted and has no key",
                hint="name the column that the Kafka key repeats: key=...",
            )
        keyed = keys_of(source, name, key, key_format, columns)
        if not isinstance(config, Mapping | None):
            raise DeclarationError(
                f"{source}: topic {name} has {describe_value(config)} for config, which sets "
                "nothing",
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

    def each_topic(self) -> tuple[Topic, ...]:
        """Returns the topics whose records are read.

        This is the topic itself, or all topics that have joined its pattern.
        """
        return (self,) if self.pattern is None else tuple(map(self._joined_topic, self.joined))

    def _joined_topic(self, joined: JoinedTopic) -> Topic:
        made = copy.copy(self)
        set_field = object.__setattr__
        set_field(made, "name", joined.name)
        set_field(made, "partitions", joined.partitions)
        set_field(made, "pattern", None)
        set_field(made, "of_pattern", self.pattern)
        set_field(made, "joined", ())
        return made

    def column_named(self, name: str) -> Column:
        """Returns the column with that name. Raises KeyError if the topic has no such column."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def key_column(self) -> Column | None:
        """Returns the column whose value the Kafka key repeats, or None if no key is declared."""
        return None if self.key is None else self.column_named(self.key)

    @property
    def record_formats(self) -> tuple[RecordFormat, ...]:
        """Returns the format of the topic's values, and then the format of its keys.

        If no key format is declared, the result contains only the format of the values.
        """
        return (self.format,) if self.key_format is None else (self.format, self.key_format)

    def key_lines(self) -> tuple[str, ...]:
        """Returns the declared options of the key format as lines of text.

        The result is empty if keys are plain text. The lines are part of the version of a pipeline,
        and a plan compares the lines of two versions to find changes.
        """
        if self.key_format is None:
            return ()
        return (*self.key_format.declared_lines(),) or ("format json",)

    @property
    def has_changes(self) -> bool:
        """Returns True if the topic's records are changes of a database."""
        return changes_of(self.format) is not None

    @property
    def needs_brokers_time(self) -> bool:
        """Returns True if rows depend on timestamps that the broker sets."""
        return self.lateness_ms is not None or bool(self.identity)


def _declared_event(
    event: str | Mapping[str, Any] | Path | None, form: RecordFormat, source: Source
) -> tuple[Column, ...] | SchemaPlace:
    if event is None:
        found = form.declared_event()
        if found is None:
            raise DeclarationError(
                "no event is declared, and the format knows no columns",
                hint='declare it: event="id string not null, happened_at timestamp"',
            )
        return found
    if isinstance(form, Json) and form.pin is not None:
        raise DeclarationError(
            f"the event is declared twice, and subject {form.pin.subject} declares it too",
            hint="leave out event; or read it by yours: format=Json(framed=True)",
        )
    return schema_of_event(event, source) or parse_columns(str(event))


def declared_config(topic: Topic, *, brokers_time: bool = False) -> dict[str, str]:
    """Returns the Kafka settings with which `kappa topics create` creates a declared topic.

    If `brokers_time` is True, or if the declaration requires it, the settings let the broker set
    the records' timestamps.
    """
    config = {
        "retention.ms": "-1",
        "cleanup.policy": "compact" if topic.kind == "compacted" else "delete",
        **topic.config,
    }
    if brokers_time or topic.needs_brokers_time:
        config[TIMESTAMP_TYPE] = BROKERS_TIME
    return config


def schema_of_event(event: str | Mapping[str, Any] | Path, source: Source) -> SchemaPlace | None:
    """Reads the JSON Schema that declares an event. Returns None if the event is declared by DDL.

    Raises DeclarationError if the schema is not valid, or if `event` is neither DDL nor a schema.
    """
    match event:
        case str() if event.endswith(".json"):
            raise DeclarationError(
                f"event={event!r} is not DDL",
                hint=f'give a schema\'s file as a path: event=Path("{event}")',
            )
        case str():
            return None
        case Path():
            try:
                return read_schema(read_schema_file(event, source.file))
            except DeclarationError as error:
                raise DeclarationError(
                    error.message.replace("the schema", f"{event}", 1), hint=error.hint
                ) from None
        case Mapping():
            return read_schema(event)
        case _:
            raise DeclarationError(
                f"event is {describe_value(event)}, which declares nothing",
                hint=(
                    'give DDL ("id string not null, happened_at timestamp"), a JSON Schema, '
                    "or the Path of one"
                ),
            )


def with_old_names(
    columns: tuple[Column, ...], was: Mapping[str, str | Sequence[str]]
) -> tuple[Column, ...]:
    """Returns the columns with the old names that `was` declares.

    Raises DeclarationError if `was` is not valid.
    """
    if not isinstance(was, Mapping):
        raise DeclarationError(
            f"was is {describe_value(was)}, which gives no column an old name", hint=_WAS
        )
    names = [column.name for column in columns]
    taken = dict.fromkeys(names, "a column")
    old_names: dict[str, tuple[str, ...]] = {}
    for name, given in was.items():
        if name not in names:
            hint = (
                "only a column of its own was renamed, nothing inside of one"
                if "." in name
                else f"write was={{new name: old name}}; its columns are {', '.join(names)}"
            )
            raise DeclarationError(f"was names {name}, which is not a column", hint=hint)
        if not isinstance(given, Iterable):
            raise _no_old_name(name, given)
        old_names[name] = (given,) if isinstance(given, str) else tuple(given)
        for old in old_names[name]:
            if not isinstance(old, str) or not old:
                raise _no_old_name(name, old)
            if old in taken:
                # A record with both names would be ambiguous.
                raise DeclarationError(
                    f"column {name} was {old}, which is {taken[old]}",
                    hint="a name means one thing in all events, old and new",
                )
            taken[old] = f"what {name} was already"
    return tuple(replace(column, was=old_names.get(column.name, ())) for column in columns)


def _no_old_name(column: str, given: object) -> DeclarationError:
    return DeclarationError(
        f"column {column} was {option_text(given)}, which is not a name", hint=_WAS
    )


def check_defaults(
    source: Source, topic: str, columns: tuple[Column, ...], schema: SchemaPlace | None
) -> None:
    """Raises DeclarationError if a column's default is not valid for the column or the schema."""
    try:
        for column in columns:
            default_of(column, check_of(column.type))
        if schema is not None:
            rule_of(schema)
    except Rejected as rejected:
        raise DeclarationError(
            f"{source}: topic {topic}: {rejected.detail}",
            hint="a default is a value that the column may have",
        ) from None


def _checked_name(source: Source, name: object) -> str:
    if not isinstance(name, str) or not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise DeclarationError(
            f"{source}: {describe_value(name)} is not a valid name of a Kafka topic",
            hint="use up to 249 letters, digits, dots, dashes and underscores",
        )
    if name.startswith(KAFKAS_OWN):
        raise DeclarationError(
            f"{source}: topic {name} is one of Kafka's own", hint="name a topic with events"
        )
    return name
