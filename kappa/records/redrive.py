"""A redriven record: the corrected copy of a reject, with a header that names the reject. Pure.

The header is `kappa-redrive: TOPIC:PARTITION:OFFSET@MILLISECONDS`, with the place and timestamp of
the named record, the original. The original must be an earlier record of the same partition. The
original is folded at most once. If the original is a reject of a build, the first valid redriven
record is folded instead of the original. Otherwise every redriven record is a duplicate. In a
compacted topic the header has no meaning, because each record there is the current value of its
key. engine/function/redriven_records.py decides about the redriven records of a slice.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kappa.base.errors import UsageError
from kappa.declare.values.reason import Reason, Rejected

HEADER = "kappa-redrive"
# Names of topics have no colon (kappa/declare/topic.py); offsets and times are 64 bit numbers.
_POSITION = re.compile(r"([A-Za-z0-9._-]{1,249}):([0-9]{1,10}):([0-9]{1,18})")
_ORIGINAL = re.compile(_POSITION.pattern + r"@(-?[0-9]{1,18})")

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The place of a record in the logs of all topics: topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class Original:
    """The record that a redriven record replaces. The timestamp is in milliseconds since 1970."""

    position: Position
    timestamp_ms: int

    def header(self) -> tuple[str, bytes]:
        """Returns the header (name, value) that names this record as the original."""
        return HEADER, f"{self.position}@{self.timestamp_ms}".encode()


def parse_position(text: str) -> Position:
    """Parses a place like `visits:0:17`. Raises UsageError if the text is not a place."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not the place of a record",
            hint="a place is TOPIC:PARTITION:OFFSET, as kappa rejects list has them: visits:0:17",
        )
    return Position(match[1], int(match[2]), int(match[3]))


def named_original(headers: Headers) -> Original | None:
    """Returns the original that the headers of a redriven record name.

    Returns None if the headers name no original. Raises ValueError, with the reason, if the header
    cannot be parsed.
    """
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
    """Returns the original that the record at `at` replaces.

    Returns None if the record is not redriven. Raises Rejected if the header names a record that
    the redriven record cannot replace.
    """
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
            f"the header {HEADER} names {named}, "
            "and a record stands only for an earlier one of its own partition",
        )
    return original


@dataclass(frozen=True, slots=True)
class Attempt:
    """A redriven record at the place `at`, for the original at the offset `of`.

    If `valid` is False, the redriven record is itself a reject.
    """

    at: Position
    of: int
    valid: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """The decisions about valid redriven records.

    `folded` maps the place of each record that is folded to its original's offset. `duplicates`
    contains the places of all other redriven records.
    """

    folded: Mapping[Position, int]
    duplicates: frozenset[Position]


def settle(
    attempts: Iterable[Attempt],
    rejected: Mapping[Position, int | None],
    folded: Collection[Position],
    origin: Mapping[tuple[str, int], int],
) -> Settled:
    """Decides which redriven records are folded, in the order of offsets.

    `rejected` contains the place of each reject that a redriven record names. If the reject was
    itself redriven, its place is mapped to the offset of its own original, otherwise to None.
    `folded` contains the originals that are already folded. `origin` is the offset at which the
    build begins, per topic and partition. A record before the origin was never read, so the record
    counts as a reject.
    """
    known, done = dict(rejected), set(folded)
    now: dict[Position, int] = {}
    duplicates = set()
    for attempt in sorted(attempts, key=lambda each: each.at):
        if not attempt.valid:
            known[attempt.at] = attempt.of
            continue
        root = _chain_root(
            Position(attempt.at.topic, attempt.at.partition, attempt.of), known, origin
        )
        if root is None or root in done:
            duplicates.add(attempt.at)
        else:
            done.add(root)
            now[attempt.at] = root.offset
    return Settled(now, frozenset(duplicates))


def _chain_root(
    named: Position, rejected: Mapping[Position, int | None], origin: Mapping[tuple[str, int], int]
) -> Position | None:
    """Returns the place of the original at the beginning of a chain of redriven rejects.

    In the chain, each reject names the reject before it; `named` is the last reject of the chain.
    Returns None if `named` is not a reject.
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
