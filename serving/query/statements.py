"""The statements of a text that a person has typed or written into a file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kappa.base.duck import sql_tokens

_SEMICOLON = ord(";")
# White space and whole comments.
_BLANK = re.compile(r"(?:\s|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)


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
    # DuckDB takes no lone surrogates and stops at a NUL; either stands for one character here.
    whole = sql.replace("\0", "?").encode(errors="replace")
    begun, has_tokens, statements = 0, False, list[SqlStatement]()
    for offset, _ in sql_tokens(whole.decode()):
        if whole[offset] != _SEMICOLON:
            has_tokens = True
            continue
        if has_tokens:
            statements.append(_statement(sql, whole, begun, offset))
        begun, has_tokens = offset + 1, False
    rest = _statement(sql, whole, begun, len(whole))
    is_blank = _BLANK.fullmatch(rest.text) is not None
    return SqlSplit(tuple(statements), None if is_blank else rest)


def _statement(sql: str, whole: bytes, begin: int, end: int) -> SqlStatement:
    first, last = (len(whole[:place].decode()) for place in (begin, end))
    text = sql[first:last]
    stripped = text.strip()
    first += text.find(stripped)
    return SqlStatement(stripped, sql.count("\n", 0, first) + 1)
