"""The words of a DDL text, as the reader of columns takes them one after the other. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kappa.base.errors import DeclarationError

# Texts keep their quotes, so that no text is taken for a name. A word that no name may be is one
# word all the same, so that an error shows it as it was written.
_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[^\W\d][^\s<>(),:`'"]*)|`(?P<quoted>[^`]+)`
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<text>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")|(?P<mark>[<>(),:])|(?P<other>\S))""",
    re.VERBOSE | re.DOTALL,
)
# A name that needs no backquotes; inside of a struct there are no others.
PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Tokens:
    """The words of one text, and how far it is read. Raises DeclarationError for a wrong word."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._quoted: set[int] = set()
        self._tokens = list(self._split(text))
        self._next = 0

    def _split(self, text: str) -> Iterator[str]:
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
        """Returns True if all words are read."""
        return self._next >= len(self._tokens)

    def peek(self) -> str:
        """Returns the next word without taking it, or "" at the end."""
        return "" if self.at_end else self._tokens[self._next]

    def take(self, wanted: str) -> bool:
        """Takes the next word if it is this one, in any case, and returns whether it was."""
        if self.peek().lower() != wanted:
            return False
        self._next += 1
        return True

    def must(self, wanted: str) -> None:
        """Takes the next word, which must be this one."""
        if not self.take(wanted):
            raise DeclarationError(f"`{wanted}` is expected{self._here()} in: {self.text}")

    def word(self, what: str) -> str:
        """Takes a word that begins as a name does; `what` names it in errors."""
        word = self.peek()
        if not word or not (word[0].isalpha() or word[0] == "_"):
            raise DeclarationError(
                f"{what} is expected{self._here()} in: {self.text or '(empty)'}",
                hint="write columns as `id string not null, at timestamp`",
            )
        self._next += 1
        return word

    def name(self) -> str:
        """Takes a column's name; backquotes allow other characters than letters, digits and _."""
        is_quoted = self._next in self._quoted
        name = self.word("a column name")
        if not is_quoted and not PLAIN_NAME.fullmatch(name):
            raise DeclarationError(
                f"the column name {name} has other characters than letters a to z, digits and _",
                hint=f"write it in backquotes: `{name}`; no field of a struct has such a name",
            )
        return name

    def number(self) -> int:
        """Takes a whole number."""
        word = self.peek()
        if not word.isdigit():
            raise DeclarationError(f"a number is expected instead of `{word}` in: {self.text}")
        self._next += 1
        return int(word)

    def next(self) -> str:
        """Takes the next word, whatever it is; returns "" at the end."""
        self._next += 1
        return self._tokens[self._next - 1] if self._next <= len(self._tokens) else ""

    def _here(self) -> str:
        return " at the end" if self.at_end else f" before `{self.peek()}`"
