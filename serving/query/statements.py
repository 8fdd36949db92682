"""Splits a text from a terminal or a file into SQL statements."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kappa.serving.query.postgres.placeholders import comment_end, words_of

# White space, comments up to the end of their line, and the begin of another comment.
_SPACE = re.compile(r"(?:\s++|--[^\n]*+)*+(/\*)?")


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """A statement without its semicolon, and the number of the line on which it begins."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class SqlSplit:
    """The statements in an SQL text that end with a semicolon, and the rest of the text.

    `rest` is None if the text after the last semicolon contains only white space and comments.
    """

    statements: tuple[SqlStatement, ...]
    rest: SqlStatement | None

    @property
    def whole(self) -> tuple[SqlStatement, ...]:
        """Returns all statements, including the text after the last semicolon.

        The last statement of a complete file needs no semicolon.
        """
        return self.statements if self.rest is None else (*self.statements, self.rest)


def split_statements(sql: str) -> SqlSplit:
    """Splits an SQL text at the semicolons that end a statement.

    A semicolon in quotes or in a comment does not end a statement. Empty statements are left out.
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
    """Returns the statement in a part of an SQL text. The part begins on line `line`."""
    stripped = text.strip()
    return SqlStatement(stripped, line + text.count("\n", 0, text.find(stripped)))


def _is_blank(text: str) -> bool:
    """Returns True if a text contains only white space and complete comments."""
    place: int | None = 0
    while place is not None and (found := _SPACE.match(text, place)):
        place = found.end()
        if found[1] is None:
            return place == len(text)
        place = comment_end(text, place)
    return False
