"""DuckDB's errors as ours: its message as one sentence, its candidates as the hint."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kappa.base.duck import MACHINE_ERRORS, CatalogError, DuckError
from kappa.base.errors import KappaError, UsageError

# A column of that name, without quotes and without its table.
_AT = re.compile(r'(?<!["\w.])at(?!["\w])')


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
    whole = (
        error.object.decode(errors="replace")
        if isinstance(error, UnicodeDecodeError)
        else str(error)
    )
    told, _, place = whole.partition("\n\nLINE ")
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    message = lines[0] if lines else type(error).__name__
    if isinstance(error, MACHINE_ERRORS):
        return KappaError(
            f"the query could not be run: {message}", hint="kappa status shows whether all is well"
        )
    hints = [
        line[0].lower() + line[1:]
        for line in lines[1:]
        if not re.search(r'"(pg_|duckdb_|sqlite_|information_schema|pragma_)', line)
    ]
    if "syntax error" in message and _AT.search(place):
        hints = ['at is a word of SQL: write "at", or t.at with its table']
    if isinstance(error, CatalogError) and not served:
        hints = ["nothing is served yet: kappa deploy"]
    return UsageError(
        f"the query cannot be run: {message.partition(' Error: ')[2] or message}",
        hint="; ".join([*hints, "kappa tables shows tables and columns"]),
    )
