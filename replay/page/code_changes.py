"""Computes the code differences between two builds, in the form in which a plan shows them.

The code of both builds is read from code snapshots, so no code is imported or run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kappa.code.code_snapshot import read_snapshot
from kappa.replay.rollout.plan.code_diff import CodeSide, PartDiff, part_diffs
from kappa.state.build import Birth, read_birth
from kappa.state.store import Store

# So many lines of a part are shown: a file of rows may have millions.
_MOST_LINES = 300
_KINDS = {"+": "new", "-": "old", "@": "place"}


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff.

    `kind` is "new", "old", "place" for a line that gives a position in the code (`@@ ... @@`), or
    "" for a line of context.
    """

    kind: str
    text: str


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
            tuple(DiffLine(_KINDS.get(line[:1], ""), line) for line in diff.lines[:_MOST_LINES]),
            max(0, len(diff.lines) - _MOST_LINES),
        )
        for diff in diffs
    )


def _code_side(store: Store, birth: Birth) -> CodeSide:
    return CodeSide(birth.parts, read_snapshot(store, birth), birth.declarations)
