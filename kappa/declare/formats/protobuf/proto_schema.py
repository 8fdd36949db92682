"""Protobuf's messages by their schemas: texts of .proto, or descriptions in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kappa.base.errors import DeclarationError
from kappa.declare.formats.protobuf.proto_text import read_proto

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

KIND = "PROTOBUF"
# What each schema may import without being given it.
_KNOWN = ("timestamp", "wrappers", "duration", "any", "struct", "empty", "field_mask")
# Schemas that are parsed once: each event that is written needs its own.
_MOST_SCHEMAS = 64
# The place of a map within its message, in Google's error of a value that is none.
_NO_MAP = re.compile(r"Map field \S+ must be in a dict .* at \w+\.(.+?)\.*$")


@lru_cache(_MOST_SCHEMAS)
def message_types(text: str, references: tuple[str, ...] = ()) -> Any:
    """Returns the description of a schema's file, with all that it refers to.

    Raises DeclarationError if the schema is none.
    """
    # Its import costs more than reading a project that has no such topic.
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    # Some clients register Google's own types, too.
    given = [
        *(file for each in references if (file := _file(each)).package != "google.protobuf"),
        _file(text),
    ]
    names: list[str] = []
    for name in _KNOWN:
        known = _known_file(name)
        if any(known.name in each.dependency for each in given):
            pool.AddSerializedFile(known.SerializeToString())
            names.append(known.name)
    for number, file in enumerate(given):
        # A registry names what is referred to by its texts: each sees those before it.
        file.name = f"schema{number}.proto"
        missing = [each for each in file.dependency if each.startswith("google/")]
        if unknown := [each for each in missing if each not in names]:
            raise DeclarationError(f"the schema imports {unknown[0]}, which is not known here")
        if len(missing) < len(file.dependency) and not number:
            other = next(each for each in file.dependency if each not in missing)
            raise DeclarationError(f"the schema imports {other}, which is not given")
        del file.public_dependency[:]
        del file.weak_dependency[:]
        file.dependency[:] = names
        try:
            pool.AddSerializedFile(file.SerializeToString())
            found = pool.FindFileByName(file.name)
        except (TypeError, ValueError, KeyError) as error:
            raise DeclarationError(f"the schema is no Protobuf: {error}") from None
        names.append(file.name)
    return found


def message_named(file: Any, name: str | None) -> Any:
    """Returns the description of a message, by its full name; without one it is the only one.

    Raises DeclarationError if there is none.
    """
    known = {each.full_name: each for each in _messages(file.message_types_by_name.values())}
    if name is None:
        top = [*file.message_types_by_name.values()]
        if len(top) == 1:
            return top[0]
        raise DeclarationError(
            f"the schema has the messages {', '.join(known) or '(none)'}",
            hint="name that of the topic: message=...",
        )
    if name not in known:
        raise DeclarationError(
            f"the schema has no message {name}", hint=f"it has {', '.join(known) or 'none'}"
        )
    return known[name]


def message_at(file: Any, indexes: Sequence[int]) -> str | None:
    """Returns the full name of the message at a frame's indexes, or None if there is none."""
    within = [*file.message_types_by_name.values()]
    name = None
    for index in indexes:
        if not 0 <= index < len(within):
            return None
        name, within = within[index].full_name, [*within[index].nested_types]
    return name


def indexes_of(message: Any) -> tuple[int, ...]:
    """Returns the indexes by which frames name a message of a file."""
    around = message.containing_type
    beside = (
        [*message.file.message_types_by_name.values()] if around is None else [*around.nested_types]
    )
    return (
        *(() if around is None else indexes_of(around)),
        [each.full_name for each in beside].index(message.full_name),
    )


def why_unwritten(error: Exception) -> str:
    """Returns why Google's parser of JSON refuses an event, without the lists that follow."""
    why = str(error).partition("\n")[0].rstrip(".")
    no_map = _NO_MAP.search(why)
    return f"{no_map[1]} is a map, and is given as no object" if no_map else why


def _messages(within: Any) -> Any:
    for each in within:
        if not each.GetOptions().map_entry:
            yield each
            yield from _messages(each.nested_types)


def _file(text: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        # Python's clients register descriptions, all others texts.
        return read_proto(text)


def _known_file(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    file = import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415

    made = FileDescriptorProto()
    file.CopyToProto(made)
    return made
