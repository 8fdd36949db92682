"""Parses Protobuf schemas, which are texts of .proto files or descriptors in base64.

This module parses the text of a .proto file itself, because the Python packages that can do so
include a compiler of 10 MB. The result is the same `FileDescriptorProto` that protoc would make.
Services, extensions and options have no effect on messages, and are ignored. Google's library
resolves names. Source: https://protobuf.dev/reference/protobuf/proto3-spec/.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kappa.base.errors import DeclarationError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FileDescriptorProto,
    )

_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|/\*.*?\*/)*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\.?[\w.]+|[^\s\w])?""",
    re.DOTALL,
)
_SCALARS = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "uint64": 4,
    "int32": 5,
    "fixed64": 6,
    "fixed32": 7,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
    "sfixed32": 15,
    "sfixed64": 16,
    "sint32": 17,
    "sint64": 18,
}
_LABELS = {"optional": 1, "required": 2, "repeated": 3}
_SYNTAXES = ("proto2", "proto3")
# No real schema has messages within messages deeper than this.
_DEEPEST = 32
KIND = "PROTOBUF"
# The files that each schema may import without being given them.
_KNOWN = ("timestamp", "wrappers", "duration", "any", "struct", "empty", "field_mask")
# So many parsed schemas are kept: each written event needs the schema again.
_MOST_SCHEMAS = 64
# The place of a map within its message, in Google's error for a value that is no map.
_NO_MAP = re.compile(r"Map field \S+ must be in a dict .* at \w+\.(.+?)\.*$")


def read_proto(text: str) -> FileDescriptorProto:
    """Parses the text of a .proto file. Raises DeclarationError if the text is not valid."""
    try:
        return _ProtoReader(text).read_file()
    except (ValueError, TypeError) as error:
        # For instance, the description cannot have a number.
        raise DeclarationError(f"the schema is not Protobuf: {error}") from None


