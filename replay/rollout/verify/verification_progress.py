"""The progress of a verification, in words for people: no decision uses the progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from msgspec import Struct

from kappa.base.errors import KappaError
from kappa.state.build import folder_of_build
from kappa.state.documents import Documents
from kappa.state.store import Store

# A file in a candidate's folder.
_NAME = "verification.json"


class VerificationProgress(Struct, frozen=True):
    """The step of a verification that began last, as text."""

    text: str
    format: int = 1


_PROGRESS = Documents(VerificationProgress, derived=True, synced=False)


def table_step(doing: str, table: str, number: int, of: int) -> str:
    """Returns the text of a step on table `number`, counted from 1, of `of` tables."""
    return f"{doing} table {table} ({number} of {of})"


def putting_progress(store: Store, build: str) -> Callable[[str], None]:
    """Returns a function that puts the text of each step of a candidate's verification."""

    def put(text: str) -> None:
        # A verification continues if its progress cannot be written.
        with contextlib.suppress(KappaError, OSError):
            _PROGRESS.put(
                store.local, f"{folder_of_build(build)}/{_NAME}", VerificationProgress(text)
            )

    return put


def verification_progress(store: Store, build: str) -> str:
    """Returns the step that a candidate's verification began last, or "" if nobody knows."""
    found = _PROGRESS.get(
        store.local, f"{folder_of_build(build)}/{_NAME}", "the progress of a verification"
    )
    return "" if found is None else found.text
