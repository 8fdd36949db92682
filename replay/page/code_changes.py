"""Computes the code differences between two builds, in the form in which a plan shows them.

The code of both builds is read from code snapshots, so no code is imported or run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kappa.code.code_snapshot import read_snapshot
from kappa.replay.rollout.plan.code_diff import CodeSide, PartDiff, part_diffs
from kappa.state.build import Birth, read_birth
from kappa.state.store import Store

# So many lines of a part are shown: a file of rows may have millions.
_MOST_LINES = 300
_KINDS = {"+": "new", "-": "old", "@": "place"}
# The words of two longer lines are not compared: the time grows with the square of the length.
_LONGEST_COMPARED = 1000
# Lines that are less alike than this are two different lines, and not one line that changed.
_LEAST_ALIKE = 0.4
_WORD = re.compile(r"\w+|\s+|.")

# The text of a line in pieces, each with True if the other line of a pair does not contain it.
Pieces = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff.

    `kind` is "new", "old", "place" for a line that gives a position in the code (`@@ ... @@`), or
    "" for a line of context. If one removed line is followed by one added line, the changed words
    of both are pieces of their own.
    """

    kind: str
    pieces: Pieces


@dataclass(frozen=True, slots=True)
class ChangedPart:
    """A changed part of the code: a readable name, and the first lines of the diff of this part.

    `left_out` is the number of lines that are not shown. If `lines` is empty, the earlier code of
    the part is unknown.
    """

    what: str
    lines: tuple[DiffLine, ...]
    left_out: int


def code_changes(store: Store, before: str, after: str) -> tuple[ChangedPart, ...]:
    """Returns the parts in which the code of two builds differs.

    Raises KappaError if the birth certificate of a build is missing or damaged.
    """
    sides = (_code_side(store, read_birth(store, build)) for build in (before, after))
    return changed_parts_shown(part_diffs(*sides))


def changed_parts_shown(diffs: Iterable[PartDiff]) -> tuple[ChangedPart, ...]:
    """Converts diffs to changed parts for the page, with a kind for each line. Pure.

    The result contains at most 300 lines of each part.
    """
    return tuple(
        ChangedPart(
            diff.what,
            tuple(_shown_lines(diff.lines[:_MOST_LINES])),
            max(0, len(diff.lines) - _MOST_LINES),
        )
        for diff in diffs
    )


def _shown_lines(lines: Sequence[str]) -> Iterator[DiffLine]:
    kinds = [_KINDS.get(line[:1], "") for line in lines]
    pieces: list[Pieces] = [((line, False),) for line in lines]
    for at in range(len(lines) - 1):
        before, after = kinds[at - 1 : at] if at else [], kinds[at + 2 : at + 3]
        if kinds[at : at + 2] == ["old", "new"] and before != ["old"] and after != ["new"]:
            pieces[at : at + 2] = _changed_words(lines[at], lines[at + 1])
    return map(DiffLine, kinds, pieces)


def _changed_words(old: str, new: str) -> tuple[Pieces, Pieces]:
    """Divides a removed line and an added line, each with its sign, into pieces. Pure."""
    whole = ((old, False),), ((new, False),)
    if max(len(old), len(new)) > _LONGEST_COMPARED:
        return whole
    before, after = _WORD.findall(old[1:]), _WORD.findall(new[1:])
    found = difflib.SequenceMatcher(None, before, after, autojunk=False)
    if found.ratio() < _LEAST_ALIKE:
        return whole
    runs = [(False, old[:1], new[:1])]
    for kind, start, end, new_start, new_end in found.get_opcodes():
        texts = "".join(before[start:end]), "".join(after[new_start:new_end])
        runs.append((kind != "equal", *texts))
    joined = _join_near_changes(runs)
    return (
        tuple((old_text, changed) for changed, old_text, _ in joined if old_text),
        tuple((new_text, changed) for changed, _, new_text in joined if new_text),
    )


def _join_near_changes(runs: Iterable[tuple[bool, str, str]]) -> list[tuple[bool, str, str]]:
    """Joins two changes if the equal text between them is no longer than either change. Pure.

    Each run consists of True for a change, the old text and the new text. No two changes are
    neighbors.
    """
    joined: list[tuple[bool, str, str]] = []
    for run in runs:
        joined.append(run)
        if len(joined) > 2 and run[0] and joined[-3][0]:
            left, equal, right = (texts for _, *texts in joined[-3:])
            if len(equal[0]) <= min(max(map(len, left)), max(map(len, right))):
                old, new = ("".join(texts) for texts in zip(left, equal, right, strict=True))
                joined[-3:] = [(True, old, new)]
    return joined


def _code_side(store: Store, birth: Birth) -> CodeSide:
    return CodeSide(birth.parts, read_snapshot(store, birth), birth.declarations)
