"""Columns and their types, and the parser of the DDL that declares them. Pure.

For example, the DDL `id string not null, happened_at timestamp` declares two columns. The notation
is that of Spark's DDL, but Spark is not needed to parse it. An event has only types that JSON can
represent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kappa.base.errors import DeclarationError, did_you_mean

# Texts keep their quotes, so that no text is taken for a name. A word that cannot be a name is
# still one word, so that an error shows the word as written.
_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[^\W\d][^\s<>(),:`'"]*)|`(?P<quoted>[^`]+)`
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")|(?P<mark>[<>(),:])|(?P<other>\S))""",
    re.VERBOSE | re.DOTALL,
)
# A name that needs no backquotes; fields of a struct have no other names.
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Names that other systems have for these types.
_MEANT = {
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "str": "string",
    "char": "string",
    "uuid": "string",
    "int64": "bigint",
    "int32": "int",
    "float64": "double",
    "number": "decimal(p,s)",
    "list": "array<...>",
    "map": "struct<...>",
}
# The words that may stand after a column's type.
_AFTER_A_TYPE = ("not null", "default")
# Spark's other spellings of the same types.
_SYNONYMS = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "bool": "boolean",
    "varchar": "string",
    "text": "string",
}
INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
# The headers of a record, in the platform's own tables alone; Spark's name for them.
HEADERS = "array<struct<key:string,value:binary>>"
SCALARS = frozenset({"string", "boolean", "float", "double", "date", "timestamp", *INTEGERS})
# Letters behind a backslash in a text of Spark's SQL; any other letter is itself.
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0"}


class Tokens:
    """The words of a DDL text, and the position of the next word to parse.

    Methods raise DeclarationError if the next word is not valid.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._quoted: set[int] = set()
        self._tokens = list(self._split_words(text))
        self._next = 0

    def _split_words(self, text: str) -> Iterator[str]:
        for place, match in enumerate(_TOKEN.finditer(text.strip())):
            if match["quoted"]:
                self._quoted.add(place)
            yield (
                match["name"]
                or match["quoted"]
                or match["number"]
                or match["text"]
                or match["mark"]
                or match["other"]
            )

    @property
    def at_end(self) -> bool:
        """Returns True if there is no further word."""
        return self._next >= len(self._tokens)

    def peek_word(self) -> str:
        """Returns the next word without moving past it. At the end of the text, returns ""."""
        return "" if self.at_end else self._tokens[self._next]

    def word_after(self) -> str:
        """Returns the word after the next word, without moving.

        Returns "" if there is no such word.
        """
        return next(iter(self._tokens[self._next + 1 :]), "")

    def take_word(self, wanted: str) -> bool:
        """Moves past the next word if it is `wanted`, and returns True. Otherwise returns False.

        Upper and lower case are equal.
        """
        if self.peek_word().lower() != wanted:
            return False
        self._next += 1
        return True

    def require_word(self, wanted: str) -> None:
        """Moves past the next word. Raises DeclarationError if the word is not `wanted`."""
        if not self.take_word(wanted):
            raise DeclarationError(f"`{wanted}` is expected{self._place_text()} in: {self.text}")

    def take_identifier(self, what: str) -> str:
        """Returns the next word, which must begin with a letter or `_`, and moves past it.

        `what` describes the word in errors. Raises DeclarationError if the next word begins with
        another character.
        """
        word = self.peek_word()
        if word[:1].isdigit():
            raise DeclarationError(
                f"{what} begins with a letter or _, and not with a digit: {self.text}",
                hint="name it otherwise, such as first_hit in place of 1st_hit",
            )
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise DeclarationError(
                f"{what} is expected{self._place_text()} in: {self.text or '(empty)'}",
                hint="write columns as `id string not null, happened_at timestamp`",
            )
        self._next += 1
        return word

    def take_name(self) -> str:
        """Returns the next word as the name of a column, and moves past the word.

        Only a name in backquotes may contain characters other than letters, digits and underscores.
        Raises DeclarationError if the word is not a name.
        """
        is_quoted = self._next in self._quoted
        name = self.take_identifier("a column name")
        if not is_quoted and not PLAIN_NAME.fullmatch(name):
            raise DeclarationError(
                f"the column name {name} has other characters than letters a to z, digits and _",
                hint=f"write it in backquotes: `{name}`; no field of a struct has such a name",
            )
        return name

    def take_number(self) -> int:
        """Returns the next word as a whole number, and moves past the word.

        Raises DeclarationError if the word is not a whole number.
        """
        word = self.peek_word()
        if not word.isdigit():
            raise DeclarationError(f"a number is expected instead of `{word}` in: {self.text}")
        self._next += 1
        return int(word)

    def next_word(self) -> str:
        """Returns the next word, and moves past it. At the end of the text, returns ""."""
        self._next += 1
        return self._tokens[self._next - 1] if self._next <= len(self._tokens) else ""

    def _place_text(self) -> str:
        return " at the end" if self.at_end else f" before `{self.peek_word()}`"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type that does not contain other types. `name` is Spark's simple name for it."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decimal:
    """The type of exact numbers with at most `precision` digits.

    `scale` is the number of these digits that follow the decimal point.
    """

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class Array:
    """The type of lists whose elements are of one type. An element may be null."""

    element: Type

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """The type of objects with named fields."""

    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return f"struct<{','.join(f'{column.name}:{column.type}' for column in self.fields)}>"


Type = Scalar | Decimal | Array | Struct


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type, and whether its values may be null.

    `default` is the value, as JSON text, for events that do not contain the field. (If an event
    contains the field with the value null, the column's value is null.) `was` contains the names
    that the field had in older events, in the order in which they are tried.
    """

    name: str
    type: Type
    nullable: bool = True
    default: str | None = None
    was: tuple[str, ...] = ()

    def __str__(self) -> str:
        # Versions hash this text, and birth certificates keep it: the text has declared parts only.
        default = "" if self.default is None else f" default {self.default}"
        was = f" was {json.dumps(self.was, ensure_ascii=False)}" if self.was else ""
        return f"{self.name} {_demanded_type(self)}{default}{was}"


