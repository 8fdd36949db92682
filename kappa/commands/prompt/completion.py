"""Finds the names that can complete the word at the cursor of the shell.

All functions are pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kappa.base.sql import quoted
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.tables import ServedTable

# What is quoted or commented out: names in it are no names.
_HIDDEN = re.compile(r"'(?:[^']|'')*'|--[^\n]*\n|/\*.*?\*/", re.DOTALL)
_OPEN = re.compile(r"'|--|/\*")
_NAME = r'(?:"(?:[^"]|"")*"|\w+)'
# The name at the cursor, and the table or schema before its point.
_AT_CURSOR = re.compile(rf'(?:(?P<owner>{_NAME})\.)?(?P<word>"?\w*)\Z')
_RELATION_FOLLOWS = re.compile(r"\b(?:from|join|describe|summarize)\s+\Z", re.IGNORECASE)
_AFTER_FROM = re.compile(r"\b(?:from|join)\s+[^()]*?,\s*\Z", re.IGNORECASE)
_ALIASED = re.compile(
    rf"\b(?:from|join)\s+(?:{_NAME}\.)?(?P<table>{_NAME})\s+(?:as\s+)?(?P<alias>{_NAME})",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that a user may type in the shell.

    `tables` are the tables and views of the snapshot, and `functions` and `keywords` are the words
    of DuckDB's SQL. `commands` maps each backslash command to the words that may follow the
    command.
    """

    tables: tuple[ServedTable, ...] = ()
    functions: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text that can replace the last `length` characters before the cursor.

    `kind` describes the text, such as `table`, `function` or a column's type.
    """

    text: str
    length: int
    kind: str


def suggest_names(before: str, whole: str, known: KnownNames) -> list[Suggestion]:
    """Lists the names that can complete the word at the cursor.

    `whole` is the whole text, and `before` is the part of the text before the cursor.
    """
    if before.lstrip().startswith("\\"):
        return list(_of_command(before.lstrip(), known))
    if _OPEN.search(_HIDDEN.sub(" ", before)):
        return []
    at_cursor = _AT_CURSOR.search(before)
    assert at_cursor is not None, "the pattern matches nothing, too"
    owner, word = at_cursor["owner"], at_cursor["word"]
    named = _tables_named(_HIDDEN.sub(" ", whole), known.tables)
    found: Iterable[tuple[str, str]]
    if owner is not None:
        found = _below_owner(_bare_name(owner), named, known)
    elif _RELATION_FOLLOWS.search(head := before[: at_cursor.start()]) or _AFTER_FROM.search(head):
        found = _relations(known)
    elif not word:
        found = _columns(named.values())
    else:
        # A select comes before its tables: until then any table's columns may be meant.
        found = [*_columns(named.values() or known.tables), *_relations(known)]
        if not word.startswith('"'):
            found += ((f"{name}(", "function") for name in known.functions)
            found += ((name, "keyword") for name in known.keywords)
    asked = word.removeprefix('"').lower()
    fitting = dict.fromkeys(
        each for each in found if each[0].removeprefix('"').lower().startswith(asked)
    )
    return [Suggestion(text, len(word), kind) for text, kind in fitting]


def _of_command(line: str, known: KnownNames) -> Iterator[Suggestion]:
    command, space, argument = line.partition(" ")
    words = known.commands.get(command, ()) if space else known.commands
    typed = argument.lstrip() if space else command
    for word in words:
        if word.lower().startswith(typed.lower()) and word.isprintable():
            yield Suggestion(word, len(typed), "command" if not space else "")


def _relations(known: KnownNames) -> Iterator[tuple[str, str]]:
    for each in known.tables:
        yield written_name(each.name), each.kind
    for pipeline in dict.fromkeys(each.pipeline for each in known.tables):
        yield f"{written_name(schema_of(pipeline))}.", "pipeline"


def _columns(tables: Iterable[ServedTable]) -> Iterator[tuple[str, str]]:
    for table in tables:
        for column, kind in table.columns:
            # A name that steers the terminal is for who knows it.
            if column.isprintable():
                yield written_name(column), kind.lower()


def _below_owner(
    owner: str, named: Mapping[str, ServedTable], known: KnownNames
) -> Iterator[tuple[str, str]]:
    if owner in named:
        yield from _columns([named[owner]])
    for each in known.tables:
        if schema_of(each.pipeline).lower() == owner:
            yield written_name(each.name), each.kind


def _tables_named(sql: str, tables: Iterable[ServedTable]) -> dict[str, ServedTable]:
    """Returns the tables that an SQL text names, by their lower-case names and aliases."""
    words = {_bare_name(word) for word in re.findall(_NAME, sql)}
    found = {each.name.lower(): each for each in tables if each.name.lower() in words}
    for alias in _ALIASED.finditer(sql):
        if (table := found.get(_bare_name(alias["table"]))) is not None:
            found.setdefault(_bare_name(alias["alias"]), table)
    return found


def _bare_name(written: str) -> str:
    name = written[1:-1].replace('""', '"') if written.startswith('"') else written
    return name.lower()


def written_name(name: str) -> str:
    """Returns a name in the form for SQL: in quotes, unless it is a plain lower-case word."""
    return name if _PLAIN.fullmatch(name) else quoted(name)
