"""Checks of a topic's options: kind, archive, lateness and identity. Pure.

Lateness and identity can be used only if the broker sets the records' timestamps, because a
producer may send any timestamp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from kappa.base.errors import DeclarationError, did_you_mean
from kappa.base.source import Source
from kappa.base.units import parse_duration
from kappa.declare.options import describe_value, listed_texts, option_text
from kappa.declare.values.columns import Array, Column, Scalar, Struct

# Kafka's setting that decides whether producers or the broker give a record its timestamp, and the
# value for the broker's time.
TIMESTAMP_TYPE = "message.timestamp.type"
BROKERS_TIME = "LogAppendTime"
# Advice for an existing topic with another setting; `{}` is the topic's name.
SET_BROKERS_TIME = (
    f"set it: kappa topics alter {{}} --set {TIMESTAMP_TYPE}={BROKERS_TIME}; what is in the topic "
    "keeps the time that producers gave it"
)
_HORIZON = "10 minutes"


class TopicKind(StrEnum):
    """The kind of a topic: Kafka keeps the whole history, or only the latest value of each key."""

    RETAINED = "retained"
    COMPACTED = "compacted"


class Archive(StrEnum):
    """The contents of a topic's archive: nothing, decoded columns, or columns and raw records."""

    NONE = "none"
    COLUMNS = "columns"
    RAW = "raw"


def archive_of(
    source: Source, topic: str, given: bool | str, kind: str, identity: tuple[str, ...]
) -> Archive:
    """Checks the option `archive` of a topic, and returns the contents of its archive.

    Raises DeclarationError if the value of the option is not valid. A compacted topic, or a topic
    with an identity, cannot be archived; for such a topic, DeclarationError is raised too.
    """
    if given is False:
        return Archive.NONE
    if given is not True and given != Archive.RAW:
        raise DeclarationError(
            f"{source}: topic {topic} has archive={option_text(given)}",
            hint='archive is True, or "raw" to keep keys and values too, or False',
        )
    if kind == TopicKind.COMPACTED:
        raise DeclarationError(
            f"{source}: topic {topic} is compacted, and has no history to archive",
            hint='archive=True is for kind="retained"',
        )
    if identity:
        raise DeclarationError(
            f"{source}: topic {topic} declares an identity, "
            "and an archive does not remember what was accepted before",
            hint="leave out archive=True, or identity",
        )
    return Archive.COLUMNS if given is True else Archive.RAW


def lateness_of_topic(
    source: Source,
    topic: str,
    event_time: str | None,
    lateness: str | None,
    columns: tuple[Column, ...],
) -> int | None:
    """Checks the options `event_time` and `lateness`, and returns the lateness in milliseconds.

    Returns None if neither option is declared. Raises DeclarationError if an option is not valid,
    or if only one of them is declared.
    """
    if event_time is None and lateness is None:
        return None
    if event_time is None or lateness is None:
        declared = "lateness" if event_time is None else "event_time"
        missing = 'event_time="happened_at"' if event_time is None else 'lateness="5 minutes"'
        raise DeclarationError(
            f"{source}: topic {topic} declares {declared} alone", hint=f"say both: {missing}"
        )
    if _named_column(source, topic, event_time, "event_time", columns).type != Scalar("timestamp"):
        raise DeclarationError(
            f"{source}: topic {topic} has the event_time {event_time}, which is not a timestamp",
            hint=f"declare {event_time} timestamp in its event",
        )
    return _checked_duration(source, topic, "lateness", lateness)


def identity_columns(
    source: Source, topic: str, identity: str | Sequence[str], columns: tuple[Column, ...]
) -> tuple[str, ...]:
    """Checks the option `identity` of a topic, and returns its columns.

    Raises DeclarationError if a column does not exist or is declared twice, or if values of the
    column's type cannot be compared exactly.
    """
    given = (identity,) if isinstance(identity, str) else identity
    names = listed_texts(f"{source}: topic {topic}", "identity", given, '("id",)')
    if len(set(names)) < len(names):
        raise DeclarationError(
            f"{source}: topic {topic} has a column twice in its identity",
            hint=f"it is {', '.join(map(str, names))}",
        )
    for name in names:
        kind = _named_column(source, topic, name, "identity", columns).type
        if isinstance(kind, Array | Struct) or kind in {Scalar("double"), Scalar("float")}:
            raise DeclarationError(
                f"{source}: topic {topic} has an identity of type {kind}, "
                "which has no exact equality",
                hint="use text, whole numbers, decimals, booleans, dates or times",
            )
    return names


def identity_horizon_of(source: Source, topic: str, horizon: str | None, *, declared: bool) -> int:
    """Checks the option `identity_horizon` of a topic, and returns the horizon in milliseconds.

    The default is 10 minutes. `declared` is True if the topic declares an identity. Raises
    DeclarationError if the horizon is not valid, or is declared without an identity.
    """
    if horizon is not None and not declared:
        raise DeclarationError(
            f"{source}: topic {topic} declares identity_horizon alone", hint='say identity="id" too'
        )
    found = _checked_duration(
        source, topic, "identity_horizon", _HORIZON if horizon is None else horizon
    )
    if found == 0:
        raise DeclarationError(
            f"{source}: topic {topic} has an identity_horizon of nothing, "
            "within which no record is a duplicate",
            hint="leave identity out, or say how long",
        )
    return found


def _named_column(
    source: Source, topic: str, name: object, option: str, columns: tuple[Column, ...]
) -> Column:
    for column in columns:
        if column.name == name:
            return column
    called = name if isinstance(name, str) else describe_value(name)
    names = [column.name for column in columns]
    raise DeclarationError(
        f"{source}: topic {topic} has no column {called}, its {option}",
        hint=f"{did_you_mean(called, names)} its columns are {', '.join(names)}".lstrip(),
    )


def _checked_duration(source: Source, topic: str, option: str, text: str) -> int:
    found = parse_duration(text)
    if found is None:
        raise DeclarationError(
            f"{source}: topic {topic} has {option}={text!r}, which is not a duration",
            hint='say it like "90 seconds", "5 minutes" or "1 hour"',
        )
    return found


def check_brokers_time(source: Source, topic: str, kind: str, config: Mapping[str, str]) -> None:
    """Raises DeclarationError if lateness or identity cannot be used with a topic.

    Both options need a retained topic, because compaction removes records on which the results of
    these options depend, and both need timestamps that the broker sets.
    """
    if kind == TopicKind.COMPACTED:
        raise DeclarationError(
            f"{source}: topic {topic} is compacted, and compaction takes away the records "
            "that lateness and identity go by",
            hint='they are for kind="retained" alone',
        )
    if config.get(TIMESTAMP_TYPE, BROKERS_TIME) != BROKERS_TIME:
        raise DeclarationError(
            f"{source}: topic {topic} has {TIMESTAMP_TYPE}={config[TIMESTAMP_TYPE]} in its config, "
            "and lateness and identity go by the broker's time",
            hint=f"leave it out: kappa topics create sets {BROKERS_TIME}",
        )
