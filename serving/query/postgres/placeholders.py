"""The words of a SQL text, and the parameters, such as `$1`, among the words. Pure.

A text is cut as DuckDB's parser cuts it, which is Postgres's: quotes, dollar quotes and comments
that nest are single words. So no value is ever put into a quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kappa.base.errors import UsageError
from kappa.base.units import size

# A short text may name a long value many thousand times.
_MOST_BYTES = 8 << 20
_WORD = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|''|\\.)*(?:'|\Z)|(?:[uU]&|[bBxX])?'(?:[^']|'')*(?:'|\Z))
    |(?P<dollar>\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?(?:\$(?P=tag)\$|\Z))
    |(?P<name>[^\W\d][\w$]*|"(?:[^"]|"")*(?:"|\Z))
    |(?P<parameter>\$[0-9]{1,9}(?![0-9]))
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
            kind, end = "space", comment_end(sql, end) or len(sql)
        elif kind == "tag":
            kind = "dollar"
        yield SqlWord(kind, sql[place:end], place)
        place = end


def comment_end(sql: str, place: int) -> int | None:
    """Returns where a comment ends that began right before `place`; None if it has no end."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, place):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    return None


def placeholders_in(sql: str) -> tuple[int, ...]:
    """Lists the numbers of the parameters in a text, in order, each once."""
    if "$" not in sql:
        return ()
    return tuple(sorted({int(each.text[1:]) for each in words_of(sql) if each.kind == "parameter"}))


def fill_placeholders(sql: str, values: Mapping[int, str]) -> str:
    """Returns the text with an expression in place of each parameter that has one."""
    if "$" not in sql:
        return sql
    parts = list[str]()
    for each in words_of(sql):
        # A value that is named often is one text until the parts are joined.
        value = values.get(int(each.text[1:])) if each.kind == "parameter" else None
        parts += (each.text,) if value is None else (" ", value, " ")
    return joined_sql(parts)


def joined_sql(parts: Sequence[str]) -> str:
    """Joins the parts of a text. Raises UsageError if the text would be too long to be run."""
    if sum(map(len, parts)) > _MOST_BYTES:
        raise UsageError(
            f"the query with its values has more than {size(_MOST_BYTES)}",
            hint="name a long value once: with given as (select $1 as v) select ... from given",
        )
    return "".join(parts)
