"""Splits an SQL text into words, and finds its parameters, such as `$1`. Pure.

The text is split as DuckDB's parser, which is derived from that of Postgres, splits it: a quoted
text, a dollar-quoted text and a nested comment are each a single word. A parameter is therefore
never replaced inside quotes.
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
    """A word of an SQL text: a name, a quoted text, a comment, a parameter, or a mark.

    `kind` says which of these the word is. `start` is the position of the word in the text, in
    characters.
    """

    kind: str
    text: str
    start: int = 0

    @property
    def name(self) -> str:
        """Returns the SQL name that the word contains, or '' if the word is not a name.

        A name without quotes is returned in lower case.
        """
        if self.kind != "name":
            return ""
        return self.text[1:-1].replace('""', '"') if self.text[0] == '"' else self.text.lower()


def words_of(sql: str) -> list[SqlWord]:
    """Lists the words of an SQL text, including spaces and comments.

    If all words are joined, the result is the original text.
    """
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
    """Returns the position after the end of a comment, or None if the comment has no end.

    `place` is the position after the comment's opening mark.
    """
    depth = 1
    for edge in _COMMENT_EDGE.finditer(sql, place):
        depth += 1 if edge.group() == "/*" else -1
        if not depth:
            return edge.end()
    return None


def placeholders_in(sql: str) -> tuple[int, ...]:
    """Lists the numbers of the parameters in an SQL text, in ascending order.

    Each number occurs once: a text with `$2`, `$1` and `$2` has the numbers 1 and 2.
    """
    if "$" not in sql:
        return ()
    return tuple(sorted({int(each.text[1:]) for each in words_of(sql) if each.kind == "parameter"}))


def fill_placeholders(sql: str, values: Mapping[int, str]) -> str:
    """Replaces the parameters of an SQL text by the SQL expressions in `values`.

    `values` maps the number of a parameter to an expression. A parameter without an expression
    stays unchanged. Raises UsageError if the resulting text is too long.
    """
    if "$" not in sql:
        return sql
    parts = list[str]()
    for each in words_of(sql):
        # A value that is named often is one text until the parts are joined.
        value = values.get(int(each.text[1:])) if each.kind == "parameter" else None
        parts += (each.text,) if value is None else (" ", value, " ")
    return joined_sql(parts)


def joined_sql(parts: Sequence[str]) -> str:
    """Joins the parts of an SQL text. Raises UsageError if the text would be too long to run."""
    if sum(map(len, parts)) > _MOST_BYTES:
        raise UsageError(
            f"the query with its values has more than {size(_MOST_BYTES)}",
            hint="name a long value once: with given as (select $1 as v) select ... from given",
        )
    return "".join(parts)
