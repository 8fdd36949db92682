"""The table that a verification looks at now. It is for people: nothing is decided by it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from kappa.base.errors import Damaged, KappaError
from kappa.state.build import folder
from kappa.state.documents import Documents
from kappa.state.store import Store

# Below a candidate's folder.
_NAME = "verification.json"
# Takes the name of a table that is begun, its number from 1, and how many there are.
Begin = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class LookedAt:
    """The `number`-th table of `of`, from 1, in a `step`: "checking" or "comparing"."""

    step: str
    table: str
    number: int
    of: int
    format: int = 1

    @property
    def text(self) -> str:
        """Returns it in a few words."""
        return f"{self.step} table {self.number} of {self.of}: {self.table}"


_LOOKED_AT = Documents(LookedAt)


def putting(store: Store, build: str, step: str) -> Begin:
    """Returns a function that puts each table as it is begun in this step."""

    def begin(table: str, number: int, of: int) -> None:
        # A note that cannot be written ends no verification.
        with contextlib.suppress(KappaError, OSError):
            _LOOKED_AT.put(store, f"{folder(build)}/{_NAME}", LookedAt(step, table, number, of))

    return begin


def read_looked_at(store: Store, build: str) -> LookedAt | None:
    """Returns what the last verification of a candidate looked at last. None if nobody knows."""
    try:
        return _LOOKED_AT.get(store, f"{folder(build)}/{_NAME}", "the progress of a verification")
    except Damaged:
        return None
