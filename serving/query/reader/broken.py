"""Relations that cannot be made, and data files that cannot be read, as errors of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kappa.base.errors import Damaged, KappaError, UsageError
from kappa.state.files.bucket import is_bucket

# Of `builds/BUILD/tables/TABLE/FILE`: strangers are told no more of a path.
_PARTS_BELOW_THE_ROOT = 5


@dataclass(frozen=True, slots=True)
class BrokenRelation:
    """A relation that is served and could not be made: a `kind` of `table` or `view`, and why.

    `damaged`: files differ from the written ones, so no declaration and no query is to blame.
    """

    pipeline: str
    name: str
    kind: str
    why: str
    hint: str
    damaged: bool = False

    def refusal(self) -> KappaError:
        """Returns the error for a query that names it."""
        return (Damaged if self.damaged else UsageError if self.kind == "view" else KappaError)(
            f"{self.kind} {self.name} of pipeline {self.pipeline} cannot be read: {self.why}",
            hint=self.hint,
        )


def damage_of(
    told: str,
    files: Mapping[str, str],
    is_readable: Callable[[str], bool] | None = None,
) -> Damaged | None:
    """Returns the error about the file that could not be read, or None if it is another error.

    `told` is DuckDB's message. `files` has the paths that a query may have read, each with its
    pipeline. If the message names no file, `is_readable` is asked to read each one alone.
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
    # DuckDB names an object by one of several URLs, and no two have one name.
    return path in told or (is_bucket(path) and path.rpartition("/")[2] in told)
