"""The statements of a text that a person has typed or written into a file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kappa.serving.query.postgres.placeholders import comment_end, words_of

# White space, comments up to the end of their line, and the begin of another comment.
_SPACE = re.compile(r"(?:\s++|--[^\n]*+)*+(/\*)?")


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A statement without its semicolon, and the line of the text on which it begins."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class SqlSplit:
    """The statements of a text that a semicolon ends, and the text after the last semicolon.

    `rest` is None if only white space and comments are there.
    """

    statements: tuple[SqlStatement, ...]
    rest: SqlStatement | None

    @property
    def whole(self) -> tuple[SqlStatement, ...]:
        """Returns the statements of a whole file, whose last statement needs no semicolon."""
        return self.statements if self.rest is None else (*self.statements, self.rest)


def split_statements(sql: str) -> SqlSplit:
    """Splits a text at the semicolons that end a statement.

    A semicolon in quotes or in a comment ends nothing. Statements without any token are left out.
    """
    begun, line, has_words, statements = 0, 1, False, list[SqlStatement]()
    for word in words_of(sql):
        if word.text != ";":
            has_words = has_words or word.kind != "space"
            continue
        text = sql[begun : word.start]
        if has_words:
            statements.append(_statement(text, line))
        begun, line, has_words = word.start + 1, line + text.count("\n"), False
    rest = _statement(sql[begun:], line)
    return SqlSplit(tuple(statements), None if _is_blank(rest.text) else rest)


def _statement(text: str, line: int) -> SqlStatement:
    """Returns the statement in a text that begins on a line."""
    stripped = text.strip()
    return SqlStatement(stripped, line + text.count("\n", 0, text.find(stripped)))


def _is_blank(text: str) -> bool:
    """Returns True if a text is white space and comments that have an end."""
    place: int | None = 0
    while place is not None and (found := _SPACE.match(text, place)):
        place = found.end()
        if found[1] is None:
            return place == len(text)
        place = comment_end(text, place)
    return False
