"""The words of a SQL text, and the parameters, such as `$1`, among the words. Pure.

A text is cut as DuckDB's parser cuts it, which is Postgres's: quotes, dollar quotes and comments
that nest are single words. So no value is ever put into a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_WORD = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z)|(?:[uU]&|[bBxX])?'(?:[^']|'')*(?:'|\Z))
    |(?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z))
    |(?P<name>[^\W\d][\w$]*|"(?:[^"]|"")*(?:"|\Z))
    |(?P<parameter>\$\d+)
    |(?P<number>\d[\w.]*)
    |(?P<mark>::|:=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class SqlWord:
    """A word of a text; `kind` is the name of a group of the pattern above.

    `start` is the place in the text, in characters.
    """

    kind: str
    text: str
    start: int = 0

    @property
    def name(self) -> str:
        """Returns the name that the word means, in small letters unless quoted; else ''."""
        if self.kind != "name":
            return ""
        return self.text[1:-1].replace('""', '"') if self.text[0] == '"' else self.text.lower()


def words_of(sql: str) -> list[SqlWord]:
    """Lists the words of a text. Joined, the words are the text again."""
    return list(_words(sql))


def _words(sql: str) -> Iterator[SqlWord]:
    place = 0
    while place < len(sql):
        found = _WORD.match(sql, place)
        assert found is not None, "the last part of the pattern matches any character"
        kind, end = str(found.lastgroup), found.end()
        if kind == "comment":
            kind, end = "space", _comment_end(sql, end)
        elif kind == "tag":
            kind = "dollar"
        yield SqlWord(kind, sql[place:end], place)
        place = end


def _comment_end(sql: str, place: int) -> int:
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, place):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    return len(sql)


def placeholders_in(sql: str) -> tuple[int, ...]:
    """Lists the numbers of the parameters in a text, in order, each once."""
    if "$" not in sql:
        return ()
    return tuple(sorted({int(each.text[1:]) for each in words_of(sql) if each.kind == "parameter"}))


def fill_placeholders(sql: str, values: Mapping[int, str]) -> str:
    """Returns the text with an expression in place of each parameter that has one."""
    if "$" not in sql:
        return sql
    return "".join(
        f" {values.get(int(each.text[1:]), each.text)} " if each.kind == "parameter" else each.text
        for each in words_of(sql)
    )
