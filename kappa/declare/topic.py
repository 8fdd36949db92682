"""A topic, as a pipeline's file declares it. Declaring runs nothing and knows no Kafka."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kappa.base.errors import DeclarationError
from kappa.base.units import parse_duration
from kappa.declare.schema_files import read_schema_file
from kappa.values.columns import INTEGERS, Array, Column, Scalar, Struct, parse_columns
from kappa.values.json_schema import Place, read_schema
from kappa.values.reason import Rejected
from kappa.values.schema_rules import rule_of
from kappa.values.value import check_of, default_of

# https://kafka.apache.org: 249 characters of this alphabet, and neither "." nor "..".
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
KEY_TYPES = frozenset({"string", *INTEGERS})
# Whose timestamp a record has: the setting of Kafka's, and the broker's own, which no producer can set.
TIMESTAMP_TYPE = "message.timestamp.type"
BROKERS_TIME = "LogAppendTime"
# What to do with a topic that is there and has another; `{}` is its name.
SET_BROKERS_TIME = (
    "let Kafka's own tool set it: kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics --entity-name {} "
    f"--add-config {TIMESTAMP_TYPE}={BROKERS_TIME}; what is in the topic keeps the time that producers gave it"
)
_HORIZON = "10 minutes"


class TopicKind(StrEnum):
    """What Kafka keeps: the whole history, or the latest value of each key."""

    RETAINED = "retained"
    COMPACTED = "compacted"


@dataclass(frozen=True, slots=True)
class Source:
    """Where in the user's files something is declared."""

    file: str
    line: int

    @classmethod
    def of_caller(cls, depth: int = 1) -> Source:
        """The file and line of the frame `depth` levels above whoever calls this."""
        frame = sys._getframe(depth + 1)  # noqa: SLF001  # the documented way to a caller's line without building a whole stack
        return cls(frame.f_code.co_filename, frame.f_lineno)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Archive(StrEnum):
    """What is kept of a topic in its archive: nothing, what its declaration makes of each record, or that and the records as they lie there."""

    NONE = "none"
    COLUMNS = "columns"
    RAW = "raw"


