"""Translates the failures of a reader into errors of Kappa.

A query may fail because of an error of DuckDB, because a table or view cannot be read or was
retired, or because a file is damaged. An error of DuckDB becomes one sentence, and the names that
DuckDB suggests become the hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kappa.base.duck import (
    MACHINE_ERRORS,
    CatalogError,
    DuckError,
    told_by,
    without_kind,
)
from kappa.base.errors import Damaged, KappaError, UsageError, lacks_memory
from kappa.state.files.bucket import is_bucket

# Of `builds/BUILD/tables/TABLE/FILE`: strangers are told no more of a path.
_PARTS_BELOW_THE_ROOT = 5


class TooMuch(UsageError):
    """The error for a query that needs more memory or time than is allowed."""

    status = 422


@dataclass(frozen=True, slots=True)
class RetiredRelation:
    """A table or view that is no longer served, because its pipeline was retired."""

    pipeline: str
    name: str
    why: str
    hint: str

    def refusal(self) -> KappaError:
        """Creates the error for a query that names this table or view."""
        return UsageError(
            f"table {self.name} is served no more: pipeline {self.pipeline} was {self.why}",
            hint=self.hint,
        )


def explain_error(error: DuckError | UnicodeDecodeError, *, served: bool) -> KappaError:
    """Translates an error of DuckDB into an error of Kappa.

    `served` is False if no pipeline is served. In that case, the hint for an unknown name is that
    nothing is served yet.
    """
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


@dataclass(frozen=True, slots=True)
class BrokenRelation:
    """A served table or view that could not be created in DuckDB, with the reason.

    `kind` is `table` or `view`. `damaged` is True if files differ from the files that were written;
    then neither the declaration nor the query is at fault.
    """

    pipeline: str
    name: str
    kind: str
    why: str
    hint: str
    damaged: bool = False

    def refusal(self) -> KappaError:
        """Creates the error for a query that names this table or view."""
        return (Damaged if self.damaged else UsageError if self.kind == "view" else KappaError)(
            f"{self.kind} {self.name} of pipeline {self.pipeline} cannot be read: {self.why}",
            hint=self.hint,
        )


def damage_in_message(
    told: str,
    files: Mapping[str, str],
    is_readable: Callable[[str], bool] | None = None,
) -> Damaged | None:
    """Returns the error for a damaged data file that has made a query fail.

    Returns None if no file is the cause. `told` is DuckDB's message. `files` maps the path of each
    file that the query may have read to its pipeline. If the message names no file, each file is
    read with `is_readable` to find the cause.
    """
    path = next((each for each in files if _is_in(told, each)), None)
    if path is None and is_readable is not None:
        path = next((each for each in files if not is_readable(each)), None)
    if path is None:
        return None
    named, pipeline = Path(path), files[path]
    first = (told.splitlines() or [""])[0].replace(path, named.name)
    first = re.sub(rf"https?://[^\s'\"]*/{re.escape(named.name)}", named.name, first)
    return Damaged(
        f"file {Path(*named.parts[-_PARTS_BELOW_THE_ROOT:])} of pipeline {pipeline} cannot be "
        f"read: {first.rpartition(' Error: ')[2]}",
        hint=f"kappa replay {pipeline} makes a new build from the log; "
        f"kappa undo {pipeline} lets the build before serve meanwhile",
    )


def _is_in(told: str, path: str) -> bool:
    # DuckDB names an object by any of several URLs, and no two objects have the same name.
    return path in told or (is_bucket(path) and path.rpartition("/")[2] in told)