class _ProtoReader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [found for found in _TOKEN.findall(text) if found]
        self._place = 0
        self._is_proto3 = False

    def read_file(self) -> FileDescriptorProto:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415  # see message_types

        made = FileDescriptorProto(syntax=_SYNTAXES[0])
        while self._place < len(self._tokens):
            match self._next_token():
                case "syntax":
                    self._take_token("=")
                    made.syntax = self._next_token()[1:-1]
                    self._take_token(";")
                    if made.syntax not in _SYNTAXES:
                        raise self._syntax_error(f"the syntax is {made.syntax}")
                    self._is_proto3 = made.syntax == _SYNTAXES[1]
                case "package":
                    made.package = self._next_token()
                    self._take_token(";")
                case "import":
                    word = self._next_token()
                    path = self._next_token() if word in {"public", "weak"} else word
                    made.dependency.append(path[1:-1])
                    self._take_token(";")
                case "message":
                    self._read_message(made.message_type.add(name=self._read_name()), 0)
                case "enum":
                    self._read_enum(made.enum_type.add(name=self._read_name()))
                case "option" | "service" | "extend":
                    self._skip_statement()
                case ";":
                    pass
                case word:
                    raise self._syntax_error(f"{word} is not expected")
        return made

    def _read_message(self, made: DescriptorProto, depth: int) -> None:
        if depth > _DEEPEST:
            raise self._syntax_error(f"messages are nested deeper than {_DEEPEST} levels")
        self._take_token("{")
        synthetic = []
        while (word := self._next_token()) != "}":
            match word:
                case "message" if self._peek_token(1) == "{":
                    self._read_message(made.nested_type.add(name=self._read_name()), depth + 1)
                case "enum" if self._peek_token(1) == "{":
                    self._read_enum(made.enum_type.add(name=self._read_name()))
                case "oneof" if self._peek_token(1) == "{":
                    made.oneof_decl.add(name=self._read_name())
                    self._take_token("{")
                    while (within := self._next_token()) != "}":
                        if within == "option":
                            self._skip_statement()
                        else:
                            self._read_field(made, within, 1)
                            made.field[-1].oneof_index = len(made.oneof_decl) - 1
                case "option" | "reserved" | "extensions":
                    self._skip_statement()
                case "extend" if self._peek_token(1) == "{":
                    self._skip_statement()
                case "map" if self._peek_token(0) == "<":
                    self._read_map(made)
                case ";":
                    pass
                case _ if word in _LABELS and self._peek_token(0) != "=":
                    self._read_field(made, self._next_token(), _LABELS[word])
                    if word == "optional" and self._is_proto3:
                        made.field[-1].proto3_optional = True
                        synthetic.append(made.field[-1])
                case _:
                    self._read_field(made, word, 1)
        # The oneofs of optional fields come after the declared oneofs.
        for field in synthetic:
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")

    def _read_field(self, made: DescriptorProto, kind: str, label: int) -> None:
        if kind == "group":
            raise self._syntax_error("it has a group")
        name = self._read_name()
        self._take_token("=")
        field = made.field.add(name=name, number=self._read_number(), label=label)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type_name = kind
        for option, value in self._read_options():
            if option == "default":
                field.default_value = value[1:-1] if value[0] in "\"'" else value

    def _read_map(self, made: DescriptorProto) -> None:
        self._take_token("<")
        key = self._next_token()
        self._take_token(",")
        value = self._next_token()
        self._take_token(">")
        self._read_field(made, "", 3)
        field = made.field[-1]
        called = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
        field.type_name = called
        entry = made.nested_type.add(name=called)
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            part = entry.field.add(name=name, number=number, label=1)
            if kind in _SCALARS:
                part.type = _SCALARS[kind]
            else:
                part.type_name = kind

    def _read_enum(self, made: EnumDescriptorProto) -> None:
        self._take_token("{")
        while (word := self._next_token()) != "}":
            if word in {"option", "reserved"} and self._peek_token(0) != "=":
                before = self._place
                self._skip_statement()
                made.options.allow_alias |= self._tokens[before : before + 3] == [
                    "allow_alias",
                    "=",
                    "true",
                ]
            elif word != ";":
                self._take_token("=")
                made.value.add(name=word, number=self._read_number())
                self._read_options()

    def _read_options(self) -> list[tuple[str, str]]:
        """Parses the options in brackets, if there are any, and the semicolon after them.

        Returns the name and the value of each option.
        """
        found: list[tuple[str, str]] = []
        if self._peek_token(0) == "[":
            depth = 0
            while True:
                word = self._next_token()
                depth += (word in {"[", "{"}) - (word in {"]", "}"})
                if word == "]" and depth == 0:
                    break
                if depth == 1 and self._peek_token(0) == "=":
                    sign = "-" if self._peek_token(1) == "-" else ""
                    found.append((word, sign + self._peek_token(2 if sign else 1)))
        self._take_token(";")
        return found

    def _skip_statement(self) -> None:
        """Skips a statement up to its end, which is a semicolon or the end of a block."""
        depth = 0
        while True:
            word = self._next_token()
            depth += (word == "{") - (word == "}")
            if depth == 0 and word in {";", "}"}:
                return

    def _read_number(self) -> int:
        sign = -1 if self._peek_token(0) == "-" else 1
        text = self._next_token() if sign == 1 else (self._next_token(), self._next_token())[1]
        try:
            return sign * int(text, 0)
        except ValueError:
            raise self._syntax_error(f"{text} is not a number") from None

    def _read_name(self) -> str:
        name = self._next_token()
        if not name.isidentifier():
            raise self._syntax_error(f"{name} is not a name")
        return name

    def _take_token(self, token: str) -> None:
        found = self._next_token()
        if found != token:
            raise self._syntax_error(f"{found} is in place of {token}")

    def _peek_token(self, ahead: int) -> str:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _next_token(self) -> str:
        if self._place >= len(self._tokens):
            raise self._syntax_error("it ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _syntax_error(self, why: str) -> DeclarationError:
        near = " ".join(self._tokens[max(0, self._place - 4) : self._place])
        return DeclarationError(f"the schema is not Protobuf: {why}, at `{near}`")


@lru_cache(_MOST_SCHEMAS)
def message_types(text: str, references: tuple[str, ...] = ()) -> Any:
    """Returns the descriptor of a schema's file, which contains the message types.

    `references` are the texts of the schemas that `text` imports. Raises DeclarationError if a text
    is not a valid schema.
    """
    # The import costs more than reading a project that has no topic in Protobuf.
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    # Some clients register Google's own types, too.
    given = [
        *(file for each in references if (file := _parse_file(each)).package != "google.protobuf"),
        _parse_file(text),
    ]
    names: list[str] = []
    for name in _KNOWN:
        known = _known_file(name)
        if any(known.name in each.dependency for each in given):
            pool.AddSerializedFile(known.SerializeToString())
            names.append(known.name)
    for number, file in enumerate(given):
        # A registry gives references as texts alone: each file sees the files before it.
        file.name = f"schema{number}.proto"
        missing = [each for each in file.dependency if each.startswith("google/")]
        if unknown := [each for each in missing if each not in names]:
            raise DeclarationError(f"the schema imports {unknown[0]}, which is not known here")
        if len(missing) < len(file.dependency) and not number:
            other = next(each for each in file.dependency if each not in missing)
            raise DeclarationError(f"the schema imports {other}, which is missing")
        del file.public_dependency[:]
        del file.weak_dependency[:]
        file.dependency[:] = names
        try:
            pool.AddSerializedFile(file.SerializeToString())
            found = pool.FindFileByName(file.name)
        except (TypeError, ValueError, KeyError) as error:
            raise DeclarationError(f"the schema is not Protobuf: {error}") from None
        names.append(file.name)
    return found


def message_named(file: Any, name: str | None) -> Any:
    """Returns the descriptor of the message type with the full name `name`.

    If `name` is None, returns the descriptor of the file's only message type at the top level.
    Raises DeclarationError if the file contains no message type of that name, or if `name` is None
    and the file does not contain exactly one message type at the top level.
    """
    known = {each.full_name: each for each in _nested_messages(file.message_types_by_name.values())}
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
    """Returns the full name of the message type at a position in a schema.

    `indexes` are the position, as a record of a schema registry's format contains it. Returns None
    if there is no such message type.
    """
    within = [*file.message_types_by_name.values()]
    name = None
    for index in indexes:
        if not 0 <= index < len(within):
            return None
        name, within = within[index].full_name, [*within[index].nested_types]
    return name


def indexes_of(message: Any) -> tuple[int, ...]:
    """Returns the position of a message type in its schema, as records of a registry contain it."""
    around = message.containing_type
    beside = (
        [*message.file.message_types_by_name.values()] if around is None else [*around.nested_types]
    )
    return (
        *(() if around is None else indexes_of(around)),
        [each.full_name for each in beside].index(message.full_name),
    )


def why_unwritten(error: Exception) -> str:
    """Returns the reason why Google's library cannot encode an event, from the library's error.

    The reason is the first line of the error's message. But if the value for a map field is not an
    object, the reason is a clearer sentence that names the field.
    """
    why = str(error).partition("\n")[0].rstrip(".")
    no_map = _NO_MAP.search(why)
    return f"{no_map[1]} is a map, and is given as no object" if no_map else why


def _nested_messages(within: Any) -> Any:
    for each in within:
        if not each.GetOptions().map_entry:
            yield each
            yield from _nested_messages(each.nested_types)


def _parse_file(text: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        # Python's clients register descriptions, and all other clients texts.
        return read_proto(text)


def _known_file(name: str) -> Any:
    from importlib import import_module  # noqa: PLC0415

    file = import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415

    made = FileDescriptorProto()
    file.CopyToProto(made)
    return made