def _demanded_type(column: Column) -> str:
    """Returns the text of a column's type, including `not null` of the column and nested fields.

    Spark's own text for a struct does not contain `not null`.
    """
    return f"{_spelled_type(column.type)}{'' if column.nullable else ' not null'}"


def _spelled_type(kind: Type) -> str:
    match kind:
        case Struct():
            fields = (f"{field.name}:{_demanded_type(field)}" for field in kind.fields)
            return f"struct<{','.join(fields)}>"
        case Array():
            return f"array<{_spelled_type(kind.element)}>"
        case _:
            return str(kind)


def parse_columns(ddl: str) -> tuple[Column, ...]:
    """Parses a list of columns in DDL. Raises DeclarationError if the DDL is not valid."""
    tokens = Tokens(ddl)
    columns = [_read_column(tokens)]
    while tokens.take_word(","):
        columns.append(_read_column(tokens))
    if not tokens.at_end:
        word = tokens.peek_word()
        raise DeclarationError(
            f"`{word}` is not expected after column {columns[-1].name} in: {ddl}",
            hint=(
                f"{did_you_mean(f'{word} {tokens.word_after()}', _AFTER_A_TYPE)} separate columns "
                "by commas: `id string not null, happened_at timestamp`"
            ).lstrip(),
        )
    refuse_repeated(columns, ddl)
    for column in columns:
        _refuse_odd_names_inside(column.type, column.name)
    return tuple(columns)


def parse_type(text: str) -> Type:
    """Parses a type, such as `decimal(10,2)`, in the notation of Spark's simple strings.

    Raises DeclarationError if the text is not a type.
    """
    tokens = Tokens(text)
    found = _read_type(tokens, text)
    if not tokens.at_end:
        raise DeclarationError(
            f"`{tokens.peek_word()}` is not expected after the type {found} in: {text}"
        )
    return found


def _refuse_odd_names_inside(kind: Type, of: str) -> None:
    # Spark's names of types have no backquotes, so a struct with such a field could not be read.
    match kind:
        case Array(element):
            _refuse_odd_names_inside(element, of)
        case Struct(fields):
            for field in fields:
                if not PLAIN_NAME.fullmatch(field.name):
                    raise DeclarationError(
                        f"{of} has a field {field.name}, and only a column of its own may have "
                        "other characters in its name than letters a to z, digits and _",
                        hint=f"leave {field.name} out, or send it under another name",
                    )
                _refuse_odd_names_inside(field.type, f"{of}.{field.name}")
        case _:
            pass


