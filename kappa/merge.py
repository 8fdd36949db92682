"""A merge: how contributions fold into the rows of their keys, in SQL that both writers speak. Pure.

Read next: engine/fold.py, which says it, and engine/commit.py, which has it done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge does, as SQL in which `t` is the table and `s` the contributions; names are quoted already."""

    match: str
    update: Mapping[str, str]
    insert: Mapping[str, str]
    update_when: str | None = None
