"""Cursors: places in the sequence of a pipeline's changes, as immutable values. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from kappa.base.errors import UsageError

_FORM = re.compile(r"(\d{1,18})\.(\w[\w.-]{0,200})\.(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the sequence of changes: a generation, a build, and a frontier of the build.

    The frontier is given by its number. The text form of a cursor is, for example,
    `3.flights-9ab1c2.512`. All tables of a pipeline have the same cursors.
    """

    generation: int
    build: str
    frontier: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.build}.{self.frontier}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a cursor. Raises UsageError if the text is not a cursor."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{text[:80]!r} is not a cursor",
                hint="a cursor is what a change set ends with, such as 3.flights-9ab1c2.512; "
                "without one, the changes begin with a snapshot",
            )
        return cls(int(found[1]), found[2], int(found[3]))