def _read_column(tokens: Tokens) -> Column:
    name = tokens.take_name()
    if name.startswith("_"):
        raise DeclarationError(
            f"column {name} begins with an underscore, which marks the platform's own columns",
            hint="choose another name",
        )
    tokens.take_word(":")
    kind = _read_type(tokens, name)
    nullable, default, is_null = True, None, False
    while True:
        if nullable and tokens.take_word("not"):
            tokens.require_word("null")
            nullable = False
        elif default is None and not is_null and tokens.take_word("default"):
            default = _read_literal(tokens, name)
            is_null = default is None
        else:
            break
    if is_null and not nullable:
        raise DeclarationError(
            f"column {name} is not null, and null by default",
            hint="take `default null` away, or `not null`",
        )
    return Column(name, kind, nullable, default)


def _read_literal(tokens: Tokens, of: str) -> str | None:
    """Parses the next words as an SQL literal, and returns it as JSON text.

    Returns None for null, since a missing field is null without a default too. `of` is the name of
    the column in errors. Raises DeclarationError if the next words are not a literal.
    """
    word = tokens.next_word()
    if word.lower() in {"date", "timestamp"} and tokens.peek_word()[:1] in {"'", '"'}:
        # The column's type decides how the text is read.
        word = tokens.next_word()
    sign = "-" if word == "-" else ""
    number = tokens.next_word() if word in {"-", "+"} else word
    if number[:1].isdigit():
        return f"{sign}{int(number) if number.isdigit() else number}"
    if word[:1] in {"'", '"'} and len(word) > 1:
        inside = word[1:-1].replace(word[0] * 2, word[0])
        return json.dumps(
            re.sub(
                r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inside, flags=re.DOTALL
            ),
            ensure_ascii=False,
        )
    if word.lower() in {"true", "false"}:
        return word.lower()
    if word.lower() == "null":
        return None
    raise DeclarationError(
        f"the default of {of} is {'`' + word + '`' if word else 'missing'}, which is not a literal",
        hint="write a text, a number, true or false: `page string not null default '/'`",
    )


def _read_type(tokens: Tokens, of: str) -> Type:
    word = tokens.take_identifier(f"a type of {of}").lower()
    word = _SYNONYMS.get(word, word)
    if word in SCALARS:
        return Scalar(word)
    if word in {"decimal", "numeric"}:
        return _read_decimal(tokens, of)
    if word == "array":
        tokens.require_word("<")
        element = _read_type(tokens, of)
        tokens.require_word(">")
        return Array(element)
    if word == "struct":
        tokens.require_word("<")
        fields = [_read_column(tokens)]
        while tokens.take_word(","):
            fields.append(_read_column(tokens))
        tokens.require_word(">")
        refuse_repeated(fields, tokens.text)
        for field in fields:
            if field.default is not None:
                raise DeclarationError(
                    f"{field.name} in {of} has a default, which only a column of its own has",
                    hint="declare the event by a JSON Schema, where nested fields have defaults",
                )
        return Struct(tuple(fields))
    near = f"did you mean {_MEANT[word]}?" if word in _MEANT else did_you_mean(word, SCALARS)
    types = f"use one of {', '.join(sorted(SCALARS))}, decimal(p,s), array<...>, struct<...>"
    raise DeclarationError(
        f"{of} has the type {word}, which events cannot have", hint=f"{near} {types}".lstrip()
    )


def _read_decimal(tokens: Tokens, of: str) -> Decimal:
    precision, scale = 10, 0
    if tokens.take_word("("):
        precision = tokens.take_number()
        scale = tokens.take_number() if tokens.take_word(",") else 0
        tokens.require_word(")")
    if not 1 <= precision <= 38 or scale > precision:
        raise DeclarationError(
            f"{of} is a decimal({precision},{scale}): it has 1 to 38 digits, "
            "at most all of them behind the point"
        )
    return Decimal(precision, scale)


def refuse_repeated(columns: Iterable[Column], text: str) -> None:
    """Raises DeclarationError if two columns have names that differ at most in case."""
    # Spark and Delta compare names without regard to case.
    seen: set[str] = set()
    for column in columns:
        if column.name.lower() in seen:
            raise DeclarationError(f"column {column.name} is declared twice in: {text}")
        seen.add(column.name.lower())
