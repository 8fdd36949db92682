"""The file and line of a declaration. Errors about the declaration begin with them."""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """The file and the line of a declaration."""

    file: str
    line: int

    @classmethod
    def of_caller(cls, depth: int = 1) -> Source:
        """Returns the file and line of the frame `depth` levels above the calling function.

        With the default of 1, the result is the line that called the calling function.
        """
        # This is the documented way to get a caller's line without building a whole stack.
        frame = sys._getframe(depth + 1)  # noqa: SLF001
        return cls(frame.f_code.co_filename, frame.f_lineno)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
