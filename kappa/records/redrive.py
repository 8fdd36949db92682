"""A redriven record: one that was rejected, mended and produced again, and that names in a header the record it stands for. Pure.

The header is `kappa-redrive: TOPIC:PARTITION:OFFSET@MILLISECONDS`, the original's place and timestamp; it names an earlier
record of the same partition. What it names is folded once: where the original is a reject under a build, by the first
redriven record that is valid; where it is not, every redriven one is a duplicate (law 7). Records of a compacted topic are
what their key holds now, and stand for nothing else: there the header means nothing. Read next: engine/function/redriven.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kappa.base.errors import UsageError
from kappa.values.reason import Reason, Rejected

HEADER = "kappa-redrive"
# Topics have no colon in their names (kappa/declare/topic.py); offsets and times are 64 bit numbers.
_POSITION = re.compile(r"([A-Za-z0-9._-]{1,249}):([0-9]{1,10}):([0-9]{1,18})")
_ORIGINAL = re.compile(_POSITION.pattern + r"@(-?[0-9]{1,18})")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A record's place in the log."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Original:
    """The record that a redriven one stands for: where it lies, and its timestamp, in milliseconds since 1970."""

    position: Position
    timestamp_ms: int

    def header(self) -> tuple[str, bytes]:
        """The header that names it."""
        return HEADER, f"{self.position}@{self.timestamp_ms}".encode()


def parse_position(text: str) -> Position:
    """Reads `visits:0:17`. Raises UsageError where it is none."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is no place of a record",
            hint="a place is TOPIC:PARTITION:OFFSET, as kappa rejects list has them: visits:0:17",
        )
    return Position(match[1], int(match[2]), int(match[3]))


def named_original(headers: Headers) -> Original | None:
    """The record that these headers name; None where they name none. Raises ValueError, with the reason, where that cannot be read."""
    named = [value for name, value in headers if name == HEADER]
    if not named:
        return None
    if len(named) > 1:
        raise ValueError(f"the header {HEADER} stands there {len(named)} times")
    text = (named[0] or b"").decode(errors="replace")
    match = _ORIGINAL.fullmatch(text)
    if match is None:
        raise ValueError(
            f"the header {HEADER} is {text[:80]!r}, not TOPIC:PARTITION:OFFSET@MILLISECONDS"
        )
    return Original(Position(match[1], int(match[2]), int(match[3])), int(match[4]))


def original_of(headers: Headers, at: Position) -> Original | None:
    """The record that the one at `at` stands for; None where it is like any other. Raises Rejected where it names what it cannot stand for."""
    try:
        original = named_original(headers)
    except ValueError as error:
        raise Rejected(Reason.BAD_REDRIVE, str(error)) from None
    if original is None:
        return None
    named = original.position
    if (named.topic, named.partition) != (at.topic, at.partition) or named.offset >= at.offset:
        raise Rejected(
            Reason.BAD_REDRIVE,
            f"the header {HEADER} names {named}, and a record stands only for an earlier one of its own partition",
        )
    return original


@dataclass(frozen=True, slots=True)
class Attempt:
    """A redriven record at `at` that names offset `of` of its partition; `valid`, or a reject itself."""

    at: Position
    of: int
    valid: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of the valid ones: `folded` maps the place of each that is folded to the offset that it is folded for; the others are duplicates."""

    folded: Mapping[Position, int]
    duplicates: frozenset[Position]


def settle(
    attempts: Iterable[Attempt],
    rejected: Mapping[Position, int | None],
    folded: Collection[Position],
    origin: Mapping[tuple[str, int], int],
) -> Settled:
    """Decides which redriven records are folded, in the order of their offsets.

    `rejected` holds each place that is named and is a reject, and the offset that it named itself, if it was redriven;
    `folded` the originals that are folded already; `origin` per topic and partition the offset at which the build begins:
    what lies before it was never read, so nothing of it is folded, and it is taken as a reject.
    """
    known, done = dict(rejected), set(folded)
    now: dict[Position, int] = {}
    duplicates = set()
    for attempt in sorted(attempts, key=lambda each: each.at):
        if not attempt.valid:
            known[attempt.at] = attempt.of
            continue
        root = _root(Position(attempt.at.topic, attempt.at.partition, attempt.of), known, origin)
        if root is None or root in done:
            duplicates.add(attempt.at)
        else:
            done.add(root)
            now[attempt.at] = root.offset
    return Settled(now, frozenset(duplicates))


def _root(
    named: Position, rejected: Mapping[Position, int | None], origin: Mapping[tuple[str, int], int]
) -> Position | None:
    """Returns the first record of a chain in which each is a reject and names the one before.

    Returns None if what is named is no reject. A reject that named no reject stands for itself.
    """
    begins = origin.get((named.topic, named.partition), 0)
    if named.offset < begins:
        return named
    if named not in rejected:
        return None
    while (before := rejected[named]) is not None:
        earlier = Position(named.topic, named.partition, before)
        if earlier.offset < begins:
            return earlier
        if earlier not in rejected:
            break
        named = earlier
    return named