@dataclass(frozen=True, slots=True, init=False)
class Topic:
    """A Kafka topic: retained (a history of events) or compacted (latest value per key, null = tombstone).

    `event` declares one record: in DDL, defaults of missing fields among it (`page string default '/'`), or by a JSON Schema, given
    as a mapping or as the path of a file, named from the project's folder. `columns` are what it makes; `schema` is what a JSON
    Schema demands besides. `was`
    gives the names that a column's field had in older events, the first that is there counting where its own is not. `key` names
    the column that the Kafka key repeats, as text.
    `config` holds topic settings of Kafka that apply when `kappa topics create` makes it. With `archive` the platform keeps a copy of
    the log in columns, which replays read faster, and which outlives Kafka's retention; it decides no rows. An archive that is
    `"raw"` keeps keys, values and headers beside the columns, at about twice the size: what the topic has lost can be decoded again when the event changes.

    A record is late, and rejected, where its timestamp is more than `lateness` ("5 minutes") after its `event_time`, a
    column. It is a duplicate, and not folded, where an accepted one of the same `identity` (a column or several) stands
    before it in its partition, less than `identity_horizon` ago (10 minutes). Both want the broker's timestamps. Raises
    DeclarationError, with the user's file and line, where that cannot be meant.
    """

    name: str
    kind: TopicKind
    partitions: int
    key: str | None
    columns: tuple[Column, ...]
    schema: Place | None
    config: Mapping[str, str]
    event_time: str | None
    lateness_ms: int | None
    identity: tuple[str, ...]
    identity_horizon_ms: int
    archive: Archive
    source: Source = field(compare=False)

    def __init__(
        self,
        name: str,
        *,
        event: str | Mapping[str, Any] | Path,
        kind: str = TopicKind.RETAINED,
        partitions: int = 1,
        key: str | None = None,
        was: Mapping[str, str | Sequence[str]] | None = None,
        config: Mapping[str, str] | None = None,
        event_time: str | None = None,
        lateness: str | None = None,
        identity: str | Sequence[str] = (),
        identity_horizon: str | None = None,
        archive: bool | str = False,
    ) -> None:
        source = Source.of_caller()
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in {".", ".."}:
            raise DeclarationError(
                f"{source}: {name!r} is no name of a Kafka topic",
                hint="use up to 249 letters, digits, dots, dashes and underscores",
            )
        if kind not in set(TopicKind):
            raise DeclarationError(
                f"{source}: topic {name} has the kind {kind!r}",
                hint='kind is "retained" or "compacted"',
            )
        if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
            raise DeclarationError(
                f"{source}: topic {name} has {partitions!r} partitions",
                hint="partitions is a whole number from 1",
            )
        try:
            schema = _schema(event, source)
            columns = _renamed(
                parse_columns(str(event)) if schema is None else schema.columns, was or {}
            )
        except DeclarationError as error:
            raise DeclarationError(
                f"{source}: topic {name}: {error.message}", hint=error.hint
            ) from None
        if key is None and kind == TopicKind.COMPACTED:
            raise DeclarationError(
                f"{source}: topic {name} is compacted and has no key",
                hint="name the column that the Kafka key repeats: key=...",
            )
        if key is not None:
            _check_key(source, name, key, columns)
        given = {str(option): str(value) for option, value in (config or {}).items()}
        lateness_ms = _lateness(source, name, event_time, lateness, columns)
        identities = _identity(source, name, identity, columns)
        horizon_ms = _horizon(source, name, identity_horizon, declared=bool(identities))
        if lateness_ms is not None or identities:
            _check_brokers_time(source, name, kind, given)
        kept = _archive(source, name, archive)
        if kept is not Archive.NONE:
            _check_archive(source, name, kind, identities)
        _check_defaults(source, name, columns, schema)
        set_field = object.__setattr__
        set_field(self, "name", name)
        set_field(self, "kind", TopicKind(kind))
        set_field(self, "partitions", partitions)
        set_field(self, "key", key)
        set_field(self, "columns", columns)
        set_field(self, "schema", schema)
        set_field(self, "config", given)
        set_field(self, "event_time", event_time)
        set_field(self, "lateness_ms", lateness_ms)
        set_field(self, "identity", identities)
        set_field(self, "identity_horizon_ms", horizon_ms)
        set_field(self, "archive", kept)
        set_field(self, "source", source)

    def column(self, name: str) -> Column:
        """The column of that name; KeyError where there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def key_column(self) -> Column | None:
        """The column that the Kafka key repeats, or None where no key is declared."""
        return None if self.key is None else self.column(self.key)

    @property
    def needs_brokers_time(self) -> bool:
        """True where rows depend on when a record was appended: its timestamp must be the broker's."""
        return self.lateness_ms is not None or bool(self.identity)


def _schema(event: str | Mapping[str, Any] | Path, source: Source) -> Place | None:
    """The JSON Schema that an event is declared by; None where it is DDL."""
    match event:
        case str() if event.endswith(".json"):
            raise DeclarationError(
                f"event={event!r} is no DDL",
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
                f"event={event!r} declares nothing",
                hint='give DDL ("id string not null, at timestamp"), a JSON Schema, or the Path of one',
            )


def _renamed(
    columns: tuple[Column, ...], was: Mapping[str, str | Sequence[str]]
) -> tuple[Column, ...]:
    """The columns with the names that their fields had."""
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
            raise DeclarationError(f"was names {name}, which is no column", hint=hint)
        old_names[name] = (given,) if isinstance(given, str) else tuple(given)
        for old in old_names[name]:
            if not isinstance(old, str) or not old:
                raise DeclarationError(
                    f"column {name} was {old!r}, which is no name",
                    hint='write was={"page": "url"}, or was={"page": ("url", "uri")}',
                )
            if old in taken:
                # In one record it cannot be told which of the two is meant.
                raise DeclarationError(
                    f"column {name} was {old}, which is {taken[old]}",
                    hint="a name means one thing in all events, old and new",
                )
            taken[old] = f"what {name} was already"
    return tuple(replace(column, was=old_names.get(column.name, ())) for column in columns)


def _check_defaults(
    source: Source, topic: str, columns: tuple[Column, ...], schema: Place | None
) -> None:
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


def _check_key(source: Source, topic: str, key: str, columns: tuple[Column, ...]) -> None:
    types = {column.name: column.type for column in columns}
    if key not in types:
        raise DeclarationError(
            f"{source}: topic {topic} has no column {key}, its key",
            hint=f"its columns are {', '.join(types)}",
        )
    kind = types[key]
    if not isinstance(kind, Scalar) or kind.name not in KEY_TYPES:
        raise DeclarationError(
            f"{source}: topic {topic} has a key of type {kind}",
            hint="a key is a string or a whole number, as text in Kafka",
        )


