"""DuckDB's errors as ours: its message as one sentence, its candidates as the hint."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.base.duck import (
    MACHINE_ERRORS,
    CatalogError,
    DuckError,
    told_by,
    without_kind,
)
from kappa.base.errors import KappaError, UsageError, lacks_memory


class TooMuch(UsageError):
    """A query that wants more than it may have, of memory or of time."""

    status = 422


@dataclass(frozen=True, slots=True)
class Left:
    """A table or view that is served no more, since its pipeline was retired."""

    pipeline: str
    name: str
    why: str
    hint: str

    def refusal(self) -> KappaError:
        """Returns the error for a query that names it."""
        return UsageError(
            f"table {self.name} is served no more: pipeline {self.pipeline} was {self.why}",
            hint=self.hint,
        )


def explained(error: DuckError | UnicodeDecodeError, *, served: bool) -> KappaError:
    """Translates an error of DuckDB's. `served`: some pipeline is served, so that names exist."""
    message, hints = told_by(error)
    if isinstance(error, MACHINE_ERRORS):
        return KappaError(
            f"the query could not be run: {message}",
            hint="give the process more memory (ulimit -v, ulimit -d, the container's limit), or "
            "ask for less"
            if lacks_memory(error)
            else "kappa status shows whether all is well",
        )
    if isinstance(error, CatalogError) and not served:
        hints = ["nothing is served yet: kappa deploy"]
    return UsageError(
        f"the query cannot be run: {without_kind(message)}",
        hint="; ".join([*hints, "kappa tables shows tables and columns"]),
    )
