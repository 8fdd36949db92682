"""The text of a .proto file, as a `FileDescriptorProto`: what protoc would make of it.

It is read here since no package of Python's reads one without a compiler of 10 MB. Services,
extensions and options are left out, as they decide nothing about a message; names are resolved by
the library's pool. Source: https://protobuf.dev/reference/protobuf/proto3-spec/.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
# Messages within messages deeper than this are no schema of anyone's.
_DEEPEST = 32


def read_proto(text: str) -> FileDescriptorProto:
    """Reads the text of a file. Raises DeclarationError if it is none."""
    try:
        return _ProtoReader(text).file()
    except (ValueError, TypeError) as error:
        # A number that the description cannot have, for one.
        raise DeclarationError(f"the schema is no text of Protobuf: {error}") from None


class _ProtoReader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [found for found in _TOKEN.findall(text) if found]
        self._place = 0
        self._is_proto3 = False

    def file(self) -> FileDescriptorProto:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415  # see proto_schema.py

        made = FileDescriptorProto(syntax=_SYNTAXES[0])
        while self._place < len(self._tokens):
            match self._next():
                case "syntax":
                    self._must("=")
                    made.syntax = self._next()[1:-1]
                    self._must(";")
                    if made.syntax not in _SYNTAXES:
                        raise self._wrong(f"the syntax is {made.syntax}")
                    self._is_proto3 = made.syntax == _SYNTAXES[1]
                case "package":
                    made.package = self._next()
                    self._must(";")
                case "import":
                    word = self._next()
                    path = self._next() if word in {"public", "weak"} else word
                    made.dependency.append(path[1:-1])
                    self._must(";")
                case "message":
                    self._message(made.message_type.add(name=self._name()), 0)
                case "enum":
                    self._enum(made.enum_type.add(name=self._name()))
                case "option" | "service" | "extend":
                    self._skip()
                case ";":
                    pass
                case word:
                    raise self._wrong(f"{word} is not expected")
        return made

    def _message(self, made: DescriptorProto, depth: int) -> None:
        if depth > _DEEPEST:
            raise self._wrong(f"messages are nested deeper than {_DEEPEST} levels")
        self._must("{")
        synthetic = []
        while (word := self._next()) != "}":
            match word:
                case "message" if self._peek(1) == "{":
                    self._message(made.nested_type.add(name=self._name()), depth + 1)
                case "enum" if self._peek(1) == "{":
                    self._enum(made.enum_type.add(name=self._name()))
                case "oneof" if self._peek(1) == "{":
                    made.oneof_decl.add(name=self._name())
                    self._must("{")
                    while (within := self._next()) != "}":
                        if within == "option":
                            self._skip()
                        else:
                            self._field(made, within, 1)
                            made.field[-1].oneof_index = len(made.oneof_decl) - 1
                case "option" | "reserved" | "extensions":
                    self._skip()
                case "extend" if self._peek(1) == "{":
                    self._skip()
                case "map" if self._peek(0) == "<":
                    self._map(made)
                case ";":
                    pass
                case _ if word in _LABELS and self._peek(0) != "=":
                    self._field(made, self._next(), _LABELS[word])
                    if word == "optional" and self._is_proto3:
                        made.field[-1].proto3_optional = True
                        synthetic.append(made.field[-1])
                case _:
                    self._field(made, word, 1)
        # They are behind those that are declared.
        for field in synthetic:
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field.name}")

    def _field(self, made: DescriptorProto, kind: str, label: int) -> None:
        if kind == "group":
            raise self._wrong("it has a group")
        name = self._name()
        self._must("=")
        field = made.field.add(name=name, number=self._number(), label=label)
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type_name = kind
        for option, value in self._options():
            if option == "default":
                field.default_value = value[1:-1] if value[0] in "\"'" else value

    def _map(self, made: DescriptorProto) -> None:
        self._must("<")
        key = self._next()
        self._must(",")
        value = self._next()
        self._must(">")
        self._field(made, "", 3)
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

    def _enum(self, made: EnumDescriptorProto) -> None:
        self._must("{")
        while (word := self._next()) != "}":
            if word in {"option", "reserved"} and self._peek(0) != "=":
                before = self._place
                self._skip()
                made.options.allow_alias |= self._tokens[before : before + 3] == [
                    "allow_alias",
                    "=",
                    "true",
                ]
            elif word != ";":
                self._must("=")
                made.value.add(name=word, number=self._number())
                self._options()

    def _options(self) -> list[tuple[str, str]]:
        """Reads options in brackets, if there are any, and the end of the statement."""
        found: list[tuple[str, str]] = []
        if self._peek(0) == "[":
            depth = 0
            while True:
                word = self._next()
                depth += (word in {"[", "{"}) - (word in {"]", "}"})
                if word == "]" and depth == 0:
                    break
                if depth == 1 and self._peek(0) == "=":
                    sign = "-" if self._peek(1) == "-" else ""
                    found.append((word, sign + self._peek(2 if sign else 1)))
        self._must(";")
        return found

    def _skip(self) -> None:
        """Skips a statement, which ends at its semicolon or its block."""
        depth = 0
        while True:
            word = self._next()
            depth += (word == "{") - (word == "}")
            if depth == 0 and word in {";", "}"}:
                return

    def _number(self) -> int:
        sign = -1 if self._peek(0) == "-" else 1
        text = self._next() if sign == 1 else (self._next(), self._next())[1]
        try:
            return sign * int(text, 0)
        except ValueError:
            raise self._wrong(f"{text} is no number") from None

    def _name(self) -> str:
        name = self._next()
        if not name.isidentifier():
            raise self._wrong(f"{name} is no name")
        return name

    def _must(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise self._wrong(f"{found} is in place of {token}")

    def _peek(self, ahead: int) -> str:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _next(self) -> str:
        if self._place >= len(self._tokens):
            raise self._wrong("it ends too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _wrong(self, why: str) -> DeclarationError:
        near = " ".join(self._tokens[max(0, self._place - 4) : self._place])
        return DeclarationError(f"the schema is no text of Protobuf: {why}, at `{near}`")