def _lateness(
    source: Source,
    topic: str,
    event_time: str | None,
    lateness: str | None,
    columns: tuple[Column, ...],
) -> int | None:
    if event_time is None and lateness is None:
        return None
    if event_time is None or lateness is None:
        missing = 'event_time="at"' if event_time is None else 'lateness="5 minutes"'
        raise DeclarationError(
            f"{source}: topic {topic} declares {'lateness' if event_time is None else 'event_time'} alone",
            hint=f"say both: {missing}",
        )
    if _typed(source, topic, event_time, "event_time", columns).type != Scalar("timestamp"):
        raise DeclarationError(
            f"{source}: topic {topic} has the event_time {event_time}, which is no timestamp",
            hint=f"declare {event_time} timestamp in its event",
        )
    return _duration(source, topic, "lateness", lateness)


def _identity(
    source: Source, topic: str, identity: str | Sequence[str], columns: tuple[Column, ...]
) -> tuple[str, ...]:
    names = (identity,) if isinstance(identity, str) else tuple(identity)
    if len(set(names)) < len(names):
        raise DeclarationError(
            f"{source}: topic {topic} has a column twice in its identity",
            hint=f"it is {', '.join(map(str, names))}",
        )
    for name in names:
        kind = _typed(source, topic, name, "identity", columns).type
        if isinstance(kind, Array | Struct) or kind in {Scalar("double"), Scalar("float")}:
            raise DeclarationError(
                f"{source}: topic {topic} has an identity of type {kind}, which has no exact equality",
                hint="use text, whole numbers, decimals, booleans, dates or times",
            )
    return names


def _horizon(source: Source, topic: str, horizon: str | None, *, declared: bool) -> int:
    if horizon is not None and not declared:
        raise DeclarationError(
            f"{source}: topic {topic} declares identity_horizon alone", hint='say identity="id" too'
        )
    found = _duration(source, topic, "identity_horizon", _HORIZON if horizon is None else horizon)
    if found == 0:
        raise DeclarationError(
            f"{source}: topic {topic} has an identity_horizon of nothing, within which no record is a duplicate",
            hint="leave identity out, or say how long",
        )
    return found


def _typed(
    source: Source, topic: str, name: object, option: str, columns: tuple[Column, ...]
) -> Column:
    for column in columns:
        if column.name == name:
            return column
    raise DeclarationError(
        f"{source}: topic {topic} has no column {name}, its {option}",
        hint=f"its columns are {', '.join(column.name for column in columns)}",
    )


def _duration(source: Source, topic: str, option: str, text: str) -> int:
    found = parse_duration(text)
    if found is None:
        raise DeclarationError(
            f"{source}: topic {topic} has {option}={text!r}, which is no duration",
            hint='say it like "90 seconds", "5 minutes" or "1 hour"',
        )
    return found


def _archive(source: Source, topic: str, given: bool | str) -> Archive:
    if given is False or given is True:
        return Archive.COLUMNS if given else Archive.NONE
    if given != Archive.RAW:
        raise DeclarationError(
            f"{source}: topic {topic} has archive={given!r}",
            hint='archive is True, or "raw" to keep keys and values too, or False',
        )
    return Archive.RAW


def _check_archive(source: Source, topic: str, kind: str, identity: tuple[str, ...]) -> None:
    if kind == TopicKind.COMPACTED:
        raise DeclarationError(
            f"{source}: topic {topic} is compacted, and has no history to archive",
            hint='archive=True is for kind="retained"',
        )
    if identity:
        raise DeclarationError(
            f"{source}: topic {topic} declares an identity, and an archive does not remember what was accepted before",
            hint="leave out archive=True, or identity",
        )


def _check_brokers_time(source: Source, topic: str, kind: str, config: Mapping[str, str]) -> None:
    if kind == TopicKind.COMPACTED:
        raise DeclarationError(
            f"{source}: topic {topic} is compacted, and compaction takes away the records that lateness and identity go by",
            hint='they are for kind="retained" alone',
        )
    if config.get(TIMESTAMP_TYPE, BROKERS_TIME) != BROKERS_TIME:
        raise DeclarationError(
            f"{source}: topic {topic} has {TIMESTAMP_TYPE}={config[TIMESTAMP_TYPE]} in its config, and lateness and identity go by the broker's time",
            hint=f"leave it out: kappa topics create sets {BROKERS_TIME}",
        )
