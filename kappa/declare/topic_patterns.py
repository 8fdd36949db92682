"""The topics that have joined a pattern, recorded in a file of the project.

`kappa topics join` writes the names of the broker's topics that match a pattern into a file.
Declarations read that file, and do not contact the broker. So a version reads the same topics
wherever and whenever it is loaded, and a build's code snapshot contains the file. A topic that is
created later joins the pattern only when that command is run again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from kappa.base.disk import put_file
from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.options import describe_value, option_text
from kappa.declare.project_files import FileNotThere, read_schema_file
from kappa.declare.topic_options import TopicKind

# The project's folder for the files of patterns.
FOLDER = "topics/joined"
# Kafka's and its tools' own topics: `__consumer_offsets`, `_schemas`.
_INTERNAL = "_"
# A longer pattern could not name a file.
_LONGEST = 200
# A pattern with one of these errors has no topics, instead of being refused.
_excused: list[type[DeclarationError]] = []


class NothingJoined(DeclarationError):
    """The error for a pattern that no topic has joined."""


class JoinedTopic(Struct, frozen=True):
    """A topic that has joined a pattern, with its number of partitions when it joined."""

    name: str
    partitions: int


class JoinedTopics(Struct, frozen=True):
    """A pattern, and the topics that have joined it."""

    pattern: str
    topics: tuple[JoinedTopic, ...]


def joined_path(pattern: str) -> str:
    """Returns the path of the file that lists the topics of a pattern.

    The path is relative to the project's folder.
    """
    return f"{FOLDER}/{quote(pattern, safe='')}.json"


def matching_topics(pattern: str, names: Iterable[str], sinks: Collection[str]) -> tuple[str, ...]:
    """Returns the topics among `names` that match a pattern, sorted.

    Internal topics, and the topics of `sinks`, are left out.
    """
    whole = re.compile(pattern)
    return tuple(
        name
        for name in sorted(names)
        if not name.startswith(_INTERNAL) and name not in sinks and whole.fullmatch(name)
    )


def topics_of_pattern(
    source: Source, name: object, pattern: object, kind: str, partitions: object
) -> tuple[JoinedTopic, ...]:
    """Checks a declared pattern, and returns the topics that have joined the pattern.

    Raises DeclarationError if the pattern is not valid, if an option cannot be used with a pattern,
    or if no topic has joined the pattern.
    """
    found = _checked_pattern(source, pattern)
    if name is not None:
        raise DeclarationError(
            f"{source}: topic {option_text(name)} has the pattern {found}, too",
            hint="give it a name or a pattern",
        )
    if kind == TopicKind.COMPACTED:
        raise DeclarationError(
            f"{source}: the pattern {found} is of compacted topics, and each is a table of its own",
            hint="declare each by its name",
        )
    if partitions != 1:
        raise DeclarationError(
            f"{source}: the pattern {found} has partitions={option_text(partitions)}",
            hint="leave partitions out: each topic has those with which it joined",
        )
    return _read_joined(source, found)


def _checked_pattern(source: Source, pattern: object) -> str:
    """Checks a declared pattern, and returns it.

    Raises DeclarationError if the pattern is not a regular expression, or is too long for a file
    name.
    """
    if not isinstance(pattern, str) or not pattern:
        raise DeclarationError(
            f"{source}: a topic has the pattern {describe_value(pattern)}",
            hint=r'a pattern is a regular expression of whole names: pattern="logs\\..*"',
        )
    try:
        re.compile(pattern)
    except re.error as error:
        raise DeclarationError(
            f"{source}: the pattern {pattern} is not a regular expression: {error}",
            hint=r'it is one of whole names: pattern="logs\\..*"',
        ) from None
    if len(quote(pattern, safe="")) > _LONGEST:
        raise DeclarationError(f"{source}: the pattern {pattern[:60]}... is too long to be kept")
    return pattern


def _read_joined(source: Source, pattern: str) -> tuple[JoinedTopic, ...]:
    """Reads the topics that have joined a pattern, from a file of the project.

    Raises DeclarationError if no topic has joined the pattern, or if the file is not valid. Within
    a block of `before_joining` that ignores this error, returns no topics instead.
    """
    try:
        return _listed_topics(source, pattern)
    except DeclarationError as error:
        if isinstance(error, tuple(_excused)):
            return ()
        raise


def _listed_topics(source: Source, pattern: str) -> tuple[JoinedTopic, ...]:
    path, hint = joined_path(pattern), f"kappa topics join '{pattern}'"
    try:
        found = msgspec.convert(read_schema_file(Path(path), source.file), JoinedTopics)
    except FileNotThere:
        raise _nothing_joined(source, pattern) from None
    except DeclarationError as error:
        raise DeclarationError(
            f"{source}: no topic has joined the pattern {pattern}: {error.message}", hint=hint
        ) from None
    except msgspec.ValidationError as error:
        raise DeclarationError(f"{source}: {path} lists no topics: {error}", hint=hint) from None
    odd = [each.name for each in found.topics if not re.fullmatch(pattern, each.name)]
    if found.pattern != pattern or odd:
        what = f"topic {odd[0]}" if odd else f"topics of the pattern {found.pattern}"
        raise DeclarationError(
            f"{source}: {path} has {what}, and the pattern is {pattern}", hint=hint
        )
    if not found.topics:
        raise _nothing_joined(source, pattern)
    return found.topics


def _nothing_joined(source: Source, pattern: str) -> NothingJoined:
    return NothingJoined(
        f"{source}: no topic has joined the pattern {pattern}",
        hint=f"kappa topics join '{pattern}', once a topic of such a name is on the broker: its"
        " producer makes it, or kafka-topics.sh",
    )


def put_joined(project: Path, found: JoinedTopics) -> None:
    """Writes the file of the project that lists the topics of a pattern.

    An existing file for the pattern is overwritten.
    """
    path = project / joined_path(found.pattern)
    path.parent.mkdir(parents=True, exist_ok=True)
    put_file(path, msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")


def is_joining() -> bool:
    """Returns True within a block of `before_joining`."""
    return bool(_excused)


@contextmanager
def before_joining(excused: type[DeclarationError] = DeclarationError) -> Iterator[None]:
    """Ignores, within the block, errors about the topics that have joined a pattern.

    A pattern with such an error has no topics. By default, each DeclarationError about the topics
    of a pattern is ignored; the command that joins topics needs this. With `NothingJoined`, only
    the error that no topic has joined the pattern is ignored.
    """
    _excused.append(excused)
    try:
        yield
    finally:
        _excused.pop()
