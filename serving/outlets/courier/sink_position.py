"""The position of a sink: up to where its topic has the changes of its table. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Self

from kappa.base.errors import UsageError
from kappa.declare.sink import SinkBirth
from kappa.serving.outlets.changes.cursor import Cursor

_PART_DIGITS = 16


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The cursor of the last change set that was sent, and which part of which table it was of.

    `topic_id` is the topic's: one that was made anew has another, and no rows. `writer` is the
    adopted root that has sent it, or "".
    """

    cursor: Cursor
    part: str
    topic_id: str
    writer: str = ""

    def __str__(self) -> str:
        document = {"cursor": str(self.cursor), "part": self.part, "topic": self.topic_id}
        return json.dumps({**document, "writer": self.writer} if self.writer else document)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Reads a position. Returns None if the text is none: then the topic is compared."""
        try:
            found = json.loads(text or "")
            return cls(
                *(Cursor.parse(found["cursor"]), str(found["part"]), str(found["topic"])),
                str(found.get("writer", "")),
            )
        except (ValueError, KeyError, TypeError, RecursionError, UsageError):
            return None


def part_of(sink: SinkBirth, keys: tuple[str, ...]) -> str:
    """Returns a hash of what decides the records of a row, beside the row."""
    # A position of JSON is that of a Kappa that knew no other format.
    form = [] if sink.format is None else [sink.format]
    decides = json.dumps([sink.of, sink.columns, sink.where, keys, *form])
    return hashlib.sha256(decides.encode()).hexdigest()[:_PART_DIGITS]
